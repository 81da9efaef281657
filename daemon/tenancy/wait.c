/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits, waits in one list a zone, sorted by priority and arrival: the first of a tenant in it
 * is the head of that tenant's queue. The lists are short and the time is the zone's; no structure
 * would be faster than walking one.
 *
 * Nothing is missed between a request that finds no room and its place in the queue: it is queued
 * first and tried then, and whoever gives back looks for waiters after the pages are free. Both
 * have a full barrier in between, so at least one of the two sees the other.
 *
 * A turn of a tenant ends with a grant. Among those with a claim on their guarantee, and then among
 * all, the one whose last turn is longest ago is tried first. A head that does not fit does not
 * stop the others' (it may wait for blocks that are still being recycled, they may fit into what
 * they have); its own tenant's requests it does stop, or it would wait for ever.
 */
#include "daemon/tenancy/wait.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

TAILQ_HEAD(waiter_list, waiter);

struct zone_waits {
	struct waiter_list queue;
	_Atomic uint32_t count;
	uint32_t blocks;		  /* that all of them may need */
	uint64_t turn[HP_TENANTS_MAX];	  /* per owner: when it was last granted something */
	uint32_t waiting[HP_TENANTS_MAX]; /* per owner */
};

struct waits {
	pthread_mutex_t lock;
	struct pool *pool;
	waits_wake_fn wake;
	void *userdata;
	uint64_t turns;
	struct zone_waits *zone[HP_ZONES_MAX];
	struct waiter_list *granted; /* per worker */
	unsigned nr_workers;
};

int waits_new(struct waits **ret, struct pool *pool, unsigned nr_workers, waits_wake_fn wake,
	      void *userdata)
{
	struct waits *waits = calloc(1, sizeof(*waits));

	if (!waits)
		return -ENOMEM;
	pthread_mutex_init(&waits->lock, NULL);
	waits->pool = pool;
	waits->wake = wake;
	waits->userdata = userdata;
	waits->nr_workers = nr_workers;
	waits->granted = calloc(nr_workers, sizeof(*waits->granted));
	if (!waits->granted) {
		waits_free(waits);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < nr_workers; i++)
		TAILQ_INIT(&waits->granted[i]);
	for (size_t i = 0; i < pool_nr_zones(pool); i++) {
		waits->zone[i] = calloc(1, sizeof(*waits->zone[i]));
		if (!waits->zone[i]) {
			waits_free(waits);
			return -ENOMEM;
		}
		TAILQ_INIT(&waits->zone[i]->queue);
	}
	*ret = waits;
	return 0;
}

struct waits *waits_free(struct waits *waits)
{
	if (!waits)
		return NULL;
	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		free(waits->zone[i]);
	free(waits->granted);
	pthread_mutex_destroy(&waits->lock);
	free(waits);
	return NULL;
}

uint32_t waits_count(const struct waits *waits, size_t zone_id)
{
	return waits->zone[zone_id]->count;
}

/* --- the queue: under the lock ---------------------------------------------------------------- */

/* The idle blocks of others are wanted, besides those that are kept for guarantees. */
static void tell_pool(struct waits *waits, struct pool_zone *zone)
{
	uint32_t blocks = waits->zone[zone->id]->blocks;
	struct hp_zone_stats stats;

	if (blocks) {
		hp_zone_stats(zone->zone, &stats);
		blocks += stats.unmet_guarantee_blocks;
	}
	pool_set_wanted(zone, blocks < zone->nr_blocks ? blocks : zone->nr_blocks);
}

/* What the next request of this tenant waits for: those behind it are not served before. */
static void tell_pool_of_owner(struct waits *waits, struct pool_zone *zone, uint32_t owner)
{
	struct waiter *next = NULL;
	bool clean;

	if (waits->zone[zone->id]->waiting[owner])
		next = TAILQ_FIRST(&waits->zone[zone->id]->queue);
	while (next && next->tenant->owner != owner)
		next = TAILQ_NEXT(next, link);
	clean = next && next->request.flags & HP_ALLOC_EXCLUSIVE;
	pool_set_owner_waits(zone, owner, next, clean ? next->blocks : 0);
}

static void enqueue(struct waits *waits, struct waiter *waiter)
{
	struct zone_waits *zone = waits->zone[waiter->zone->id];
	struct waiter *after = TAILQ_LAST(&zone->queue, waiter_list);

	while (after && after->priority < waiter->priority)
		after = TAILQ_PREV(after, waiter_list, link);
	if (after)
		TAILQ_INSERT_AFTER(&zone->queue, after, waiter, link);
	else
		TAILQ_INSERT_HEAD(&zone->queue, waiter, link);
	waiter->state = WAITER_QUEUED;
	zone->count++;
	zone->waiting[waiter->tenant->owner]++;
	zone->blocks += waiter->blocks;
	tell_pool_of_owner(waits, waiter->zone, waiter->tenant->owner);
}

static void dequeue(struct waits *waits, struct waiter *waiter)
{
	struct zone_waits *zone = waits->zone[waiter->zone->id];

	TAILQ_REMOVE(&zone->queue, waiter, link);
	waiter->state = WAITER_IDLE;
	zone->count--;
	zone->waiting[waiter->tenant->owner]--;
	zone->blocks -= waiter->blocks;
	tell_pool_of_owner(waits, waiter->zone, waiter->tenant->owner);
}

/* Return: whether it could be granted. What lies in page caches is fetched for it. */
static bool try_grant(struct waiter *waiter)
{
	struct hp_zone *zone = waiter->zone->zone;
	int rc = hp_zone_alloc_bulk(zone, NULL, &waiter->request, waiter->grants, waiter->n);

	if ((rc == HP_NO_ROOM || rc == HP_OVER_LIMIT) &&
	    hp_zone_drain(zone, waiter->tenant->owner) > 0)
		rc = hp_zone_alloc_bulk(zone, NULL, &waiter->request, waiter->grants, waiter->n);
	return rc == 0;
}

/* --- turns: under the lock -------------------------------------------------------------------- */

struct candidate {
	struct waiter *head; /* of a tenant's queue */
	bool guaranteed;     /* below what it is guaranteed */
	uint64_t turn;
};

static int compare(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->guaranteed != y->guaranteed)
		return x->guaranteed ? -1 : 1;
	return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* Return: false for a tenant that holds more than its limit, which was lowered: it has no turn. */
static bool look_at_tenant(const struct waiter *waiter, bool *ret_guaranteed)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(waiter->zone->zone, waiter->tenant->owner, &stats);
	*ret_guaranteed = stats.held_blocks < stats.guarantee_blocks;
	return stats.held_blocks <= stats.limit_blocks;
}

/* The heads of all tenants' queues, in the order in which it is their turn. */
static size_t find_candidates(struct zone_waits *zone, struct candidate ret[HP_TENANTS_MAX])
{
	uint64_t seen[(HP_TENANTS_MAX + 63) / 64] = {0};
	struct waiter *waiter;
	size_t n = 0;

	TAILQ_FOREACH (waiter, &zone->queue, link) {
		uint32_t owner = waiter->tenant->owner;
		bool guaranteed;

		if (seen[owner / 64] >> owner % 64 & 1)
			continue;
		seen[owner / 64] |= UINT64_C(1) << owner % 64;
		if (look_at_tenant(waiter, &guaranteed))
			ret[n++] = (struct candidate){waiter, guaranteed, zone->turn[owner]};
	}
	qsort(ret, n, sizeof(*ret), compare);
	return n;
}

/* Return: the one that was granted something and is out of the queue; NULL: nobody can be. */
static struct waiter *serve_one(struct waits *waits, struct zone_waits *zone)
{
	struct candidate candidates[HP_TENANTS_MAX];
	size_t n = find_candidates(zone, candidates);

	for (size_t i = 0; i < n; i++) {
		struct waiter *waiter = candidates[i].head;

		if (!try_grant(waiter))
			continue;
		dequeue(waits, waiter);
		zone->turn[waiter->tenant->owner] = ++waits->turns;
		return waiter;
	}
	return NULL;
}

/* newcomer: whoever is being added, told by its state, not by its worker. */
static void serve(struct waits *waits, size_t zone_id, const struct waiter *newcomer)
{
	struct zone_waits *zone = waits->zone[zone_id];
	struct waiter *waiter;

	while (zone->count && (waiter = serve_one(waits, zone))) {
		waiter->state = WAITER_GRANTED;
		if (waiter == newcomer)
			continue;
		TAILQ_INSERT_TAIL(&waits->granted[waiter->worker], waiter, link);
		waits->wake(waits->userdata, waiter->worker);
	}
}

/* --- from outside ----------------------------------------------------------------------------- */

static uint64_t blocks_of(uint64_t pages, const struct pool_zone *zone)
{
	return (pages + zone->block_pages - 1) / zone->block_pages;
}

uint32_t waits_blocks(const struct pool_zone *zone, const struct hp_request *request, size_t n)
{
	uint64_t blocks = request->flags & HP_ALLOC_EXCLUSIVE
				  ? n * blocks_of(request->pages, zone)
				  : blocks_of((uint64_t)n * request->pages, zone);

	return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

/* What no waiting would help. Also says how many blocks it may need. */
static int check_possible(struct waiter *waiter)
{
	const struct pool_zone *zone = waiter->zone;
	uint32_t blocks = waits_blocks(zone, &waiter->request, waiter->n);
	struct hp_account_stats stats;

	if (blocks > zone->nr_blocks ||
	    waiter->request.align > hp_zone_get_config(zone->zone)->nr_pages)
		return WAIT_OVER_ZONE;
	hp_zone_account_stats(zone->zone, waiter->tenant->owner, &stats);
	if (blocks > stats.limit_blocks)
		return WAIT_OVER_LIMIT;
	waiter->blocks = blocks;
	return 0;
}

int waits_add(struct waits *waits, struct waiter *waiter)
{
	int rc = check_possible(waiter);

	if (rc)
		return rc;
	pthread_mutex_lock(&waits->lock);
	enqueue(waits, waiter);
	atomic_thread_fence(memory_order_seq_cst);
	serve(waits, waiter->zone->id, waiter);
	if (waiter->state == WAITER_GRANTED) {
		waiter->state = WAITER_IDLE;
		rc = WAIT_GRANTED;
	}
	tell_pool(waits, waiter->zone);
	pthread_mutex_unlock(&waits->lock);
	return rc;
}

bool waits_cancel(struct waits *waits, struct waiter *waiter)
{
	bool granted;

	pthread_mutex_lock(&waits->lock);
	granted = waiter->state == WAITER_GRANTED;
	if (granted)
		TAILQ_REMOVE(&waits->granted[waiter->worker], waiter, link);
	else if (waiter->state == WAITER_QUEUED)
		dequeue(waits, waiter);
	waiter->state = WAITER_IDLE;
	/* it may have stood in front of a smaller one */
	serve(waits, waiter->zone->id, NULL);
	tell_pool(waits, waiter->zone);
	pthread_mutex_unlock(&waits->lock);
	return granted;
}

struct waiter *waits_fetch(struct waits *waits, unsigned worker)
{
	struct waiter *waiter;

	pthread_mutex_lock(&waits->lock);
	waiter = TAILQ_FIRST(&waits->granted[worker]);
	if (waiter) {
		TAILQ_REMOVE(&waits->granted[worker], waiter, link);
		waiter->state = WAITER_IDLE;
	}
	pthread_mutex_unlock(&waits->lock);
	return waiter;
}

/* Under the lock, which a grant is made under: not between that and its being written down. */
bool waits_is_granted(struct waits *waits, const struct waiter *waiter)
{
	bool granted;

	pthread_mutex_lock(&waits->lock);
	granted = waiter->state == WAITER_GRANTED;
	pthread_mutex_unlock(&waits->lock);
	return granted;
}

static void poke_zone(struct waits *waits, struct pool_zone *zone)
{
	if (!waits->zone[zone->id]->count)
		return;
	pthread_mutex_lock(&waits->lock);
	serve(waits, zone->id, NULL);
	tell_pool(waits, zone);
	pthread_mutex_unlock(&waits->lock);
	pool_poke(waits->pool);
}

void waits_poke(struct waits *waits, struct pool_zone *zone)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (zone) {
		poke_zone(waits, zone);
		return;
	}
	for (size_t i = 0; i < pool_nr_zones(waits->pool); i++)
		poke_zone(waits, pool_zone(waits->pool, i));
}
