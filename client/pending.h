/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests whose answer the program does not wait for. Each is somewhere on its way: not sent yet,
 * under way, or answered and to be told by hugepool_dispatch(). All that is needed to finish one is
 * allocated when it is made, so that no answer is ever lost for lack of memory. The caller has the
 * handle's mutex, unless said otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/include/hugepool/hugepool.h"
#include "proto/limits.h"
#include "proto/message.h"

#define PENDING_MAX HUGEPOOL_PENDING_MAX

/* Tags of their requests: one a slot, so that none is used twice at one time. */
#define PENDING_TAG 0x4000u
_Static_assert(PENDING_TAG + PENDING_MAX <= 0x8000u,
	       "tags of requests are below those of releases");

struct pending;

struct pending_list {
	struct pending *first, **end; /* in order of their coming */
};

struct pendings {
	struct pending *slots[PENDING_MAX]; /* all of them */
	struct pending_list unsent, done;   /* those that wait for the socket, and for dispatch */
	size_t nr;
	size_t sent, waiting;	 /* under way: in all, and of those that may wait at the daemon */
	size_t allocs;		 /* of those sent, that a GRANT may answer */
	size_t exclusive;	 /* of those sent, that need the descriptors of their blocks */
	size_t cancels;		 /* to be sent */
	uint64_t next_expiry_ns; /* no request expires before */
	unsigned hint;		 /* where to look for a free slot */
	int serial;
};

void pending_init(struct pendings *pendings);

/* Forgets all of them; nothing is told. */
void pending_deinit(struct pendings *pendings);

/* Sends what can be sent without waiting. A failure breaks the connection. */
void pending_send(struct hugepool *pool);

/* Whether a frame's tag is one of theirs. */
static inline bool pending_has_tag(uint16_t tag)
{
	return tag >= PENDING_TAG && tag < PENDING_TAG + PENDING_MAX;
}

/* The reply to one of them. Return: 0, or -EPROTO with the connection broken. */
int pending_reply(struct hugepool *pool, const struct hp_frame *frame);

/* What has waited too long: -ETIMEDOUT with the connection broken if it is the daemon's fault. */
int pending_expire(struct hugepool *pool);

/* The connection is gone for good: each ends with this error (-errno). */
void pending_fail(struct hugepool *pool, int error);

/*
 * The connection was made anew, and the daemon told what is held, without what is being freed: those
 * frees are done, and what was asked for is asked for again.
 */
void pending_requeue(struct hugepool *pool);

/* Tells of the oldest one that is done, without the mutex. Return: whether there was one. */
bool pending_deliver(struct hugepool *pool);
