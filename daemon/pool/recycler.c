/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recyclers: threads that empty files and make new ones.
 *
 * Of an owner's blocks, those of his shares included, one is worked on at a time, and each owner has a budget: however fast a tenant
 * takes and gives back, and whatever he does to hold up a truncation, the others' blocks go on. A
 * thread that waits for over 50 ms in a call that its owner can hold up no longer counts, and
 * another one starts; when it comes back it ends, if there are enough without it. So there are never
 * more threads than configured plus one for each owner.
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define STUCK_NS	  (50 * UINT64_C(1000000))
#define THREAD_STACK_SIZE (256 * 1024)

/* --- picking ---------------------------------------------------------------------------------- */

/* Whom it is charged to: a tenant's shares are no way for him to have more threads busy. */
static uint32_t owner_of(const struct pool_block *block)
{
	struct hp_zone *zone = block->zone->public.zone;

	return hp_zone_owner_account(zone, hp_zone_block_word(zone, block->index).owner);
}

/* Below clean-min the rate that the operator set for quiet times does not count. */
static bool is_urgent(const struct pool_block *block)
{
	struct hp_zone_stats stats;

	hp_zone_stats(block->zone->public.zone, &stats);
	return stats.clean_blocks < block->zone->public.clean_min;
}

/* Zeroing a block costs; each block is paid for once, at its first step. 0 or how long to wait. */
static uint64_t pay(struct pool *pool, const struct pool_block *block, uint32_t owner, uint64_t now)
{
	uint64_t wait_ns, bytes = block->zone->public.block_bytes;

	if (owner == HP_OWNER_NONE || block->stage != STAGE_RETIRING || block->failures)
		return 0;
	wait_ns = budget_wait_ns(&pool->owners[owner].budget, now);
	if (wait_ns == 0 && pool->budget.rate_bytes && !is_urgent(block))
		wait_ns = budget_wait_ns(&pool->budget, now);
	if (wait_ns == 0) {
		budget_take(&pool->owners[owner].budget, bytes);
		budget_take(&pool->budget, bytes);
	}
	return wait_ns;
}

static struct pool_block *pick(struct pool *pool, uint32_t *ret_owner)
{
	uint64_t now = pool_now_ns(), wait_ns, shortest_ns = UINT64_MAX;
	struct pool_block *block;

	TAILQ_FOREACH (block, &pool->ready, queue) {
		uint32_t owner = owner_of(block);

		if (owner != HP_OWNER_NONE && pool->owners[owner].busy)
			continue;
		wait_ns = pay(pool, block, owner, now);
		if (wait_ns == 0) {
			TAILQ_REMOVE(&pool->ready, block, queue);
			*ret_owner = owner;
			return block;
		}
		if (wait_ns < shortest_ns)
			shortest_ns = wait_ns;
	}
	pool->pick_again_ns = shortest_ns == UINT64_MAX ? 0 : now + shortest_ns;
	if (pool->pick_again_ns)
		keeper_wake_by(pool, pool->pick_again_ns);
	return NULL;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* The first filling is over when every block has come to a result. Lock held; drops it meanwhile. */
static void note_tried(struct pool *pool, struct pool_block *block)
{
	uint64_t online = 0, configured = 0;

	if (block->tried)
		return;
	block->tried = true;
	if (--pool->untried_blocks)
		return;
	resize_sum_up(pool, &online, &configured);
	pthread_mutex_unlock(&pool->lock);
	pool->callbacks.filled(pool->callbacks.userdata, online, configured);
	pthread_mutex_lock(&pool->lock);
}

/* Lock held; drops it while it works. */
static void work_on(struct recycler *recycler, struct pool_block *block, uint32_t owner)
{
	struct pool *pool = recycler->pool;
	uint64_t wait_ns;

	block->busy = true;
	if (owner != HP_OWNER_NONE)
		pool->owners[owner].busy = true;
	pthread_mutex_unlock(&pool->lock);
	wait_ns = life_advance(recycler, block);
	pthread_mutex_lock(&pool->lock);
	if (owner != HP_OWNER_NONE)
		pool->owners[owner].busy = false;
	block->busy = false;
	if (wait_ns) {
		block->retry_ns = pool_now_ns() + wait_ns;
		TAILQ_INSERT_TAIL(&pool->waiting, block, queue);
		keeper_wake_by(pool, block->retry_ns);
	}
	if (!TAILQ_EMPTY(&pool->ready))
		pthread_cond_signal(&pool->work); /* perhaps the next one of this owner */
	pthread_cond_broadcast(&pool->changed);
	note_tried(pool, block);
}

/* Back from a call that took too long: is there still a place? */
static bool is_superfluous(struct recycler *recycler)
{
	struct pool *pool = recycler->pool;

	if (!recycler->stuck)
		return false;
	recycler->stuck = false;
	if (pool->nr_counted >= pool->config->recycle_threads)
		return true;
	pool->nr_counted++;
	return false;
}

static void *run(void *arg)
{
	struct recycler *recycler = arg;
	struct pool *pool = recycler->pool;
	bool superfluous = false;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stopping && !superfluous) {
		uint32_t owner;
		struct pool_block *block = pick(pool, &owner);

		if (!block) {
			pthread_cond_wait(&pool->work, &pool->lock);
			continue;
		}
		work_on(recycler, block, owner);
		superfluous = is_superfluous(recycler);
	}
	if (!superfluous && !recycler->stuck)
		pool->nr_counted--;
	recycler->state = RECYCLER_DONE;
	keeper_wake_by(pool, pool_now_ns());
	pthread_cond_signal(&pool->work); /* what it made possible is another one's */
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static struct recycler *free_place(struct pool *pool)
{
	for (unsigned i = 0; i < pool->nr_recyclers; i++)
		if (pool->recyclers[i].state == RECYCLER_FREE)
			return &pool->recyclers[i];
	return NULL;
}

int recycler_start(struct pool *pool)
{
	struct recycler *recycler = free_place(pool);
	pthread_attr_t attributes;
	int r;

	if (!recycler)
		return -EAGAIN;
	*recycler = (struct recycler){.pool = pool, .state = RECYCLER_RUNNING, .node = -1};
	r = -pthread_attr_init(&attributes);
	if (r == 0) {
		pthread_attr_setstacksize(&attributes, THREAD_STACK_SIZE);
		r = -pthread_create(&recycler->thread, &attributes, run, recycler);
		pthread_attr_destroy(&attributes);
	}
	if (r < 0)
		recycler->state = RECYCLER_FREE;
	else
		pool->nr_counted++;
	return r;
}

/* --- watching --------------------------------------------------------------------------------- */

void recycler_begin_wait(struct recycler *recycler)
{
	struct pool *pool = recycler->pool;

	pthread_mutex_lock(&pool->lock);
	recycler->waits_since_ns = pool_now_ns();
	keeper_wake_by(pool, recycler->waits_since_ns + STUCK_NS);
	pthread_mutex_unlock(&pool->lock);
}

void recycler_end_wait(struct recycler *recycler)
{
	struct pool *pool = recycler->pool;

	pthread_mutex_lock(&pool->lock);
	recycler->waits_since_ns = 0;
	pthread_mutex_unlock(&pool->lock);
}

static void replace(struct pool *pool, struct recycler *recycler)
{
	int r;

	recycler->stuck = true;
	pool->nr_counted--;
	r = recycler_start(pool);
	if (r < 0)
		log_warning("recycler is stuck and cannot be replaced error=\"%s\"", strerror(-r));
	else
		log_info("recycler is stuck, another one has taken over");
}

void recycler_watch(struct pool *pool, uint64_t now_ns, uint64_t *next_ns)
{
	for (unsigned i = 0; i < pool->nr_recyclers; i++) {
		struct recycler *recycler = &pool->recyclers[i];

		if (recycler->state == RECYCLER_DONE) { /* it has let go of the lock for good */
			pthread_join(recycler->thread, NULL);
			recycler->state = RECYCLER_FREE;
		}
		if (recycler->state != RECYCLER_RUNNING || recycler->stuck ||
		    !recycler->waits_since_ns)
			continue;
		if (now_ns >= recycler->waits_since_ns + STUCK_NS)
			replace(pool, recycler);
		else if (recycler->waits_since_ns + STUCK_NS < *next_ns)
			*next_ns = recycler->waits_since_ns + STUCK_NS;
	}
}

void recycler_join_all(struct pool *pool)
{
	for (unsigned i = 0; i < pool->nr_recyclers; i++) {
		bool is_free;

		pthread_mutex_lock(&pool->lock);
		is_free = pool->recyclers[i].state == RECYCLER_FREE;
		pthread_mutex_unlock(&pool->lock);
		if (is_free)
			continue;
		pthread_join(pool->recyclers[i].thread, NULL);
		pool->recyclers[i].state = RECYCLER_FREE;
	}
}
