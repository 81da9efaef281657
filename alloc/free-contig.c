/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back pages in a row, whatever leases they are parts of.
 *
 * Most often they are single pages, of a lease that was split: then their words are looked at and
 * stored as a run (durable.c). If all of them lie in live blocks of the cache's owner, that is done
 * under the lock of the cache alone, as a hit does it, and the zone lock is held only for chunks
 * that the cache does not take.
 */
#include "alloc/buddy.h"
#include "alloc/contig.h"
#include "alloc/giving.h"
#include "alloc/lease.h"
#include "alloc/share.h"

/* Words looked at in one go. */
#define SINGLES 64u

/* How many pages from pfn on, before end, are leases of one page of this slot. */
static uint32_t count_singles(const struct hp_zone *zone, uint32_t slot, hp_pfn_t pfn, hp_pfn_t end)
{
	const hp_word_t *words = &zone->leases[pfn];
	uint64_t want = hp_lease_single(slot);
	uint32_t n = 0, nr = end - pfn;

	if (slot > HP_SLOT_MAX)
		return 0;
	while (n < nr) {
		uint32_t some = nr - n < SINGLES ? nr - n : SINGLES;

		if (!hp_durable_all(&words[n], some, want, ~HP_LEASE_GENERATION))
			break;
		n += some;
	}
	while (n < nr && hp_durable_all(&words[n], 1, want, ~HP_LEASE_GENERATION))
		n++;
	return n;
}

/* Ends n leases of one page each. */
static void end_singles(struct hp_giving *g, hp_pfn_t pfn, uint32_t n)
{
	hp_durable_keep(&g->zone->leases[pfn], n, HP_LEASE_GENERATION);
	g->zone->frees += n;
	hp_giving_add(g, pfn, n);
}

/* Lets go of n leases of one page each. */
static void release_singles(struct hp_giving *g, hp_pfn_t pfn, uint32_t n)
{
	const struct hp_zone *zone = g->zone;
	hp_pfn_t end = pfn + n;

	while (pfn < end) {
		uint32_t run = end - pfn;

		if (zone->refs && !hp_share_none(zone, pfn, run)) {
			run = hp_share_run(zone, pfn, end, true);
			if (run && hp_share_put(g->zone, pfn, run)) {
				/* Of these, only those that nobody else refers to. */
				for (hp_pfn_t stop = pfn + run; pfn < stop; pfn++)
					if (zone->refs[pfn] == 0)
						end_singles(g, pfn, 1);
				continue;
			}
			if (run == 0)
				run = hp_share_run(zone, pfn, end, false);
		}
		end_singles(g, pfn, run);
		pfn += run;
	}
}

/* Are pages [pfn, end) all leased by slot? *ret_head: the lease that pfn is in. */
static int check_pages(const struct hp_zone *zone, uint32_t slot, hp_pfn_t pfn, hp_pfn_t end,
		       hp_pfn_t *ret_head)
{
	hp_pfn_t head = hp_lease_find(zone, pfn);

	*ret_head = head;
	if (head == HP_PFN_NONE)
		return HP_NOT_LEASED;
	while (head < end) {
		struct hp_lease_word word = hp_lease_get(zone, head);

		if (word.pages == 1 && word.state == HP_LEASE_LEASED && word.slot == slot) {
			head += count_singles(zone, slot, head, end);
			continue;
		}
		if (word.state == HP_LEASE_FREE)
			return HP_NOT_LEASED;
		if (word.state == HP_LEASE_REVOKED)
			return HP_REVOKED;
		if (word.slot != slot)
			return HP_WRONG_HOLDER;
		head += word.pages;
	}
	return 0;
}

static __attribute__((noinline)) int free_contig_slow(struct hp_zone *zone, struct hp_pcp *pcp,
						      uint32_t slot, hp_pfn_t pfn, uint32_t pages)
{
	struct hp_giving g = hp_giving_begin(zone, pcp);
	hp_pfn_t head, end = pfn + pages;
	int r;

	if (count_singles(zone, slot, pfn, end) == pages) {
		release_singles(&g, pfn, pages);
		return hp_giving_end(&g, 0);
	}
	r = check_pages(zone, slot, pfn, end, &head);
	while (r == 0 && head < end) {
		uint32_t n = head >= pfn ? count_singles(zone, slot, head, end) : 0;
		hp_pfn_t next = head + (n ? n : hp_lease_get(zone, head).pages);

		if (n)
			release_singles(&g, head, n);
		else
			hp_giving_release(&g, head, head > pfn ? head : pfn,
					  next < end ? next : end);
		head = next;
	}
	return hp_giving_end(&g, r);
}

/*
 * Can the words of these pages be changed under the lock of this cache, which is ours, as those of a
 * hit are? All of them have to be in live blocks of its owner, where nothing is the matter.
 */
static bool contig_hits(const struct hp_zone *zone, const struct hp_pcp *pcp, hp_pfn_t pfn,
			uint32_t pages)
{
	uint32_t last = hp_block_of(zone, pfn + pages - 1);

	if (__atomic_load_n(&zone->attention, __ATOMIC_RELAXED) != 0)
		return false;
	for (uint32_t b = hp_block_of(zone, pfn); b <= last; b++)
		if ((hp_durable_load(&zone->blocks[b]) & hp_bits(24)) != pcp->live_word)
			return false;
	return true;
}

/*
 * Ends all leases in the range, if they are single pages of this slot or one chunk. Returns how many
 * they were; 0: nothing is changed.
 */
static uint32_t end_contig(struct hp_zone *zone, uint32_t slot, hp_pfn_t pfn, uint32_t pages)
{
	uint64_t raw = hp_durable_load(&zone->leases[pfn]);
	struct hp_lease_word word = hp_lease_decode(raw);

	if (word.pages == 1) {
		if (count_singles(zone, slot, pfn, pfn + pages) != pages)
			return 0;
		hp_durable_keep(&zone->leases[pfn], pages, HP_LEASE_GENERATION);
		return pages;
	}
	if (word.pages != pages || word.slot != slot || word.state != HP_LEASE_LEASED ||
	    !hp_lease_is_chunk(zone, pfn, pages))
		return 0;
	hp_durable_store(&zone->leases[pfn], hp_lease_freed(raw));
	return 1;
}

/* Rows of a contiguous range on their way to the lists in one go. */
#define CONTIG_ROWS 32u

/* Returns whether one of the pages was bad. */
static bool give_rows(struct hp_zone *zone, uint32_t owner, const struct hp_row *rows, uint32_t n)
{
	uint64_t before;
	bool bad;

	hp_zone_lock(zone);
	before = zone->bad_pages;
	hp_buddy_free_rows(zone, owner, rows, n);
	bad = zone->bad_pages != before;
	hp_zone_unlock(zone);
	return bad;
}

/*
 * Hands on pages that are free by their words; the cache is locked, and left. The zone lock is held
 * only for the chunks that the cache does not take, and not while they are found.
 */
static int give_contig(struct hp_zone *zone, struct hp_pcp *pcp, hp_pfn_t pfn, uint32_t pages)
{
	struct hp_row rows[CONTIG_ROWS];
	bool bad = false, high = false;
	uint32_t n = 0;

	while (pages != 0) {
		unsigned order = hp_contig_order(zone, pfn, pages);
		int index = hp_pcp_index(pcp, 1u << order);
		hp_entry_t entry = hp_entry(pfn, order, false);

		if (index >= 0 && !hp_pcp_is_full(pcp, (unsigned)index))
			high |= hp_pcp_push(pcp, (unsigned)index, entry);
		else
			n = hp_rows_add(rows, n, entry, zone->area_order, false);
		pfn += 1u << order;
		pages -= 1u << order;
		if (n == CONTIG_ROWS || (n != 0 && pages == 0)) {
			bad |= give_rows(zone, pcp->owner, rows, n);
			n = 0;
		}
	}
	if (high)
		hp_pcp_trim(pcp);
	hp_bias_leave(&pcp->lock);
	hp_page_report(zone);
	return bad ? HP_BAD_PAGE : 0;
}

int hp_zone_free_contig(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot, hp_pfn_t pfn,
			uint32_t pages)
{
	uint32_t ended = 0;

	if (pages == 0 || pfn >= zone->config.nr_pages || pages > zone->config.nr_pages - pfn)
		return HP_OUT_OF_RANGE;
	if (!pcp || pcp->zone != zone || !hp_bias_try(&pcp->lock))
		return free_contig_slow(zone, pcp, slot, pfn, pages);
	if (contig_hits(zone, pcp, pfn, pages))
		ended = end_contig(zone, slot, pfn, pages);
	if (ended == 0) {
		hp_bias_leave(&pcp->lock);
		return free_contig_slow(zone, pcp, slot, pfn, pages);
	}
	hp_pcp_bump(&pcp->frees, ended);
	return give_contig(zone, pcp, pfn, pages);
}
