/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program is to hear of, kept until hugepool_dispatch() tells it. Nothing is allocated for
 * that: a zone is under pressure or not, a held range is marked, and so the queue cannot grow. The
 * caller has the handle's mutex, unless said otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/include/hugepool/hugepool.h"
#include "proto/limits.h"

struct held_range;
struct window;

struct events {
	struct hugepool_callbacks callbacks;
	uint32_t pressed; /* bit i: windows[i] */
	uint32_t revoked; /* held ranges that are marked .untold */
	uint32_t wanted;  /* and .unasked */
	bool resumed;
};

_Static_assert(HP_ZONES_MAX <= 32, "a bit a zone");

/* Somebody waits for room in the zone. */
void event_pressure(struct hugepool *pool, struct window *window);

/* A range was taken from us. It has to be held until the program frees it. */
void event_revoked(struct hugepool *pool, struct held_range *held);

/* An operator wants it back by then (CLOCK_MONOTONIC), or will take it (force). */
void event_wanted(struct hugepool *pool, struct held_range *held, uint64_t until_ns, bool force);

/* The range leaves the table: nothing is told of it any more. */
void event_forget(struct hugepool *pool, struct held_range *held);

/* The daemon was away, and is back with all that we hold. */
void event_resumed(struct hugepool *pool);

/*
 * At once, with the mutex held: the program is told not to call us from there. priority: as of
 * syslog(3). Does nothing if nobody listens.
 */
void event_log(struct hugepool *pool, int priority, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Whether there is anything to tell. */
bool event_is_due(const struct hugepool *pool);

/* Tells all there is. Without the mutex. Return: how many functions were called. */
int event_deliver(struct hugepool *pool);
