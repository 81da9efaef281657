/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/rpc-wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/fds.h"
#include "tests/bench/handout-daemon.h"
#include "tests/bench/harness.h"

#define TRY_MS	  10
#define TRIES	  1000 /* of TRY_MS */
#define PAGE_TAG  1
#define LEASE_TAG 2

int wire_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		bench_die("no socket for %s", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	for (int i = 0; i < TRIES; i++) {
		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
			return fd;
		poll(NULL, 0, TRY_MS);
	}
	bench_die("connect to %s: %s", path, strerror(errno));
}

void wire_send(int socket, const void *bytes, size_t n)
{
	for (size_t done = 0; done < n;) {
		const ssize_t r = send(socket, (const char *)bytes + done, n - done, MSG_NOSIGNAL);

		if (r <= 0)
			bench_die("send: %s", strerror(errno));
		done += (size_t)r;
	}
}

static size_t put(uint8_t *bytes, uint8_t type, uint16_t tag, const ProtobufCMessage *message)
{
	const int n = hp_message_pack(bytes, type, tag, message);

	if (n < 0)
		bench_die("a request is too long");
	return (size_t)n;
}

size_t wire_put_alloc(uint8_t *bytes, uint32_t count)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;

	alloc.pages = 1;
	alloc.count = count;
	return put(bytes, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC, PAGE_TAG, &alloc.base);
}

size_t wire_put_free(uint8_t *bytes, const uint64_t range[HP_WIRE_RANGE_WORDS])
{
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;
	uint64_t words[HP_WIRE_RANGE_WORDS];

	memcpy(words, range, sizeof(words));
	ranges.n_ranges = HP_WIRE_RANGE_WORDS;
	ranges.ranges = words;
	return put(bytes, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_FREE, LEASE_TAG, &ranges.base);
}

/* The ranges of a GRANT, as long as there is room: a case that only counts wants no more. */
static void hold(struct wire *wire, const struct hp_frame *frame)
{
	static struct hp_arena *arena;
	const ProtobufCMessage *message;
	const Hugepool__V1__Ranges *grant;

	if (!arena && hp_arena_new(&arena) < 0)
		bench_die("out of memory");
	if (hp_message_unpack(arena, &hugepool__v1__ranges__descriptor, frame, &message) < 0)
		bench_die("a grant that makes no sense");
	grant = (const Hugepool__V1__Ranges *)message;
	for (size_t i = 0; i + 1 < grant->n_ranges; i += HP_WIRE_RANGE_WORDS)
		if (wire->held < WIRE_HELD_MAX)
			memcpy(wire->ranges[wire->held++], &grant->ranges[i],
			       sizeof(wire->ranges[0]));
}

/* Return: whether it answers a request. */
static bool take_frame(struct wire *wire, const struct hp_frame *frame)
{
	switch (frame->type) {
	case HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_GRANT:
		hold(wire, frame);
		return true;
	case HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_DONE:
	case HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_WELCOME:
		return true;
	case HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_BLOCKS:
		return false;
	default:
		bench_die("the daemon answers %s", hp_message_type_name(frame->type));
	}
}

static void fill(struct wire *wire)
{
	int fds[HP_BLOCKS_MAX];
	bool truncated;
	size_t nr_fds = 0;
	ssize_t n;

	memmove(wire->input, wire->input + wire->start, wire->end - wire->start);
	wire->end -= wire->start;
	wire->start = 0;
	n = hp_fds_recv(wire->socket, wire->input + wire->end, sizeof(wire->input) - wire->end, fds,
			HP_BLOCKS_MAX, &nr_fds, &truncated);
	if (n <= 0)
		bench_die("the daemon has ended a session");
	while (nr_fds)
		close(fds[--nr_fds]);
	wire->end += (size_t)n;
}

void wire_receive(struct wire *wire, unsigned n)
{
	struct hp_frame frame;
	size_t used;

	while (n) {
		const int r = hp_frame_parse(wire->input + wire->start, wire->end - wire->start,
					     &frame, &used);

		if (r == HP_FRAME_INCOMPLETE) {
			fill(wire);
			continue;
		}
		if (r)
			bench_die("a frame that makes no sense");
		n -= take_frame(wire, &frame);
		wire->start += used;
	}
}

void wire_open(struct wire *wire)
{
	Hugepool__V1__Hello hello = HUGEPOOL__V1__HELLO__INIT;
	uint8_t bytes[HP_FRAME_MAX];

	wire->held = 0;
	wire->start = wire->end = 0;
	wire->socket = wire_connect(stage_socket());
	hello.protocol = HP_PROTOCOL_VERSION;
	wire_send(wire->socket, bytes,
		  put(bytes, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_HELLO, 0, &hello.base));
	wire_receive(wire, 1);
}

void wire_close(struct wire *wire)
{
	close(wire->socket);
	wire->socket = -1;
}
