/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zones that grow and shrink while they are used.
 *
 * What comes is handed over by hugepool-setup and brought up by the recyclers, like everything at the
 * start. What goes is clean, or becomes so first: the keeper is told that so many more clean blocks
 * are wanted, takes back idle ones for it, and they are given up as they come. Whether a clean block
 * may go is decided under the lock of its zone, against guarantees and the stock that is to stay.
 *
 * It takes as long as it takes, so it has a thread. Killed at any moment: a block that was given up
 * but not yet taken away by hugepool-setup is handed to the next daemon, which brings it up again.
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define TIMEOUT_NS  (10 * UINT64_C(1000000000)) /* for idle blocks to become clean, new ones ready */
#define INTERVAL_NS (20 * UINT64_C(1000000))	/* if nobody says that something has changed */

struct resize {
	struct bound_zone *zone;
	enum pool_resize_kind kind;
	pool_resized_fn fn;
	void *userdata;
	uint64_t deadline_ns;
	struct pool_resized outcome;
};

uint32_t resize_known_blocks(const struct bound_zone *zone)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < zone->public.nr_blocks; i++)
		n += zone->blocks[i].stage != STAGE_ABSENT;
	return n;
}

void resize_sum_up(const struct pool *pool, uint64_t *ret_online_bytes,
		   uint64_t *ret_configured_bytes)
{
	*ret_online_bytes = *ret_configured_bytes = 0;
	for (size_t z = 0; z < pool->nr_zones; z++) {
		const struct pool_zone *zone = &pool->zones[z].public;

		*ret_online_bytes += pool->zones[z].online_blocks * zone->block_bytes;
		*ret_configured_bytes += zone->size_blocks * zone->block_bytes;
	}
}

static uint32_t count_known(struct bound_zone *zone)
{
	uint32_t n;

	pthread_mutex_lock(&zone->pool->lock);
	n = resize_known_blocks(zone);
	pthread_mutex_unlock(&zone->pool->lock);
	return n;
}

__attribute__((format(printf, 2, 3))) static void explain(struct resize *resize, const char *format,
							  ...)
{
	va_list args;

	if (*resize->outcome.reason)
		return; /* the first reason is the reason */
	va_start(args, format);
	(void)vsnprintf(resize->outcome.reason, sizeof(resize->outcome.reason), format, args);
	va_end(args);
}

/* Until a recycler has done something. Lock held, dropped meanwhile. Return: false: it is over. */
static bool wait_for_change(struct resize *resize)
{
	struct pool *pool = resize->zone->pool;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += INTERVAL_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
	return !pool->stopping && pool_now_ns() < resize->deadline_ns;
}

/* Whatever went wrong then, it is no reason of its own. */
static void explain_stop(struct resize *resize)
{
	pthread_mutex_lock(&resize->zone->pool->lock);
	if (resize->zone->pool->stopping)
		explain(resize, "the daemon is stopping");
	pthread_mutex_unlock(&resize->zone->pool->lock);
}

/* --- larger ----------------------------------------------------------------------------------- */

/* Memory that needs nobody's help: the lowest numbers first. */
static void take_in_own(struct bound_zone *zone, uint32_t blocks)
{
	pthread_mutex_lock(&zone->pool->lock);
	for (uint32_t i = 0; i < zone->public.nr_blocks && resize_known_blocks(zone) < blocks; i++)
		if (zone->blocks[i].stage == STAGE_ABSENT)
			life_take_in(&zone->blocks[i]);
	pthread_mutex_unlock(&zone->pool->lock);
}

/* Until each that came has been tried. */
static void wait_until_tried(struct resize *resize)
{
	struct bound_zone *zone = resize->zone;
	uint32_t untried;

	pthread_mutex_lock(&zone->pool->lock);
	do {
		untried = 0;
		for (uint32_t i = 0; i < zone->public.nr_blocks; i++)
			untried += zone->blocks[i].stage != STAGE_ABSENT && !zone->blocks[i].tried;
	} while (untried && wait_for_change(resize));
	pthread_mutex_unlock(&zone->pool->lock);
}

static void set_size(struct bound_zone *zone, uint32_t blocks)
{
	uint32_t guaranteed;

	if (hp_zone_set_size(zone->public.zone, blocks, &guaranteed) == 0)
		zone->public.size_blocks = blocks;
}

static void adopt(struct resize *resize, uint32_t wanted)
{
	struct bound_zone *zone = resize->zone;
	char text[POOL_REASON_MAX] = "";
	uint32_t known;
	int r = 0;

	if (zone->backing == &backing_hugetlb)
		r = source_adopt(zone, wanted, text);
	else
		take_in_own(zone, wanted);
	explain_stop(resize);
	if (r < 0)
		explain(resize, "%s%s%.160s", strerror(-r), *text ? ": " : "", text);
	known = count_known(zone);
	if (known > zone->public.size_blocks)
		set_size(zone, known);
	wait_until_tried(resize);
	if (known < resize->outcome.wanted_blocks)
		explain(resize, "%s", *text ? text : "hugepool-setup has no more blocks");
}

/* --- smaller ---------------------------------------------------------------------------------- */

/* Ours alone from here on: no recycler, no keeper, no revocation works on it. Return: whether. */
static bool reserve(struct pool_block *block)
{
	bool free;

	pthread_mutex_lock(&block->zone->pool->lock);
	free = block->stage == STAGE_READY && !block->busy;
	block->busy |= free;
	pthread_mutex_unlock(&block->zone->pool->lock);
	return free;
}

static bool give_up(struct pool_block *block)
{
	struct bound_zone *zone = block->zone;
	struct pool *pool = zone->pool;
	bool gone;

	if (!reserve(block))
		return false;
	gone = hp_zone_give_up(zone->public.zone, block->index, zone->public.clean_min) == 0;
	if (gone) /* clean: nobody holds its file, so nothing here can wait */
		zone->backing->drop(block);
	pthread_mutex_lock(&pool->lock);
	block->busy = false;
	if (gone) {
		life_set_stage(block, STAGE_ABSENT, "given up by a resize");
		block->seen_state = HP_BLOCK_OFFLINE;
		block->since_ns = pool_now_ns();
		zone->online_blocks--;
		pool->nr_known_blocks--;
	}
	pthread_mutex_unlock(&pool->lock);
	return gone;
}

/* From the end, so that low numbers stay. Return: how many blocks there are now. */
static uint32_t give_up_clean(struct bound_zone *zone, uint32_t known, uint32_t wanted)
{
	for (uint32_t i = zone->public.nr_blocks; i-- && known > wanted;)
		if (hp_zone_block_word(zone->public.zone, i).state == HP_BLOCK_CLEAN)
			known -= give_up(&zone->blocks[i]);
	return known;
}

/* Is there a block that may still become clean without anybody giving back a page? */
static bool is_hopeful(struct bound_zone *zone)
{
	struct hp_zone_stats stats;
	uint32_t keep;

	hp_zone_stats(zone->public.zone, &stats);
	keep = stats.unmet_guarantee_blocks > zone->public.clean_min ? stats.unmet_guarantee_blocks
								     : zone->public.clean_min;
	return stats.idle_blocks || stats.isolated || stats.quarantined ||
	       stats.clean_blocks > keep;
}

/* Return: false: time is over, or there is nothing to wait for. */
static bool want_clean(struct resize *resize, uint32_t blocks)
{
	struct pool *pool = resize->zone->pool;
	bool go_on;

	pthread_mutex_lock(&pool->lock);
	resize->zone->giving_up_blocks = blocks;
	pthread_mutex_unlock(&pool->lock);
	if (!blocks || !is_hopeful(resize->zone))
		return false;
	pool_poke(pool);
	pthread_mutex_lock(&pool->lock);
	go_on = wait_for_change(resize);
	pthread_mutex_unlock(&pool->lock);
	return go_on;
}

static void explain_rest(struct resize *resize)
{
	struct hp_zone_stats stats;
	uint32_t blocks = resize->zone->public.block_pages;

	explain_stop(resize);
	hp_zone_stats(resize->zone->public.zone, &stats);
	explain(resize,
		"the other blocks are needed: %u clean ones (unmet guarantees %u, clean-min %u), %u "
		"idle, %u being recycled or held; in the rest pages are leased",
		stats.clean_blocks, stats.unmet_guarantee_blocks, resize->zone->public.clean_min,
		stats.idle_blocks, (unsigned)((stats.isolated + stats.quarantined) / blocks));
}

/* Promises first: whatever becomes of the blocks, no more is promised than there will be. */
static bool may_shrink(struct resize *resize, uint32_t wanted)
{
	struct bound_zone *zone = resize->zone;
	uint32_t guaranteed = 0;

	if (hp_zone_set_size(zone->public.zone, wanted, &guaranteed)) {
		explain(resize, "refused: %u blocks are guaranteed to tenants, %u were asked for",
			guaranteed, wanted);
		return false;
	}
	if (wanted >= zone->public.clean_min && wanted > 0) {
		zone->public.size_blocks = wanted;
		return true;
	}
	set_size(zone, zone->public.size_blocks);
	explain(resize, "refused: %u blocks are to be kept clean (clean-min), %u were asked for",
		zone->public.clean_min, wanted);
	return false;
}

static void give_back(struct resize *resize, uint32_t wanted)
{
	struct bound_zone *zone = resize->zone;
	uint32_t known = count_known(zone);
	char text[POOL_REASON_MAX] = "";
	int r;

	if (known <= wanted || !may_shrink(resize, wanted))
		return;
	do
		known = give_up_clean(zone, known, wanted);
	while (want_clean(resize, known - wanted));
	want_clean(resize, 0);
	r = source_give_up(zone, text);
	explain_stop(resize);
	if (r < 0 || *text)
		explain(resize, "%.160s%s%s", text, *text && r < 0 ? ": " : "",
			r < 0 ? strerror(-r) : "");
	if (known > wanted) {
		explain_rest(resize);
		set_size(zone, known);
	}
}

/* --- the thread ------------------------------------------------------------------------------- */

static void finish(struct resize *resize)
{
	struct bound_zone *zone = resize->zone;
	struct pool *pool = zone->pool;
	struct pool_resized *outcome = &resize->outcome;
	uint64_t online, configured;

	explain_stop(resize);
	pthread_mutex_lock(&pool->lock);
	outcome->after_blocks = zone->online_blocks;
	pool->resizing = false;
	resize_sum_up(pool, &online, &configured);
	pthread_mutex_unlock(&pool->lock);
	if (outcome->after_blocks == outcome->wanted_blocks)
		*outcome->reason = '\0';
	else if (resize->kind == POOL_ADOPT && outcome->after_blocks < outcome->wanted_blocks)
		explain(resize, "not all blocks could be brought up: hugepoolctl blocks tells why");
	log_notice("zone resized zone=%s blocks=%u before=%u wanted=%u reason=\"%s\"",
		   zone->public.name, outcome->after_blocks, outcome->before_blocks,
		   outcome->wanted_blocks, outcome->reason);
	pool->callbacks.filled(pool->callbacks.userdata, online, configured);
	resize->fn(resize->userdata, &zone->public, outcome);
	free(resize);
}

static void *run(void *arg)
{
	struct resize *resize = arg;
	struct bound_zone *zone = resize->zone;
	uint32_t wanted = resize->outcome.wanted_blocks;

	pthread_mutex_lock(&zone->pool->lock);
	resize->outcome.before_blocks = zone->online_blocks;
	pthread_mutex_unlock(&zone->pool->lock);
	resize->deadline_ns = pool_now_ns() + TIMEOUT_NS;
	if (resize->kind == POOL_GIVE_UP)
		give_back(resize, wanted);
	else if (!wanted && resize->outcome.set_up)
		adopt(resize, zone->public.nr_blocks);
	else if (wanted > count_known(zone))
		adopt(resize, wanted);
	if (!wanted)
		resize->outcome.wanted_blocks = count_known(zone);
	finish(resize);
	return NULL;
}

/* Return: 0, -EBUSY: another one is under way. */
static int take_turn(struct pool *pool)
{
	bool join = false;
	int r = 0;

	pthread_mutex_lock(&pool->lock);
	if (pool->resizing || pool->stopping) {
		r = -EBUSY;
	} else {
		pool->resizing = true;
		join = pool->resizer_started;
		pool->resizer_started = false;
	}
	pthread_mutex_unlock(&pool->lock);
	if (join) /* it has nothing left to do */
		pthread_join(pool->resizer, NULL);
	return r;
}

int pool_resize(struct pool_zone *zone, enum pool_resize_kind kind, uint32_t blocks,
		pool_resized_fn fn, void *userdata)
{
	struct pool *pool = bound_zone(zone)->pool;
	struct resize *resize;
	sigset_t all, before;
	int r;

	if (blocks > zone->nr_blocks)
		return -EINVAL;
	resize = calloc(1, sizeof(*resize));
	if (!resize)
		return -ENOMEM;
	*resize = (struct resize){.zone = bound_zone(zone),
				  .kind = kind,
				  .fn = fn,
				  .userdata = userdata,
				  .outcome = {.wanted_blocks = blocks, .set_up = pool->pinned}};
	resize->outcome.set_up &= resize->zone->backing == &backing_hugetlb;
	r = take_turn(pool);
	if (r < 0) {
		free(resize);
		return r;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&pool->resizer, NULL, run, resize);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_mutex_lock(&pool->lock);
	pool->resizer_started = r == 0;
	if (r < 0)
		pool->resizing = false;
	pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		free(resize);
	return r;
}

void resize_stop(struct pool *pool)
{
	bool join;

	pthread_mutex_lock(&pool->lock);
	join = pool->resizer_started;
	pool->resizer_started = false;
	if (pool->resize_socket >= 0)
		shutdown(pool->resize_socket, SHUT_RDWR);
	pthread_cond_broadcast(&pool->changed);
	pthread_mutex_unlock(&pool->lock);
	if (join)
		pthread_join(pool->resizer, NULL);
}
