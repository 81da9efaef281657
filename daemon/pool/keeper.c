/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: the one thread of the pool that watches the clock. It never waits for anything that a
 * client can hold up.
 *
 * It looks at the zones when it has been poked, at most every 20 ms however often it is poked, and
 * sleeps without a timer while there is nothing to expect. Blocks that are idle too long, or that are
 * needed as clean ones, it takes out of their zone and gives to the recyclers; so it does with blocks
 * that others took out (a revocation).
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"

#include <poll.h>
#include <stdint.h>
#include <unistd.h>

#define SCAN_INTERVAL_NS (20 * UINT64_C(1000000))
#define NEVER		 UINT64_MAX

/* --- waking ----------------------------------------------------------------------------------- */

void keeper_kick(struct pool *pool)
{
	const uint64_t one = 1;

	(void)!write(pool->keeper_event, &one, sizeof(one)); /* full is as good */
}

void keeper_wake_by(struct pool *pool, uint64_t when_ns)
{
	if (when_ns >= pool->keeper_wakes_ns)
		return;
	pool->keeper_wakes_ns = when_ns;
	keeper_kick(pool);
}

void pool_poke(struct pool *pool)
{
	if (!atomic_exchange_explicit(&pool->poked, true, memory_order_acq_rel))
		keeper_kick(pool);
}

void pool_set_wanted(struct pool_zone *zone, uint32_t blocks)
{
	struct bound_zone *bound = bound_zone(zone);

	bound->wanted_blocks = blocks;
	if (blocks)
		pool_poke(bound->pool);
}

void pool_set_owner_waits(struct pool_zone *zone, uint32_t owner, bool waits, uint32_t clean_blocks)
{
	struct bound_zone *bound = bound_zone(zone);

	if (owner >= HP_OWNERS_MAX)
		return;
	bound->owner_waits[owner] = waits;
	if (bound->owner_lacks[owner] == clean_blocks)
		return;
	bound->owner_lacks[owner] = clean_blocks;
	pool_poke(bound->pool);
}

void pool_refresh_owner(struct pool_zone *zone, uint32_t owner, uint32_t blocks)
{
	struct bound_zone *bound = bound_zone(zone);

	if (owner >= HP_OWNERS_MAX)
		return;
	bound->owner_refresh[owner] = blocks < zone->nr_blocks ? blocks : zone->nr_blocks;
	pool_poke(bound->pool);
}

void pool_owner_idle(struct pool *pool, uint32_t owner, bool idle)
{
	if (owner >= pool->nr_owners)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->owners[owner].idle_since_ns = idle ? pool_now_ns() : 0;
	pool->owners[owner].gone = false;
	pthread_mutex_unlock(&pool->lock);
	pool_poke(pool);
}

void pool_owner_gone(struct pool *pool, uint32_t owner)
{
	if (owner >= pool->nr_owners)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->owners[owner].idle_since_ns = pool_now_ns();
	pool->owners[owner].gone = true;
	pthread_mutex_unlock(&pool->lock);
	pool_poke(pool);
}

/* --- looking at a zone ------------------------------------------------------------------------ */

static void give_to_recyclers(struct pool_block *block)
{
	life_set_stage(block, STAGE_RETIRING, "");
	block->failures = 0;
	TAILQ_INSERT_TAIL(&block->zone->pool->ready, block, queue);
}

/* When a block of an owner without sessions is to go: 0 if he has one. */
static uint64_t leaves_at(const struct pool *pool, uint32_t owner)
{
	const struct pool_owner *of;

	if (owner >= pool->nr_owners)
		return 0;
	of = &pool->owners[owner];
	if (!of->idle_since_ns)
		return 0;
	return of->gone ? of->idle_since_ns : of->idle_since_ns + pool->idle_delay_ns;
}

/* Clean, or on its way there and to be counted on: not what somebody still holds. */
static bool is_coming(const struct pool_block *block)
{
	switch (block->stage) {
	case STAGE_RETIRING:
	case STAGE_EMPTY:
		return true;
	case STAGE_HELD:
		return block->failures < 5;
	case STAGE_READY:
		return block->busy ||
		       hp_zone_block_word(block->zone->public.zone, block->index).state ==
			       HP_BLOCK_CLEAN;
	default:
		return false;
	}
}

static bool owner_waits(const struct bound_zone *zone, uint32_t block)
{
	uint32_t owner = hp_zone_block_word(zone->public.zone, block).owner;

	return owner < HP_OWNERS_MAX && zone->owner_waits[owner];
}

static struct pool_owner *owner_of(const struct bound_zone *zone, uint32_t block)
{
	return &zone->pool->owners[hp_zone_block_word(zone->public.zone, block).owner];
}

/*
 * How many blocks of each owner the stock may be filled from. Not what is guaranteed to him while he
 * has sessions: it would be kept clean for him alone, and until it is clean he would have less than
 * he was promised. Lock held.
 */
static void count_spare(struct bound_zone *zone)
{
	struct pool *pool = zone->pool;

	for (uint32_t owner = 0; owner < pool->nr_owners; owner++)
		pool->owners[owner].spare_blocks = 0;
	for (uint32_t i = 0; i < zone->public.nr_blocks; i++)
		if (hp_zone_block_word(zone->public.zone, i).state == HP_BLOCK_LIVE)
			owner_of(zone, i)->spare_blocks++;
	for (uint32_t owner = 0; owner < pool->nr_owners; owner++) {
		uint32_t *spare = &pool->owners[owner].spare_blocks;
		struct hp_account_stats account;

		if (*spare == 0 || leaves_at(pool, owner))
			continue;
		hp_zone_account_stats(zone->public.zone, owner, &account);
		*spare -= account.guarantee_blocks < *spare ? account.guarantee_blocks : *spare;
	}
}

static struct pool_block *oldest_idle(struct bound_zone *zone)
{
	struct pool_block *oldest = NULL;

	for (uint32_t i = 0; i < zone->public.nr_blocks; i++) {
		struct pool_block *block = &zone->blocks[i];

		if (block->stage == STAGE_READY && block->idle_since_ns && !block->busy &&
		    !owner_waits(zone, i) && owner_of(zone, i)->spare_blocks &&
		    (!oldest || block->idle_since_ns < oldest->idle_since_ns))
			oldest = block;
	}
	return oldest;
}

struct scan {
	uint64_t now_ns, next_ns; /* next: when a block becomes overdue */
	struct pool_block **retired;
	size_t nr_retired;
};

/*
 * Takes an idle block out of its zone. It stays busy, so that nobody works on it, until its users
 * have been told: whoever hears of a new life has heard of the end of the old one before.
 * Return: whether it was idle indeed.
 */
static bool take(struct scan *scan, struct pool_block *block)
{
	bool taken = hp_zone_isolate(block->zone->public.zone, block->index) == 0;

	block->idle_since_ns = 0;
	if (!taken)
		return false;
	block->seen_state = HP_BLOCK_ISOLATED;
	block->since_ns = scan->now_ns;
	block->busy = true;
	scan->retired[scan->nr_retired++] = block;
	return true;
}

/* His limit was lowered below what he holds: what he does not use goes. */
static bool is_over_limit(const struct bound_zone *zone, uint32_t owner)
{
	struct hp_account_stats account;

	hp_zone_account_stats(zone->public.zone, owner, &account);
	return account.held_blocks > account.limit_blocks;
}

/* Blocks of an owner who lacks clean ones that are being made clean, and are to be counted on. */
static uint32_t coming_from(const struct bound_zone *zone, uint32_t owner)
{
	uint32_t n = 0;

	if (!zone->owner_lacks[owner])
		return 0;
	for (uint32_t i = 0; i < zone->public.nr_blocks; i++) {
		struct hp_block_word word = hp_zone_block_word(zone->public.zone, i);

		n += word.owner == owner && word.state != HP_BLOCK_LIVE &&
		     is_coming(&zone->blocks[i]);
	}
	return n;
}

/*
 * A live block: idle, and wanted clean by its owner, or its owner gone for long enough, or over his
 * limit?
 */
static void look_at_live(struct pool_block *block, struct scan *scan)
{
	struct bound_zone *zone = block->zone;
	struct hp_block_info info;
	uint64_t leaves;

	if (hp_zone_block_info(zone->public.zone, block->index, &info) != 0 || !info.idle) {
		block->idle_since_ns = 0;
		return;
	}
	if (!block->idle_since_ns)
		block->idle_since_ns = scan->now_ns;
	if (zone->owner_refresh[info.word.owner]) {
		if (take(scan, block))
			zone->owner_refresh[info.word.owner]--;
		return;
	}
	if (coming_from(zone, info.word.owner) < zone->owner_lacks[info.word.owner]) {
		take(scan, block);
		return;
	}
	leaves = leaves_at(zone->pool, info.word.owner);
	if ((leaves && leaves <= scan->now_ns) || is_over_limit(zone, info.word.owner))
		take(scan, block);
	else if (leaves && leaves < scan->next_ns)
		scan->next_ns = leaves;
}

/* Lock held. */
static void look_at_block(struct pool_block *block, struct scan *scan)
{
	enum hp_block_state state;

	if (block->stage != STAGE_READY || block->busy)
		return;
	state = hp_zone_block_word(block->zone->public.zone, block->index).state;
	if (state != block->seen_state) {
		block->seen_state = state;
		block->since_ns = scan->now_ns;
	}
	if (state == HP_BLOCK_LIVE)
		look_at_live(block, scan);
	else if (state == HP_BLOCK_ISOLATED || state == HP_BLOCK_QUARANTINED)
		give_to_recyclers(block); /* taken out by somebody else */
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/*
 * Clean blocks that somebody waits for, or that a guarantee which was raised still lacks; and those that
 * are to be given up, on top of what has to stay. Lock held.
 */
static uint32_t wanted_blocks(const struct bound_zone *zone)
{
	struct hp_zone_stats stats;
	uint32_t wanted;

	hp_zone_stats(zone->public.zone, &stats);
	wanted = max_u32(zone->wanted_blocks, stats.unmet_guarantee_blocks);
	if (zone->giving_up_blocks)
		wanted = max_u32(wanted, zone->public.clean_min) + zone->giving_up_blocks;
	return wanted;
}

/* Lock held. */
static void scan_zone(struct bound_zone *zone, struct scan *scan)
{
	uint32_t wanted = wanted_blocks(zone), coming = 0;
	uint32_t low = max_u32(wanted, zone->public.clean_low);
	uint32_t high = max_u32(wanted, zone->public.clean_high);

	for (uint32_t i = 0; i < zone->public.nr_blocks; i++) {
		look_at_block(&zone->blocks[i], scan);
		coming += is_coming(&zone->blocks[i]);
	}
	if (coming >= low)
		return;
	count_spare(zone);
	while (coming < high) {
		struct pool_block *block = oldest_idle(zone);

		if (!block)
			return;
		if (!take(scan, block)) /* his again since it was looked at; no longer idle to us */
			continue;
		owner_of(zone, block->index)->spare_blocks--;
		coming++;
	}
}

/* Tells the users of the blocks that were taken, then lets the recyclers have them. */
static void retire(struct pool *pool, struct scan *scan)
{
	for (size_t i = 0; i < scan->nr_retired; i++) {
		struct pool_block *block = scan->retired[i];

		pool->callbacks.retired(pool->callbacks.userdata, &block->zone->public,
					block->index, block->backing.generation);
	}
	pthread_mutex_lock(&pool->lock);
	for (size_t i = 0; i < scan->nr_retired; i++) {
		scan->retired[i]->busy = false;
		give_to_recyclers(scan->retired[i]);
	}
	if (!TAILQ_EMPTY(&pool->ready))
		pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

/*
 * The zone's word decides who has taken it: the keeper, who may have it in hand, or we. While it is
 * busy nobody else looks at it.
 */
int pool_take_block(struct pool_zone *zone, uint32_t index, hp_hit_fn hit, void *userdata)
{
	struct bound_zone *bound = bound_zone(zone);
	struct pool *pool = bound->pool;
	struct pool_block *block;
	struct scan scan = {.now_ns = pool_now_ns(), .retired = &block, .nr_retired = 1};
	int r = HP_BUSY;

	if (index >= zone->nr_blocks)
		return HP_OUT_OF_RANGE;
	block = &bound->blocks[index];
	pthread_mutex_lock(&pool->lock);
	if (block->stage == STAGE_READY && !block->busy) {
		r = 0;
		block->busy = true;
	}
	pthread_mutex_unlock(&pool->lock);
	if (r)
		return r;
	r = hp_zone_revoke_block(zone->zone, index, false, hit, userdata);
	pthread_mutex_lock(&pool->lock);
	if (r == 0) {
		block->idle_since_ns = 0;
		block->seen_state = HP_BLOCK_ISOLATED;
		block->since_ns = scan.now_ns;
	} else {
		block->busy = false;
	}
	pthread_mutex_unlock(&pool->lock);
	if (r == 0)
		retire(pool, &scan);
	return r;
}

/* Return: when a block becomes overdue that is not yet. */
static uint64_t scan_zones(struct pool *pool, uint64_t now_ns)
{
	struct scan scan = {.now_ns = now_ns, .next_ns = NEVER, .retired = pool->retired};

	for (size_t z = 0; z < pool->nr_zones; z++) {
		scan.nr_retired = 0;
		pthread_mutex_lock(&pool->lock);
		scan_zone(&pool->zones[z], &scan);
		pthread_mutex_unlock(&pool->lock);
		retire(pool, &scan);
	}
	return scan.next_ns;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void move_due(struct pool *pool, uint64_t now_ns, uint64_t *next_ns)
{
	struct pool_block *block = TAILQ_FIRST(&pool->waiting), *next;

	for (; block; block = next) {
		next = TAILQ_NEXT(block, queue);
		if (block->retry_ns <= now_ns) {
			TAILQ_REMOVE(&pool->waiting, block, queue);
			TAILQ_INSERT_TAIL(&pool->ready, block, queue);
			pthread_cond_signal(&pool->work);
		} else if (block->retry_ns < *next_ns) {
			*next_ns = block->retry_ns;
		}
	}
	if (!pool->pick_again_ns)
		return;
	if (pool->pick_again_ns <= now_ns) {
		pool->pick_again_ns = 0;
		pthread_cond_signal(&pool->work);
	} else if (pool->pick_again_ns < *next_ns) {
		*next_ns = pool->pick_again_ns;
	}
}

static void sleep_until(struct pool *pool, uint64_t when_ns)
{
	struct pollfd polled = {.fd = pool->keeper_event, .events = POLLIN};
	uint64_t now_ns = pool_now_ns(), count;
	struct timespec timeout = {0};

	if (when_ns > now_ns) {
		timeout.tv_sec = (time_t)((when_ns - now_ns) / 1000000000);
		timeout.tv_nsec = (long)((when_ns - now_ns) % 1000000000);
	}
	if (ppoll(&polled, 1, when_ns == NEVER ? NULL : &timeout, NULL) > 0)
		(void)!read(pool->keeper_event, &count, sizeof(count));
}

/* Return: when to look again at the latest; 0: it is over. */
static uint64_t look(struct pool *pool, uint64_t *idle_ns)
{
	uint64_t now_ns = pool_now_ns(), next_ns = NEVER;
	bool scan;

	pthread_mutex_lock(&pool->lock);
	if (pool->stopping) {
		pthread_mutex_unlock(&pool->lock);
		return 0;
	}
	pool->keeper_wakes_ns = NEVER; /* from here on, others may bring it forward */
	move_due(pool, now_ns, &next_ns);
	recycler_watch(pool, now_ns, &next_ns);
	pthread_mutex_unlock(&pool->lock);

	scan = atomic_load_explicit(&pool->poked, memory_order_acquire) || *idle_ns <= now_ns;
	if (scan && now_ns >= pool->scanned_ns + SCAN_INTERVAL_NS) {
		atomic_store_explicit(&pool->poked, false, memory_order_release);
		pool->scanned_ns = now_ns;
		*idle_ns = scan_zones(pool, now_ns);
	} else if (scan && pool->scanned_ns + SCAN_INTERVAL_NS < next_ns) {
		next_ns = pool->scanned_ns + SCAN_INTERVAL_NS;
	}
	return *idle_ns < next_ns ? *idle_ns : next_ns;
}

/*
 * What was taken over is there from the beginning; and if nothing is to be brought up, nobody else will
 * say that the filling is over.
 */
static void tell_what_is_there(struct pool *pool)
{
	uint64_t online = 0, configured = 0;
	bool filled;

	pthread_mutex_lock(&pool->lock);
	filled = !pool->untried_blocks;
	resize_sum_up(pool, &online, &configured);
	pthread_mutex_unlock(&pool->lock);
	for (size_t z = 0; state_is_adopted(pool->state) && z < pool->nr_zones; z++)
		pool->callbacks.clean(pool->callbacks.userdata, &pool->zones[z].public);
	if (filled)
		pool->callbacks.filled(pool->callbacks.userdata, online, configured);
}

static void *run(void *arg)
{
	struct pool *pool = arg;
	uint64_t idle_ns = NEVER, next_ns;

	tell_what_is_there(pool);
	while ((next_ns = look(pool, &idle_ns)) != 0) {
		pthread_mutex_lock(&pool->lock);
		if (next_ns < pool->keeper_wakes_ns)
			pool->keeper_wakes_ns = next_ns;
		next_ns = pool->keeper_wakes_ns;
		pthread_mutex_unlock(&pool->lock);
		sleep_until(pool, next_ns);
	}
	return NULL;
}

int keeper_start(struct pool *pool)
{
	return -pthread_create(&pool->keeper, NULL, run, pool);
}

void keeper_join(struct pool *pool)
{
	keeper_kick(pool);
	pthread_join(pool->keeper, NULL);
}
