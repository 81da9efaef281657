/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lease words: granting, checking, finding and cutting. A change of more than one word follows the
 * commit order of the durable words: what is kept first, the head last.
 */
#pragma once

#include "alloc/page.h"

static inline struct hp_lease_word hp_lease_get(const struct hp_zone *zone, hp_pfn_t pfn)
{
	return hp_lease_decode(hp_durable_load(&zone->leases[pfn]));
}

/*
 * A lease that is one chunk of a cached order: inside one block, and in one area or the whole
 * block. The covers of its areas are not kept, so that granting and freeing it touches no shared
 * line.
 */
static inline bool hp_lease_is_chunk(const struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	if (pages == 1u << zone->config.pageblock_order)
		return (pfn & (pages - 1)) == 0;
	return hp_area_of(zone, pfn) == hp_area_of(zone, pfn + pages - 1);
}

#define HP_LEASE_GENERATION (UINT64_MAX << 40) /* of a lease word */

/* The word of a lease of one page, but for its generation. */
static inline uint64_t hp_lease_single(uint32_t slot)
{
	return (uint64_t)slot << 22 | 1u << 2 | HP_LEASE_LEASED;
}

/* Stores the word of a new lease; returns its generation. Its blocks are live. */
static inline uint32_t hp_lease_store(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages,
				      uint32_t slot)
{
	hp_word_t *word = &zone->leases[pfn];
	uint64_t next = (hp_durable_load(word) & HP_LEASE_GENERATION) + (UINT64_C(1) << 40);

	hp_durable_store(word,
			 next | (uint64_t)slot << 22 | (uint64_t)pages << 2 | HP_LEASE_LEASED);
	return (uint32_t)(next >> 40);
}

/* The word that is left when a lease has been freed. */
static inline uint64_t hp_lease_freed(uint64_t word)
{
	return word & HP_LEASE_GENERATION;
}

/* hp_lease_store() and covers, for leases of any shape. Under the zone lock. */
uint32_t hp_lease_grant(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages, uint32_t slot);

/* Is this range, as its holder names it, leased? Return: the condition; *ret_word: its word. */
int hp_lease_check(const struct hp_zone *zone, uint32_t slot, const struct hp_range *range,
		   uint64_t *ret_word);

/* The head of the lease or revoked word that covers this page, or HP_PFN_NONE. Zone lock. */
hp_pfn_t hp_lease_find(const struct hp_zone *zone, hp_pfn_t pfn);

/* Pages of this block that leases and revoked words cover. Under the zone lock. */
uint32_t hp_lease_pages_in_block(const struct hp_zone *zone, uint32_t block);

/*
 * The one way in which a lease becomes smaller, is divided or ends: begin; keep each part that
 * stays, in order of pfn; commit. Words of parts are stored as they are named, except of one at the
 * head; commit stores the head, and with that store all of it has happened. Under the zone lock.
 */
struct hp_cut {
	struct hp_zone *zone;
	hp_pfn_t head;
	struct hp_lease_word word; /* as it was; its state is that of the parts */
	uint32_t head_pages;	   /* of a part at the head; 0: there is none */
};

void hp_cut_begin(struct hp_cut *cut, struct hp_zone *zone, hp_pfn_t head,
		  enum hp_lease_state parts);
void hp_cut_keep(struct hp_cut *cut, hp_pfn_t pfn, uint32_t pages);
void hp_cut_commit(struct hp_cut *cut);
