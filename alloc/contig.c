/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contiguous ranges.
 *
 * Finding: buddy chunks are aligned powers of two, and a request of 510 pages at any pfn would
 * waste or miss most holes through them. So this looks at the free bits themselves, a word at a
 * time, and joins them to holes over areas and blocks of the owner and, if it may, clean ones; 24
 * GiB of 2 MiB pages are 384 words. The smallest hole that fits is taken, at its first aligned
 * page; the rest of the hole was never taken off, so there is no tail to give back.
 *
 * Claims: within a hole, which clean blocks a range takes in depends on where it begins. Shifting a
 * range left to the beginning of a block never adds a block to it, so only three kinds of places
 * matter: the begin of the hole, the begin of each block in it, and the end of the hole.
 *
 * Giving back: a run of pages goes back as the largest naturally aligned chunks it consists of, up
 * to the maximum order. 512 pages are one chunk: one check a word, one merge, one lock.
 */
#include "alloc/contig.h"

#include "alloc/buddy.h"
#include "alloc/pageblock.h"
#include "alloc/pcp.h"

struct hole {
	hp_pfn_t start, end;
};

struct search {
	const struct hp_zone *zone;
	uint32_t owner;
	enum hp_contig_from from;
	uint32_t area;	 /* next to look at */
	hp_pfn_t resume; /* where to go on in it; HP_PFN_NONE: at its first page */
};

/* Is this block clean, and not spoken for by a plan (mark[]) that will claim it? */
static bool is_clean(const struct hp_zone *zone, hp_pfn_t pfn)
{
	uint32_t block = hp_block_of(zone, pfn), last = hp_block_last_area(zone, block);
	uint32_t a = hp_block_first_area(zone, block);

	if (zone->areas[a].owner != HP_OWNER_NONE)
		return false;
	for (; a <= last; a++)
		if (hp_page_bits(zone, zone->mark, a))
			return false;
	return true;
}

/* Free pages of an area that the search may use. */
static uint64_t usable(const struct search *s, uint32_t a)
{
	const struct hp_area *area = &s->zone->areas[a];
	uint64_t pages = area->free & ~hp_page_bits(s->zone, s->zone->mark, a);

	if (area->closed)
		return 0;
	if (area->owner == HP_OWNER_NONE) {
		bool clean = is_clean(s->zone, hp_area_pfn(s->zone, a));

		/* What a plan will claim is as good as the owner's already. */
		return s->from == (clean ? HP_CONTIG_OWN : HP_CONTIG_CLEAN) ? 0 : pages;
	}
	return area->owner == s->owner && s->from != HP_CONTIG_CLEAN ? pages : 0;
}

/* The next maximal hole, in order of pfn. */
static bool next_hole(struct search *s, struct hole *ret)
{
	unsigned width = hp_area_pages(s->zone);

	ret->start = HP_PFN_NONE;
	for (; s->area < s->zone->nr_areas; s->area++, s->resume = HP_PFN_NONE) {
		hp_pfn_t first = hp_area_pfn(s->zone, s->area);
		uint64_t bits = usable(s, s->area);

		if (s->resume != HP_PFN_NONE)
			bits &= ~hp_bits(s->resume - first);
		if (ret->start != HP_PFN_NONE && !(bits & 1))
			return true;
		if (bits == 0)
			continue;

		unsigned bit = (unsigned)__builtin_ctzll(bits);
		uint64_t gaps = ~(bits >> bit);
		unsigned end = gaps ? bit + (unsigned)__builtin_ctzll(gaps) : 64;

		if (ret->start == HP_PFN_NONE)
			ret->start = first + bit;
		ret->end = first + end;
		/* Up to the last page of the area: the next area may go on with it. */
		if (end < width) {
			s->resume = ret->end;
			return true;
		}
	}
	return ret->start != HP_PFN_NONE;
}

static uint64_t align_up(uint64_t pfn, uint32_t align)
{
	return (pfn + align - 1) & ~(uint64_t)(align - 1);
}

/* Clean blocks that [pfn, pfn + pages) takes in. */
static uint32_t count_clean(const struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	uint32_t n = 0, last = hp_block_of(zone, pfn + pages - 1);

	for (uint32_t b = hp_block_of(zone, pfn); b <= last; b++)
		n += is_clean(zone, hp_block_pfn(zone, b));
	return n;
}

static void consider(struct hp_place *best, uint64_t pfn, uint32_t claims)
{
	if (claims < best->claims)
		*best = (struct hp_place){.pfn = (hp_pfn_t)pfn, .claims = claims};
}

/* The place with the fewest claims in a hole; HP_PFN_NONE if it does not fit. */
static struct hp_place place_in(const struct search *s, struct hole hole, uint32_t pages,
				uint32_t align)
{
	const struct hp_zone *zone = s->zone;
	struct hp_place best = {.pfn = HP_PFN_NONE, .claims = UINT32_MAX};
	unsigned order = zone->config.pageblock_order;
	uint64_t block = UINT64_C(1) << order;
	uint64_t pfn = align_up(hole.start, align);

	if (s->from == HP_CONTIG_CLEAN)
		pfn = align_up(align_up(hole.start, (uint32_t)block), align);
	if (pages > hole.end - hole.start || pfn > hole.end - pages)
		return best;
	if (s->from == HP_CONTIG_OWN)
		return (struct hp_place){.pfn = (hp_pfn_t)pfn};
	consider(&best, pfn, count_clean(zone, (hp_pfn_t)pfn, pages));
	if (s->from == HP_CONTIG_CLEAN)
		return best;

	uint64_t last = (hole.end - pages) & ~(uint64_t)(align - 1);

	if (last > pfn)
		consider(&best, last, count_clean(zone, (hp_pfn_t)last, pages));

	/* A window of blocks slides over the hole. */
	uint32_t width = (uint32_t)((pages + block - 1) >> order), clean = 0;
	uint64_t first = align_up(hole.start, (uint32_t)block);

	if (first > hole.end - pages)
		return best;
	for (uint32_t b = (uint32_t)(first >> order), i = 0; i < width; i++)
		clean += is_clean(zone, hp_block_pfn(zone, b + i));
	for (pfn = first; pfn <= hole.end - pages; pfn += block) {
		if ((pfn & (align - 1)) == 0)
			consider(&best, pfn, clean);
		if (pfn + block > hole.end - pages)
			break;
		clean -= is_clean(zone, (hp_pfn_t)pfn);
		clean += is_clean(zone, (hp_pfn_t)(pfn + width * block));
	}
	return best;
}

bool hp_contig_find(const struct hp_zone *zone, uint32_t owner, uint32_t pages, uint32_t align,
		    enum hp_contig_from from, struct hp_place *ret)
{
	struct search s = {zone, owner, from, 0, HP_PFN_NONE};
	uint32_t best_claims = UINT32_MAX, best_hole = UINT32_MAX;
	struct hole hole;

	while (next_hole(&s, &hole)) {
		uint32_t length = hole.end - hole.start;

		if (length < pages || (length >= best_hole && from == HP_CONTIG_OWN))
			continue;
		struct hp_place place = place_in(&s, hole, pages, align ? align : 1);

		if (place.pfn == HP_PFN_NONE || place.claims > best_claims ||
		    (place.claims == best_claims && length >= best_hole))
			continue;
		best_claims = place.claims;
		best_hole = length;
		*ret = place;
	}
	return best_claims != UINT32_MAX;
}

/* The longest part of a hole with at most so many clean blocks. */
static uint32_t longest_in(const struct hp_zone *zone, struct hole hole, uint32_t claims)
{
	uint32_t left = hp_block_of(zone, hole.start), clean = 0, best = 0;
	uint32_t last = hp_block_of(zone, hole.end - 1);

	for (uint32_t right = left; right <= last; right++) {
		clean += is_clean(zone, hp_block_pfn(zone, right));
		while (clean > claims)
			clean -= is_clean(zone, hp_block_pfn(zone, left++));
		hp_pfn_t from = hp_block_pfn(zone, left), to = hp_block_end(zone, right);

		if (left > right)
			continue;
		if (from < hole.start)
			from = hole.start;
		if (to > hole.end)
			to = hole.end;
		if (to - from > best)
			best = to - from;
	}
	return best;
}

uint32_t hp_contig_largest(const struct hp_zone *zone, uint32_t owner, uint32_t claims)
{
	struct search s = {zone, owner, HP_CONTIG_ANY, 0, HP_PFN_NONE};
	uint32_t best = 0;
	struct hole hole;

	if (owner == HP_OWNER_NONE)
		s.from = HP_CONTIG_CLEAN;
	while (next_hole(&s, &hole)) {
		uint32_t n = longest_in(zone, hole, claims);

		if (n > best)
			best = n;
	}
	return best < HP_RANGE_MAX_PAGES ? best : HP_RANGE_MAX_PAGES;
}

/* Are all blocks of this chunk open? Then it can be one chunk of the lists. */
static bool all_open(const struct hp_zone *zone, hp_pfn_t pfn, unsigned order)
{
	uint32_t last = hp_block_of(zone, pfn + (1u << order) - 1);

	for (uint32_t b = hp_block_of(zone, pfn); b <= last; b++)
		if (zone->areas[hp_block_first_area(zone, b)].closed)
			return false;
	return true;
}

/* Gives a chunk to the cache, which is locked when the first one comes that it could take. */
static bool give(struct hp_pcp *pcp, bool *locked, hp_pfn_t pfn, unsigned order)
{
	if (!pcp || hp_pcp_index(pcp, 1u << order) < 0)
		return false;
	if (!*locked && !hp_bias_try(&pcp->lock))
		return false;
	*locked = true;
	return hp_pcp_give(pcp, pfn, order);
}

/* Rows on their way to the lists in one go. */
#define ROWS 32u

void hp_contig_free(struct hp_zone *zone, struct hp_pcp *pcp, bool *locked, hp_pfn_t pfn,
		    uint32_t pages)
{
	uint32_t block = hp_block_of(zone, pfn), owner = zone->areas[hp_area_of(zone, pfn)].owner;
	struct hp_row rows[ROWS];
	unsigned closed = 0, n = 0;

	while (pages != 0) {
		unsigned order = hp_contig_order(zone, pfn, pages);

		/* Chunks never mix pages that go to different places. */
		if (order > zone->config.pageblock_order && !all_open(zone, pfn, order))
			order = zone->config.pageblock_order;
		closed |= zone->areas[hp_area_of(zone, pfn)].closed;
		if (!give(pcp, locked, pfn, order))
			n = hp_rows_add(rows, n, hp_entry(pfn, order, false), zone->area_order,
					false);
		pfn += 1u << order;
		pages -= 1u << order;
		if (n == ROWS || pages == 0) {
			hp_buddy_free_rows(zone, owner, rows, n);
			n = 0;
		}
	}
	for (; closed & HP_CLOSED_EXCLUSIVE && block <= hp_block_of(zone, pfn - 1); block++)
		hp_pageblock_end_exclusive(zone, block);
}
