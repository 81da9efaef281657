/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session has to say, and the descriptors that go with it.
 *
 * While a session's requests are handled its replies gather in the worker's batch, and leave by one
 * send. What the socket does not take waits in the session's queue. Descriptors go with the first
 * byte of the BLOCKS frame that names them, and none is sent while earlier ones are unread: they
 * are counted per user in the kernel, and a client that never reads would use them up for all.
 *
 * Failures are sticky: after one (the peer is gone, no memory) everything else is thrown away, and
 * session.c ends the session when it looks at `error`.
 *
 * Only the session's worker calls these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define BATCH_BYTES (64 * 1024) /* of replies for one send */

struct session;

/* One of a worker: of the session that is being handled. */
struct batch {
	size_t used;
	size_t nr_fds; /* owned; they go with bytes[0] */
	int fds[HP_BLOCKS_MAX];
	uint8_t bytes[BATCH_BYTES];
};

struct output_chunk;

struct output {
	struct output_chunk *head, *tail; /* queue */
	size_t bytes;			  /* in the queue, unsent */
	uint32_t unread_fds;		  /* sent, not known to be read */
	int error;			  /* -errno, sticky */
};

enum output_wait {
	OUTPUT_SENT,	    /* nothing is left */
	OUTPUT_WAIT_ROOM,   /* the socket is full */
	OUTPUT_WAIT_READER, /* descriptors have to wait until earlier ones are read */
};

/* Room for one frame (HP_FRAME_MAX bytes), never NULL; and how much of it was used. */
uint8_t *output_room(struct session *session);
void output_commit(struct session *session, size_t bytes);

/* The next frame names these blocks: 1 .. HP_BLOCKS_MAX descriptors, consumed. */
void output_attach(struct session *session, const int *fds, size_t nr_fds);

/* Sends the batch, or queues what cannot be sent, and says what the queue waits for. */
enum output_wait output_flush(struct session *session);

/* Has the peer read everything that it was ever sent? */
bool output_is_read(const struct session *session);

/* Throws everything away, descriptors closed. Those that were sent stay counted: see below. */
void output_discard(struct session *session);

/*
 * Descriptors on their way to the sessions of a tenant, on one worker, are counted in
 * worker->owed_fds. This one more look at the socket takes those off that have been read by now.
 */
void output_settle(struct session *session);
