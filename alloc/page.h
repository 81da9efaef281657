/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of pages: the buddy system inside one word, and the pages kept out.
 *
 * In a word of free bits a chunk of order k is free when its 2^k aligned bits are set. Folding the
 * word on itself k times leaves a bit at the first page of each such chunk; so "is there one",
 * "which is the smallest that fits" and "how large has this become" are a few shifts and ands.
 */
#pragma once

#include "alloc/internal.h"

/* A page as it travels between caches and buddy lists: 24 bits of pfn, its order, zero or not. */
typedef uint32_t hp_entry_t;

#define HP_ENTRY_ZERO (UINT32_C(1) << 31)

static inline hp_entry_t hp_entry(hp_pfn_t pfn, unsigned order, bool zero)
{
	return pfn | (uint32_t)order << 24 | (zero ? HP_ENTRY_ZERO : 0);
}

static inline hp_pfn_t hp_entry_pfn(hp_entry_t entry)
{
	return entry & (HP_ZONE_MAX_PAGES - 1);
}

static inline unsigned hp_entry_order(hp_entry_t entry)
{
	return entry >> 24 & 31;
}

/* The lowest n bits, n <= 64. */
static inline uint64_t hp_bits(unsigned n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* The bits of a chunk within an area, below the largest order of one. */
static inline uint64_t hp_bits_chunk(unsigned bit, unsigned order)
{
	return ((UINT64_C(1) << (1u << order)) - 1) << bit;
}

/* From the first bits of free chunks of order k to those of order k + 1; k < 6. */
static inline uint64_t hp_bits_fold(uint64_t starts, unsigned k)
{
	static const uint64_t aligned[HP_AREA_MAX_ORDER + 1] = {
		UINT64_MAX,
		UINT64_C(0x5555555555555555),
		UINT64_C(0x1111111111111111),
		UINT64_C(0x0101010101010101),
		UINT64_C(0x0001000100010001),
		UINT64_C(0x0000000100000001),
		UINT64_C(0x0000000000000001),
	};

	return starts & starts >> (1u << k) & aligned[k + 1];
}

/* The first bits of all free chunks of this order, parts of larger ones included. */
static inline uint64_t hp_bits_chunks(uint64_t free, unsigned order)
{
	for (unsigned k = 0; k < order; k++)
		free = hp_bits_fold(free, k);
	return free;
}

/* Order of the largest free chunk, or HP_ORDER_NONE. */
static inline uint8_t hp_bits_largest(uint64_t free)
{
	uint8_t order = 0;

	if (free == 0)
		return HP_ORDER_NONE;
	while (order < HP_AREA_MAX_ORDER) {
		free = hp_bits_fold(free, order);
		if (free == 0)
			break;
		order++;
	}
	return order;
}

/* n of these free pages, those of the smallest chunks; there are so many. */
static inline uint64_t hp_bits_smallest(uint64_t free, uint32_t n)
{
	uint64_t taken = 0;

	for (unsigned k = 0; n > 0; k++) {
		uint64_t larger = k < HP_AREA_MAX_ORDER ? hp_bits_fold(free, k) : 0;
		uint64_t exact =
			free & ~(larger | (k < HP_AREA_MAX_ORDER ? larger << (1u << k) : 0));

		for (; exact != 0 && n > 0; exact &= exact - 1) {
			uint32_t pages = 1u << k < n ? 1u << k : n;

			taken |= hp_bits(pages) << __builtin_ctzll(exact);
			n -= pages;
		}
		free = larger;
	}
	return taken;
}

/* First bit of the smallest free chunk that holds one of this order; 64: there is none. */
static inline unsigned hp_bits_find(uint64_t free, unsigned order)
{
	uint64_t starts = hp_bits_chunks(free, order);

	while (starts != 0) {
		uint64_t larger = order < HP_AREA_MAX_ORDER ? hp_bits_fold(starts, order) : 0;
		uint64_t exact = starts & ~larger;

		if (order < HP_AREA_MAX_ORDER)
			exact &= ~(larger << (1u << order));
		if (exact != 0)
			return (unsigned)__builtin_ctzll(exact);
		starts = larger;
		order++;
	}
	return 64;
}

/*
 * Free pages of one area on their way between a cache and the buddy lists: under the zone lock they
 * are one look at the area, however many they are. Or one chunk of the area's order or more.
 */
struct hp_row {
	uint64_t bits; /* the pages; all set for a chunk, which nothing joins */
	uint64_t zero; /* of these, the zero ones */
	uint32_t area; /* of a chunk: its first one */
	uint8_t order; /* of the chunk it is; HP_ORDER_NONE: it is several */
	uint8_t pages; /* of several; of a chunk: order tells */
};
_Static_assert(1u << HP_AREA_MAX_ORDER <= UINT8_MAX, "all pages of an area can be counted");

/*
 * Adds an entry to n rows: to the last one, if it is of the same area. Returns how many they are.
 * single: it is one page.
 */
static inline uint32_t hp_rows_add(struct hp_row *rows, uint32_t n, hp_entry_t entry,
				   unsigned area_order, bool single)
{
	unsigned order = single ? 0 : hp_entry_order(entry);
	uint32_t a = hp_entry_pfn(entry) >> area_order;
	unsigned bit = entry & ((1u << area_order) - 1);
	uint64_t bits = order < area_order || single ? hp_bits_chunk(bit, order) : UINT64_MAX;
	uint64_t zero = entry & HP_ENTRY_ZERO ? bits : 0;
	struct hp_row *last = n ? &rows[n - 1] : NULL;

	/* The same page twice is for the check of the second one. */
	if (!last || last->area != a || last->bits & bits) {
		rows[n] = (struct hp_row){bits, zero, a, (uint8_t)order, (uint8_t)(1u << order)};
		return n + 1;
	}
	last->bits |= bits;
	last->zero |= zero;
	last->order = HP_ORDER_NONE;
	last->pages = (uint8_t)(last->pages + (1u << order));
	return n;
}

/*
 * Brings a line here to be written. (The builtin, as compiled for any x86-64, fetches it for
 * reading only, and then the store has to ask the other core again.)
 */
static inline void hp_prefetch_write(const void *p)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* The bits of a bitmap of pages that belong to one area. */
static inline uint64_t hp_page_bits(const struct hp_zone *zone, const uint64_t *map, uint32_t area)
{
	hp_pfn_t pfn = hp_area_pfn(zone, area);

	return map[pfn / 64] >> pfn % 64 & hp_bits(hp_area_pages(zone));
}

static inline bool hp_page_bit(const uint64_t *map, hp_pfn_t pfn)
{
	return __atomic_load_n(&map[pfn / 64], __ATOMIC_RELAXED) >> pfn % 64 & 1;
}

/* Notes pages in mark[], or forgets them. */
void hp_page_mark(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages, bool value);

/* A page is broken: it must not be granted again. Under the zone lock, as all of these. */
void hp_page_mark_broken(struct hp_zone *zone, hp_pfn_t pfn);

/* Takes a page that nobody holds any more out of circulation, to be reported. */
void hp_page_keep_out(struct hp_zone *zone, hp_pfn_t pfn, const char *what);

/* The block has new memory: none of its pages is broken. Returns how many were. */
uint32_t hp_page_forgive(struct hp_zone *zone, hp_pfn_t pfn, hp_pfn_t end);

/* The part of hp_page_report() for when there is something to report. */
bool hp_page_report_pending(struct hp_zone *zone);

/* Calls hp_bad_page_fn for what was kept out meanwhile. No locks held. Were there any? */
static inline bool hp_page_report(struct hp_zone *zone)
{
	return __builtin_expect(__atomic_load_n(&zone->nr_pending, __ATOMIC_RELAXED) != 0, 0) &&
	       hp_page_report_pending(zone);
}
