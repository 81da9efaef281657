/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lives of a block's memory, from the end of one to the beginning of the next:
 *
 *   retiring -> held -> empty -> ready        and, where pages do not come back, empty -> damaged -> ready
 *
 * One function advances a block as far as it gets. Whatever does not work is tried again, for ever
 * but ever more seldom; until it works the block's word in the zone stays isolated or quarantined, and
 * so charged to whom it belonged. A block comes up for the first time by the same steps: it starts as
 * retiring, since files of a daemon that was killed may lie in its directory.
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_FIRST_NS	     (2 * UINT64_C(1000000))
#define RETRY_MAX_NS	     UINT64_C(1000000000)
#define RETRY_DAMAGED_MAX_NS (5 * RETRY_MAX_NS) /* each may zero most of a block in vain */

static const char *const stage_names[STAGES] = {
	[STAGE_ABSENT] = "absent", [STAGE_RETIRING] = "retiring", [STAGE_HELD] = "held",
	[STAGE_EMPTY] = "empty",   [STAGE_DAMAGED] = "damaged",	  [STAGE_READY] = "ready",
};

static const bool allowed[STAGES][STAGES] = {
	[STAGE_ABSENT] = {[STAGE_RETIRING] = true},
	/* ready at once: as another daemon left it */
	[STAGE_RETIRING] = {[STAGE_RETIRING] = true, [STAGE_HELD] = true, [STAGE_READY] = true},
	[STAGE_HELD] = {[STAGE_HELD] = true, [STAGE_EMPTY] = true},
	[STAGE_EMPTY] = {[STAGE_EMPTY] = true, [STAGE_DAMAGED] = true, [STAGE_READY] = true},
	[STAGE_DAMAGED] = {[STAGE_DAMAGED] = true, [STAGE_READY] = true},
	[STAGE_READY] = {[STAGE_RETIRING] = true, [STAGE_ABSENT] = true /* given up */},
};

void life_set_stage(struct pool_block *block, enum block_stage stage, const char *reason)
{
	assert(allowed[block->stage][stage]);
	if (stage != block->stage)
		log_debug("block changes stage zone=%s block=%u from=%s to=%s",
			  block->zone->public.name, block->index, stage_names[block->stage],
			  stage_names[stage]);
	block->stage = stage;
	(void)snprintf(block->reason, sizeof(block->reason), "%s", reason);
}

void life_take_in(struct pool_block *block)
{
	struct pool *pool = block->zone->pool;

	life_set_stage(block, STAGE_RETIRING, "");
	block->failures = 0;
	block->tried = false;
	pool->untried_blocks++;
	pool->nr_known_blocks++;
	TAILQ_INSERT_TAIL(&pool->ready, block, queue);
	pthread_cond_signal(&pool->work);
}

static void enter_stage(struct pool_block *block, enum block_stage stage, const char *reason)
{
	struct pool *pool = block->zone->pool;

	pthread_mutex_lock(&pool->lock);
	life_set_stage(block, stage, reason);
	pthread_mutex_unlock(&pool->lock);
}

/* The same stage again, with what stopped it. */
static uint64_t try_again(struct pool_block *block, const char *reason)
{
	struct pool *pool = block->zone->pool;
	uint64_t delay_ns = block->stage == STAGE_DAMAGED ? RETRY_DAMAGED_MAX_NS : RETRY_MAX_NS;

	pthread_mutex_lock(&pool->lock);
	if (block->failures < 16 && RETRY_FIRST_NS << block->failures < delay_ns)
		delay_ns = RETRY_FIRST_NS << block->failures;
	block->failures++;
	life_set_stage(block, block->stage, reason);
	pthread_mutex_unlock(&pool->lock);
	return delay_ns;
}

/* With errors of the system, which should not happen: logged when they begin. */
static uint64_t try_again_after_error(struct pool_block *block, const char *what, int error)
{
	char reason[BACKING_REASON_MAX];

	(void)snprintf(reason, sizeof(reason), "%s: %s", what, strerror(error));
	if (block->failures == 0)
		log_error("block cannot be made ready zone=%s block=%u reason=\"%s\"",
			  block->zone->public.name, block->index, reason);
	return try_again(block, reason);
}

/* --- steps: 0 and on with the next one, or how long to wait ----------------------------------- */

/* What INSPECT and the log say of a zone whose recycling is held; "" when it goes on. */
static void note_held(struct bound_zone *zone, const char held[static BACKING_REASON_MAX])
{
	bool changed;

	pthread_mutex_lock(&zone->pool->lock);
	changed = !*zone->held != !*held;
	memcpy(zone->held, held, BACKING_REASON_MAX);
	pthread_mutex_unlock(&zone->pool->lock);
	if (changed && *held)
		log_error("recycling is held zone=%s reason=\"%s\"", zone->public.name, held);
	else if (changed)
		log_notice("recycling goes on zone=%s", zone->public.name);
}

/*
 * Truncated pages go to the kernel while there are more than it was asked for, whoever caused that: so
 * a block keeps its pages until there are not. One without files has nothing to lose.
 */
static uint64_t hold_for_surplus(struct pool_block *block)
{
	char held[BACKING_REASON_MAX] = "";
	uint64_t surplus;
	int r;

	r = block->zone->backing->surplus(block, &surplus);
	if (r == BACKING_BARE)
		return 0;
	if (r < 0)
		return try_again_after_error(block, "the kernel's numbers", -r);
	if (surplus)
		(void)snprintf(
			held, sizeof(held), "%" PRIu64 " surplus huge pages: %s", surplus,
			"nr_hugepages was lowered from outside, or other programs overcommit");
	note_held(block->zone, held);
	return surplus ? try_again(block, held) : 0;
}

static uint64_t retire(struct recycler *recycler, struct pool_block *block)
{
	uint64_t wait_ns;
	int r;

	wait_ns = hold_for_surplus(block);
	if (wait_ns)
		return wait_ns;
	recycler_begin_wait(recycler);
	r = block->zone->backing->empty(block);
	recycler_end_wait(recycler);
	if (r < 0)
		return try_again_after_error(block, "a file cannot be emptied", -r);
	enter_stage(block, STAGE_HELD, "");
	return 0;
}

static uint64_t wait_for_holders(struct recycler *recycler, struct pool_block *block)
{
	char reason[BACKING_REASON_MAX] = "";
	int r;

	recycler_begin_wait(recycler);
	r = block->zone->backing->release(block, reason);
	recycler_end_wait(recycler);
	if (r < 0)
		return try_again_after_error(block, "an old file cannot be removed", -r);
	if (r == BACKING_HELD)
		return try_again(block, reason);
	pthread_mutex_lock(&recycler->pool->lock);
	block->failures = 0;
	life_set_stage(block, STAGE_EMPTY, "");
	pthread_mutex_unlock(&recycler->pool->lock);
	return 0;
}

/* Pages are missing: charged to whom it belonged until they are back. */
static uint64_t quarantine(struct pool_block *block, const char *reason)
{
	struct pool_zone *zone = &block->zone->public;
	struct hp_block_word word = hp_zone_block_word(zone->zone, block->index);

	if (word.state == HP_BLOCK_ISOLATED && hp_zone_quarantine(zone->zone, block->index))
		log_error("block cannot be quarantined zone=%s block=%u", zone->name, block->index);
	if (block->stage == STAGE_EMPTY) {
		log_warning("block is not whole zone=%s block=%u owner=%u reason=\"%s\"",
			    zone->name, block->index, word.owner, reason);
		enter_stage(block, STAGE_DAMAGED, reason);
	}
	return try_again(block, reason);
}

static void bind_node(struct recycler *recycler, const struct pool_block *block)
{
	int node = block->zone->public.config->node, r;

	if (node == recycler->node)
		return;
	r = backing_bind_node(node);
	if (r == 0)
		recycler->node = node;
	else /* make() looks where the pages are */
		log_error("cannot allocate on node=%d error=\"%s\"", node, strerror(-r));
}

static uint64_t make(struct recycler *recycler, struct pool_block *block)
{
	uint64_t generation = block->backing.generation + 1;
	char reason[BACKING_REASON_MAX] = "";
	int r;

	if (generation > HP_BLOCK_GENERATION_MAX)
		return try_again(block, "it has had as many lives as can be counted");
	bind_node(recycler, block);
	r = block->zone->backing->make(block, generation, reason);
	if (r < 0)
		return try_again_after_error(block, "a file cannot be made", -r);
	if (r == BACKING_SHORT)
		return quarantine(block, reason);
	block->backing.generation = generation;
	if (block->stage == STAGE_DAMAGED)
		log_notice("block is whole again zone=%s block=%u", block->zone->public.name,
			   block->index);
	enter_stage(block, STAGE_READY, "");
	return 0;
}

/* The file is whole: the zone may hand it out. */
static void publish(struct recycler *recycler, struct pool_block *block)
{
	struct bound_zone *zone = block->zone;
	struct pool *pool = recycler->pool;
	uint64_t generation = block->backing.generation;
	struct hp_block_word word = hp_zone_block_word(zone->public.zone, block->index);
	bool first = word.state == HP_BLOCK_OFFLINE;
	int r;

	/* All bookkeeping before the word: from then on the block is anybody's. */
	pthread_mutex_lock(&pool->lock);
	block->failures = 0;
	block->idle_since_ns = 0;
	block->seen_state = HP_BLOCK_CLEAN;
	block->since_ns = pool_now_ns();
	if (first)
		zone->online_blocks++;
	else
		zone->recycles++;
	pthread_mutex_unlock(&pool->lock);

	r = first ? hp_zone_online(zone->public.zone, block->index, generation)
		  : hp_zone_put_clean(zone->public.zone, block->index, generation);
	if (r) /* nobody but us moves a block out of these states */
		log_error("block cannot be put into the zone zone=%s block=%u condition=%d",
			  zone->public.name, block->index, r);
	assert(r == 0);
	pool->callbacks.clean(pool->callbacks.userdata, &zone->public);
	if (word.owner != HP_OWNER_NONE)
		pool->callbacks.owner_changed(pool->callbacks.userdata, word.owner);
}

uint64_t life_advance(struct recycler *recycler, struct pool_block *block)
{
	uint64_t wait_ns = 0;

	while (wait_ns == 0 && block->stage != STAGE_READY) {
		switch (block->stage) {
		case STAGE_RETIRING:
			wait_ns = retire(recycler, block);
			break;
		case STAGE_HELD:
			wait_ns = wait_for_holders(recycler, block);
			break;
		case STAGE_EMPTY:
		case STAGE_DAMAGED:
			wait_ns = make(recycler, block);
			break;
		default:
			assert(!"a block that no recycler should have");
		}
	}
	if (wait_ns == 0)
		publish(recycler, block);
	return wait_ns;
}
