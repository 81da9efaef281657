/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buddy lists.
 *
 * Designed for few cache lines under the lock. The usual free page is a structure that is linked
 * into a list by its neighbours' addresses, so that each page given back touches its own line, its
 * buddy's and those of two list neighbours. Here a page is a bit in its area's word, its buddy is
 * in the same word, and the area moves to another list only when its largest chunk changes order:
 * most pages given back in random order touch one line and store one word.
 *
 * An area is listed by its *largest* chunk. A request for a small chunk thus goes to the area whose
 * largest chunk is the smallest that will do, and there to its smallest chunk that will do.
 * Compared with one list per order over all chunks, fuller areas are filled up first and large
 * chunks are broken later, for a quarter of the list work.
 *
 * Above the area (order a) chunks are runs of wholly free areas. Only the head's order says so; the
 * others of a run are on no list. Two runs merge when they are buddies of one order and one owner;
 * so nothing ever merges across owners, and the border of a zone needs no special case.
 */
#include "alloc/buddy.h"

/* Areas looked at for one that is zero before a dirty one is taken. */
#define ZERO_LOOKS 16u

/* Rows that a drain looks ahead, to have their areas here when it comes to them. */
#define AHEAD 12u

static void list_add(struct hp_zone *zone, struct hp_owner *owner, uint32_t a, unsigned order)
{
	struct hp_area *area = &zone->areas[a];
	uint32_t next = owner->heads[order];

	area->next = next;
	area->prev = HP_AREA_NONE;
	area->order = (uint8_t)order;
	if (next != HP_AREA_NONE)
		zone->areas[next].prev = a;
	owner->heads[order] = a;
	owner->nonempty |= 1u << order;
}

static void list_del(struct hp_zone *zone, struct hp_owner *owner, uint32_t a)
{
	struct hp_area *area = &zone->areas[a];

	if (area->next != HP_AREA_NONE)
		zone->areas[area->next].prev = area->prev;
	if (area->prev != HP_AREA_NONE) {
		zone->areas[area->prev].next = area->next;
	} else {
		owner->heads[area->order] = area->next;
		if (area->next == HP_AREA_NONE)
			owner->nonempty &= ~(1u << area->order);
	}
	area->order = HP_ORDER_NONE;
}

/* Lists an area by what is free in it after something was taken; never a whole area. */
static void relist(struct hp_zone *zone, struct hp_owner *owner, uint32_t a)
{
	struct hp_area *area = &zone->areas[a];
	uint8_t order = hp_bits_largest(area->free);

	if (order == area->order || area->closed)
		return;
	if (area->order != HP_ORDER_NONE)
		list_del(zone, owner, a);
	if (order != HP_ORDER_NONE)
		list_add(zone, owner, a, order);
}

/* Lists a run of this order that is on no list yet, merged with its buddies. */
static void list_run(struct hp_zone *zone, struct hp_owner *owner, uint32_t a, unsigned order)
{
	uint32_t number = zone->areas[a].owner;

	while (order < zone->config.max_order) {
		uint32_t buddy = a ^ 1u << (order - zone->area_order);

		if (buddy >= zone->nr_areas || zone->areas[buddy].order != order ||
		    zone->areas[buddy].owner != number)
			break;
		list_del(zone, owner, buddy);
		a &= buddy;
		order++;
	}
	list_add(zone, owner, a, order);
}

/* Lists areas [a, end), parts of a run that has been taken off its list: no merging is possible. */
static void list_pieces(struct hp_zone *zone, struct hp_owner *owner, uint32_t a, uint32_t end)
{
	while (a < end) {
		unsigned order = zone->config.max_order - zone->area_order;

		if (a != 0 && (unsigned)__builtin_ctz(a) < order)
			order = (unsigned)__builtin_ctz(a);
		while (1u << order > end - a)
			order--;
		list_add(zone, owner, a, order + zone->area_order);
		a += 1u << order;
	}
}

/* The head of the run that holds this wholly free area of an open block. */
static uint32_t run_head(const struct hp_zone *zone, uint32_t a)
{
	for (unsigned k = zone->area_order; k <= zone->config.max_order; k++) {
		uint32_t head = a & ~((1u << (k - zone->area_order)) - 1);

		if (zone->areas[head].order == k)
			return head;
	}
	assert(!"a free area of an open block is on no list");
	return a;
}

/* Takes areas [first, last] off whatever lists and runs they are on; what is outside stays on. */
static void unlist_areas(struct hp_zone *zone, uint32_t first, uint32_t last)
{
	for (uint32_t a = first; a <= last; a++) {
		struct hp_area *area = &zone->areas[a];
		struct hp_owner *owner = hp_owner_get(zone, area->owner);

		if (area->closed || area->free == 0)
			continue;
		if (area->free != hp_bits(hp_area_pages(zone))) {
			list_del(zone, owner, a);
			continue;
		}
		uint32_t head = run_head(zone, a);
		uint32_t end = head + (1u << (zone->areas[head].order - zone->area_order));

		list_del(zone, owner, head);
		if (head < first)
			list_pieces(zone, owner, head, first);
		if (end > last + 1)
			list_pieces(zone, owner, last + 1, end);
		a = end - 1;
	}
}

void hp_buddy_unlink_block(struct hp_zone *zone, uint32_t block)
{
	unlist_areas(zone, hp_block_first_area(zone, block), hp_block_last_area(zone, block));
}

void hp_buddy_link_block(struct hp_zone *zone, uint32_t block)
{
	uint32_t last = hp_block_last_area(zone, block);

	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++) {
		struct hp_area *area = &zone->areas[a];
		struct hp_owner *owner = hp_owner_get(zone, area->owner);

		assert(area->order == HP_ORDER_NONE);
		if (area->closed || area->free == 0)
			continue;
		if (area->free == hp_bits(hp_area_pages(zone)))
			list_run(zone, owner, a, zone->area_order);
		else
			list_add(zone, owner, a, hp_bits_largest(area->free));
	}
}

static void count_free(struct hp_zone *zone, struct hp_owner *owner, uint32_t pages)
{
	owner->free_pages += pages;
	zone->free_pages += pages;
}

static void count_taken(struct hp_zone *zone, struct hp_owner *owner, uint32_t pages)
{
	owner->free_pages -= pages;
	zone->free_pages -= pages;
}

/* Takes these bits of an area, all free; it may be on no list just now. Were they zero? */
static bool take_bits(struct hp_area *area, uint64_t bits)
{
	bool zero = (area->zero & bits) == bits;

	area->free &= ~bits;
	area->zero &= ~bits;
	return zero;
}

/* Is there, on the lists that can serve it, a zero chunk? An area that has it, or HP_AREA_NONE. */
static uint32_t find_zero(struct hp_zone *zone, struct hp_owner *owner, unsigned order)
{
	unsigned looks = ZERO_LOOKS;

	for (uint32_t lists = owner->nonempty >> order << order; lists; lists &= lists - 1) {
		uint32_t a = owner->heads[__builtin_ctz(lists)];

		for (; a != HP_AREA_NONE && looks != 0; a = zone->areas[a].next, looks--) {
			unsigned in_area = order < zone->area_order ? order : zone->area_order;
			uint64_t zero = zone->areas[a].free & zone->areas[a].zero;

			if (hp_bits_find(zero, in_area) < 64)
				return a;
		}
	}
	return HP_AREA_NONE;
}

/* Takes a chunk of at least the area's order from the run headed by a. */
static hp_pfn_t take_run(struct hp_zone *zone, struct hp_owner *owner, uint32_t a, unsigned order,
			 bool *ret_zero)
{
	unsigned have = zone->areas[a].order;
	uint32_t nr = 1u << (order - zone->area_order);
	bool zero = true;

	list_del(zone, owner, a);
	while (have > order) {
		have--;
		list_add(zone, owner, a + (1u << (have - zone->area_order)), have);
	}
	for (uint32_t i = a; i < a + nr; i++)
		zero &= take_bits(&zone->areas[i], zone->areas[i].free);
	*ret_zero = zero;
	return hp_area_pfn(zone, a);
}

hp_pfn_t hp_buddy_take(struct hp_zone *zone, uint32_t number, unsigned order, bool want_zero,
		       bool *ret_zero)
{
	struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t lists = owner->nonempty >> order << order;
	uint32_t a = HP_AREA_NONE;

	if (lists == 0)
		return HP_PFN_NONE;
	if (want_zero)
		a = find_zero(zone, owner, order);
	bool zero_found = a != HP_AREA_NONE;
	if (!zero_found)
		a = owner->heads[__builtin_ctz(lists)];
	count_taken(zone, owner, 1u << order);
	if (order >= zone->area_order)
		return take_run(zone, owner, a, order, ret_zero);

	struct hp_area *area = &zone->areas[a];

	if (area->order > zone->area_order) {
		/* Breaks a run: all but this area stays in runs. */
		unsigned have = area->order;

		list_del(zone, owner, a);
		while (have > zone->area_order) {
			have--;
			list_add(zone, owner, a + (1u << (have - zone->area_order)), have);
		}
	}
	uint64_t from = zero_found ? area->free & area->zero : area->free;
	unsigned bit = hp_bits_find(from, order);

	*ret_zero = take_bits(area, hp_bits(1u << order) << bit);
	relist(zone, owner, a);
	return hp_area_pfn(zone, a) + bit;
}

uint32_t hp_buddy_take_pages(struct hp_zone *zone, uint32_t number, uint32_t n, struct hp_row *ret,
			     uint32_t max, uint32_t *ret_pages)
{
	struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t got = 0, rows = 0;

	while (got < n && rows < max && owner->nonempty) {
		uint32_t a = owner->heads[__builtin_ctz(owner->nonempty)];
		struct hp_area *area = &zone->areas[a];
		unsigned run = area->order;
		uint64_t bits = area->free;
		uint32_t pages = (uint32_t)__builtin_popcountll(bits);

		/* The next one, while we are busy with this one. */
		if (area->next != HP_AREA_NONE)
			hp_prefetch_write(&zone->areas[area->next]);
		list_del(zone, owner, a);
		while (run != HP_ORDER_NONE && run > zone->area_order) {
			run--;
			list_add(zone, owner, a + (1u << (run - zone->area_order)), run);
		}
		/* All of it; or, of the one that is not used up, its smallest chunks. */
		if (pages > n - got) {
			pages = n - got;
			bits = hp_bits_smallest(bits, pages);
		}
		ret[rows++] =
			(struct hp_row){bits, area->zero & bits, a, HP_ORDER_NONE, (uint8_t)pages};
		got += pages;
		take_bits(area, bits);
		relist(zone, owner, a);
	}
	count_taken(zone, owner, got);
	*ret_pages = got;
	return rows;
}

bool hp_buddy_take_range(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	uint32_t first = hp_area_of(zone, pfn), last = hp_area_of(zone, pfn + pages - 1);
	struct hp_owner *owner = hp_owner_get(zone, zone->areas[first].owner);
	bool zero = true;

	unlist_areas(zone, first, last);
	for (uint32_t a = first; a <= last; a++) {
		hp_pfn_t start = hp_area_pfn(zone, a);
		unsigned from = pfn > start ? pfn - start : 0;
		uint64_t bits = hp_bits(hp_area_pages(zone)) & ~hp_bits(from);

		if (pfn + pages - start < hp_area_pages(zone))
			bits &= hp_bits(pfn + pages - start);
		assert((zone->areas[a].free & bits) == bits);
		zero &= take_bits(&zone->areas[a], bits);
		relist(zone, owner, a);
	}
	count_taken(zone, owner, pages);
	return zero;
}

/* Lists an open area whose largest chunk, of this order, has just come about. */
static void list_at(struct hp_zone *zone, struct hp_owner *owner, uint32_t a, unsigned order)
{
	if (zone->areas[a].order != HP_ORDER_NONE)
		list_del(zone, owner, a);
	if (order < zone->area_order)
		list_add(zone, owner, a, order);
	else
		list_run(zone, owner, a, order);
}

/* A chunk in an open area has become part of a larger one than the area is listed by. */
static __attribute__((noinline)) void list_grown(struct hp_zone *zone, struct hp_owner *owner,
						 uint32_t a, unsigned bit, unsigned order)
{
	uint64_t now = zone->areas[a].free;

	bit &= ~((1u << order) - 1);
	for (; order < zone->area_order; order++) {
		uint64_t buddy = hp_bits_chunk(bit ^ 1u << order, order);

		if ((now & buddy) != buddy)
			break;
		bit &= ~(1u << order);
	}
	list_at(zone, owner, a, order);
}

/* Lists an open area in which a chunk, smaller than the area, has just been set free. */
static inline void list_freed(struct hp_zone *zone, struct hp_owner *owner, uint32_t a,
			      unsigned bit, unsigned order)
{
	const struct hp_area *area = &zone->areas[a];
	unsigned listed = area->order;

	if (listed != HP_ORDER_NONE) {
		/* It stays where it is unless the chunk completed one larger than all others. */
		unsigned pages = 2u << listed;
		uint64_t larger = hp_bits(pages) << (bit & ~(pages - 1));

		if (__builtin_expect((area->free & larger) != larger, 1))
			return;
		order = listed + 1;
	}
	list_grown(zone, owner, a, bit, order);
}

/* Are these bits of an area free already, or of pages that are broken? */
static inline bool any_bad(const struct hp_zone *zone, uint32_t a, uint64_t bits)
{
	return (zone->areas[a].free & bits) ||
	       (zone->nr_broken && (hp_page_bits(zone, zone->bad, a) & bits));
}

/* Frees one of several pages of which at least one failed its check. */
static void free_checked(struct hp_zone *zone, hp_pfn_t pfn, bool zero)
{
	uint32_t a = hp_area_of(zone, pfn);

	if (zone->areas[a].free >> (pfn - hp_area_pfn(zone, a)) & 1) {
		/* Held as well as free: there is one page, and it goes to neither. */
		hp_buddy_take_range(zone, pfn, 1);
		hp_page_keep_out(zone, pfn, "freed while free");
	} else if (hp_page_bit(zone->bad, pfn)) {
		hp_page_keep_out(zone, pfn, "broken");
	} else {
		hp_buddy_free(zone, pfn, 0, zero);
	}
}

/* The pages of a row of which at least one failed its check. */
static __attribute__((noinline)) void free_row_checked(struct hp_zone *zone,
						       const struct hp_row *row)
{
	hp_pfn_t pfn = hp_area_pfn(zone, row->area);

	for (uint64_t bits = row->bits; bits != 0; bits &= bits - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(bits);

		free_checked(zone, pfn + bit, row->zero >> bit & 1);
	}
}

/* A chunk of at least the area's order. */
static void free_run(struct hp_zone *zone, hp_pfn_t pfn, unsigned order, bool zero)
{
	uint32_t a = hp_area_of(zone, pfn), end = a + (1u << (order - zone->area_order));
	struct hp_owner *owner = hp_owner_get(zone, zone->areas[a].owner);
	uint64_t full = hp_bits(hp_area_pages(zone));
	unsigned closed = 0;

	/* Will be looked at for merging: while we are busy with our own. */
	hp_prefetch_write(&zone->areas[a ^ (end - a)]);
	for (uint32_t i = a; i < end; i++) {
		closed |= zone->areas[i].closed;
		if (__builtin_expect(any_bad(zone, i, full), 0)) {
			for (hp_pfn_t end_pfn = pfn + (1u << order); pfn < end_pfn; pfn++)
				free_checked(zone, pfn, zero);
			return;
		}
	}
	for (uint32_t i = a; i < end; i++) {
		zone->areas[i].free = full;
		zone->areas[i].zero = zero ? full : 0;
	}
	count_free(zone, owner, 1u << order);
	if (!closed) {
		list_run(zone, owner, a, order);
		return;
	}
	/* Some of its blocks are open and some are not: area by area. */
	for (uint32_t i = a; i < end; i++)
		if (!zone->areas[i].closed)
			list_run(zone, owner, i, zone->area_order);
}

void hp_buddy_free(struct hp_zone *zone, hp_pfn_t pfn, unsigned order, bool zero)
{
	struct hp_row row;

	hp_rows_add(&row, 0, hp_entry(pfn, order, zero), zone->area_order, false);
	hp_buddy_free_rows(zone, zone->areas[row.area].owner, &row, 1);
}

/*
 * The loop that all pages given back go through, one by one or in bulk. What comes in a row costs
 * one look at its area. In random order each page needs another area, which the other core may have
 * had last: they are asked for some rows ahead. (Before the lock this is no use: the other core
 * takes them back while we wait for it.)
 */
void hp_buddy_free_rows(struct hp_zone *zone, uint32_t number, const struct hp_row *rows,
			uint32_t n)
{
	/* In registers: the stores below could be to anything. */
	const unsigned width = zone->area_order;
	struct hp_area *const areas = zone->areas;
	struct hp_owner *const owner = hp_owner_get(zone, number);
	bool broken = zone->nr_broken != 0;
	uint32_t pages = 0;

	hp_prefetch_write(&owner->nonempty);
	for (uint32_t i = 1; i < n && i < AHEAD; i++)
		hp_prefetch_write(&areas[rows[i].area]);
	for (uint32_t i = 0; i < n; i++) {
		const struct hp_row *row = &rows[i];
		uint32_t a = row->area;
		unsigned order = row->order;
		struct hp_area *area = &areas[a];
		uint64_t bits = row->bits;

		if (i + AHEAD < n)
			hp_prefetch_write(&areas[rows[i + AHEAD].area]);
		if (__builtin_expect(order >= width && order != HP_ORDER_NONE, 0)) {
			free_run(zone, a << width, order, row->zero);
			continue;
		}
		if (__builtin_expect(broken || (area->free & bits), 0) && any_bad(zone, a, bits)) {
			free_row_checked(zone, row);
			broken = zone->nr_broken != 0; /* the next row may have the same page */
			continue;
		}
		area->free |= bits;
		area->zero |= row->zero;
		pages += row->pages;
		if (area->closed)
			continue;
		if (order != HP_ORDER_NONE) {
			list_freed(zone, owner, a, (unsigned)__builtin_ctzll(bits), order);
			continue;
		}
		order = hp_bits_largest(area->free);
		if (order != area->order)
			list_at(zone, owner, a, order);
	}
	count_free(zone, owner, pages);
}

uint32_t hp_buddy_count(struct hp_zone *zone, uint32_t number, unsigned order, uint32_t enough)
{
	struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t n = 0;

	for (unsigned k = zone->config.max_order + 1; k-- > order && n < enough;) {
		uint32_t a = owner->heads[k];

		for (; a != HP_AREA_NONE && n < enough; a = zone->areas[a].next)
			n += k >= zone->area_order ? 1u << (k - order)
						   : (uint32_t)__builtin_popcountll(hp_bits_chunks(
							     zone->areas[a].free, order));
	}
	return n;
}

uint32_t hp_buddy_peek(struct hp_zone *zone, uint32_t number, unsigned order)
{
	struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t lists = owner->nonempty >> order << order;

	return lists ? owner->heads[__builtin_ctz(lists)] : HP_AREA_NONE;
}
