/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their replies, and what the daemon says in between. The caller has the handle's
 * mutex (or the handle to itself).
 */
#pragma once

#include "client/handle.h"

/*
 * The connection broke, and all has gone on behind that: what the request was to give back is given
 * back, and what it was to take has to be asked for again. Only of requests that do either.
 */
#define REQUEST_RESUMED 1

/*
 * One exchange, over a new connection if the present one is broken or breaks. wait_ms: how long the daemon may let the request wait before it answers; the
 * time-out of replies comes on top of that. reply_type: the reply wanted; the message is borrowed
 * from the connection until the next exchange. Return: 0; REQUEST_RESUMED; -errno, with the handle's
 * error written. What leaves the stream out of step breaks the connection: -ECONNRESET from then on.
 */
int request_exchange_waiting(struct hugepool *pool, uint8_t type, const ProtobufCMessage *message,
			     uint32_t wait_ms, uint8_t reply_type, const ProtobufCMessage **ret);

/* The same over the present connection, whatever becomes of it. Return: 0 or -errno. */
int request_exchange_once(struct hugepool *pool, uint8_t type, const ProtobufCMessage *message,
			  uint32_t wait_ms, uint8_t reply_type, const ProtobufCMessage **ret);

/* One that is answered at once. */
static inline int request_exchange(struct hugepool *pool, uint8_t type,
				   const ProtobufCMessage *message, uint8_t reply_type,
				   const ProtobufCMessage **ret)
{
	return request_exchange_waiting(pool, type, message, 0, reply_type, ret);
}

/* Blocks on their way out, told in as few frames as there can be. */
struct release {
	struct window *window;
	size_t n;
	uint64_t words[HP_BLOCKS_MAX]; /* the first n; never cleared, it is too large for that */
};

static inline void request_release_init(struct release *release)
{
	release->window = NULL;
	release->n = 0;
}

/*
 * Lets go of the blocks of these pages that hold no range and are not to be kept. unusable: also of
 * those we could not use. The daemon hears of them by request_release_flush() at the latest.
 */
void request_release(struct hugepool *pool, struct release *release, struct window *window,
		     uint32_t page, uint32_t pages, bool unusable);

/* Sends what is left, without waiting for the answer. */
void request_release_flush(struct hugepool *pool, struct release *release);

/* The blocks of a shared range that is given back: the daemon has been told by that. */
void request_drop_blocks(struct window *window, uint32_t page, uint32_t pages);

/* Tag of requests whose reply nobody waits for. */
#define REQUEST_TAG_NOBODY 0x8000u

/*
 * A frame that is no reply anybody waits for: what the daemon says unasked. Return: 0 or -errno, with
 * the handle's error written and the connection broken.
 */
int request_handle(struct hugepool *pool, const struct hp_frame *frame);

/* Notes why nothing can be exchanged any more. Return: error. */
int request_fail_broken(struct hugepool *pool, int error);

/* Notes an error in the daemon's words. Return: the -errno it stands for. */
int request_fail_as_told(struct hugepool *pool, const Hugepool__V1__Error *told);

/* The daemon has broken the protocol: so is the connection. Return: -EPROTO. */
int request_fail_protocol(struct hugepool *pool);

/* The -errno that stands for an error of the wire. */
int request_errno(Hugepool__V1__Code code);
