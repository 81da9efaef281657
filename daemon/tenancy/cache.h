/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page caches of one worker: one for each owner that has a session there and each zone it takes
 * from, made when first wanted, given back with the owner's last session on that worker.
 *
 * Only the worker calls these; caches_look() may be called from any thread.
 */
#pragma once

#include <stdint.h>

#include "daemon/pool/pool.h"

struct caches;

/* pool is borrowed. Return: 0 or -ENOMEM. */
int caches_new(struct caches **ret, struct pool *pool, unsigned worker);
struct caches *caches_free(struct caches *caches); /* NULL is fine; returns NULL */

/* One session of this owner more on this worker, or one less. Return: 0 or -ENOMEM. */
int caches_enter(struct caches *caches, uint32_t owner);
void caches_leave(struct caches *caches, uint32_t owner);

/* The cache, for an owner that has entered; NULL if there is no memory: go without. */
struct hp_pcp *caches_get(struct caches *caches, uint32_t owner, size_t zone_id);

/*
 * Looks at the caches of a zone with owner numbers from `owner` on, in order, until fn returns
 * nonzero, which is passed on. fn must not call back.
 */
typedef int (*cache_look_fn)(void *userdata, unsigned worker, uint32_t owner,
			     const struct hp_pcp_stats *stats);
int caches_look(struct caches *caches, size_t zone_id, uint32_t owner, cache_look_fn fn,
		void *userdata);
