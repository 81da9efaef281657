/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/caller.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/net/order.h"
#include "proto/fds.h"

#define GRACE_MS   60000 /* longer than any input: who breaks off may always resume */
#define INPUTS_MAX 64	 /* of one daemon: a new one takes far longer than an input */

void caller_give_up(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
	abort();
}

/* --- the daemon ------------------------------------------------------------------------------- */

static struct rig *kept; /* between inputs */
static unsigned inputs;	 /* that it has met */

static void end_kept(void)
{
	struct rig *rig = kept;

	struct orders *orders;

	kept = NULL; /* also where its end fails, which exits */
	if (!rig)
		return;
	orders = rig->net.orders;
	rig_free(rig);
	orders_free(orders);
}

static void wake(void *userdata)
{
	(void)userdata; /* the main thread is here, and looks when the input says so */
}

struct rig *caller_rig(void)
{
	static bool prepared;

	if (!prepared) {
		log_set_max_level(LOG_ERR);
		atexit(end_kept);
		prepared = true;
	}
	if (!kept) {
		kept = rig_new(&(struct rig_options){.by_hand = true});
		kept->net.grace_ms = GRACE_MS;
		FUZZ_CHECK(orders_new(&kept->net.orders, wake, NULL) == 0);
		inputs = 0;
	}
	return kept;
}

static void report(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

/* Those that broke off with leases are waited for; here nobody comes back. */
static void end_sessions(struct worker *worker)
{
	struct session *session;

	while ((session = TAILQ_FIRST(&worker->sessions)))
		session_shut_down(session);
}

void caller_answer_orders(struct rig *rig, struct dice *dice)
{
	struct order *order;

	while ((order = orders_fetch(rig->net.orders))) {
		FUZZ_CHECK(orders_message(rig->net.orders, order));
		if (dice_one_in(dice, 2))
			order_refuse(order, CODE(BUSY), 7, "not now");
		else
			order_done(order);
	}
	rig_turn(rig);
}

void caller_rig_done(struct rig *rig)
{
	struct worker *worker = rig->workers[0];
	struct order *order;

	rig_turn(rig);
	end_sessions(worker);
	while ((order = orders_fetch(rig->net.orders)))
		order_free(order);
	rig_turn(rig);
	for (size_t i = 0; i < pool_nr_zones(rig->net.pool); i++) {
		struct hp_zone *zone = pool_zone(rig->net.pool, i)->zone;
		struct hp_zone_stats stats;

		FUZZ_CHECK(hp_zone_check(zone, report, NULL) == 0);
		hp_zone_stats(zone, &stats);
		FUZZ_CHECK(stats.leased == 0);
	}
	FUZZ_CHECK(*worker_connections(worker, SOCKET_DATA) == 0);
	FUZZ_CHECK(*worker_connections(worker, SOCKET_ADMIN) == 0);
	if (++inputs == INPUTS_MAX)
		end_kept();
}

/* --- what is heard ---------------------------------------------------------------------------- */

static void hear_ranges(struct heard *heard, const Hugepool__V1__Ranges *message)
{
	FUZZ_CHECK(message->n_ranges % HP_WIRE_RANGE_WORDS == 0);
	for (size_t i = 0; i < message->n_ranges; i += HP_WIRE_RANGE_WORDS) {
		struct hp_wire_range range;

		FUZZ_CHECK(hp_wire_get_range(message->ranges + i, &range) == 0);
		memcpy(heard->ranges[heard->nr_ranges++ % CALLER_WORDS_MAX], message->ranges + i,
		       sizeof(heard->ranges[0]));
	}
}

static void hear_welcome(struct heard *heard, const Hugepool__V1__Welcome *message)
{
	FUZZ_CHECK(message->protocol == HP_PROTOCOL_VERSION);
	FUZZ_CHECK(message->token.len <= sizeof(heard->token));
	if (!message->token.len)
		return; /* an admin */
	heard->session = message->session;
	heard->token_bytes = message->token.len;
	memcpy(heard->token, message->token.data, message->token.len);
}

static void hear_blocks(struct caller *caller, const Hugepool__V1__Blocks *message)
{
	struct heard *heard = caller->heard;

	caller->peer->named += message->n_blocks;
	FUZZ_CHECK(caller->peer->brought >= caller->peer->named);
	for (size_t i = 0; i < message->n_blocks; i++)
		heard->blocks[heard->nr_blocks++ % CALLER_WORDS_MAX] = message->blocks[i];
}

static void hear(struct caller *caller, const struct hp_frame *frame)
{
	const ProtobufCMessageDescriptor *descriptor = hp_message_descriptor(frame->type);
	const ProtobufCMessage *message;

	FUZZ_CHECK(frame->type >= TYPE(ERROR) && descriptor);
	FUZZ_CHECK(hp_message_unpack(caller->peer->arena, descriptor, frame, &message) == 0);
	switch (frame->type) {
	case TYPE(WELCOME):
		hear_welcome(caller->heard, (const Hugepool__V1__Welcome *)message);
		break;
	case TYPE(GRANT):
		hear_ranges(caller->heard, (const Hugepool__V1__Ranges *)message);
		break;
	case TYPE(BLOCKS):
		hear_blocks(caller, (const Hugepool__V1__Blocks *)message);
		break;
	case TYPE(CHECK_REPLY):
		FUZZ_CHECK(((const Hugepool__V1__CheckReply *)message)->violations == 0);
		break;
	case TYPE(ERROR):
		FUZZ_CHECK(((const Hugepool__V1__Error *)message)->code != CODE(INTERNAL));
		FUZZ_CHECK(((const Hugepool__V1__Error *)message)->message.len > 0);
		break;
	default:
		break;
	}
}

/* Return: false if nothing is there, or will be any more. */
static bool receive(struct peer *peer)
{
	size_t nr_fds;
	bool truncated;
	ssize_t n;

	memmove(peer->input, peer->input + peer->used, peer->have - peer->used);
	peer->have -= peer->used;
	peer->used = 0;
	n = hp_fds_recv(peer->fd, peer->input + peer->have, sizeof(peer->input) - peer->have,
			peer->fds, PEER_FDS_MAX, &nr_fds, &truncated);
	if (n <= 0)
		return false;
	FUZZ_CHECK(!truncated);
	peer->have += (size_t)n;
	peer->brought += nr_fds;
	for (size_t i = 0; i < nr_fds; i++)
		close(peer->fds[i]);
	return true;
}

void caller_listen(struct caller *caller)
{
	struct peer *peer = caller->peer;
	size_t used;
	int condition;

	while (peer && receive(peer)) {
		while (!(condition =
				 hp_frame_parse(peer->input + peer->used, peer->have - peer->used,
						&peer->frame, &used))) {
			peer->used += used;
			hear(caller, &peer->frame);
		}
		FUZZ_CHECK(condition == HP_FRAME_INCOMPLETE);
	}
}

/* --- what is said ----------------------------------------------------------------------------- */

void caller_connect(struct caller *caller, struct rig *rig, enum socket_kind kind,
		    struct heard *heard)
{
	int flags;

	*caller = (struct caller){.rig = rig, .heard = heard};
	caller->peer = rig_connect(rig, kind);
	flags = fcntl(caller->peer->fd, F_GETFL);
	FUZZ_CHECK(flags >= 0 && fcntl(caller->peer->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	rig_turn(rig);
}

void caller_hang_up(struct caller *caller)
{
	caller->peer = peer_free(caller->peer);
}

void caller_send(struct caller *caller, const uint8_t *bytes, size_t n)
{
	while (caller->peer && n) {
		ssize_t sent = send(caller->peer->fd, bytes, n, MSG_NOSIGNAL);

		rig_turn(caller->rig);
		if (!caller->deaf)
			caller_listen(caller);
		if (sent <= 0)
			return;
		bytes += sent;
		n -= (size_t)sent;
	}
}

void caller_hello(struct caller *caller)
{
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;
	uint8_t frame[HP_FRAME_MAX];
	int n;

	hello.protocol = HP_PROTOCOL_VERSION;
	hello.name = peer_text("fuzz");
	n = hp_message_pack(frame, TYPE(HELLO), 1, &hello.base);
	FUZZ_CHECK(n > 0);
	caller_send(caller, frame, (size_t)n);
}
