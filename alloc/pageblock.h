/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pageblocks: their states, whose they are and whom they are charged to. Under the zone lock.
 */
#pragma once

#include "alloc/page.h"

/* Changes a block's word, and with it every counter that follows from it. */
void hp_pageblock_set(struct hp_zone *zone, uint32_t block, struct hp_block_word word);

/*
 * May this account take n more blocks? Return: 0; HP_NO_ROOM if there are not so many clean ones
 * beyond what is guaranteed to others; HP_OVER_LIMIT if only its limit is in the way.
 */
int hp_account_check(struct hp_zone *zone, uint32_t owner, uint32_t n);

/* A block of the owner enters (1) or leaves (-1) a state. */
void hp_account_charge(struct hp_zone *zone, uint32_t owner, enum hp_block_state state, int change);

/* The limit of the account that the owner charges, in blocks. Needs no lock. */
uint32_t hp_account_limit(struct hp_zone *zone, uint32_t owner);

/* How many clean blocks could be claimed for the owner now, its limit considered. */
uint32_t hp_account_claimable(struct hp_zone *zone, uint32_t owner);

/* A clean block becomes the owner's, after hp_account_check(). */
void hp_pageblock_claim(struct hp_zone *zone, uint32_t block, uint32_t owner, bool exclusive);

/* An exclusive block that holds nothing any more is as any other. */
void hp_pageblock_end_exclusive(struct hp_zone *zone, uint32_t block);

/* Pages of the block with their free bit set. */
uint32_t hp_pageblock_free_pages(const struct hp_zone *zone, uint32_t block);

/* Takes a block off the lists for this reason, and puts it back if it was the last one. */
void hp_pageblock_close(struct hp_zone *zone, uint32_t block, enum hp_closed reason);
void hp_pageblock_open(struct hp_zone *zone, uint32_t block, enum hp_closed reason);

/*
 * A closed live or failing block becomes isolated, quarantined or offline: its word, its counters,
 * and none of its pages is free or bad any more. Leases that touch it are not changed.
 */
void hp_pageblock_leave(struct hp_zone *zone, uint32_t block, enum hp_block_state state);

/* Counts a block in (1) or out (-1) of a state. Only hp_pageblock_set() and rebuild. */
void hp_pageblock_count(struct hp_zone *zone, uint32_t block, struct hp_block_word word,
			int change);

/* The metadata of a block in this state that holds nothing: free in a clean one, else closed. */
void hp_pageblock_reset(struct hp_zone *zone, uint32_t block, enum hp_block_state state);
