/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References of shared pages. Under the zone lock. Pages of ranges that were never shared have none
 * and are nobody's business here.
 */
#pragma once

#include "alloc/page.h"

static inline bool hp_share_is_shared(const struct hp_zone *zone, hp_pfn_t pfn)
{
	return zone->refs && __atomic_load_n(&zone->refs[pfn], __ATOMIC_RELAXED) != 0;
}

/* From now on, frees have to look whether a page is shared. */
static inline void hp_share_begin(struct hp_zone *zone)
{
	if (!zone->sharing)
		hp_zone_attend(zone, &zone->sharing, 1);
}

/* Has none of these pages any reference? */
bool hp_share_none(const struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages);

/* Drops one reference of each page. Returns whether any page has some left. */
bool hp_share_put(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages);

/* Drops all of them. */
void hp_share_clear(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages);

/* How many pages from pfn on have references (or have none), up to end. */
uint32_t hp_share_run(const struct hp_zone *zone, hp_pfn_t pfn, hp_pfn_t end, bool referenced);
