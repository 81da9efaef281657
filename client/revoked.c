/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range that was taken stays in the table until the program frees it: a program that does not know
 * yet may be using it, and must neither be killed for that nor write into what comes after. So
 * ordinary memory is put where the block was, and nothing else is mapped there before the last of its
 * ranges is freed; that is the acknowledgement, and the daemon accepts it once.
 *
 * It is possible that a range is named which is not there: its FREE is on its way.
 */
#include "client/revoked.h"

#include <errno.h>
#include <syslog.h>

#include "client/connection.h"

#define NS_PER_MS UINT64_C(1000000)

static struct held_range *find(struct hugepool *pool, const uint64_t *words)
{
	struct hp_wire_range wire;
	struct held_range *held;

	if (hp_wire_get_range(words, &wire) < 0)
		return NULL;
	held = range_table_find(&pool->ranges, wire.zone, wire.page);
	return held && held->pages == wire.pages && held->generation == wire.generation ? held
											: NULL;
}

static void ask(struct hugepool *pool, const Hugepool__V1__Revoked *revoked)
{
	uint64_t until_ns = connection_now_ns() + revoked->deadline_ms * NS_PER_MS;

	for (size_t i = 0; i < revoked->n_ranges; i += HP_WIRE_RANGE_WORDS) {
		struct held_range *held = find(pool, revoked->ranges + i);

		if (held && !held->leaving && !held->revoked)
			event_wanted(pool, held, until_ns, revoked->force);
	}
}

static void take_range(struct hugepool *pool, struct window *window, uint32_t block,
		       struct held_range *held)
{
	if (window_take_part(window, block, held->page, held->pages, held->address) < 0)
		event_log(pool, LOG_ERR, "no memory to put in place of a range that was taken");
	held->revoked = true;
	if (!held->leaving)
		event_revoked(pool, held);
}

int revoked_take(struct hugepool *pool, const Hugepool__V1__Revoked *revoked)
{
	struct hp_wire_block wire = hp_wire_get_block(revoked->block);
	struct window *window = handle_window(pool, revoked->zone);
	struct block *block;

	if (revoked->n_ranges % HP_WIRE_RANGE_WORDS)
		return -EPROTO;
	if (!revoked->block) {
		ask(pool, revoked);
		return 0;
	}
	if (!window || wire.index >= window->nr_blocks)
		return -EPROTO;
	block = &window->blocks[wire.index];
	if (block->state == BLOCK_MAPPED && block->generation == wire.generation && block->ranges &&
	    window_take_block(window, wire.index) < 0)
		event_log(pool, LOG_ERR, "no memory to put in place of a block that was taken");
	for (size_t i = 0; i < revoked->n_ranges; i += HP_WIRE_RANGE_WORDS) {
		struct held_range *held = find(pool, revoked->ranges + i);

		if (held)
			take_range(pool, window, wire.index, held);
	}
	return 0;
}
