/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared ranges.
 *
 * Each page of a shared range counts its references on its own, so that any part of it can be let
 * go of. The counts are a side array that exists only in zones configured for it, and they are
 * plain numbers under the zone lock: an atomic per page costs more than everything else about a
 * free (3.4 us for 512 pages), and sharing and detaching take the lock anyway. Two bytes a page, so
 * a whole range is counted down sixteen and more pages at a time by the compiler's vector code.
 *
 * They are scratch memory: after a rebuild there are none, and the caller counts every attachment
 * again.
 */
#include "alloc/share.h"

#include "alloc/lease.h"

#include <errno.h>
#include <string.h>

/* Pages looked at in one go, so that the compiler knows how often a loop runs. */
#define STRIDE 32u

static bool none_in(const uint16_t *refs)
{
	uint16_t any = 0;

	for (uint32_t i = 0; i < STRIDE; i++)
		any |= refs[i];
	return any == 0;
}

bool hp_share_none(const struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	const uint16_t *refs = &zone->refs[pfn];
	uint16_t any = 0;

	for (; pages >= STRIDE; pages -= STRIDE, refs += STRIDE)
		if (!none_in(refs))
			return false;
	while (pages-- > 0)
		any |= *refs++;
	return any == 0;
}

static uint16_t put_stride(uint16_t *refs)
{
	uint16_t left = 0;

	for (uint32_t i = 0; i < STRIDE; i++) {
		refs[i]--;
		left |= refs[i];
	}
	return left;
}

bool hp_share_put(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	uint16_t *refs = &zone->refs[pfn];
	uint16_t left = 0;

	for (; pages >= STRIDE; pages -= STRIDE, refs += STRIDE)
		left |= put_stride(refs);
	while (pages-- > 0)
		left |= --*refs++;
	return left != 0;
}

void hp_share_clear(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	if (zone->refs)
		memset(&zone->refs[pfn], 0, pages * sizeof(zone->refs[0]));
}

uint32_t hp_share_run(const struct hp_zone *zone, hp_pfn_t pfn, hp_pfn_t end, bool referenced)
{
	hp_pfn_t p = pfn;

	while (p < end && (zone->refs[p] != 0) == referenced)
		p++;
	return p - pfn;
}

int hp_zone_share_get(struct hp_zone *zone, uint32_t slot, const struct hp_range *range)
{
	uint64_t word;
	int r;

	if (!zone->refs)
		return -EINVAL;
	hp_zone_lock(zone);
	r = hp_lease_check(zone, slot, range, &word);
	for (uint32_t i = 0; r == 0 && i < range->pages; i++)
		if (zone->refs[range->pfn + i] == UINT16_MAX)
			r = HP_BUSY;
	if (r == 0)
		hp_share_begin(zone);
	for (uint32_t i = 0; r == 0 && i < range->pages; i++)
		__atomic_store_n(&zone->refs[range->pfn + i], zone->refs[range->pfn + i] + 1,
				 __ATOMIC_RELAXED);
	hp_zone_unlock(zone);
	return r;
}
