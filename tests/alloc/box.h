/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone in a box: the zone and its two memories, for tests.
 *
 * The memories are of exactly the size that hp_zone_sizes() asks for, so that a sanitizer sees the
 * first byte too many, and start out full of rubbish, so that nothing can rest on zeroed memory.
 */
#pragma once

#include "alloc/zone.h"

struct box {
	struct hp_zone_config config;
	struct hp_zone *zone;
	void *durable, *scratch;
	size_t durable_bytes, scratch_bytes;
	uint32_t nr_blocks;
	hp_word_t *blocks; /* the block words in durable */
	hp_word_t *leases; /* the lease words in durable */
};

/* Memories and an empty zone, all blocks offline. */
void box_init(struct box *box, const struct hp_zone_config *config);
/* The same with every block online, generation 1. */
void box_init_online(struct box *box, const struct hp_zone_config *config);
/* Memories alone, durable words all zero: for box_rebuild(). */
void box_init_bare(struct box *box, const struct hp_zone_config *config);
void box_deinit(struct box *box);

/* Rebuilds a bare box, or one whose zone is simply forgotten, as after a kill. */
int box_rebuild(struct box *box, const struct hp_rebuild_ops *ops, struct hp_rebuild_stats *ret);

/* hp_zone_check() with every violation printed. */
unsigned box_check(const struct box *box);

struct hp_lease_word box_lease(const struct box *box, hp_pfn_t pfn);
struct hp_block_word box_block(const struct box *box, uint32_t block);

/* A pcp in memory of its own. */
struct hp_pcp *box_pcp_new(struct box *box, uint32_t owner);
/* Drains it and gives its memory back. */
void box_pcp_free(struct hp_pcp *pcp);
/* Gives its memory back and nothing else: its zone is gone. */
void box_pcp_forget(struct hp_pcp *pcp);

/* A copy of both memories, to show that a call changed not one byte of them. */
struct box_copy {
	unsigned char *durable, *scratch;
};
void box_copy_take(struct box_copy *copy, const struct box *box);
bool box_copy_same(const struct box_copy *copy, const struct box *box);
void box_copy_drop(struct box_copy *copy);
