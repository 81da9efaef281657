/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of any length and alignment: finding room for them, and giving runs of pages back as a few
 * large chunks. Under the zone lock.
 */
#pragma once

#include "alloc/page.h"

struct hp_place {
	hp_pfn_t pfn;
	uint32_t claims; /* clean blocks that it takes in */
};

enum hp_contig_from {
	HP_CONTIG_OWN,	 /* blocks the owner has */
	HP_CONTIG_ANY,	 /* these and clean ones, as few of them as need be */
	HP_CONTIG_CLEAN, /* whole clean blocks only, beginning at the first page of one */
};

/* Room for a request: fewest claims, then smallest hole, then lowest pfn. False: there is none. */
bool hp_contig_find(const struct hp_zone *zone, uint32_t owner, uint32_t pages, uint32_t align,
		    enum hp_contig_from from, struct hp_place *ret);

/* The longest range that could be had with at most so many claims. */
uint32_t hp_contig_largest(const struct hp_zone *zone, uint32_t owner, uint32_t claims);

/* Order of the largest naturally aligned chunk that a range begins with. */
static inline unsigned hp_contig_order(const struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	unsigned order = 31u - (unsigned)__builtin_clz(pages);

	if (order > zone->config.max_order)
		order = zone->config.max_order;
	if (pfn != 0 && (unsigned)__builtin_ctz(pfn) < order)
		order = (unsigned)__builtin_ctz(pfn);
	return order;
}

/*
 * Gives back pages that have just stopped being leased: decomposed into the largest aligned chunks,
 * which go to the cache, if it takes that order and is not busy, else to the lists. pcp: the
 * caller's own cache or NULL; *locked: has it been locked (and has to be left by the caller)?
 */
void hp_contig_free(struct hp_zone *zone, struct hp_pcp *pcp, bool *locked, hp_pfn_t pfn,
		    uint32_t pages);
