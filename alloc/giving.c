/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back under the zone lock.
 *
 * For each lease the words of what is kept are stored and the head last, then the pages that nobody
 * holds any more are handed on as runs, joined across leases, so that they return as few large
 * chunks.
 *
 * A page is checked once more where it enters the buddy lists (buddy.c): there the check is one
 * "and" with the word that has to be changed anyway, for up to 64 pages at a time.
 */
#include "alloc/giving.h"

#include "alloc/contig.h"
#include "alloc/lease.h"
#include "alloc/share.h"

struct hp_giving hp_giving_begin(struct hp_zone *zone, struct hp_pcp *pcp)
{
	if (pcp && pcp->zone != zone)
		pcp = NULL;
	hp_zone_lock(zone);
	return (struct hp_giving){.zone = zone, .pcp = pcp, .bad_before = zone->bad_pages};
}

void hp_giving_flush(struct hp_giving *g)
{
	if (g->pages)
		hp_contig_free(g->zone, g->pcp, &g->locked, g->pfn, g->pages);
	g->pages = 0;
}

void hp_giving_add(struct hp_giving *g, hp_pfn_t pfn, uint32_t pages)
{
	const struct hp_zone *zone = g->zone;

	if (g->pages && pfn == g->pfn + g->pages &&
	    zone->areas[hp_area_of(zone, pfn)].owner ==
		    zone->areas[hp_area_of(zone, pfn - 1)].owner) {
		g->pages += pages;
		return;
	}
	hp_giving_flush(g);
	g->pfn = pfn;
	g->pages = pages;
}

int hp_giving_end(struct hp_giving *g, int r)
{
	struct hp_zone *zone = g->zone;
	bool bad;

	hp_giving_flush(g);
	bad = zone->bad_pages != g->bad_before;
	hp_zone_unlock(zone);
	if (g->locked) {
		if (hp_pcp_is_high(g->pcp, 0) || hp_pcp_is_high(g->pcp, HP_PCP_BLOCK))
			hp_pcp_trim(g->pcp);
		hp_bias_leave(&g->pcp->lock);
	}
	hp_page_report(zone);
	return r == 0 && bad ? HP_BAD_PAGE : r;
}

/* Pages of a revoked word are counted as such until they are given back. */
static void uncount_revoked(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	hp_owner_get(zone, zone->areas[hp_area_of(zone, pfn)].owner)->revoked_pages -= pages;
	zone->revoked_pages -= pages;
}

void hp_giving_end_lease(struct hp_giving *g, hp_pfn_t head)
{
	struct hp_lease_word word = hp_lease_get(g->zone, head);
	struct hp_cut cut;

	if (word.state == HP_LEASE_REVOKED)
		uncount_revoked(g->zone, head, word.pages);
	hp_share_clear(g->zone, head, word.pages);
	hp_cut_begin(&cut, g->zone, head, word.state);
	hp_cut_commit(&cut);
	g->zone->frees++;
	hp_giving_add(g, head, word.pages);
}

/* Lets go of [from, to) of the shared lease at head: pages still referenced stay leased. */
static void release_shared(struct hp_giving *g, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to)
{
	struct hp_zone *zone = g->zone;
	struct hp_lease_word word = hp_lease_get(zone, head);
	hp_pfn_t end = head + word.pages, kept = head, pfn;
	bool left = hp_share_put(zone, from, to - from);
	struct hp_cut cut;

	if (left && hp_share_run(zone, from, to, true) == to - from)
		return; /* every page is still wanted by somebody */
	hp_cut_begin(&cut, zone, head, HP_LEASE_LEASED);
	for (pfn = from; pfn < to;) {
		pfn += hp_share_run(zone, pfn, to, true);
		if (pfn == to)
			break;
		if (pfn > kept)
			hp_cut_keep(&cut, kept, pfn - kept);
		pfn += left ? hp_share_run(zone, pfn, to, false) : to - pfn;
		kept = pfn;
	}
	if (end > kept)
		hp_cut_keep(&cut, kept, end - kept);
	hp_cut_commit(&cut);
	zone->frees++;
	for (pfn = from; pfn < to;) {
		uint32_t n = left ? hp_share_run(zone, pfn, to, false) : to - pfn;

		if (n)
			hp_giving_add(g, pfn, n);
		pfn += n;
		pfn += hp_share_run(zone, pfn, to, true);
	}
}

void hp_giving_release(struct hp_giving *g, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to)
{
	struct hp_zone *zone = g->zone;
	uint64_t raw = hp_durable_load(&zone->leases[head]);
	hp_pfn_t end = head + hp_lease_decode(raw).pages;
	struct hp_cut cut;

	if (__builtin_expect(hp_share_is_shared(zone, from), 0)) {
		release_shared(g, head, from, to);
		return;
	}
	if (from == head && to == end && hp_lease_is_chunk(zone, head, end - head)) {
		hp_durable_store(&zone->leases[head], hp_lease_freed(raw));
	} else {
		hp_cut_begin(&cut, zone, head, HP_LEASE_LEASED);
		if (from > head)
			hp_cut_keep(&cut, head, from - head);
		if (end > to)
			hp_cut_keep(&cut, to, end - to);
		hp_cut_commit(&cut);
	}
	zone->frees++;
	hp_giving_add(g, from, to - from);
}
