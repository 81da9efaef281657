/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking. What a hit would have to count in a shared line is not counted at all but derived:
 * leased pages are those of live blocks that are nowhere else, pages in caches are asked of the
 * caches, chunks per order are counted from the free bits when somebody wants to know.
 */
#include "alloc/buddy.h"
#include "alloc/contig.h"
#include "alloc/lease.h"
#include "alloc/pageblock.h"
#include "alloc/pcp.h"

/* Pages in the caches of an owner (HP_OWNER_NONE: of all), and on their way from there. */
static void cached_pages(const struct hp_zone *zone, uint32_t owner, uint64_t *ret_pcp,
			 uint64_t *ret_draining)
{
	*ret_pcp = *ret_draining = 0;
	for (const struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next) {
		if (owner != HP_OWNER_NONE && pcp->owner != owner)
			continue;
		*ret_pcp += hp_pcp_pages(pcp);
		*ret_draining += __atomic_load_n(&pcp->draining, __ATOMIC_RELAXED);
	}
}

static uint32_t count_idle(const struct hp_zone *zone, uint32_t owner)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_decode(hp_durable_load(&zone->blocks[b]));

		n += word.state == HP_BLOCK_LIVE &&
		     (owner == HP_OWNER_NONE || word.owner == owner) &&
		     hp_lease_pages_in_block(zone, b) == 0;
	}
	return n;
}

void hp_zone_stats(struct hp_zone *zone, struct hp_zone_stats *ret)
{
	uint64_t cached, draining, used, elsewhere;

	hp_lock_acquire(&zone->registry);
	hp_zone_lock(zone);
	cached_pages(zone, HP_OWNER_NONE, &cached, &draining);
	used = zone->pages_in[HP_BLOCK_LIVE] + zone->pages_in[HP_BLOCK_FAILING];
	elsewhere = zone->free_pages + cached + draining + zone->revoked_pages + zone->bad_pages;
	*ret = (struct hp_zone_stats){
		.nr_pages = zone->config.nr_pages,
		.clean = zone->pages_in[HP_BLOCK_CLEAN],
		.free = zone->free_pages,
		.pcp = cached,
		.draining = draining,
		/* Caches are looked at in passing: at most for a moment, too much is in them. */
		.leased = used > elsewhere ? used - elsewhere : 0,
		.revoked = zone->revoked_pages,
		.isolated = zone->pages_in[HP_BLOCK_ISOLATED],
		.quarantined = zone->pages_in[HP_BLOCK_QUARANTINED],
		.lent = zone->pages_in[HP_BLOCK_LENT],
		.offline = zone->pages_in[HP_BLOCK_OFFLINE],
		.bad = zone->bad_pages,
		.nr_blocks = zone->nr_blocks,
		.size_blocks = zone->size_blocks,
		.clean_blocks = zone->blocks_in[HP_BLOCK_CLEAN],
		.unmet_guarantee_blocks = zone->unmet_blocks,
		.idle_blocks = count_idle(zone, HP_OWNER_NONE),
		.grants = zone->grants,
		.frees = zone->frees,
		.refills = zone->refills,
		.drains = zone->drains,
		.claims = zone->claims,
		.lock_acquisitions = zone->lock_acquisitions,
	};
#ifdef HP_LOCK_TIMES
	ret->lock_held_ns = zone->lock.held_ns;
#endif
	for (const struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next) {
		ret->grants += __atomic_load_n(&pcp->hits, __ATOMIC_RELAXED);
		ret->frees += __atomic_load_n(&pcp->frees, __ATOMIC_RELAXED);
		ret->refills += __atomic_load_n(&pcp->refills, __ATOMIC_RELAXED);
		ret->drains += __atomic_load_n(&pcp->drains, __ATOMIC_RELAXED);
	}
	hp_zone_unlock(zone);
	hp_lock_release(&zone->registry);
}

/* Pages of the clean blocks that can be claimed; a zone's short block at the end comes last. */
static uint32_t claimable_pages(struct hp_zone *zone, uint32_t claims)
{
	uint64_t pages = (uint64_t)claims << zone->config.pageblock_order;
	uint64_t clean = zone->pages_in[HP_BLOCK_CLEAN];

	return (uint32_t)(pages < clean ? pages : clean);
}

/* Counts the free chunks of an owner. Returns its free pages that are on no list. */
static uint32_t count_chunks(const struct hp_zone *zone, uint32_t owner,
			     uint32_t chunks[HP_MAX_ORDER + 1])
{
	uint32_t closed_free = 0;

	for (uint32_t a = 0; a < zone->nr_areas; a++) {
		const struct hp_area *area = &zone->areas[a];
		unsigned k = zone->area_order;

		if (area->owner != owner || area->free == 0)
			continue;
		if (area->closed) {
			closed_free += (uint32_t)__builtin_popcountll(area->free);
			continue;
		}
		if (area->order == HP_ORDER_NONE)
			continue; /* inside a run */
		if (area->order >= k) {
			chunks[area->order]++;
			continue;
		}
		for (uint64_t left = area->free, larger; k-- > 0;) {
			larger = hp_bits_chunks(left, k);
			chunks[k] += (uint32_t)__builtin_popcountll(larger);
			for (; larger; larger &= larger - 1)
				left &= ~(hp_bits(1u << k) << __builtin_ctzll(larger));
		}
	}
	return closed_free;
}

/* Pages of an owner's blocks that leases and revoked words cover. */
static uint32_t count_leased(const struct hp_zone *zone, uint32_t owner)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_get(zone, b);

		if (word.owner == owner &&
		    (word.state == HP_BLOCK_LIVE || word.state == HP_BLOCK_FAILING))
			n += hp_lease_pages_in_block(zone, b);
	}
	return n;
}

static void clean_stats(struct hp_zone *zone, struct hp_owner_stats *ret)
{
	uint32_t blocks = zone->blocks_in[HP_BLOCK_CLEAN];

	ret->blocks = ret->idle_blocks = blocks;
	ret->free_pages = ret->leasable_pages = (uint32_t)zone->pages_in[HP_BLOCK_CLEAN];
	count_chunks(zone, HP_OWNER_NONE, ret->free_chunks);
	ret->largest_pages = hp_contig_largest(zone, HP_OWNER_NONE, blocks);
}

static void tenant_stats(struct hp_zone *zone, uint32_t number, struct hp_owner_stats *ret)
{
	const struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t claims = hp_account_claimable(zone, number), closed_free;
	uint64_t cached, draining;

	cached_pages(zone, number, &cached, &draining);
	closed_free = count_chunks(zone, number, ret->free_chunks);
	ret->blocks = owner->blocks;
	ret->idle_blocks = count_idle(zone, number);
	ret->free_pages = owner->free_pages;
	ret->pcp_pages = (uint32_t)cached;
	ret->revoked_pages = owner->revoked_pages;
	ret->leased_pages = count_leased(zone, number) - owner->revoked_pages;
	ret->leasable_pages =
		ret->free_pages - closed_free + ret->pcp_pages + claimable_pages(zone, claims);
	ret->largest_pages = hp_contig_largest(zone, number, claims);
}

void hp_zone_owner_stats(struct hp_zone *zone, uint32_t number, struct hp_owner_stats *ret)
{
	*ret = (struct hp_owner_stats){0};
	if (number >= zone->config.nr_owners)
		return;
	hp_lock_acquire(&zone->registry);
	hp_zone_lock(zone);
	if (number == HP_OWNER_NONE)
		clean_stats(zone, ret);
	else
		tenant_stats(zone, number, ret);
	hp_zone_unlock(zone);
	hp_lock_release(&zone->registry);
}

const struct hp_zone_config *hp_zone_get_config(const struct hp_zone *zone)
{
	return &zone->config;
}

uint32_t hp_zone_nr_blocks(const struct hp_zone *zone)
{
	return zone->nr_blocks;
}

int hp_zone_for_each_lease_in(struct hp_zone *zone, hp_pfn_t from, hp_pfn_t to, hp_lease_fn fn,
			      void *userdata)
{
	for (hp_pfn_t pfn = from; pfn < to && pfn < zone->config.nr_pages;) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);
		struct hp_range range = {.pfn = pfn,
					 .pages = word.pages,
					 .generation = word.generation,
					 .zone = zone->config.id};
		int r;

		if (word.state == HP_LEASE_FREE) {
			pfn++;
			continue;
		}
		r = fn(userdata, word.slot, &range, word.state);
		if (r)
			return r;
		pfn += word.pages;
	}
	return 0;
}

int hp_zone_for_each_lease(struct hp_zone *zone, hp_lease_fn fn, void *userdata)
{
	return hp_zone_for_each_lease_in(zone, 0, zone->config.nr_pages, fn, userdata);
}
