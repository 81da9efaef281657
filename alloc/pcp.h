/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per-worker page caches.
 *
 * One ring of entries per cached order; the hot end is where the worker takes and gives, the cold
 * end where drains take. What a hit of a single page needs is in the first line of the structure.
 */
#pragma once

#include "alloc/page.h"

#define HP_PCP_SMALL 4u			/* orders 0 .. 3 */
#define HP_PCP_LISTS (HP_PCP_SMALL + 1) /* and the pageblock order, if it is above 3 */
#define HP_PCP_BLOCK HP_PCP_SMALL	/* the list of that order */

#define HP_PCP_SCALE_MAX 5u /* batches grow up to 2^5 times */

/* Indices run freely; an entry is at base + (index & mask). hot - cold are in it. */
struct hp_pcp_list {
	uint32_t hot, cold;
	uint32_t mask, base;
};

struct hp_pcp {
	struct hp_bias lock;  /* of all that follows but the links */
	uint32_t single_high; /* entries of list[0] at which the small lists together are high */
	struct hp_zone *zone;
	uint64_t live_word; /* low 24 bits of a block word whose pages may come in here */
	uint64_t hits, frees;
	struct hp_pcp_list list[HP_PCP_LISTS];

	uint32_t owner;
	uint32_t others;      /* pages in the other small lists */
	uint32_t high;	      /* pages of the small lists at which the free path drains */
	uint32_t block_high;  /* chunks of the block list: likewise */
	uint32_t block_pages; /* of a chunk of the block list; UINT32_MAX: there is no such list */
	uint32_t draining;    /* pages on their way between it and the lists of the zone */
	uint32_t scale;	      /* log2 of how much batches have grown */
	bool last_was_drain;  /* the last time the zone was needed; equal ones in a row grow it */
	bool scattered;	      /* what the last drain picked did not lie side by side */
	uint32_t set_batch, set_high; /* as configured; 0: computed */
	uintptr_t worker;	      /* the thread that used it last; drains by it need no fence */
	uint64_t misses, refills, drains;
	struct hp_pcp *next, *prev; /* hp_zone.pcps; under hp_zone.registry */
	hp_entry_t entries[];
};
#ifndef HP_LOCK_TIMES
_Static_assert(offsetof(struct hp_pcp, list[1]) == HP_CACHELINE, "a single page needs one line");
#endif

/* Is it a cache of this owner? Told by what a hit has at hand. */
static inline bool hp_pcp_is_of(const struct hp_pcp *pcp, uint32_t owner)
{
	return pcp->live_word == ((uint64_t)owner << 8 | HP_BLOCK_LIVE);
}

/* The list for ranges of so many pages, or -1. */
static inline int hp_pcp_index(const struct hp_pcp *pcp, uint32_t pages)
{
	if (pages == 1)
		return 0;
	if (pages == pcp->block_pages)
		return (int)HP_PCP_BLOCK;
	if (pages - 1 >= 1u << (HP_PCP_SMALL - 1) || (pages & (pages - 1)) != 0)
		return -1;

	int index = __builtin_ctz(pages);

	return pcp->list[index].mask ? index : -1;
}

static inline uint32_t hp_pcp_list_nr(const struct hp_pcp_list *list)
{
	return list->hot - list->cold;
}

/*
 * Pages in the small lists. How many a list has is the distance of its two indices: there is no
 * count that a caller could forget, and a drain that moves an index page by page counts page by
 * page.
 */
static inline uint32_t hp_pcp_count(const struct hp_pcp *pcp)
{
	return hp_pcp_list_nr(&pcp->list[0]) + pcp->others;
}

/* high changed, or what the other lists have. */
static inline void hp_pcp_set_single_high(struct hp_pcp *pcp)
{
	pcp->single_high = pcp->high > pcp->others ? pcp->high - pcp->others : 0;
}

/* So many pages came into a list, or left it. */
static inline void hp_pcp_moved(struct hp_pcp *pcp, unsigned index, uint32_t pages)
{
	if (index == 0 || index == HP_PCP_BLOCK)
		return;
	__atomic_store_n(&pcp->others, pcp->others + pages, __ATOMIC_RELAXED);
	hp_pcp_set_single_high(pcp);
}

/* Counters are read by others without the lock. */
static inline void hp_pcp_bump(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* The place of an index in a list; those of list[0] are the first. */
static inline hp_entry_t *hp_pcp_entry(struct hp_pcp *pcp, unsigned index, uint32_t at)
{
	const struct hp_pcp_list *list = &pcp->list[index];

	return &pcp->entries[(index == 0 ? 0 : list->base) + (at & list->mask)];
}

/* Takes the hottest entry. Locked; the list is not empty. */
static inline hp_entry_t hp_pcp_pop(struct hp_pcp *pcp, unsigned index)
{
	struct hp_pcp_list *list = &pcp->list[index];
	uint32_t hot = list->hot - 1;

	__atomic_store_n(&list->hot, hot, __ATOMIC_RELAXED);
	hp_pcp_moved(pcp, index, -(1u << index));
	return *hp_pcp_entry(pcp, index, hot);
}

static inline bool hp_pcp_is_full(const struct hp_pcp *pcp, unsigned index)
{
	return hp_pcp_list_nr(&pcp->list[index]) > pcp->list[index].mask;
}

/* Has the free path to drain, after something was put into this list? */
static inline bool hp_pcp_is_high(const struct hp_pcp *pcp, unsigned index)
{
	if (index == HP_PCP_BLOCK)
		return hp_pcp_list_nr(&pcp->list[index]) > pcp->block_high;
	return hp_pcp_list_nr(&pcp->list[0]) >= pcp->single_high;
}

/*
 * Puts an entry at the hot end. Locked; the list is not full. Returns whether it, or the small lists
 * together, are high now.
 */
static inline bool hp_pcp_push(struct hp_pcp *pcp, unsigned index, hp_entry_t entry)
{
	struct hp_pcp_list *list = &pcp->list[index];
	uint32_t hot = list->hot, nr = hot - list->cold;
	bool high = index == 0 && nr + 1 >= pcp->single_high;

	/* Below high there is room: resize() sees to that. */
	assert(!(high || index != 0) || !hp_pcp_is_full(pcp, index));
	*hp_pcp_entry(pcp, index, hot) = entry;
	__atomic_store_n(&list->hot, hot + 1, __ATOMIC_RELAXED);
	if (index == 0)
		return high;
	hp_pcp_moved(pcp, index, 1u << index);
	return hp_pcp_is_high(pcp, index);
}

/* What a zone of this configuration starts with: pages of a batch, entries of the order 0 ring. */
uint32_t hp_pcp_default_batch(const struct hp_zone_config *config);
uint32_t hp_pcp_default_capacity(const struct hp_zone_config *config);

/* Drains what is too much. Locked by the worker, who holds no zone lock. */
void hp_pcp_trim(struct hp_pcp *pcp);

/*
 * A list of this index is empty: a batch for it, from what the owner has. The zone lock is held
 * only while pages are taken off the buddy lists, not while it is found out how many and not while
 * they are put into the cache. Locked by the worker throughout.
 */
#define HP_REFILL_ROWS 128u

struct hp_refill {
	unsigned index;
	uint32_t want; /* entries */
	uint32_t n;    /* rows, of single pages, or chunks */
	union {
		struct hp_row rows[HP_REFILL_ROWS];
		hp_entry_t chunks[HP_REFILL_ROWS];
	};
};

void hp_pcp_refill_begin(struct hp_pcp *pcp, unsigned index, struct hp_refill *refill);

/* Under the zone lock. Never claims. Returns whether there was anything. */
bool hp_pcp_refill_take(struct hp_pcp *pcp, struct hp_refill *refill);

void hp_pcp_refill_end(struct hp_pcp *pcp, const struct hp_refill *refill);

/* Moves a zero entry, if the list has one near its hot end, to the hot end. Locked. */
void hp_pcp_prefer_zero(struct hp_pcp *pcp, unsigned index);

/*
 * A chunk that has just stopped being leased, for the hot end. Locked; under the zone lock. False:
 * it is not for this cache (its order, its owner, its block, a full list, a page with a fault).
 */
bool hp_pcp_give(struct hp_pcp *pcp, hp_pfn_t pfn, unsigned order);

/* Entries of a list as seen without the lock. */
static inline uint32_t hp_pcp_list_peek(const struct hp_pcp_list *list)
{
	uint32_t hot = __atomic_load_n(&list->hot, __ATOMIC_RELAXED);
	uint32_t nr = hot - __atomic_load_n(&list->cold, __ATOMIC_RELAXED);

	return (int32_t)nr < 0 ? 0 : nr; /* it was turned over meanwhile */
}

/* Pages of a cache as seen without the lock. */
static inline uint32_t hp_pcp_pages(const struct hp_pcp *pcp)
{
	return hp_pcp_list_peek(&pcp->list[0]) + __atomic_load_n(&pcp->others, __ATOMIC_RELAXED) +
	       hp_pcp_list_peek(&pcp->list[HP_PCP_BLOCK]) * pcp->block_pages;
}
