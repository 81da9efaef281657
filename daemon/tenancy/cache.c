/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker alone changes the table, so that its own look-up (one for each grant and free) needs
 * no lock. Whoever looks from outside takes the lock that the worker takes when it changes
 * something: a cache does not go away while it is looked at.
 */
#include "daemon/tenancy/cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"

#define CACHE_ALIGN 64

struct owner_caches {
	uint32_t sessions;
	struct hp_pcp *pcp[HP_ZONES_MAX];
	void *memory[HP_ZONES_MAX];
};

struct caches {
	pthread_mutex_t lock;
	struct pool *pool;
	unsigned worker;
	struct owner_caches *by_owner[HP_TENANTS_MAX];
};

int caches_new(struct caches **ret, struct pool *pool, unsigned worker)
{
	struct caches *caches = calloc(1, sizeof(*caches));

	if (!caches)
		return -ENOMEM;
	pthread_mutex_init(&caches->lock, NULL);
	caches->pool = pool;
	caches->worker = worker;
	*ret = caches;
	return 0;
}

static void give_back(struct caches *caches, uint32_t owner)
{
	struct owner_caches *own = caches->by_owner[owner];

	pthread_mutex_lock(&caches->lock);
	caches->by_owner[owner] = NULL;
	pthread_mutex_unlock(&caches->lock);

	for (size_t i = 0; i < HP_ZONES_MAX; i++) {
		hp_pcp_deinit(own->pcp[i]);
		free(own->memory[i]);
	}
	free(own);
}

struct caches *caches_free(struct caches *caches)
{
	if (!caches)
		return NULL;
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		if (caches->by_owner[owner])
			give_back(caches, owner);
	pthread_mutex_destroy(&caches->lock);
	free(caches);
	return NULL;
}

int caches_enter(struct caches *caches, uint32_t owner)
{
	struct owner_caches *own = caches->by_owner[owner];

	if (!own) {
		own = calloc(1, sizeof(*own));
		if (!own)
			return -ENOMEM;
		pthread_mutex_lock(&caches->lock);
		caches->by_owner[owner] = own;
		pthread_mutex_unlock(&caches->lock);
	}
	own->sessions++;
	return 0;
}

void caches_leave(struct caches *caches, uint32_t owner)
{
	if (--caches->by_owner[owner]->sessions == 0)
		give_back(caches, owner);
}

static struct hp_pcp *make(struct caches *caches, uint32_t owner, size_t zone_id)
{
	struct owner_caches *own = caches->by_owner[owner];
	struct hp_zone *zone = pool_zone(caches->pool, zone_id)->zone;
	size_t size = (hp_pcp_size(zone) + CACHE_ALIGN - 1) / CACHE_ALIGN * CACHE_ALIGN;
	void *memory = aligned_alloc(CACHE_ALIGN, size);
	struct hp_pcp *pcp;

	if (!memory || hp_pcp_init(&pcp, memory, zone, owner) != 0) {
		free(memory);
		return NULL;
	}
	pthread_mutex_lock(&caches->lock);
	own->memory[zone_id] = memory;
	own->pcp[zone_id] = pcp;
	pthread_mutex_unlock(&caches->lock);
	return pcp;
}

struct hp_pcp *caches_get(struct caches *caches, uint32_t owner, size_t zone_id)
{
	struct hp_pcp *pcp = caches->by_owner[owner]->pcp[zone_id];

	return pcp ? pcp : make(caches, owner, zone_id);
}

int caches_look(struct caches *caches, size_t zone_id, uint32_t owner, cache_look_fn fn,
		void *userdata)
{
	struct hp_pcp_stats stats;
	int rc = 0;

	pthread_mutex_lock(&caches->lock);
	for (; owner < HP_TENANTS_MAX && !rc; owner++) {
		if (!caches->by_owner[owner] || !caches->by_owner[owner]->pcp[zone_id])
			continue;
		hp_pcp_get_stats(caches->by_owner[owner]->pcp[zone_id], &stats);
		rc = fn(userdata, caches->worker, owner, &stats);
	}
	pthread_mutex_unlock(&caches->lock);
	return rc;
}
