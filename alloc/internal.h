/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of alloc/ share: the zone's structure and its metadata. For alloc/ itself, its
 * benchmarks and its white-box tests; everybody else sees alloc/zone.h only.
 *
 * An *area* is the smaller of a pageblock and 64 pages: what one word of bits describes. An area
 * never has two owners. All free memory is in the free bits of its areas, and within an area the
 * bits are the whole buddy system: a chunk of order k is free when its 2^k bits are set, so
 * splitting and merging take no work at all (page.h). Only above the area are there chunks with a
 * record of their own: *runs* of wholly free areas of one owner, headed by the first (buddy.c).
 *
 * Every area with a free page is on one list of its owner: that of the largest chunk it holds; a
 * run is on the list of its own order, by its head. So a request looks at the first area of the
 * first list that can serve it, and large chunks last longest.
 *
 * Locks, in this order: hp_zone.registry (which caches there are), one hp_pcp.lock, hp_zone.lock.
 * A lease word changes under the zone lock, or under the lock of a pcp of the block's owner as long
 * as the block is live and hp_zone.closing is 0. Whoever has to keep both kinds out raises closing
 * under the zone lock, closes the block and then passes through every pcp of that owner. A pcp is
 * only ever *tried* by its worker, who never waits for it; so he may try it under the zone lock.
 */
#pragma once

#include "alloc/durable.h"
#include "alloc/lock.h"
#include "alloc/types.h"
#include "alloc/zone.h"

#include <assert.h>

#define HP_CACHELINE	  64u
#define HP_AREA_MAX_ORDER 6u
#define HP_AREA_NONE	  UINT32_MAX
#define HP_ORDER_NONE	  UINT8_MAX /* of an area that is on no list */

/* Why pages of an area are on no list, although free. */
enum hp_closed {
	HP_CLOSED_STATE = 1u << 0,     /* the block is neither clean, live nor failing */
	HP_CLOSED_ISOLATING = 1u << 1, /* on its way there */
	HP_CLOSED_FAILING = 1u << 2,   /* no new grants */
	HP_CLOSED_EXCLUSIVE = 1u << 3, /* it belongs to one lease, whatever that leaves of it */
};

struct hp_area {
	uint64_t free;	     /* a bit for each page: not leased, not cached, not bad */
	uint64_t zero;	     /* of these, the ones known to be zero */
	uint32_t next, prev; /* areas on the same list of the owner, while order is not NONE */
	hp_pfn_t cover;	     /* the lease that began before this area and covers its first page */
	uint16_t owner;
	uint8_t order;	/* list it is on; below the area's order: its largest chunk, else a run */
	uint8_t closed; /* enum hp_closed */
};
_Static_assert(sizeof(struct hp_area) == 32, "two areas in a cache line");

/*
 * An owner and the account of the same number. What every hold of the zone lock writes begins with
 * a cache line of its own: at two threads each line more is another transfer. account, pages and
 * limit are also read without it, by caches. heads has max_order + 1 entries; owners are a multiple
 * of cache lines apart.
 */
struct hp_owner {
	uint32_t account;		 /* whom it charges */
	uint32_t blocks;		 /* live and failing */
	uint32_t charged;		 /* and isolated, quarantined, lent */
	uint32_t pages;			 /* of its live and failing blocks */
	uint32_t revoked_pages;		 /* in revoked words */
	uint32_t held, limit, guarantee; /* of the account: blocks */
	char pad[HP_CACHELINE - 32];

	uint32_t nonempty;   /* bit per order: that list has something */
	uint32_t free_pages; /* free bits in its live and failing blocks */
	uint32_t heads[];
};
_Static_assert(offsetof(struct hp_owner, nonempty) == HP_CACHELINE, "a line of its own");

#define HP_BAD_PENDING 32u /* bad pages found under a lock and not yet reported */

struct hp_bad {
	hp_pfn_t pfn;
	const char *what;
};

struct hp_zone {
	/* Read by everybody, changed hardly ever. */
	struct hp_zone_config config;
	uint32_t nr_blocks, nr_areas;
	uint32_t attention;  /* the sum of the next three: what a hit has to look out for */
	uint32_t closing;    /* blocks being isolated or revoked */
	uint32_t nr_broken;  /* bits of bad[] */
	uint32_t sharing;    /* 1: there have been shared ranges */
	uint32_t area_order; /* min(pageblock_order, HP_AREA_MAX_ORDER) */
	uint32_t default_batch;
	uint32_t variant;      /* enum hp_drain_variant */
	uint32_t pcp_capacity; /* entries of a cache's order 0 ring */
	uint32_t owner_stride;
	hp_word_t *blocks, *leases;
	struct hp_area *areas;
	char *owners;
	uint64_t *bad;	/* bit per page: kept out */
	uint64_t *mark; /* bit per page: notes of the call that has the zone lock; else zero */
	uint16_t *refs; /* references of shared pages, or NULL */
	hp_bad_page_fn bad_fn;
	void *bad_userdata;
	char pad0[64];

	/* Together in front: what every hold of the lock writes. */
	struct hp_lock lock;
	uint32_t nr_pending; /* of pending[] */
	uint64_t lock_acquisitions;
	uint64_t free_pages, bad_pages, revoked_pages;
	/* Events; those of living caches are added when somebody looks. */
	uint64_t grants, frees;
	uint64_t refills, drains, claims;
	uint64_t pages_in[HP_BLOCK_STATES];  /* pages of the blocks in each state */
	uint32_t blocks_in[HP_BLOCK_STATES]; /* blocks in each state */
	uint32_t guaranteed_blocks, unmet_blocks;
	uint32_t size_blocks; /* that guarantees may add up to */
	struct hp_bad pending[HP_BAD_PENDING];
	char pad1[64];

	struct hp_lock registry;
	struct hp_pcp *pcps; /* linked by hp_pcp.next, prev */
};

_Static_assert(offsetof(struct hp_zone, lock) % HP_CACHELINE == 0, "the lock begins a line");
#ifndef HP_LOCK_TIMES
_Static_assert(offsetof(struct hp_zone, refills) <= offsetof(struct hp_zone, lock) + HP_CACHELINE,
	       "what every hold of it writes is in the same");
#endif

/* --- geometry --- */

static inline uint32_t hp_area_of(const struct hp_zone *zone, hp_pfn_t pfn)
{
	return pfn >> zone->area_order;
}

static inline hp_pfn_t hp_area_pfn(const struct hp_zone *zone, uint32_t area)
{
	return area << zone->area_order;
}

static inline uint32_t hp_area_pages(const struct hp_zone *zone)
{
	return 1u << zone->area_order;
}

static inline uint32_t hp_block_of(const struct hp_zone *zone, hp_pfn_t pfn)
{
	return pfn >> zone->config.pageblock_order;
}

static inline hp_pfn_t hp_block_pfn(const struct hp_zone *zone, uint32_t block)
{
	return block << zone->config.pageblock_order;
}

/* First pfn after the block; the last block of a zone may be shorter. */
static inline hp_pfn_t hp_block_end(const struct hp_zone *zone, uint32_t block)
{
	uint64_t end = (uint64_t)(block + 1) << zone->config.pageblock_order;

	return end < zone->config.nr_pages ? (hp_pfn_t)end : zone->config.nr_pages;
}

static inline uint32_t hp_block_pages(const struct hp_zone *zone, uint32_t block)
{
	return hp_block_end(zone, block) - hp_block_pfn(zone, block);
}

/* The areas of a block are [first, last]. */
static inline uint32_t hp_block_first_area(const struct hp_zone *zone, uint32_t block)
{
	return hp_area_of(zone, hp_block_pfn(zone, block));
}

static inline uint32_t hp_block_last_area(const struct hp_zone *zone, uint32_t block)
{
	return hp_area_of(zone, hp_block_end(zone, block) - 1);
}

static inline struct hp_area *hp_block_area(struct hp_zone *zone, uint32_t block)
{
	return &zone->areas[hp_block_first_area(zone, block)];
}

static inline struct hp_block_word hp_block_get(const struct hp_zone *zone, uint32_t block)
{
	return hp_block_decode(hp_durable_load(&zone->blocks[block]));
}

static inline struct hp_owner *hp_owner_get(struct hp_zone *zone, uint32_t owner)
{
	return (struct hp_owner *)(void *)(zone->owners + (size_t)owner * zone->owner_stride);
}

/* --- the zone lock --- */

static inline void hp_zone_lock(struct hp_zone *zone)
{
	hp_lock_acquire(&zone->lock);
	zone->lock_acquisitions++;
}

static inline void hp_zone_unlock(struct hp_zone *zone)
{
	hp_lock_release(&zone->lock);
}

/* They are changed under the zone lock and read by hits without it. */
static inline void hp_zone_attend(struct hp_zone *zone, uint32_t *what, int change)
{
	__atomic_store_n(what, *what + (uint32_t)change, __ATOMIC_RELAXED);
	__atomic_store_n(&zone->attention, zone->attention + (uint32_t)change, __ATOMIC_RELAXED);
}
