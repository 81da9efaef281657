/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a zone, and granting.
 *
 * The two functions that matter for speed, a grant and a free served by the caller's cache, stand
 * at the front and touch three things: the cache, the lease word, and lines that nobody writes (the
 * zone's geometry, the block word). Everything else takes the zone lock.
 */
#include "alloc/zone.h"

#include "alloc/buddy.h"
#include "alloc/contig.h"
#include "alloc/lease.h"
#include "alloc/pageblock.h"
#include "alloc/pcp.h"
#include "alloc/share.h"
#include "alloc/zone-setup.h"

#include <errno.h>
#include <string.h>

/* --- life --- */

static size_t round_up(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* Where the parts of scratch memory begin. */
struct layout {
	size_t owners, bad, mark, refs, bytes;
	uint32_t owner_stride;
};

static struct layout layout_of(const struct hp_zone_config *config)
{
	unsigned order = config->pageblock_order < HP_AREA_MAX_ORDER ? config->pageblock_order
								     : HP_AREA_MAX_ORDER;
	uint64_t nr_areas = ((uint64_t)config->nr_pages + (1u << order) - 1) >> order;
	size_t bitmap = ((size_t)config->nr_pages + 63) / 64 * sizeof(uint64_t);
	struct layout l;

	l.owner_stride = (uint32_t)round_up(sizeof(struct hp_owner) +
					    (config->max_order + 1u) * sizeof(uint32_t));
	l.owners = round_up(nr_areas * sizeof(struct hp_area));
	l.bad = l.owners + (size_t)config->nr_owners * l.owner_stride;
	l.mark = l.bad + bitmap;
	l.refs = l.mark + bitmap;
	l.bytes = round_up(l.refs + (config->refcounts ? config->nr_pages * sizeof(uint16_t) : 0));
	return l;
}

static uint32_t nr_blocks_of(const struct hp_zone_config *config)
{
	return (uint32_t)(((uint64_t)config->nr_pages + (UINT64_C(1) << config->pageblock_order) -
			   1) >>
			  config->pageblock_order);
}

int hp_zone_sizes(const struct hp_zone_config *config, size_t *ret_durable_bytes,
		  size_t *ret_scratch_bytes)
{
	if (config->nr_pages == 0 || config->nr_pages > HP_ZONE_MAX_PAGES ||
	    config->nr_owners == 0 || config->nr_owners > HP_OWNER_MAX + 1 ||
	    config->pageblock_order > config->max_order || config->max_order > HP_MAX_ORDER)
		return -EINVAL;
	*ret_durable_bytes =
		round_up(((size_t)nr_blocks_of(config) + config->nr_pages) * sizeof(hp_word_t));
	*ret_scratch_bytes = layout_of(config).bytes;
	return 0;
}

size_t hp_zone_struct_size(void)
{
	return sizeof(struct hp_zone);
}

int hp_zone_setup(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		  void *scratch)
{
	size_t durable_bytes, scratch_bytes;
	struct layout l;
	int r = hp_zone_sizes(config, &durable_bytes, &scratch_bytes);

	if (r)
		return r;
	if ((uintptr_t)durable % 64 || (uintptr_t)scratch % 64)
		return -EINVAL;
	l = layout_of(config);
	memset(zone, 0, sizeof(*zone));
	memset(scratch, 0, scratch_bytes);
	zone->config = *config;
	zone->area_order = config->pageblock_order < HP_AREA_MAX_ORDER ? config->pageblock_order
								       : HP_AREA_MAX_ORDER;
	zone->nr_blocks = zone->size_blocks = nr_blocks_of(config);
	zone->nr_areas = (config->nr_pages + hp_area_pages(zone) - 1) >> zone->area_order;
	zone->blocks = durable;
	zone->leases = zone->blocks + zone->nr_blocks;
	zone->areas = scratch;
	zone->owners = (char *)scratch + l.owners;
	zone->owner_stride = l.owner_stride;
	zone->bad = (uint64_t *)(void *)((char *)scratch + l.bad);
	zone->mark = (uint64_t *)(void *)((char *)scratch + l.mark);
	if (config->refcounts)
		zone->refs = (uint16_t *)(void *)((char *)scratch + l.refs);
	zone->default_batch = hp_pcp_default_batch(config);
	zone->pcp_capacity = hp_pcp_default_capacity(config);
	hp_zone_set_drain_variant(zone, HP_DRAIN_DEFAULT);
	hp_lock_init(&zone->lock);
	hp_lock_init(&zone->registry);
	for (uint32_t i = 0; i < config->nr_owners; i++) {
		struct hp_owner *owner = hp_owner_get(zone, i);

		owner->account = i;
		owner->limit = HP_UNLIMITED;
		for (unsigned k = 0; k <= config->max_order; k++)
			owner->heads[k] = HP_AREA_NONE;
	}
	return 0;
}

int hp_zone_init(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		 void *scratch)
{
	int r = hp_zone_setup(zone, config, durable, scratch);

	if (r)
		return r;
	/* Blocks first: a lease word means nothing while they are offline. */
	for (uint32_t b = 0; b < zone->nr_blocks; b++)
		hp_durable_store(&zone->blocks[b], 0);
	for (hp_pfn_t pfn = 0; pfn < config->nr_pages; pfn++)
		hp_durable_store(&zone->leases[pfn], 0);
	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		hp_pageblock_count(zone, b, hp_block_get(zone, b), 1);
		hp_pageblock_reset(zone, b, HP_BLOCK_OFFLINE);
	}
	return 0;
}

void hp_zone_deinit(struct hp_zone *zone)
{
	(void)zone; /* a futex is nothing but its word */
}

void hp_zone_set_bad_page_fn(struct hp_zone *zone, hp_bad_page_fn fn, void *userdata)
{
	hp_zone_lock(zone);
	zone->bad_fn = fn;
	zone->bad_userdata = userdata;
	hp_zone_unlock(zone);
}

/* --- granting --- */

#define FLAGS_ALL (HP_ALLOC_ZEROED | HP_ALLOC_EXCLUSIVE | HP_ALLOC_NO_CLAIM | HP_ALLOC_SHARED)
#define FLAGS_HIT (HP_ALLOC_ZEROED | HP_ALLOC_NO_CLAIM) /* of what a cache can serve */

static bool request_possible(const struct hp_zone *zone, const struct hp_request *request)
{
	return request->owner - 1 < zone->config.nr_owners - 1 && request->slot - 1 < HP_SLOT_MAX &&
	       request->pages - 1 < HP_RANGE_MAX_PAGES &&
	       (request->align & (request->align - 1)) == 0 && !(request->flags & ~FLAGS_ALL) &&
	       (!(request->flags & HP_ALLOC_SHARED) || zone->refs);
}

/* The list of the cache that can serve the request, which is possible then; or -1. */
static inline int cache_index(const struct hp_zone *zone, const struct hp_pcp *pcp,
			      const struct hp_request *request)
{
	if (!pcp || pcp->zone != zone || !hp_pcp_is_of(pcp, request->owner) ||
	    request->slot - 1 >= HP_SLOT_MAX || (request->flags & ~FLAGS_HIT) ||
	    request->align > request->pages ||
	    (request->align > 1 && (request->align & (request->align - 1)) != 0))
		return -1;
	return hp_pcp_index(pcp, request->pages);
}

static inline void fill_grant(const struct hp_zone *zone, struct hp_grant *ret, hp_pfn_t pfn,
			      uint32_t pages, uint32_t generation, bool zeroed)
{
	ret->range.pfn = pfn;
	ret->range.pages = pages;
	ret->range.generation = generation;
	ret->range.zone = zone->config.id;
	ret->zeroed = zeroed;
}

/* An order, if the request can be one chunk of the buddy lists; else HP_ORDER_NONE. */
static unsigned chunk_order(const struct hp_zone *zone, const struct hp_request *request)
{
	unsigned order = (unsigned)__builtin_ctz(request->pages);

	if ((request->pages & (request->pages - 1)) != 0 || request->align > request->pages ||
	    order > zone->config.max_order)
		return HP_ORDER_NONE;
	return order;
}

static void claim(struct hp_zone *zone, uint32_t block, const struct hp_request *request)
{
	hp_pageblock_claim(zone, block, request->owner, request->flags & HP_ALLOC_EXCLUSIVE);
}

/* Claims a clean block that holds a chunk of this order; the short one at the zone's end last. */
static int claim_chunk(struct hp_zone *zone, const struct hp_request *request, unsigned order)
{
	uint32_t a = hp_buddy_peek(zone, HP_OWNER_NONE, zone->config.pageblock_order);
	int r;

	if (a == HP_AREA_NONE)
		a = hp_buddy_peek(zone, HP_OWNER_NONE, order);
	if (request->flags & HP_ALLOC_NO_CLAIM || a == HP_AREA_NONE)
		return HP_NO_ROOM;
	r = hp_account_check(zone, request->owner, 1);
	if (r == 0)
		claim(zone, hp_block_of(zone, hp_area_pfn(zone, a)), request);
	return r;
}

/* Takes the pages of a place that was found, and claims what it takes in. */
static bool take_place(struct hp_zone *zone, const struct hp_request *request, hp_pfn_t pfn)
{
	uint32_t last = hp_block_of(zone, pfn + request->pages - 1);

	for (uint32_t b = hp_block_of(zone, pfn); b <= last; b++)
		if (hp_block_get(zone, b).state == HP_BLOCK_CLEAN)
			claim(zone, b, request);
	return hp_buddy_take_range(zone, pfn, request->pages);
}

/* Takes the pages for one range and claims what that needs. Under the zone lock. */
static int take(struct hp_zone *zone, const struct hp_request *request, hp_pfn_t *ret_pfn,
		bool *ret_zero)
{
	const struct hp_owner *owner = hp_owner_get(zone, request->owner);
	bool exclusive = request->flags & HP_ALLOC_EXCLUSIVE;
	bool want_zero = request->flags & HP_ALLOC_ZEROED;
	unsigned order = chunk_order(zone, request);
	struct hp_place place;
	int r;

	if (!exclusive && order != HP_ORDER_NONE) {
		*ret_pfn = hp_buddy_take(zone, request->owner, order, want_zero, ret_zero);
		if (*ret_pfn != HP_PFN_NONE)
			return 0;
	}
	if (!exclusive && order != 0 && owner->free_pages >= request->pages &&
	    hp_contig_find(zone, request->owner, request->pages, request->align, HP_CONTIG_OWN,
			   &place)) {
		*ret_pfn = place.pfn;
		*ret_zero = take_place(zone, request, place.pfn);
		return 0;
	}
	if (!exclusive && order <= zone->config.pageblock_order) {
		r = claim_chunk(zone, request, order);
		if (r == 0) {
			*ret_pfn = hp_buddy_take(zone, request->owner, order, want_zero, ret_zero);
			assert(*ret_pfn != HP_PFN_NONE);
		}
		/* Without such a chunk, it may still fit across a border. */
		if (r != HP_NO_ROOM || order == 0)
			return r;
	}
	if (request->flags & HP_ALLOC_NO_CLAIM ||
	    !hp_contig_find(zone, request->owner, request->pages, request->align,
			    exclusive ? HP_CONTIG_CLEAN : HP_CONTIG_ANY, &place))
		return HP_NO_ROOM;
	r = hp_account_check(zone, request->owner, place.claims);
	if (r)
		return r;
	*ret_pfn = place.pfn;
	*ret_zero = take_place(zone, request, place.pfn);
	return 0;
}

/* Makes a lease of pages that were taken; their blocks are live. */
static void grant(struct hp_zone *zone, const struct hp_request *request, struct hp_grant *ret)
{
	hp_pfn_t pfn = ret->range.pfn;

	if (request->flags & HP_ALLOC_SHARED) {
		hp_share_begin(zone);
		for (uint32_t i = 0; i < request->pages; i++)
			zone->refs[pfn + i] = 1;
	}
	fill_grant(zone, ret, pfn, request->pages,
		   hp_lease_grant(zone, pfn, request->pages, request->slot), ret->zeroed);
}

static __attribute__((noinline)) int
alloc_slow(struct hp_zone *zone, const struct hp_request *request, struct hp_grant *ret)
{
	struct hp_grant g;
	int r;

	hp_zone_lock(zone);
	r = take(zone, request, &g.range.pfn, &g.zeroed);
	if (r == 0) {
		grant(zone, request, &g);
		zone->grants++;
		*ret = g;
	}
	hp_zone_unlock(zone);
	return r;
}

/* Fills an empty list; claims a block if a single page is wanted and the owner has none. */
static bool fill(struct hp_zone *zone, struct hp_pcp *pcp, unsigned index,
		 const struct hp_request *request)
{
	struct hp_refill refill;
	bool filled;

	hp_pcp_refill_begin(pcp, index, &refill);
	hp_zone_lock(zone);
	filled = hp_pcp_refill_take(pcp, &refill);
	if (!filled && index == 0 && claim_chunk(zone, request, 0) == 0) {
		hp_pcp_refill_begin(pcp, index, &refill); /* with what it has now */
		filled = hp_pcp_refill_take(pcp, &refill);
	}
	zone->grants += filled;
	hp_zone_unlock(zone);
	hp_pcp_refill_end(pcp, &refill);
	return filled;
}

/* Takes the hottest entry of a list that has one, makes a lease of it and leaves the cache. */
static inline __attribute__((always_inline)) int alloc_hit(struct hp_zone *zone, struct hp_pcp *pcp,
							   unsigned index,
							   const struct hp_request *request,
							   struct hp_grant *ret, bool filled)
{
	hp_entry_t entry = hp_pcp_pop(pcp, index);
	hp_pfn_t pfn = hp_entry_pfn(entry);
	uint32_t pages = index == 0 ? 1 : request->pages;
	uint32_t generation = hp_lease_store(zone, pfn, pages, request->slot);

	if (!filled)
		hp_pcp_bump(&pcp->hits, 1);
	hp_bias_leave(&pcp->lock);
	fill_grant(zone, ret, pfn, pages, generation, entry & HP_ENTRY_ZERO);
	return 0;
}

/* The cache is ours and has to be filled or searched first. */
static __attribute__((noinline)) int alloc_miss(struct hp_zone *zone, struct hp_pcp *pcp,
						unsigned index, const struct hp_request *request,
						struct hp_grant *ret)
{
	bool filled = hp_pcp_list_nr(&pcp->list[index]) == 0;

	if (filled) {
		hp_pcp_bump(&pcp->misses, 1);
		if (!fill(zone, pcp, index, request)) {
			hp_bias_leave(&pcp->lock);
			return alloc_slow(zone, request, ret);
		}
	}
	if (request->flags & HP_ALLOC_ZEROED)
		hp_pcp_prefer_zero(pcp, index);
	return alloc_hit(zone, pcp, index, request, ret, filled);
}

/* Of any shape, from the cache if it can serve it. */
static __attribute__((noinline)) int alloc_any(struct hp_zone *zone, struct hp_pcp *pcp,
					       const struct hp_request *request,
					       struct hp_grant *ret)
{
	int index = cache_index(zone, pcp, request);

	if (index < 0)
		return request_possible(zone, request) ? alloc_slow(zone, request, ret) : -EINVAL;
	if (!hp_bias_try(&pcp->lock))
		return alloc_slow(zone, request, ret);
	if (hp_pcp_list_nr(&pcp->list[index]) == 0 || request->flags & HP_ALLOC_ZEROED)
		return alloc_miss(zone, pcp, (unsigned)index, request, ret);
	return alloc_hit(zone, pcp, (unsigned)index, request, ret, false);
}

/* As alloc_any(), for a cache that is locked and has to be left first. */
static __attribute__((noinline)) int alloc_again(struct hp_zone *zone, struct hp_pcp *pcp,
						 const struct hp_request *request,
						 struct hp_grant *ret)
{
	hp_bias_leave(&pcp->lock);
	return alloc_any(zone, pcp, request, ret);
}

int hp_zone_alloc(struct hp_zone *zone, struct hp_pcp *pcp, const struct hp_request *request,
		  struct hp_grant *ret)
{
	/*
	 * The plainest request, of a single page, is what most are and has the shortest way. All
	 * others are reached by a jump with the same arguments, so that nothing has to be saved.
	 */
	if (__builtin_expect(!pcp || pcp->zone != zone || !hp_pcp_is_of(pcp, request->owner) ||
				     request->slot - 1 >= HP_SLOT_MAX || request->pages != 1 ||
				     (request->flags | request->align >> 1) != 0,
			     0))
		return alloc_any(zone, pcp, request, ret);
	if (__builtin_expect(!hp_bias_try_plain(&pcp->lock), 0) ||
	    __builtin_expect(hp_pcp_list_nr(&pcp->list[0]) == 0, 0))
		return alloc_again(zone, pcp, request, ret);
	return alloc_hit(zone, pcp, 0, request, ret, false);
}

/* Can the lists and clean blocks give n chunks of this order? If so, take() will not fail. */
static int chunks_possible(struct hp_zone *zone, const struct hp_request *request, unsigned order,
			   uint32_t n)
{
	uint32_t have, per_block;

	if (order > zone->config.pageblock_order || request->flags & HP_ALLOC_EXCLUSIVE)
		return HP_NO_ROOM;
	have = hp_buddy_count(zone, request->owner, order, n);
	per_block = 1u << (zone->config.pageblock_order - order);
	if (have >= n)
		return 0;
	if (request->flags & HP_ALLOC_NO_CLAIM ||
	    hp_buddy_count(zone, HP_OWNER_NONE, order, n - have) < n - have)
		return HP_NO_ROOM;
	return hp_account_check(zone, request->owner, (n - have + per_block - 1) / per_block);
}

/* Finds places for n ranges, all or none, changing nothing; mark[] notes what is spoken for. */
static int plan(struct hp_zone *zone, const struct hp_request *request, struct hp_grant *ret,
		size_t n)
{
	bool exclusive = request->flags & HP_ALLOC_EXCLUSIVE;
	bool may_claim = !(request->flags & HP_ALLOC_NO_CLAIM);
	struct hp_place place;
	uint32_t claims = 0;
	size_t i;
	int r = 0;

	for (i = 0; i < n && r == 0; i++) {
		bool found = !exclusive && hp_contig_find(zone, request->owner, request->pages,
							  request->align, HP_CONTIG_OWN, &place);

		if (!found && may_claim)
			found = hp_contig_find(zone, request->owner, request->pages, request->align,
					       exclusive ? HP_CONTIG_CLEAN : HP_CONTIG_ANY, &place);
		if (!found) {
			r = HP_NO_ROOM;
			break;
		}
		claims += place.claims;
		r = place.claims ? hp_account_check(zone, request->owner, claims) : 0;
		if (r)
			break;
		ret[i].range.pfn = place.pfn;
		hp_page_mark(zone, place.pfn, request->pages, true);
	}
	while (i-- > 0)
		hp_page_mark(zone, ret[i].range.pfn, request->pages, false);
	return r;
}

/* Takes the pages for n ranges, or none. Under the zone lock. */
static int take_bulk(struct hp_zone *zone, const struct hp_request *request, struct hp_grant *ret,
		     size_t n)
{
	unsigned order = chunk_order(zone, request);
	int r = chunks_possible(zone, request, order, (uint32_t)n);

	if (r == 0) {
		for (size_t i = 0; i < n; i++) {
			r = take(zone, request, &ret[i].range.pfn, &ret[i].zeroed);
			assert(r == 0);
		}
		return r;
	}
	/* For single pages there is no other way; longer ranges may fit where no chunk does. */
	if (order == 0 && !(request->flags & HP_ALLOC_EXCLUSIVE))
		return r;
	r = plan(zone, request, ret, n);
	for (size_t i = 0; r == 0 && i < n; i++)
		ret[i].zeroed = take_place(zone, request, ret[i].range.pfn);
	return r;
}

int hp_zone_alloc_bulk(struct hp_zone *zone, struct hp_pcp *pcp, const struct hp_request *request,
		       struct hp_grant *ret, size_t n)
{
	size_t cached = 0;
	int index, r = 0;

	if (!request_possible(zone, request) || n == 0 || n > HP_BULK_MAX)
		return -EINVAL;
	index = cache_index(zone, pcp, request);
	if (index >= 0 && !hp_bias_try(&pcp->lock))
		index = -1;
	for (; index >= 0 && cached < n && hp_pcp_list_nr(&pcp->list[index]); cached++) {
		if (request->flags & HP_ALLOC_ZEROED)
			hp_pcp_prefer_zero(pcp, (unsigned)index);
		hp_entry_t entry = hp_pcp_pop(pcp, (unsigned)index);

		ret[cached].range.pfn = hp_entry_pfn(entry);
		ret[cached].zeroed = entry & HP_ENTRY_ZERO;
	}
	if (index >= 0) {
		hp_pcp_bump(&pcp->hits, cached);
		hp_pcp_bump(&pcp->misses, n - cached);
	}

	hp_zone_lock(zone);
	if (cached < n)
		r = take_bulk(zone, request, ret + cached, n - cached);
	for (size_t i = 0; r == 0 && i < n; i++)
		grant(zone, request, &ret[i]);
	if (r == 0)
		zone->grants += index >= 0 ? n - cached : n;
	hp_zone_unlock(zone);

	while (r && cached > 0) {
		cached--;
		hp_pcp_push(pcp, (unsigned)index,
			    hp_entry(ret[cached].range.pfn, (unsigned)__builtin_ctz(request->pages),
				     ret[cached].zeroed));
	}
	if (index >= 0)
		hp_bias_leave(&pcp->lock);
	return r;
}
