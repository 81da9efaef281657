/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written against the protocol, not against the daemon or the library: it shares with them the
 * coding of frames and words (proto/, which has tests of its own) and nothing above.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/fds.h"
#include "tests/daemon/peer.h"

#define WAIT_MS 10000

struct peer *peer_new(int fd)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	assert_int_equal(hp_arena_new(&peer->arena), 0);
	peer->fd = fd;
	return peer;
}

struct peer *peer_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_true(strlen(path) < sizeof(address.sun_path));
	strcpy(address.sun_path, path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return peer_new(fd);
}

struct peer *peer_free(struct peer *peer)
{
	if (!peer)
		return NULL;
	for (size_t i = 0; i < peer->nr_fds; i++)
		close(peer->fds[i]);
	if (peer->fd >= 0)
		close(peer->fd);
	hp_arena_free(peer->arena);
	free(peer);
	return NULL;
}

/* --- sending ---------------------------------------------------------------------------------- */

void peer_send_bytes(struct peer *peer, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n) {
		ssize_t sent = send(peer->fd, p, n, MSG_NOSIGNAL);

		assert_true(sent > 0);
		p += sent;
		n -= (size_t)sent;
	}
}

void peer_send(struct peer *peer, uint8_t type, uint16_t tag, const ProtobufCMessage *message)
{
	uint8_t frame[HP_FRAME_MAX];
	int n = HP_FRAME_HEADER_BYTES;

	if (message)
		n = hp_message_pack(frame, type, tag, message);
	else
		hp_frame_put_header(frame, type, tag, 0);
	assert_true(n > 0);
	peer_send_bytes(peer, frame, (size_t)n);
}

/* --- receiving -------------------------------------------------------------------------------- */

/* More bytes. Return: false at the end of the stream. */
static bool fill(struct peer *peer)
{
	struct pollfd p = {.fd = peer->fd, .events = POLLIN};
	size_t nr_fds;
	bool truncated;
	ssize_t n;

	memmove(peer->input, peer->input + peer->used, peer->have - peer->used);
	peer->have -= peer->used;
	peer->used = 0;
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	n = hp_fds_recv(peer->fd, peer->input + peer->have, sizeof(peer->input) - peer->have,
			peer->fds + peer->nr_fds, PEER_FDS_MAX - peer->nr_fds, &nr_fds, &truncated);
	if (n == 0 || n == -ECONNRESET)
		return false;
	assert_true(n > 0);
	assert_false(truncated);
	peer->nr_fds += nr_fds;
	peer->brought += nr_fds;
	peer->have += (size_t)n;
	return true;
}

const ProtobufCMessage *peer_recv(struct peer *peer)
{
	const ProtobufCMessage *message;
	size_t used;
	int condition;

	while ((condition = hp_frame_parse(peer->input + peer->used, peer->have - peer->used,
					   &peer->frame, &used)) == HP_FRAME_INCOMPLETE)
		if (!fill(peer))
			return NULL;
	assert_int_equal(condition, 0);
	peer->used += used;
	assert_non_null(hp_message_descriptor(peer->frame.type));
	assert_int_equal(hp_message_unpack(peer->arena, hp_message_descriptor(peer->frame.type),
					   &peer->frame, &message),
			 0);
	if (peer->frame.type == TYPE(BLOCKS)) {
		peer->named += ((const Hugepool__V1__Blocks *)message)->n_blocks;
		assert_true(peer->brought >= peer->named);
	}
	return message;
}

const void *peer_expect(struct peer *peer, uint8_t type, uint16_t tag)
{
	const ProtobufCMessage *message;

	do
		message = peer_recv(peer);
	while (message && peer->frame.type >= TYPE(BLOCKS));
	assert_non_null(message);
	if (peer->frame.type == TYPE(ERROR) && type != TYPE(ERROR)) {
		const Hugepool__V1__Error *error = (const void *)message;

		fail_msg("%s expected, but: %s: %.*s", hp_message_type_name(type),
			 hp_message_code_name(error->code), (int)error->message.len,
			 (const char *)error->message.data);
	}
	assert_int_equal(peer->frame.type, type);
	assert_int_equal(peer->frame.tag, tag);
	return message;
}

void peer_expect_end(struct peer *peer)
{
	while (peer_recv(peer))
		;
}

void peer_expect_silence(struct peer *peer, int ms)
{
	struct pollfd p = {.fd = peer->fd, .events = POLLIN};

	while (peer->used != peer->have || poll(&p, 1, ms) != 0) {
		assert_non_null(peer_recv(peer));
		assert_int_equal(peer->frame.type, TYPE(PRESSURE));
	}
}

/* --- conversations ---------------------------------------------------------------------------- */

ProtobufCBinaryData peer_text(const char *text)
{
	return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

const Hugepool__V1__Welcome *peer_hello(struct peer *peer)
{
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;

	hello.protocol = HP_PROTOCOL_VERSION;
	hello.name = peer_text("peer");
	peer_send(peer, TYPE(HELLO), 1, &hello.base);
	return peer_expect(peer, TYPE(WELCOME), 1);
}

uint8_t peer_try_hello(struct peer *peer, Hugepool__V1__Code *ret_code)
{
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;
	const ProtobufCMessage *message;
	uint8_t frame[HP_FRAME_MAX];
	int n;

	hello.protocol = HP_PROTOCOL_VERSION;
	n = hp_message_pack(frame, TYPE(HELLO), 1, &hello.base);
	/* who was turned away at once cannot be told anything, but has been told why */
	if (send(peer->fd, frame, (size_t)n, MSG_NOSIGNAL) < 0)
		assert_int_equal(errno, EPIPE);
	message = peer_recv(peer);
	if (!message)
		return 0;
	if (peer->frame.type == TYPE(ERROR))
		*ret_code = ((const Hugepool__V1__Error *)message)->code;
	return peer->frame.type;
}

const Hugepool__V1__Error *peer_refused(struct peer *peer, uint8_t type,
					const ProtobufCMessage *message, Hugepool__V1__Code code)
{
	const Hugepool__V1__Error *error;

	peer_send(peer, type, 0x7e57, message);
	error = peer_expect(peer, TYPE(ERROR), 0x7e57);
	if (error->code != code)
		fail_msg("%s expected, but: %s: %.*s", hp_message_code_name(code),
			 hp_message_code_name(error->code), (int)error->message.len,
			 (const char *)error->message.data);
	assert_true(error->message.len > 0);
	return error;
}

void peer_alloc(struct peer *peer, const char *zone, uint32_t pages, uint32_t count,
		struct peer_range *ret)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	const Hugepool__V1__Ranges *grant;

	alloc.zone = peer_text(zone);
	alloc.pages = pages;
	alloc.count = count;
	peer_send(peer, TYPE(ALLOC), 2, &alloc.base);
	grant = peer_expect(peer, TYPE(GRANT), 2);
	assert_int_equal(grant->n_ranges, count * HP_WIRE_RANGE_WORDS);
	memcpy(ret, grant->ranges, grant->n_ranges * sizeof(uint64_t));
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(peer_range(&ret[i]).pages, pages);
}

static Hugepool__V1__Ranges ranges_message(const struct peer_range *ranges, size_t n)
{
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = (uint64_t *)(uintptr_t)ranges;
	return message;
}

void peer_free_ranges(struct peer *peer, const struct peer_range *ranges, size_t n)
{
	Hugepool__V1__Ranges message = ranges_message(ranges, n);

	peer_send(peer, TYPE(FREE), 3, &message.base);
	peer_expect(peer, TYPE(DONE), 3);
}

const Hugepool__V1__Error *peer_free_refused(struct peer *peer, const struct peer_range *ranges,
					     size_t n, Hugepool__V1__Code code)
{
	Hugepool__V1__Ranges message = ranges_message(ranges, n);

	return peer_refused(peer, TYPE(FREE), &message.base, code);
}

struct hp_wire_range peer_range(const struct peer_range *range)
{
	struct hp_wire_range wire;

	assert_int_equal(hp_wire_get_range(range->words, &wire), 0);
	return wire;
}

Hugepool__V1__Zone peer_zone(struct peer *peer, uint32_t id)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	list.what = WHAT(ZONES);
	list.cursor = id ? id + 1 : 0;
	peer_send(peer, TYPE(LIST), 4, &list.base);
	reply = peer_expect(peer, TYPE(LIST_REPLY), 4);
	assert_true(reply->n_zones > 0);
	assert_int_equal(reply->zones[0]->id, id);
	return *reply->zones[0];
}

void peer_check(struct peer *admin)
{
	const Hugepool__V1__CheckReply *reply;

	peer_send(admin, TYPE(CHECK), 5, NULL);
	reply = peer_expect(admin, TYPE(CHECK_REPLY), 5);
	for (size_t i = 0; i < reply->n_messages; i++)
		print_error("%.*s\n", (int)reply->messages[i].len,
			    (const char *)reply->messages[i].data);
	assert_int_equal(reply->violations, 0);
}
