/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why no evbuffer: it neither passes descriptors nor keeps them beside their bytes, and the usual
 * case, a reply that fits the socket, needs no buffer at all: it is packed where it is sent from.
 *
 * Whether a descriptor has been read is asked from the kernel: SIOCOUTQ tells how much of what was
 * sent still lies unread in the peer's queue. At 0 nothing does.
 */
#include "daemon/net/output.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/net/session.h"
#include "daemon/net/worker.h"
#include "proto/fds.h"

struct output_chunk {
	struct output_chunk *next; /* output.head ... tail */
	size_t bytes, sent;
	size_t nr_fds; /* owned; 0 once they are sent */
	int *fds;      /* behind data */
	uint8_t data[];
};

static void close_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

static void count_owed(struct session *session, size_t n)
{
	session->worker->owed_fds[session->tenant->owner] += (uint32_t)n;
}

static void count_read(struct session *session, size_t n)
{
	session->worker->owed_fds[session->tenant->owner] -= (uint32_t)n;
}

/* Descriptors that were never sent. */
static void drop_fds(struct session *session, const int *fds, size_t n)
{
	if (!n)
		return;
	close_all(fds, n);
	count_read(session, n);
}

/* Nothing lies in the peer's socket. */
static bool socket_is_read(const struct session *session)
{
	int unread_bytes;

	return ioctl(session->fd, SIOCOUTQ, &unread_bytes) == 0 && !unread_bytes;
}

bool output_is_read(const struct session *session)
{
	return !session->output.head && socket_is_read(session);
}

void output_settle(struct session *session)
{
	struct output *output = &session->output;

	if (!output->unread_fds || !socket_is_read(session))
		return;
	count_read(session, output->unread_fds);
	output->unread_fds = 0;
}

/*
 * One send. ret_sent is 0 if the socket is full. Return: OUTPUT_WAIT_READER if descriptors may not
 * go yet.
 */
static enum output_wait send_some(struct session *session, const uint8_t *bytes, size_t n,
				  const int *fds, size_t nr_fds, size_t *ret_sent)
{
	struct output *output = &session->output;
	ssize_t sent;

	*ret_sent = 0;
	if (nr_fds) {
		output_settle(session);
		if (output->unread_fds)
			return OUTPUT_WAIT_READER;
		sent = hp_fds_send(session->fd, bytes, n, fds, nr_fds);
	} else {
		sent = send(session->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0)
			sent = -errno;
	}
	if (sent == -ETOOMANYREFS)
		return OUTPUT_WAIT_READER; /* of this user's descriptors altogether */
	if (sent == -EAGAIN || sent == -EINTR)
		return OUTPUT_WAIT_ROOM;
	if (sent < 0) {
		output->error = (int)sent;
		return OUTPUT_SENT;
	}
	if (nr_fds) {
		close_all(fds, nr_fds);
		output->unread_fds = (uint32_t)nr_fds;
	}
	*ret_sent = (size_t)sent;
	return (size_t)sent < n ? OUTPUT_WAIT_ROOM : OUTPUT_SENT;
}

static void queue(struct session *session, const uint8_t *bytes, size_t n, const int *fds,
		  size_t nr_fds)
{
	struct output *output = &session->output;
	size_t fds_at = (n + sizeof(int) - 1) / sizeof(int) * sizeof(int);
	struct output_chunk *chunk = malloc(sizeof(*chunk) + fds_at + nr_fds * sizeof(*fds));

	if (!chunk) {
		drop_fds(session, fds, nr_fds);
		output->error = -ENOMEM;
		return;
	}
	*chunk = (struct output_chunk){.bytes = n, .nr_fds = nr_fds};
	memcpy(chunk->data, bytes, n);
	chunk->fds = (int *)(void *)(chunk->data + fds_at);
	if (nr_fds)
		memcpy(chunk->fds, fds, nr_fds * sizeof(*fds));
	if (output->tail)
		output->tail->next = chunk;
	else
		output->head = chunk;
	output->tail = chunk;
	output->bytes += n;
}

static void drop_head(struct session *session)
{
	struct output *output = &session->output;
	struct output_chunk *chunk = output->head;

	output->bytes -= chunk->bytes - chunk->sent;
	output->head = chunk->next;
	if (!output->head)
		output->tail = NULL;
	worker_note_freed(session->worker, chunk->bytes);
	free(chunk);
}

/* Sends from the queue. */
static enum output_wait pump(struct session *session)
{
	struct output *output = &session->output;

	while (output->head && !output->error) {
		struct output_chunk *chunk = output->head;
		size_t sent;
		enum output_wait wait =
			send_some(session, chunk->data + chunk->sent, chunk->bytes - chunk->sent,
				  chunk->fds, chunk->nr_fds, &sent);

		if (sent)
			chunk->nr_fds = 0;
		chunk->sent += sent;
		output->bytes -= sent;
		if (wait != OUTPUT_SENT)
			return wait;
		if (!output->error)
			drop_head(session);
	}
	return OUTPUT_SENT;
}

enum output_wait output_flush(struct session *session)
{
	struct batch *batch = &session->worker->batch;
	enum output_wait wait = pump(session);
	size_t sent = 0;

	if (session->output.error) {
		drop_fds(session, batch->fds, batch->nr_fds);
	} else if (batch->used) {
		if (wait == OUTPUT_SENT)
			wait = send_some(session, batch->bytes, batch->used, batch->fds,
					 batch->nr_fds, &sent);
		if (session->output.error)
			drop_fds(session, batch->fds, batch->nr_fds);
		else if (wait != OUTPUT_SENT)
			queue(session, batch->bytes + sent, batch->used - sent, batch->fds,
			      sent ? 0 : batch->nr_fds);
	}
	batch->used = 0;
	batch->nr_fds = 0;
	return wait;
}

uint8_t *output_room(struct session *session)
{
	struct batch *batch = &session->worker->batch;

	if (session->output.error)
		batch->used = 0;
	else if (batch->used + HP_FRAME_MAX > BATCH_BYTES)
		output_flush(session);
	return batch->bytes + batch->used;
}

void output_commit(struct session *session, size_t bytes)
{
	assert(bytes <= HP_FRAME_MAX);
	session->worker->batch.used += bytes;
}

void output_attach(struct session *session, const int *fds, size_t nr_fds)
{
	struct batch *batch = &session->worker->batch;

	assert(nr_fds > 0 && nr_fds <= HP_BLOCKS_MAX);
	if (batch->used)
		output_flush(session);
	memcpy(batch->fds, fds, nr_fds * sizeof(*fds));
	batch->nr_fds = nr_fds;
	count_owed(session, nr_fds);
}

void output_discard(struct session *session)
{
	struct output *output = &session->output;

	while (output->head) {
		drop_fds(session, output->head->fds, output->head->nr_fds);
		drop_head(session);
	}
}
