/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back leases, and parts of one.
 *
 * Whatever is given back, in whatever shape: first everything is checked against the lease words,
 * and nothing is changed before all checks have passed. A lease that the caller's cache can take is
 * a hit and needs nothing else; everything else goes the way of giving.c.
 */
#include "alloc/giving.h"
#include "alloc/lease.h"
#include "alloc/share.h"

#include <errno.h>

/* --- one lease, and several --- */

static __attribute__((noinline)) int free_slow(struct hp_zone *zone, struct hp_pcp *pcp,
					       uint32_t slot, const struct hp_range *range)
{
	struct hp_giving g = hp_giving_begin(zone, pcp);
	uint64_t word;
	int r = hp_lease_check(zone, slot, range, &word);

	if (r == 0)
		hp_giving_release(&g, range->pfn, range->pfn, range->pfn + range->pages);
	return hp_giving_end(&g, r);
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
	struct hp_giving g;
	uint64_t word;
	size_t i;
	int r = 0;

	if (n == 0 || n > HP_BULK_MAX)
		return -EINVAL;
	g = hp_giving_begin(zone, pcp);
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
		hp_giving_release(&g, ranges[i].pfn, ranges[i].pfn,
				  ranges[i].pfn + ranges[i].pages);
		hp_giving_flush(&g);
	}
	return hp_giving_end(&g, r);
}

/* --- parts --- */

int hp_zone_free_part(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot,
		      const struct hp_range *range, uint32_t offset, uint32_t pages,
		      struct hp_range *ret_kept, unsigned *ret_nr_kept)
{
	struct hp_giving g = hp_giving_begin(zone, pcp);
	uint64_t word;
	int r = hp_lease_check(zone, slot, range, &word);

	if (r == 0 && (pages == 0 || offset >= range->pages || pages > range->pages - offset))
		r = HP_OUT_OF_RANGE;
	if (r == 0) {
		struct hp_range kept = *range;

		hp_giving_release(&g, range->pfn, range->pfn + offset, range->pfn + offset + pages);
		*ret_nr_kept = 0;
		kept.pages = offset;
		if (offset)
			ret_kept[(*ret_nr_kept)++] = kept;
		kept.pfn = range->pfn + offset + pages;
		kept.pages = range->pages - offset - pages;
		if (kept.pages)
			ret_kept[(*ret_nr_kept)++] = kept;
	}
	return hp_giving_end(&g, r);
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
	struct hp_giving g = hp_giving_begin(zone, NULL);
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
				hp_giving_add(&g, at, next - at);
			}
			at = i < n ? next + keep[i].pages : end;
		}
	}
	return hp_giving_end(&g, r);
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

/* --- all of a slot, revoked words, looking --- */

int hp_zone_free_slot(struct hp_zone *zone, struct hp_pcp *pcp, uint32_t slot, uint64_t *ret_pages)
{
	hp_pfn_t pfn = 0;
	bool bad = false;

	*ret_pages = 0;
	/* A block at a time, so that others get the lock in between. */
	while (pfn < zone->config.nr_pages) {
		hp_pfn_t end = hp_block_end(zone, hp_block_of(zone, pfn));
		struct hp_giving g = hp_giving_begin(zone, pcp);

		while (pfn < end) {
			struct hp_lease_word word = hp_lease_get(zone, pfn);

			if (word.state != HP_LEASE_FREE && word.slot == slot) {
				hp_giving_end_lease(&g, pfn);
				*ret_pages += word.pages;
			}
			pfn += word.state == HP_LEASE_FREE ? 1 : word.pages;
		}
		bad |= hp_giving_end(&g, 0) != 0;
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
	struct hp_giving g = hp_giving_begin(zone, NULL);
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
			hp_giving_end_lease(&g, range->pfn);
	}
	return hp_giving_end(&g, r);
}

int hp_zone_lookup(struct hp_zone *zone, uint32_t slot, const struct hp_range *range)
{
	uint64_t word;

	return hp_lease_check(zone, slot, range, &word);
}
