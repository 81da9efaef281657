/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One receive, all complete frames handled, one send: that is the usual turn. Everything else is
 * about a peer that does not keep up. Reading stops while too much output is unsent, or while a
 * descriptor waits for earlier ones to be read; what was received by then is kept and handled
 * first when things move again. So a peer can make the daemon hold one receive and one output cap,
 * and no more.
 *
 * Waiting for a reader: the kernel wakes a writer whenever the peer has read something, but as long
 * as the socket has room it is also writable all the time. So the event is edge-triggered, which
 * libevent cannot mix with the level-triggered read event of the same descriptor; that one is off
 * then anyway. A timer with back-off stands behind it for what no event tells (too many descriptors
 * in flight of the whole user).
 *
 * The end of a connection is not the end of what it held: if the process lives it may still be
 * using its memory. The session then stays as condemned, its socket and buffers gone, until the
 * process's pidfd says that it has ended.
 */
#include "daemon/net/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/net/dispatch.h"
#include "daemon/net/notices.h"
#include "daemon/net/order.h"
#include "daemon/net/park.h"
#include "daemon/net/reply.h"
#include "daemon/net/resume.h"
#include "daemon/net/revoke.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

#define SESSION_ABOUT_BYTES 4096 /* of memory that its end frees, its queue aside */

#define RETRY_FIRST_MS 20
#define RETRY_LAST_MS  1280

static const uint8_t transitions[SESSION_PHASES] = {
	[SESSION_SILENT] = 1 << SESSION_SERVING,
	[SESSION_SERVING] = 1 << SESSION_ENDING | 1 << SESSION_CONDEMNED,
};

static void set_phase(struct session *session, enum session_phase phase)
{
	assert(transitions[session->phase] & 1 << phase);
	session->phase = phase;
}

static const char *tenant_name(const struct session *session)
{
	return session->tenant ? session->tenant->name : "admin";
}

static unsigned long long session_number(const struct session *session)
{
	return session->slot ? session->slot->session : 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Everything of the connection; what the session holds stays. */
static void disconnect(struct session *session)
{
	struct worker *worker = session->worker;

	if (session->fd < 0)
		return;
	event_del(&session->read_event);
	event_del(&session->write_event);
	event_del(&session->retry_timer);
	worker_clear_deadline(worker, session);
	output_settle(session);
	output_discard(session);
	close(session->fd);
	session->fd = -1;
	worker_note_freed(worker, SESSION_ABOUT_BYTES + session->input_room);
	free(session->input);
	session->input = NULL;
	session->input_bytes = session->input_room = 0;
	known_deinit(&session->known);
	if (session->tenant) {
		caches_leave(worker->caches, session->tenant->owner);
		tenants_leave(worker->net->tenants, session->tenant);
	}
	(*worker_connections(worker, session->kind))--;
}

/* Frees what it holds. The tenant may be gone afterwards, if the connection is. */
static void end_holding(struct session *session)
{
	const struct net *net = session->worker->net;

	if (!session->slot)
		return;
	if (session->pidfd >= 0) {
		event_del(&session->process_event);
		close(session->pidfd);
	}
	session->pidfd = -1;
	/* Unless another connection speaks for it by now. */
	if (!net->keep_leases && (session->phase != SESSION_CONDEMNED ||
				  slots_take(net->slots, session->slot, session->turn)))
		leases_end(net->leases, session->slot);
	session->slot = NULL;
}

void session_free(struct session *session)
{
	struct worker *worker = session->worker;

	revoking_drop(session);
	parked_drop(session, false);
	orders_abandon(session);
	/* These have not been read, but nobody is there who could be made to wait for them. */
	if (session->tenant)
		worker->owed_fds[session->tenant->owner] -= session->output.unread_fds;
	session->output.unread_fds = 0;
	if (session->phase == SESSION_CONDEMNED)
		event_del(&session->retry_timer);
	end_holding(session);
	disconnect(session);
	resume_drop(session);
	TAILQ_REMOVE(&worker->sessions, session, link);
	free(session);
}

/* Its last word, as far as the socket takes it. */
static void end_saying(struct session *session, const char *sentence)
{
	if (session->fd >= 0 && session->phase != SESSION_ENDING) {
		refuse(session, 0, &(struct refusal){.code = CODE(SHUTTING_DOWN)}, "%s", sentence);
		output_flush(session);
	}
	session_free(session);
}

void session_shut_down(struct session *session)
{
	end_saying(session, "the daemon ends");
}

static void end_with_tenant(struct session *session)
{
	char sentence[HP_MESSAGE_MAX];

	snprintf(sentence, sizeof(sentence),
		 "tenant %s was deleted; this session held %llu leases, which are over",
		 tenant_name(session),
		 (unsigned long long)(session->slot ? session->slot->leases : 0));
	if (worker_may_log(session->worker))
		log_info(
			"session ended: its tenant was deleted tenant=%s session=%llu pid=%d leases=%llu",
			tenant_name(session), session_number(session),
			session->slot ? (int)session->slot->process.pid : 0,
			(unsigned long long)(session->slot ? session->slot->leases : 0));
	end_saying(session, sentence);
}

void session_look_at_tenant(struct session *session)
{
	enum tenant_state state;

	if (!session->tenant)
		return;
	state = session->tenant->state; /* once: clang does not switch over an atomic one */
	switch (state) {
	case TENANT_LIVE:
		if (parked_look(session))
			session_go_on(session);
		break;
	case TENANT_LEAVING:
		parked_refuse(session);
		session->pressed = 0; /* what was said before was not of this */
		session_press(session, UINT32_MAX);
		break;
	default:
		end_with_tenant(session);
	}
}

/* Nobody has come back for it in time. */
static void on_grace_over(evutil_socket_t fd, short what, void *userdata)
{
	struct session *session = userdata;
	struct worker *worker = session->worker;
	struct slot *slot = session->slot;

	(void)fd;
	(void)what;
	turn_begin(&worker->turn);
	if (session->pidfd < 0 || !slots_expire(worker->net->slots, slot, session->turn))
		session_free(session);
	else if (worker_may_log(worker))
		log_info(
			"nobody resumed it in time: condemned until its process ends tenant=%s session=%llu pid=%d leases=%llu",
			tenant_name(session), session_number(session), (int)slot->process.pid,
			(unsigned long long)slot->leases);
	turn_end(&worker->turn);
}

/* It may be resumed until the grace is over. */
static void keep_slot(struct session *session)
{
	struct worker *worker = session->worker;
	const struct timeval grace = {
		.tv_sec = worker->net->grace_ms / 1000,
		.tv_usec = (suseconds_t)(worker->net->grace_ms % 1000) * 1000,
	};

	slots_break(worker->net->slots, session->slot, worker->index, session);
	evtimer_assign(&session->retry_timer, worker->base, on_grace_over, session);
	evtimer_add(&session->retry_timer, &grace);
}

static void condemn(struct session *session)
{
	if (worker_may_log(session->worker))
		log_info(
			"condemned: the connection is gone, its process lives tenant=%s session=%llu pid=%d leases=%llu",
			tenant_name(session), session_number(session),
			(int)session->slot->process.pid, (unsigned long long)session->slot->leases);
	set_phase(session, SESSION_CONDEMNED);
	disconnect(session);
	keep_slot(session);
}

/* The connection is over without a goodbye. */
static void connection_lost(struct session *session)
{
	parked_drop(session, false);
	if (session->slot && session->slot->leases && session->slot->state == SLOT_OPEN &&
	    !process_has_ended(session->pidfd))
		condemn(session);
	else
		session_free(session);
}

/* Something the peer sent cannot be answered: the reason is for the operator. */
static void break_off(struct session *session, const char *reason)
{
	worker_count(&session->worker->counters.broken);
	if (worker_may_log(session->worker))
		log_warning("session ended: %s tenant=%s session=%llu pid=%d", reason,
			    tenant_name(session), session_number(session),
			    session->slot ? (int)session->slot->process.pid : 0);
	connection_lost(session);
}

void session_expired(struct session *session)
{
	if (session->phase == SESSION_SILENT)
		break_off(session, "no HELLO in time");
	else
		session_free(session);
}

static void process_ended(struct session *session)
{
	if (session->phase == SESSION_CONDEMNED) {
		session_free(session);
		return;
	}
	/* Perhaps the end of the connection is next in the queue, perhaps a child holds it. */
	event_del(&session->process_event);
	if (session->slot->state == SLOT_OPEN)
		slots_set_state(session->worker->net->slots, session->slot, SLOT_ORPHANED);
}

static void on_process_end(evutil_socket_t fd, short what, void *userdata)
{
	struct session *session = userdata;
	struct turn *turn = &session->worker->turn;

	(void)fd;
	(void)what;
	turn_begin(turn);
	process_ended(session);
	turn_end(turn);
}

/* --- what it waits for ------------------------------------------------------------------------ */

static void on_writable(evutil_socket_t fd, short what, void *userdata);

/* No further request is handled now. */
static bool is_blocked(const struct session *session)
{
	return session->phase == SESSION_ENDING || session->output.error ||
	       session->waiting == OUTPUT_WAIT_READER || session->output.bytes > HP_OUTPUT_MAX;
}

static void retry_later(struct session *session)
{
	struct timeval tv = {
		.tv_sec = session->retry_ms / 1000,
		.tv_usec = (suseconds_t)(session->retry_ms % 1000) * 1000,
	};

	event_add(&session->retry_timer, &tv);
	if (session->retry_ms < RETRY_LAST_MS)
		session->retry_ms *= 2;
}

static void set_waiting(struct session *session, enum output_wait wait)
{
	short events = EV_WRITE | EV_PERSIST;

	if (wait == session->waiting)
		return;
	session->waiting = wait;
	event_del(&session->write_event);
	event_del(&session->retry_timer);
	if (wait == OUTPUT_SENT)
		return;
	if (wait == OUTPUT_WAIT_READER) {
		events |= EV_ET;
		event_del(&session->read_event);
		session->reading = false;
		session->retry_ms = RETRY_FIRST_MS;
		retry_later(session);
	}
	event_assign(&session->write_event, session->worker->base, session->fd, events, on_writable,
		     session);
	event_add(&session->write_event, NULL);
}

static void set_reading(struct session *session, bool reading)
{
	if (reading == session->reading)
		return;
	session->reading = reading;
	if (reading)
		event_add(&session->read_event, NULL);
	else
		event_del(&session->read_event);
}

/* --- one turn --------------------------------------------------------------------------------- */

/* Keeps what was not handled. Return: 0 or -ENOMEM. */
static int keep_input(struct session *session, const uint8_t *bytes, size_t n)
{
	session->input_bytes = n;
	if (n > session->input_room || n == 0) {
		free(session->input);
		session->input = n ? malloc(n) : NULL;
		session->input_room = session->input ? n : 0;
		if (n && !session->input)
			return -ENOMEM;
	}
	if (n)
		memcpy(session->input, bytes, n);
	return 0;
}

/* Handles the complete frames of bytes, keeps the rest, sends the replies. May free the session. */
static void take_turn(struct session *session, const uint8_t *bytes, size_t n)
{
	struct hp_frame frame;
	int condition = 0;
	size_t used;

	while (!is_blocked(session)) {
		condition = hp_frame_parse(bytes, n, &frame, &used);
		if (condition)
			break;
		dispatch(session, &frame);
		bytes += used;
		n -= used;
	}
	set_waiting(session, output_flush(session));

	if (condition > HP_FRAME_INCOMPLETE) {
		break_off(session, hp_frame_strerror(condition));
	} else if (session->output.error || keep_input(session, bytes, n)) {
		connection_lost(session);
	} else if (session->phase == SESSION_ENDING && session->waiting == OUTPUT_SENT) {
		session_free(session);
	} else {
		set_reading(session, !is_blocked(session));
	}
}

static void receive(struct session *session)
{
	uint8_t *input = session->worker->input;
	size_t kept = session->input_bytes;
	ssize_t n;

	/* Descriptors are not for the daemon: a receive without room for them drops them. */
	n = recv(session->fd, input + kept, WORKER_RECV_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		connection_lost(session);
		return;
	}
	if (kept)
		memcpy(input, session->input, kept);
	take_turn(session, input, kept + (size_t)n);
}

static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
	struct session *session = userdata;
	struct turn *turn = &session->worker->turn;

	(void)fd;
	(void)what;
	turn_begin(turn);
	receive(session);
	turn_end(turn);
}

/* Things may move again: the peer has read, or the time has come to try. May free the session. */
void session_go_on(struct session *session)
{
	size_t kept = session->input_bytes;

	set_waiting(session, output_flush(session));
	if (session->waiting != OUTPUT_SENT && is_blocked(session) && !session->output.error)
		return;
	if (kept)
		memcpy(session->worker->input, session->input, kept);
	take_turn(session, session->worker->input, kept);
}

static void on_writable(evutil_socket_t fd, short what, void *userdata)
{
	struct session *session = userdata;
	struct turn *turn = &session->worker->turn;

	(void)fd;
	(void)what;
	turn_begin(turn);
	session_go_on(session);
	turn_end(turn);
}

static void on_retry(evutil_socket_t fd, short what, void *userdata)
{
	struct session *session = userdata;
	struct turn *turn = &session->worker->turn;

	(void)fd;
	(void)what;
	turn_begin(turn);
	if (session->waiting == OUTPUT_WAIT_READER)
		retry_later(session);
	session_go_on(session);
	turn_end(turn);
}

/* --- life ------------------------------------------------------------------------------------- */

int session_new(struct worker *worker, int fd, enum socket_kind kind, struct tenant *tenant)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session || (tenant && caches_enter(worker->caches, tenant->owner))) {
		free(session);
		close(fd);
		if (tenant)
			tenants_leave(worker->net->tenants, tenant);
		(*worker_connections(worker, kind))--;
		return -ENOMEM;
	}
	session->worker = worker;
	session->kind = kind;
	session->fd = fd;
	session->tenant = tenant;
	session->pidfd = -1;
	TAILQ_INIT(&session->parked);
	TAILQ_INIT(&session->orders);
	TAILQ_INIT(&session->revoking);
	event_assign(&session->read_event, worker->base, fd, EV_READ | EV_PERSIST, on_readable,
		     session);
	event_assign(&session->write_event, worker->base, fd, EV_WRITE | EV_PERSIST, on_writable,
		     session);
	evtimer_assign(&session->retry_timer, worker->base, on_retry, session);
	TAILQ_INSERT_TAIL(&worker->sessions, session, link);
	worker_set_deadline(worker, session);
	set_reading(session, true);
	return 0;
}

static void watch_process(struct session *session)
{
	event_assign(&session->process_event, session->worker->base, session->pidfd,
		     EV_READ | EV_PERSIST, on_process_end, session);
	event_add(&session->process_event, NULL);
}

int session_change_slot(struct session *session, struct slot *slot)
{
	struct worker *worker = session->worker;
	struct slot *own = session->slot;
	struct tenant *tenant = session->tenant;

	if (slot->tenant != tenant && caches_enter(worker->caches, slot->tenant->owner))
		return -ENOMEM;
	session->slot = slot;
	session->turn = slot->turn;
	leases_end(worker->net->leases, own);
	if (slot->tenant == tenant)
		return 0;
	/* of a policy by which each connection is a tenant: this one is of the old one now */
	output_settle(session);
	worker->owed_fds[tenant->owner] -= session->output.unread_fds;
	worker->owed_fds[slot->tenant->owner] += session->output.unread_fds;
	tenants_enter_again(worker->net->tenants, slot->tenant);
	session->tenant = slot->tenant;
	caches_leave(worker->caches, tenant->owner);
	tenants_leave(worker->net->tenants, tenant);
	return 0;
}

int session_restore(struct worker *worker, struct slot *slot, int pidfd)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session) {
		if (pidfd >= 0)
			close(pidfd);
		return -ENOMEM;
	}
	session->worker = worker;
	session->kind = SOCKET_DATA;
	session->phase = SESSION_CONDEMNED;
	session->fd = -1;
	session->tenant = slot->tenant;
	session->slot = slot;
	session->turn = slot->turn;
	session->pidfd = pidfd;
	TAILQ_INIT(&session->parked);
	TAILQ_INSERT_TAIL(&worker->sessions, session, link);
	if (pidfd >= 0)
		watch_process(session);
	keep_slot(session);
	return 0;
}

void session_serve(struct session *session, struct slot *slot, int pidfd)
{
	set_phase(session, SESSION_SERVING);
	worker_clear_deadline(session->worker, session);
	if (!slot)
		return;
	session->slot = slot;
	session->turn = slot->turn;
	session->pidfd = pidfd;
	watch_process(session);
	log_debug("session tenant=%s session=%llu pid=%d name=\"%s\"", tenant_name(session),
		  session_number(session), (int)slot->process.pid, slot->name);
}

void session_goodbye(struct session *session)
{
	parked_drop(session, true);
	orders_abandon(session);
	set_phase(session, SESSION_ENDING);
	worker_set_deadline(session->worker, session);
	end_holding(session);
}

void session_retired(struct session *session, const struct pool_zone *zone, uint32_t block,
		     uint64_t generation)
{
	uint32_t pages;

	notices_take(session, NULL, 0); /* what it had there was told of before, if it was taken */
	if (session->phase != SESSION_SERVING ||
	    known_generation(&session->known, zone, block, &pages) != generation)
		return;
	reply_retired(session, zone, block, generation);
	session_go_on(session);
}

void session_take_notices(struct session *session)
{
	if (notices_take(session, NULL, 0))
		session_go_on(session);
}

void session_press(struct session *session, uint32_t zones)
{
	struct pool *pool = session->worker->net->pool;
	bool said = false;

	if (session->phase != SESSION_SERVING)
		return;
	if (session->pressed && output_is_read(session))
		session->pressed = 0;
	zones &= ~session->pressed;
	for (size_t i = 0; i < pool_nr_zones(pool); i++) {
		if (!(zones >> i & 1) || !known_any(&session->known, pool_zone(pool, i)))
			continue;
		reply_pressure(session, (uint32_t)i);
		session->pressed |= UINT32_C(1) << i;
		said = true;
	}
	if (said)
		session_go_on(session);
}
