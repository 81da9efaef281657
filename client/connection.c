/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket blocks, with the time-out as its option: a reply that comes in one piece costs one
 * system call. Only where that was not enough (a signal, a frame in pieces, something unasked in
 * between, a request that waits for room longer than the time-out) is the rest of the time waited
 * for by poll(), so that a peer which dribbles bytes cannot stretch the deadline.
 *
 * Whatever goes wrong leaves requests and replies out of step, so the first failure is the last:
 * the connection stays broken.
 */
#include "client/connection.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

static int set_timeouts(int socket, int timeout_ms)
{
	const struct timeval t = {
		.tv_sec = timeout_ms / 1000,
		.tv_usec = timeout_ms % 1000 * 1000,
	};

	if (timeout_ms < 0)
		return 0;
	if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)) ||
	    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t)))
		return -errno;
	return 0;
}

int connection_init(struct connection *connection, const char *path, int timeout_ms)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(path);
	int r;

	memset(connection, 0, offsetof(struct connection, fds));
	connection->socket = -1;
	connection->timeout_ms = timeout_ms;

	if (n == 0)
		return -ENOENT;
	if (n >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, n);

	r = hp_arena_new(&connection->arena);
	if (r < 0)
		return r;
	connection->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection->socket < 0)
		return -errno;
	r = set_timeouts(connection->socket, timeout_ms);
	if (r < 0)
		return r;
	do
		r = connect(connection->socket, (struct sockaddr *)&address, sizeof(address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return 0;
}

static void close_fds(struct connection *connection)
{
	for (size_t i = 0; i < connection->nr_fds; i++)
		close(connection->fds[i]);
	connection->nr_fds = 0;
}

void connection_deinit(struct connection *connection)
{
	close_fds(connection);
	if (connection->socket >= 0)
		close(connection->socket);
	connection->socket = -1;
	connection->arena = hp_arena_free(connection->arena);
}

int connection_break(struct connection *connection, int error)
{
	if (!connection->broken)
		connection->broken = error;
	return error;
}

uint64_t connection_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 * NS_PER_MS + (uint64_t)t.tv_nsec;
}

void connection_begin(struct connection *connection, uint32_t wait_ms)
{
	/* Input that is unread may be the frame they came with. */
	if (connection->start == connection->end) {
		close_fds(connection);
		connection->fds_lost = false;
	}
	connection->waited = false;
	connection->wait_ms = wait_ms;
	connection->deadline =
		connection->timeout_ms < 0
			? UINT64_MAX
			: connection_now_ns() +
				  ((uint64_t)connection->timeout_ms + wait_ms) * NS_PER_MS;
}

/* Sends what there is of the output. flags: MSG_DONTWAIT, or 0. */
static int push(struct connection *connection, int flags)
{
	while (connection->out_start < connection->out_end) {
		ssize_t n = send(connection->socket, connection->output + connection->out_start,
				 connection->out_end - connection->out_start, flags | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return flags ? -EAGAIN : connection_break(connection, -ETIMEDOUT);
		if (n < 0)
			return connection_break(connection, -ECONNRESET);
		connection->out_start += (size_t)n;
	}
	connection->out_start = connection->out_end = 0;
	return 0;
}

static int send_with(struct connection *connection, uint8_t type, uint16_t tag,
		     const ProtobufCMessage *message, int flags)
{
	int r, n;

	if (connection->broken)
		return -ECONNRESET;
	r = push(connection, flags);
	if (r < 0)
		return r;
	n = hp_message_pack(connection->output, type, tag, message);
	if (n < 0)
		return n; /* nothing has been sent */
	connection->out_end = (size_t)n;
	r = push(connection, flags);
	if (r == -EAGAIN && connection->out_start > 0)
		return 0;
	if (r == -EAGAIN)
		connection->out_end = 0;
	return r;
}

int connection_send(struct connection *connection, uint8_t type, uint16_t tag,
		    const ProtobufCMessage *message)
{
	return send_with(connection, type, tag, message, 0);
}

int connection_try_send(struct connection *connection, uint8_t type, uint16_t tag,
			const ProtobufCMessage *message)
{
	return send_with(connection, type, tag, message, MSG_DONTWAIT);
}

int connection_flush(struct connection *connection)
{
	return connection->broken ? -ECONNRESET : push(connection, MSG_DONTWAIT);
}

/* Until there is something to read or the exchange's time is over. */
static int wait_readable(struct connection *connection)
{
	struct pollfd p = {.fd = connection->socket, .events = POLLIN};

	for (;;) {
		uint64_t now = connection_now_ns();
		struct timespec t;
		int r;

		if (now >= connection->deadline)
			return -ETIMEDOUT;
		t.tv_sec = (time_t)((connection->deadline - now) / (1000 * NS_PER_MS));
		t.tv_nsec = (long)((connection->deadline - now) % (1000 * NS_PER_MS));
		r = ppoll(&p, 1, connection->deadline == UINT64_MAX ? NULL : &t, NULL);
		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

/* Whether there is something to read, without waiting. */
static int check_readable(struct connection *connection)
{
	struct pollfd p = {.fd = connection->socket, .events = POLLIN};
	int r;

	do
		r = poll(&p, 1, 0);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r == 0 ? -EAGAIN : 0;
}

static int read_more(struct connection *connection, bool wait)
{
	size_t nr_fds;
	bool truncated;
	ssize_t n;
	int r;

	memmove(connection->input, connection->input + connection->start,
		connection->end - connection->start);
	connection->end -= connection->start;
	connection->start = 0;

	do {
		r = !wait		 ? check_readable(connection)
		    : connection->waited ? wait_readable(connection)
					 : 0;
		if (r < 0)
			return r;
		connection->waited = true;
		n = hp_fds_recv(connection->socket, connection->input + connection->end,
				sizeof(connection->input) - connection->end,
				connection->fds + connection->nr_fds,
				HP_BLOCKS_MAX - connection->nr_fds, &nr_fds, &truncated);
	} while (n == -EINTR || n == -EAGAIN);

	if (n <= 0)
		return -ECONNRESET;
	connection->end += (size_t)n;
	connection->nr_fds += nr_fds;
	if (truncated || connection->fds_lost) {
		/* Which frame the remaining ones belong to can no longer be told. */
		connection->fds_lost = true;
		close_fds(connection);
	}
	return 0;
}

static int receive(struct connection *connection, struct hp_frame *ret, bool wait)
{
	size_t used;
	int r;

	if (connection->broken)
		return -ECONNRESET;
	for (;;) {
		r = hp_frame_parse(connection->input + connection->start,
				   connection->end - connection->start, ret, &used);
		if (r == 0) {
			connection->start += used;
			return 0;
		}
		if (r != HP_FRAME_INCOMPLETE)
			return connection_break(connection, -EPROTO);
		r = read_more(connection, wait);
		if (r == -EAGAIN)
			return r;
		if (r < 0)
			return connection_break(connection, r);
	}
}

int connection_receive(struct connection *connection, struct hp_frame *ret)
{
	return receive(connection, ret, true);
}

int connection_receive_nowait(struct connection *connection, struct hp_frame *ret)
{
	return receive(connection, ret, false);
}

int connection_take_fd(struct connection *connection)
{
	int fd;

	if (connection->nr_fds == 0)
		return -1;
	fd = connection->fds[0];
	connection->nr_fds--;
	memmove(connection->fds, connection->fds + 1, connection->nr_fds * sizeof(int));
	return fd;
}
