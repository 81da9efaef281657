/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that wait for room.
 *
 * Each tenant has a queue in each zone: by priority, then by arrival, and what is behind does not
 * overtake what is in front, however small it is. Between tenants it goes round, those below their
 * guarantee first. Requests that cannot wait are not in any queue: they get what is there or
 * nothing.
 *
 * Whoever gives pages back, makes blocks clean or changes quotas says waits_poke(); whoever waits
 * is then granted his ranges right there, in that thread, and his worker is told to fetch them.
 * Deadlines are the business of the request's owner, who takes it back with waits_cancel().
 *
 * All functions may be called from any thread, none from within waits_wake_fn. A waiter is its
 * worker's; between waits_add() and its end it must stay where it is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/pool/pool.h"
#include "daemon/tenancy/tenant.h"

struct waits;

enum waiter_state { WAITER_IDLE, WAITER_QUEUED, WAITER_GRANTED };

struct waiter {
	/* set before waits_add() */
	struct tenant *tenant;
	struct pool_zone *zone;
	struct hp_request request; /* whole; owner and slot are the tenant's or a share's */
	struct hp_grant *grants;   /* room for n */
	size_t n;
	uint32_t priority; /* higher first */
	unsigned worker;

	/* of wait.c */
	TAILQ_ENTRY(waiter) link; /* the zone's queue, or what its worker is to fetch */
	enum waiter_state state;
	uint32_t blocks; /* that it may need */
};

/* This worker has something to fetch. Called with the table locked. */
typedef void (*waits_wake_fn)(void *userdata, unsigned worker);

/* pool is borrowed. Return: 0 or -ENOMEM. */
int waits_new(struct waits **ret, struct pool *pool, unsigned nr_workers, waits_wake_fn wake,
	      void *userdata);
struct waits *waits_free(struct waits *waits); /* nobody may wait; NULL is fine; returns NULL */

enum wait_condition {
	WAIT_GRANTED = 1, /* at once: the grants are there, the waiter is idle */
	WAIT_OVER_LIMIT,  /* more than its tenant may ever have */
	WAIT_OVER_ZONE,	  /* more than the zone has */
};

/* Return: 0 (it waits) or a condition (it does not). */
int waits_add(struct waits *waits, struct waiter *waiter);

/* It waits no more. Return: whether it had been granted by then: the grants are there. */
bool waits_cancel(struct waits *waits, struct waiter *waiter);

/* The next one of this worker's that was granted, idle now; NULL: no more. */
struct waiter *waits_fetch(struct waits *waits, unsigned worker);

/*
 * Has it been granted, and nobody has fetched it? If so that stays so, but for its worker. Whoever
 * knows of a lease that was granted to a waiter will be told so.
 */
bool waits_is_granted(struct waits *waits, const struct waiter *waiter);

/* There may be room for somebody. zone: NULL for all. Cheap while nobody waits. */
void waits_poke(struct waits *waits, struct pool_zone *zone);

/* How many blocks n ranges may need; more than any zone has if it is no use to ask. */
uint32_t waits_blocks(const struct pool_zone *zone, const struct hp_request *request, size_t n);

/* How many wait in this zone. */
uint32_t waits_count(const struct waits *waits, size_t zone_id);
