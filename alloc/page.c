/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that are kept out.
 *
 * A page is kept out when memory failure was reported for it, or when it is freed although it is
 * free already: then two parties believe to have it, and it goes to neither. It is found deep under
 * locks, so it is only noted there; the functions that a caller of the zone entered through report
 * it when they have let go of all locks.
 */
#include "alloc/page.h"

static void set_bit(uint64_t *map, hp_pfn_t pfn, bool value)
{
	uint64_t bit = UINT64_C(1) << pfn % 64;

	/* Read by hits without the zone lock. */
	__atomic_store_n(&map[pfn / 64], value ? map[pfn / 64] | bit : map[pfn / 64] & ~bit,
			 __ATOMIC_RELAXED);
}

void hp_page_mark(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages, bool value)
{
	while (pages-- > 0)
		set_bit(zone->mark, pfn++, value);
}

void hp_page_mark_broken(struct hp_zone *zone, hp_pfn_t pfn)
{
	if (hp_page_bit(zone->bad, pfn))
		return;
	set_bit(zone->bad, pfn, true);
	hp_zone_attend(zone, &zone->nr_broken, 1);
}

void hp_page_keep_out(struct hp_zone *zone, hp_pfn_t pfn, const char *what)
{
	hp_page_mark_broken(zone, pfn);
	zone->bad_pages++;
	if (zone->nr_pending < HP_BAD_PENDING) {
		zone->pending[zone->nr_pending] = (struct hp_bad){.pfn = pfn, .what = what};
		__atomic_store_n(&zone->nr_pending, zone->nr_pending + 1, __ATOMIC_RELAXED);
	}
}

uint32_t hp_page_forgive(struct hp_zone *zone, hp_pfn_t pfn, hp_pfn_t end)
{
	uint32_t n = 0;

	for (; zone->nr_broken != 0 && pfn < end; pfn++) {
		if (!hp_page_bit(zone->bad, pfn))
			continue;
		set_bit(zone->bad, pfn, false);
		hp_zone_attend(zone, &zone->nr_broken, -1);
		n++;
	}
	return n;
}

bool hp_page_report_pending(struct hp_zone *zone)
{
	struct hp_bad bad[HP_BAD_PENDING];
	uint32_t n;

	hp_zone_lock(zone);
	n = zone->nr_pending;
	for (uint32_t i = 0; i < n; i++)
		bad[i] = zone->pending[i];
	__atomic_store_n(&zone->nr_pending, 0, __ATOMIC_RELAXED);
	hp_bad_page_fn fn = zone->bad_fn;
	void *userdata = zone->bad_userdata;
	hp_zone_unlock(zone);
	for (uint32_t i = 0; fn && i < n; i++)
		fn(userdata, bad[i].pfn, bad[i].what);
	return n != 0;
}
