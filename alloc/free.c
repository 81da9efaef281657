/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back.
 *
 * Whatever is given back, in whatever shape: first everything is checked against the lease words,
 * then for each lease the words of what is kept are stored and the head last, then the pages that
 * nobody holds any more are handed on as runs, joined across leases, so that they return as few
 * large chunks. Nothing is changed before all checks have passed.
 *
 * A page is checked once more where it enters the buddy lists (buddy.c): there the check is one
 * "and" with the word that has to be changed anyway, for up to 64 pages at a time.
 */
#include "alloc/buddy.h"
#include "alloc/contig.h"
#include "alloc/lease.h"
#include "alloc/pcp.h"
#include "alloc/share.h"

#include <errno.h>
#include <string.h>

/* A call that gives back under the zone lock, and the cache it may use. */
struct giving {
	struct hp_zone *zone;
	struct hp_pcp *pcp; /* NULL: none, or it is busy */
	bool locked;	    /* the cache is ours: when the first chunk came that it may take */
	hp_pfn_t pfn;	    /* the run that has been let go of and not yet been handed on */
	uint32_t pages;
	uint64_t bad_before; /* bad pages of the zone when it began */
};

static struct giving giving_begin(struct hp_zone *zone, struct hp_pcp *pcp)
{
	if (pcp && pcp->zone != zone)
		pcp = NULL;
	hp_zone_lock(zone);
	return (struct giving){.zone = zone, .pcp = pcp, .bad_before = zone->bad_pages};
}

static void giving_flush(struct giving *g)
{
	if (g->pages)
		hp_contig_free(g->zone, g->pcp, &g->locked, g->pfn, g->pages);
	g->pages = 0;
}

/* A run of pages of one owner is free, by the words. */
static void giving_add(struct giving *g, hp_pfn_t pfn, uint32_t pages)
{
	const struct hp_zone *zone = g->zone;

	if (g->pages && pfn == g->pfn + g->pages &&
	    zone->areas[hp_area_of(zone, pfn)].owner ==
		    zone->areas[hp_area_of(zone, pfn - 1)].owner) {
		g->pages += pages;
		return;
	}
	giving_flush(g);
	g->pfn = pfn;
	g->pages = pages;
}

/* Hands on the last run, lets go of everything; r is passed on unless a page was bad. */
static int giving_end(struct giving *g, int r)
{
	struct hp_zone *zone = g->zone;
	bool bad;

	giving_flush(g);
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

/* Ends a lease or a revoked word, references or not. */
static void end_lease(struct giving *g, hp_pfn_t head)
{
	struct hp_lease_word word = hp_lease_get(g->zone, head);
	struct hp_cut cut;

	if (word.state == HP_LEASE_REVOKED)
		uncount_revoked(g->zone, head, word.pages);
	hp_share_clear(g->zone, head, word.pages);
	hp_cut_begin(&cut, g->zone, head, word.state);
	hp_cut_commit(&cut);
	g->zone->frees++;
	giving_add(g, head, word.pages);
}

/* Lets go of [from, to) of the shared lease at head: pages still referenced stay leased. */
static void release_shared(struct giving *g, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to)
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
			giving_add(g, pfn, n);
		pfn += n;
		pfn += hp_share_run(zone, pfn, to, true);
	}
}

/* Lets go of pages [from, to) of the lease at head, which has been checked. */
static void release(struct giving *g, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to)
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
	giving_add(g, from, to - from);
}

/* --- one lease, and several --- */

static __attribute__((noinline)) int free_slow(struct hp_zone *zone, struct hp_pcp *pcp,
					       uint32_t slot, const struct hp_range *range)
{
	struct giving g = giving_begin(zone, pcp);
	uint64_t word;
	int r = hp_lease_check(zone, slot, range, &word);

	if (r == 0)
		release(&g, range->pfn, range->pfn, range->pfn + range->pages);
	return giving_end(&g, r);
}

/* Something is the matter in the zone: does it concern these pages? */
static __attribute__((noinline)) bool concerned(const struct hp_zone *zone, hp_pfn_t pfn,
						uint32_t pages)
{
	if (__atomic_load_n(&zone->closing, __ATOMIC_RELAXED) || hp_share_is_shared(zone, pfn))
		return true;
	while (pages-- > 0)
		if (hp_page_bit(zone->bad, pfn++))
			return true;
	return false;
}

/*
 * Can this range go to the cache without the zone lock? *ret_word: its lease word. The cache is
 * locked, so that whoever closes the block waits for us. Its lists have room: they hold less than
 * high, and high is within what they hold.
 */
static inline __attribute__((always_inline)) bool free_hits(const struct hp_zone *zone,
							    const struct hp_pcp *pcp, uint32_t slot,
							    const struct hp_range *range,
							    uint32_t pages, hp_word_t **ret_word)
{
	hp_pfn_t pfn = range->pfn;

	/* Fields that are too large would spill into their neighbours. */
	if ((slot | range->generation >> 6) > HP_SLOT_MAX || pfn >= zone->config.nr_pages ||
	    (pfn & (pages - 1)) != 0 || range->zone != zone->config.id)
		return false;
	*ret_word = &zone->leases[pfn];
	return hp_durable_load(*ret_word) ==
		       ((uint64_t)range->generation << 40 | (uint64_t)slot << 22 |
			(uint64_t)pages << 2 | HP_LEASE_LEASED) &&
	       (hp_durable_load(&zone->blocks[hp_block_of(zone, pfn)]) & hp_bits(24)) ==
		       pcp->live_word;
}
_Static_assert(HP_GENERATION_MAX >> 6 == HP_SLOT_MAX, "one comparison for both");

/* The cache has become too full: it is drained, and left. */
static __attribute__((noinline)) int free_trim(struct hp_zone *zone, struct hp_pcp *pcp)
{
	hp_pcp_trim(pcp);
	hp_bias_leave(&pcp->lock);
	hp_page_report(zone);
	return 0;
}

/* The lease whose word this is goes into the locked cache, which is left. */
static inline __attribute__((always_inline)) int free_hit(struct hp_zone *zone, struct hp_pcp *pcp,
							  unsigned index,
							  const struct hp_range *range,
							  uint32_t pages, hp_word_t *word)
{
	unsigned order = (unsigned)__builtin_ctz(pages);
	bool high;

	hp_durable_store(word, hp_lease_freed((uint64_t)range->generation << 40));
	high = hp_pcp_push(pcp, index, hp_entry(range->pfn, order, false));
	hp_pcp_bump(&pcp->frees, 1);
	if (__builtin_expect(high, 0))
		return free_trim(zone, pcp);
	hp_bias_leave(&pcp->lock);
	return 0;
}

/* Of any length, into the cache if it takes it. */
static __attribute__((noinline)) int free_any(struct hp_zone *zone, struct hp_pcp *pcp,
					      uint32_t slot, const struct hp_range *range)
{
	hp_word_t *word = NULL;
	int index;

	if (!pcp || pcp->zone != zone)
		return free_slow(zone, NULL, slot, range);
	index = hp_pcp_index(pcp, range->pages);
	if (index < 0 || !hp_bias_try(&pcp->lock))
		return free_slow(zone, pcp, slot, range);
	if (free_hits(zone, pcp, slot, range, range->pages, &word) &&
	    (__atomic_load_n(&zone->attention, __ATOMIC_RELAXED) == 0 ||
	     !concerned(zone, range->pfn, range->pages)))
		return free_hit(zone, pcp, (unsigned)index, range, range->pages, word);
	hp_bias_leave(&pcp->lock);
	return free_slow(zone, pcp, slot, range);
}

/* As free_any(), for a cache that is locked and has to be left first. */
static __attribute__((noinline)) int free_again(struct hp_zone *zone, struct hp_pcp *pcp,
						uint32_t slot, const struct hp_range *range)
{
	hp_bias_leave(&pcp->lock);
	return free_any(zone, pcp, slot, range);
}

int hp_zone_free(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		 const struct hp_range *range)
{
	hp_word_t *word = NULL;

	/*
	 * A single page has the shortest way. All others are reached by a jump with the same
	 * arguments, so that nothing has to be saved here.
	 */
	if (__builtin_expect(!pcp || pcp->zone != zone || range->pages != 1, 0))
		return free_any(zone, pcp, slot, range);
	if (__builtin_expect(!hp_bias_try_plain(&pcp->lock), 0))
		return free_again(zone, pcp, slot, range);
	if (__builtin_expect(!free_hits(zone, pcp, slot, range, 1, &word), 0) ||
	    __builtin_expect(__atomic_load_n(&zone->attention, __ATOMIC_RELAXED) != 0, 0))
		return free_again(zone, pcp, slot, range);
	return free_hit(zone, pcp, 0, range, 1, word);
}

/* The first range that begins where an earlier one does, or n. All of them are inside the zone. */
static size_t find_twice(const struct hp_range *ranges, size_t n)
{
	uint16_t table[2 * HP_BULK_MAX] = {0}; /* open addressing: index + 1 */
	size_t i;

	for (i = 1; i < n && ranges[i].pfn > ranges[i - 1].pfn; i++)
		;
	if (i >= n)
		return n; /* ascending, as they mostly are */
	for (i = 0; i < n; i++) {
		uint32_t at = ranges[i].pfn * UINT32_C(2654435761) >> 23;

		for (; table[at]; at = (at + 1) % (2 * HP_BULK_MAX))
			if (ranges[table[at] - 1].pfn == ranges[i].pfn)
				return i;
		table[at] = (uint16_t)(i + 1);
	}
	return n;
}
_Static_assert(2 * HP_BULK_MAX == 1u << (32 - 23), "the hash is 9 bits");

int hp_zone_free_bulk(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		      const struct hp_range *ranges, size_t n, size_t *ret_bad)
{
	struct giving g;
	uint64_t word;
	size_t i;
	int r = 0;

	if (n == 0 || n > HP_BULK_MAX)
		return -EINVAL;
	g = giving_begin(zone, pcp);
	for (i = 0; i < n; i++) {
		r = hp_lease_check(zone, slot, &ranges[i], &word);
		if (r)
			break;
	}
	if (r == 0) {
		i = find_twice(ranges, n);
		r = i < n ? HP_NOT_LEASED : 0;
	}
	if (r)
		*ret_bad = i;
	for (i = 0; r == 0 && i < n; i++) {
		release(&g, ranges[i].pfn, ranges[i].pfn, ranges[i].pfn + ranges[i].pages);
		giving_flush(&g);
	}
	return giving_end(&g, r);
}

/* --- parts --- */

int hp_zone_free_part(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		      const struct hp_range *range, uint32_t offset, uint32_t pages,
		      struct hp_range *ret_kept, unsigned *ret_nr_kept)
{
	struct giving g = giving_begin(zone, pcp);
	uint64_t word;
	int r = hp_lease_check(zone, slot, range, &word);

	if (r == 0 && (pages == 0 || offset >= range->pages || pages > range->pages - offset))
		r = HP_OUT_OF_RANGE;
	if (r == 0) {
		struct hp_range kept = *range;

		release(&g, range->pfn, range->pfn + offset, range->pfn + offset + pages);
		*ret_nr_kept = 0;
		kept.pages = offset;
		if (offset)
			ret_kept[(*ret_nr_kept)++] = kept;
		kept.pfn = range->pfn + offset + pages;
		kept.pages = range->pages - offset - pages;
		if (kept.pages)
			ret_kept[(*ret_nr_kept)++] = kept;
	}
	return giving_end(&g, r);
}

static int check_parts(const struct hp_range *range, const struct hp_range *keep, size_t n)
{
	uint32_t at = 0; /* first page not spoken for, from the begin of the range */

	for (size_t i = 0; i < n; i++) {
		uint32_t offset = keep[i].pfn - range->pfn;

		if (keep[i].pfn < range->pfn || keep[i].pages == 0 || offset >= range->pages ||
		    keep[i].pages > range->pages - offset)
			return HP_OUT_OF_RANGE;
		if (offset < at)
			return -EINVAL;
		at = offset + keep[i].pages;
	}
	return 0;
}

int hp_zone_keep_parts(struct hp_zone *zone, uint32_t slot, const struct hp_range *range,
		       const struct hp_range *keep, size_t n)
{
	struct giving g = giving_begin(zone, NULL);
	uint64_t word;
	int r = hp_lease_check(zone, slot, range, &word);

	if (r == 0)
		r = check_parts(range, keep, n);
	if (r == 0 && !(n == 1 && keep[0].pages == range->pages)) {
		hp_pfn_t at = range->pfn, end = range->pfn + range->pages;
		struct hp_cut cut;

		hp_cut_begin(&cut, zone, range->pfn, HP_LEASE_LEASED);
		for (size_t i = 0; i < n; i++)
			hp_cut_keep(&cut, keep[i].pfn, keep[i].pages);
		hp_cut_commit(&cut);
		zone->frees += n == 0;
		for (size_t i = 0; i <= n; i++) {
			hp_pfn_t next = i < n ? keep[i].pfn : end;

			if (next > at) {
				hp_share_clear(zone, at, next - at);
				giving_add(&g, at, next - at);
			}
			at = i < n ? next + keep[i].pages : end;
		}
	}
	return giving_end(&g, r);
}

int hp_zone_split(struct hp_zone *zone, uint32_t slot, const struct hp_range *range)
{
	struct hp_cut cut;
	uint64_t word, one;
	int r;

	hp_zone_lock(zone);
	r = hp_lease_check(zone, slot, range, &word);
	if (r == 0 && range->pages > 1) {
		/* As hp_cut_keep() would for each page. */
		hp_cut_begin(&cut, zone, range->pfn, HP_LEASE_LEASED);
		one = hp_lease_single(slot) | hp_lease_freed(word);
		for (hp_pfn_t pfn = range->pfn + 1; pfn < range->pfn + range->pages; pfn++)
			hp_durable_store(&zone->leases[pfn], one);
		hp_cut_keep(&cut, range->pfn, 1);
		hp_cut_commit(&cut);
	}
	hp_zone_unlock(zone);
	return r;
}

/* --- any pages of a slot --- */

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
static void end_singles(struct giving *g, hp_pfn_t pfn, uint32_t n)
{
	hp_durable_keep(&g->zone->leases[pfn], n, HP_LEASE_GENERATION);
	g->zone->frees += n;
	giving_add(g, pfn, n);
}

/* Lets go of n leases of one page each. */
static void release_singles(struct giving *g, hp_pfn_t pfn, uint32_t n)
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
	struct giving g = giving_begin(zone, pcp);
	hp_pfn_t head, end = pfn + pages;
	int r;

	if (count_singles(zone, slot, pfn, end) == pages) {
		release_singles(&g, pfn, pages);
		return giving_end(&g, 0);
	}
	r = check_pages(zone, slot, pfn, end, &head);
	while (r == 0 && head < end) {
		uint32_t n = head >= pfn ? count_singles(zone, slot, head, end) : 0;
		hp_pfn_t next = head + (n ? n : hp_lease_get(zone, head).pages);

		if (n)
			release_singles(&g, head, n);
		else
			release(&g, head, head > pfn ? head : pfn, next < end ? next : end);
		head = next;
	}
	return giving_end(&g, r);
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

int hp_zone_free_slot(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot, uint64_t *ret_pages)
{
	hp_pfn_t pfn = 0;
	bool bad = false;

	*ret_pages = 0;
	/* A block at a time, so that others get the lock in between. */
	while (pfn < zone->config.nr_pages) {
		hp_pfn_t end = hp_block_end(zone, hp_block_of(zone, pfn));
		struct giving g = giving_begin(zone, pcp);

		while (pfn < end) {
			struct hp_lease_word word = hp_lease_get(zone, pfn);

			if (word.state != HP_LEASE_FREE && word.slot == slot) {
				end_lease(&g, pfn);
				*ret_pages += word.pages;
			}
			pfn += word.state == HP_LEASE_FREE ? 1 : word.pages;
		}
		bad |= giving_end(&g, 0) != 0;
	}
	return bad ? HP_BAD_PAGE : 0;
}

int hp_zone_rename(struct hp_zone *zone, uint32_t slot, struct hp_range *range)
{
	uint64_t raw;
	int r;

	hp_zone_lock(zone);
	r = hp_lease_check(zone, slot, range, &raw);
	if (r == 0)
		range->generation = hp_lease_store(zone, range->pfn, range->pages, slot);
	hp_zone_unlock(zone);
	return r;
}

int hp_zone_ack(struct hp_zone *zone, uint32_t slot, const struct hp_range *range)
{
	struct giving g = giving_begin(zone, NULL);
	uint64_t raw;
	int r = hp_lease_check(zone, slot, range, &raw);

	if (r == 0) {
		r = HP_NOT_LEASED; /* leased, not revoked: there is nothing to acknowledge */
	} else if (r == HP_REVOKED) {
		struct hp_lease_word word = hp_lease_get(zone, range->pfn);

		r = word.slot != slot			   ? HP_WRONG_HOLDER
		    : word.generation != range->generation ? HP_STALE
		    : word.pages != range->pages	   ? HP_WRONG_LENGTH
							   : 0;
		if (r == 0)
			end_lease(&g, range->pfn);
	}
	return giving_end(&g, r);
}

int hp_zone_lookup(struct hp_zone *zone, uint32_t slot, const struct hp_range *range)
{
	uint64_t word;

	return hp_lease_check(zone, slot, range, &word);
}
