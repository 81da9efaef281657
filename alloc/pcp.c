/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page caches: refill and drain. Hits are in zone.c.
 *
 * An array instead of a list through the pages: a hit touches one entry next to the last one, and a
 * drain reads a row of entries instead of chasing links. Taking pages off an array is so little
 * work that it hardly matters on which side of the zone lock it is done; both are here, measured.
 *
 * Batches follow demand. Each time in a row that the zone is needed in the same direction, the
 * batch doubles, up to 32 times; a turn in the other direction, or a periodic drain, halves it.
 * high follows the batch, and both stay within an eighth of what the zone, the account and the
 * owner have, so that one worker's cache never starves the others of a small tenant.
 *
 * A drain counts for itself, page by page, as pages leave; pages on their way are in the cache's
 * own draining counter, and so the zone's sum holds at every moment and no shared line is touched
 * for it. Between chunks it lets go of the zone lock.
 */
#include "alloc/pcp.h"

#include "alloc/buddy.h"
#include "alloc/pageblock.h"

#include <errno.h>
#include <pthread.h>

#define BATCH_MAX      64u   /* of the computed batch */
#define HIGH_BATCHES   6u    /* computed high, in batches */
#define CAPACITY_MAX   4096u /* entries of the order 0 ring */
#define CHUNK_ROWS     256u  /* freed under one hold of the zone lock */
#define ZERO_LOOKS     32u   /* entries looked at for a zero one */
#define BLOCK_CAPACITY 16u   /* entries of the block list's ring */

/* high is at most this part of the zone, of the account's limit, of the owner's pages. */
#define HIGH_SHARE 8u

/*
 * But it may be two cache lines of lease words, and single pages are taken by whole lines: a worker
 * who is given less hands out pages next to those of another, and then the two fight over the line.
 */
#define LINE_PAGES 8u
#define HIGH_LEAST (2 * LINE_PAGES)

uint32_t hp_pcp_default_batch(const struct hp_zone_config *config)
{
	uint32_t batch = config->nr_pages / 64;

	return batch > BATCH_MAX ? BATCH_MAX : batch ? batch : 1;
}

uint32_t hp_pcp_default_capacity(const struct hp_zone_config *config)
{
	uint32_t want = config->nr_pages / HIGH_SHARE, capacity = 16;

	while (capacity < want && capacity < CAPACITY_MAX)
		capacity *= 2;
	return capacity;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Entries of each list; the small lists hold the same number of pages each. */
static uint32_t list_capacity(const struct hp_zone *zone, unsigned index)
{
	unsigned order = zone->config.pageblock_order;

	if (index == HP_PCP_BLOCK)
		return order >= HP_PCP_SMALL && order < HP_MAX_ORDER ? BLOCK_CAPACITY : 0;
	if (index > order)
		return 0;
	return zone->pcp_capacity >> index;
}

size_t hp_pcp_size(const struct hp_zone *zone)
{
	size_t entries = 0;

	for (unsigned i = 0; i < HP_PCP_LISTS; i++)
		entries += list_capacity(zone, i);
	return (sizeof(struct hp_pcp) + entries * sizeof(hp_entry_t) + 63) & ~(size_t)63;
}

static uint32_t batch_of(const struct hp_pcp *pcp)
{
	uint32_t batch = __atomic_load_n(&pcp->set_batch, __ATOMIC_RELAXED);

	return batch ? batch : pcp->zone->default_batch;
}

/* The most pages the small lists may hold. */
static uint32_t high_bound(const struct hp_pcp *pcp)
{
	struct hp_zone *zone = pcp->zone;
	uint64_t limit = hp_account_limit(zone, pcp->owner);
	uint64_t bound = zone->config.nr_pages;
	uint32_t pages = __atomic_load_n(&hp_owner_get(zone, pcp->owner)->pages, __ATOMIC_RELAXED);

	limit <<= zone->config.pageblock_order;
	if (bound > limit)
		bound = limit;
	if (bound > pages)
		bound = pages;
	bound /= HIGH_SHARE;
	if (bound > zone->pcp_capacity)
		bound = zone->pcp_capacity;
	if (bound < HIGH_LEAST)
		bound = HIGH_LEAST;
	if (bound > zone->config.nr_pages / 2)
		bound = zone->config.nr_pages / 2;
	return bound < 2 ? 2 : (uint32_t)bound;
}

/* Computes high anew. Returns the batch as scaled now, at most half of it. */
static uint32_t resize(struct hp_pcp *pcp)
{
	uint32_t bound = high_bound(pcp), batch = batch_of(pcp) << pcp->scale;
	uint32_t high = __atomic_load_n(&pcp->set_high, __ATOMIC_RELAXED);
	uint32_t blocks = bound >> pcp->zone->config.pageblock_order;

	if (high == 0) {
		high = HIGH_BATCHES * batch_of(pcp);
		if (high < 2 * batch)
			high = 2 * batch;
	}
	if (high > bound)
		high = bound;
	if (high < 2)
		high = 2;
	assert(high <= pcp->list[0].mask + 1);
	__atomic_store_n(&pcp->high, high, __ATOMIC_RELAXED);
	hp_pcp_set_single_high(pcp);
	if (blocks >= BLOCK_CAPACITY)
		blocks = BLOCK_CAPACITY - 1;
	__atomic_store_n(&pcp->block_high, blocks ? blocks : 1, __ATOMIC_RELAXED);
	return least(batch, high / 2);
}

/* The zone is needed: more at a time if it was needed for the same a moment ago. */
static void scale(struct hp_pcp *pcp, bool drain)
{
	if (pcp->last_was_drain != drain) {
		pcp->last_was_drain = drain;
		if (pcp->scale > 0)
			pcp->scale--;
	} else if (pcp->scale < HP_PCP_SCALE_MAX) {
		pcp->scale++;
	}
	__atomic_store_n(&pcp->worker, (uintptr_t)pthread_self(), __ATOMIC_RELAXED);
}

/* --- refill --- */

void hp_pcp_refill_begin(struct hp_pcp *pcp, unsigned index, struct hp_refill *refill)
{
	uint32_t n, count = hp_pcp_count(pcp), room;

	scale(pcp, false);
	n = resize(pcp);
	room = pcp->high > count ? pcp->high - count : 0;
	n = index == HP_PCP_BLOCK ? 1 : least(n, room) >> index;
	if (index == 0 && n >= LINE_PAGES)
		n &= ~(LINE_PAGES - 1);
	n = least(n, pcp->list[index].mask + 1);
	refill->index = index;
	refill->want = n ? n : 1;
	refill->n = 0;
}

bool hp_pcp_refill_take(struct hp_pcp *pcp, struct hp_refill *refill)
{
	struct hp_zone *zone = pcp->zone;
	unsigned order =
		refill->index == HP_PCP_BLOCK ? zone->config.pageblock_order : refill->index;
	uint32_t pages;

	if (order == 0) {
		refill->n = hp_buddy_take_pages(zone, pcp->owner, refill->want, refill->rows,
						HP_REFILL_ROWS, &pages);
	} else {
		for (uint32_t max = least(refill->want, HP_REFILL_ROWS); refill->n < max;) {
			bool zero;
			hp_pfn_t pfn = hp_buddy_take(zone, pcp->owner, order, false, &zero);

			if (pfn == HP_PFN_NONE)
				break;
			refill->chunks[refill->n++] = hp_entry(pfn, order, zero);
		}
		pages = refill->n << order;
	}
	__atomic_store_n(&pcp->draining, pages, __ATOMIC_RELAXED);
	return refill->n != 0;
}

void hp_pcp_refill_end(struct hp_pcp *pcp, const struct hp_refill *refill)
{
	struct hp_zone *zone = pcp->zone;
	struct hp_pcp_list *list = &pcp->list[refill->index];
	hp_entry_t *entries = pcp->entries + list->base;
	uint32_t cold = list->cold, line = UINT32_MAX;

	/* In the order taken: the first becomes the hottest. */
	for (uint32_t i = 0; i < refill->n && refill->index != 0; i++)
		entries[--cold & list->mask] = refill->chunks[i];
	for (uint32_t i = 0; i < refill->n && refill->index == 0; i++) {
		const struct hp_row *row = &refill->rows[i];

		for (uint64_t bits = row->bits; bits != 0; bits &= bits - 1) {
			unsigned bit = (unsigned)__builtin_ctzll(bits);
			hp_pfn_t pfn = hp_area_pfn(zone, row->area) + bit;

			/* Their words will be stored soon; another worker may have had them last. */
			if (pfn / LINE_PAGES != line)
				hp_prefetch_write(&zone->leases[pfn]);
			line = pfn / LINE_PAGES;
			entries[--cold & list->mask] = hp_entry(pfn, 0, row->zero >> bit & 1);
		}
	}
	hp_pcp_moved(pcp, refill->index, (list->cold - cold) << refill->index);
	__atomic_store_n(&list->cold, cold, __ATOMIC_RELAXED);
	__atomic_store_n(&pcp->draining, 0, __ATOMIC_RELAXED);
	if (refill->n)
		hp_pcp_bump(&pcp->refills, 1);
}

void hp_pcp_prefer_zero(struct hp_pcp *pcp, unsigned index)
{
	struct hp_pcp_list *list = &pcp->list[index];
	uint32_t nr = hp_pcp_list_nr(list);
	hp_entry_t *entries = pcp->entries + list->base;

	for (uint32_t i = 1; i <= nr && i <= ZERO_LOOKS; i++) {
		hp_entry_t found = entries[(list->hot - i) & list->mask];

		if (!(found & HP_ENTRY_ZERO))
			continue;
		/* The ones above it move down by one: their order stays. */
		for (; i > 1; i--)
			entries[(list->hot - i) & list->mask] =
				entries[(list->hot - i + 1) & list->mask];
		entries[(list->hot - 1) & list->mask] = found;
		return;
	}
}

bool hp_pcp_give(struct hp_pcp *pcp, hp_pfn_t pfn, unsigned order)
{
	struct hp_zone *zone = pcp->zone;
	int index = hp_pcp_index(pcp, 1u << order);

	if (index < 0 || zone->closing || hp_pcp_is_full(pcp, (unsigned)index))
		return false;

	uint32_t block = hp_block_of(zone, pfn), last = hp_area_of(zone, pfn + (1u << order) - 1);
	uint64_t word = hp_durable_load(&zone->blocks[block]);

	if ((word & hp_bits(24)) != pcp->live_word)
		return false;
	for (uint32_t a = hp_area_of(zone, pfn); a <= last; a++) {
		uint64_t bits = zone->areas[a].free;

		if (zone->nr_broken)
			bits |= hp_page_bits(zone, zone->bad, a);
		if (order < zone->area_order)
			bits &= hp_bits(1u << order) << (pfn - hp_area_pfn(zone, a));
		if (bits)
			return false; /* the buddy lists tell the bad from the good ones */
	}
	hp_pcp_push(pcp, (unsigned)index, hp_entry(pfn, order, false));
	return true;
}

/* --- drain --- */

/*
 * Which list next: round robin, but each empty list met adds one to what is taken from the next, so
 * that full lists give more and empty ones are not asked for nothing; the last one left gives all.
 */
struct pick {
	unsigned nr_lists, index;
	uint32_t from_list; /* entries still to be taken from list[index] */
};

/* Turns to the list whose turn it is. False: all are empty. */
static bool pick_list(const struct hp_pcp *pcp, struct pick *pick)
{
	unsigned empty = 0;

	if (pick->from_list != 0 && hp_pcp_list_nr(&pcp->list[pick->index]) != 0)
		return true;
	do {
		if (++empty > pick->nr_lists)
			return false;
		if (++pick->index >= pick->nr_lists)
			pick->index = 0;
	} while (hp_pcp_list_nr(&pcp->list[pick->index]) == 0);
	pick->from_list = empty == pick->nr_lists ? UINT32_MAX : empty;
	return true;
}

/* Adds up to n of the coldest entries of a list to rows, counting each as it leaves. */
static inline __attribute__((always_inline)) uint32_t
take_cold_of(struct hp_pcp *pcp, unsigned index, uint32_t n, struct hp_row *rows, uint32_t *nr_rows)
{
	struct hp_pcp_list *list = &pcp->list[index];
	const hp_entry_t *entries = pcp->entries + list->base;
	const unsigned width = pcp->zone->area_order;
	const uint32_t mask = list->mask;
	uint32_t cold = list->cold, nr = *nr_rows;

	n = least(n, hp_pcp_list_nr(list));
	for (uint32_t i = 0; i < n; i++) {
		nr = hp_rows_add(rows, nr, entries[cold & mask], width, index == 0);
		__atomic_store_n(&list->cold, ++cold, __ATOMIC_RELAXED);
		hp_pcp_moved(pcp, index, -(1u << index));
	}
	*nr_rows = nr;
	return n;
}

static uint32_t take_cold(struct hp_pcp *pcp, unsigned index, uint32_t n, struct hp_row *rows,
			  uint32_t *nr_rows)
{
	if (index == 0)
		return take_cold_of(pcp, 0, n, rows, nr_rows); /* most are single pages */
	return take_cold_of(pcp, index, n, rows, nr_rows);
}

/* Picks entries of at least so many pages, if there are, but no more than a chunk of rows. */
static uint32_t pick_chunk(struct hp_pcp *pcp, struct pick *pick, uint32_t pages,
			   struct hp_row rows[CHUNK_ROWS], uint32_t *ret_pages)
{
	uint32_t n = 0, done = 0;

	while (n < CHUNK_ROWS && done < pages && pick_list(pcp, pick)) {
		unsigned order = pick->index == HP_PCP_BLOCK ? pcp->zone->config.pageblock_order
							     : pick->index;
		uint32_t want = ((pages - done - 1) >> order) + 1, got;

		want = least(least(want, pick->from_list), CHUNK_ROWS - n);
		got = take_cold(pcp, pick->index, want, rows, &n);
		pick->from_list -= got;
		done += got << order;
		__atomic_store_n(&pcp->draining, done, __ATOMIC_RELAXED);
	}
	*ret_pages = done;
	return n;
}

static void prefetch(const struct hp_zone *zone, const struct hp_row *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(&zone->areas[rows[i].area], 1);
}

/* One hold of the zone lock. Returns how many pages it gave back. */
static uint32_t drain_chunk(struct hp_pcp *pcp, struct pick *pick, uint32_t pages, bool first)
{
	struct hp_zone *zone = pcp->zone;
	uint32_t variant = __atomic_load_n(&zone->variant, __ATOMIC_RELAXED);
	struct hp_row rows[CHUNK_ROWS];
	bool inside =
		variant == HP_DRAIN_PICK_INSIDE || (variant == HP_DRAIN_DEFAULT && pcp->scattered);
	uint32_t n = 0, done;

	if (inside) {
		hp_zone_lock(zone);
		n = pick_chunk(pcp, pick, pages, rows, &done);
	} else {
		n = pick_chunk(pcp, pick, pages, rows, &done);
		if (n == 0)
			return 0;
		if (first && variant == HP_DRAIN_PICK_OUTSIDE_PREFETCH)
			prefetch(zone, rows, n);
		hp_zone_lock(zone);
	}
	hp_buddy_free_rows(zone, pcp->owner, rows, n);
	__atomic_store_n(&pcp->draining, 0, __ATOMIC_RELAXED);
	hp_zone_unlock(zone);
	pcp->scattered = n * 4 > done;
	return done;
}

/* Gives back up to so many pages of the lists to pick from, the coldest first. Locked. */
static uint32_t drain(struct hp_pcp *pcp, struct pick pick, uint32_t pages)
{
	uint32_t done = 0;

	while (done < pages) {
		uint32_t n = drain_chunk(pcp, &pick, pages - done, done == 0);

		if (n == 0)
			break;
		done += n;
	}
	if (done)
		hp_pcp_bump(&pcp->drains, 1);
	return done;
}

/* The first so many lists in turn. */
static struct pick pick_all(unsigned nr_lists)
{
	return (struct pick){.nr_lists = nr_lists, .index = nr_lists - 1};
}

void hp_pcp_trim(struct hp_pcp *pcp)
{
	uint32_t batch, count = hp_pcp_count(pcp);
	uint32_t chunks = hp_pcp_list_nr(&pcp->list[HP_PCP_BLOCK]);

	scale(pcp, true);
	batch = resize(pcp);
	if (count >= pcp->high) {
		uint32_t more = count - pcp->high + 1;

		drain(pcp, pick_all(HP_PCP_SMALL), batch > more ? batch : more);
	}
	if (chunks > pcp->block_high)
		drain(pcp, (struct pick){HP_PCP_LISTS, HP_PCP_BLOCK, UINT32_MAX},
		      (chunks - (pcp->block_high + 1) / 2) * pcp->block_pages);
}

/* Locks a cache from wherever we are. Returns whether we are its worker. */
static bool enter(struct hp_pcp *pcp)
{
	uintptr_t worker = __atomic_load_n(&pcp->worker, __ATOMIC_RELAXED);

	if (worker == (uintptr_t)pthread_self() && hp_bias_try(&pcp->lock))
		return true;
	hp_bias_revoke(&pcp->lock);
	return false;
}

static void leave(struct hp_pcp *pcp, bool is_worker)
{
	if (is_worker)
		hp_bias_leave(&pcp->lock);
	else
		hp_bias_restore(&pcp->lock);
}

static uint32_t drain_unreported(struct hp_pcp *pcp, bool batch)
{
	bool is_worker = enter(pcp);
	uint32_t n;

	if (batch) {
		n = drain(pcp, pick_all(HP_PCP_LISTS), batch_of(pcp));
		if (pcp->scale > 0)
			pcp->scale--;
	} else {
		n = drain(pcp, pick_all(HP_PCP_LISTS), UINT32_MAX);
		pcp->scale = 0;
	}
	leave(pcp, is_worker);
	return n;
}

uint32_t hp_pcp_drain(struct hp_pcp *pcp)
{
	struct hp_zone *zone = pcp->zone;
	uint32_t n = drain_unreported(pcp, false);

	hp_page_report(zone);
	return n;
}

uint32_t hp_pcp_drain_batch(struct hp_pcp *pcp)
{
	struct hp_zone *zone = pcp->zone;
	uint32_t n = drain_unreported(pcp, true);

	hp_page_report(zone);
	return n;
}

uint32_t hp_zone_drain(struct hp_zone *zone, uint32_t owner)
{
	uint32_t n = 0;

	hp_lock_acquire(&zone->registry);
	for (struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next)
		if (owner == HP_OWNER_NONE || pcp->owner == owner)
			n += drain_unreported(pcp, false);
	hp_lock_release(&zone->registry);
	hp_page_report(zone);
	return n;
}

void hp_zone_set_drain_variant(struct hp_zone *zone, enum hp_drain_variant variant)
{
	__atomic_store_n(&zone->variant, (uint32_t)variant, __ATOMIC_RELAXED);
}

/* --- life --- */

int hp_pcp_init(struct hp_pcp **ret, void *memory, struct hp_zone *zone, uint32_t owner)
{
	struct hp_pcp *pcp = memory;
	uint32_t base = 0;

	if (owner == HP_OWNER_NONE || owner >= zone->config.nr_owners || (uintptr_t)memory % 64)
		return -EINVAL;
	*pcp = (struct hp_pcp){
		.zone = zone,
		.owner = owner,
		.live_word = hp_block_encode(
			(struct hp_block_word){.owner = owner, .state = HP_BLOCK_LIVE}),
	};
	hp_bias_init(&pcp->lock);
	for (unsigned i = 0; i < HP_PCP_LISTS; i++) {
		uint32_t capacity = list_capacity(zone, i);

		pcp->list[i].base = base;
		pcp->list[i].mask = capacity ? capacity - 1 : 0;
		base += capacity;
	}
	pcp->block_pages =
		list_capacity(zone, HP_PCP_BLOCK) ? 1u << zone->config.pageblock_order : UINT32_MAX;
	hp_lock_acquire(&zone->registry);
	resize(pcp);
	pcp->next = zone->pcps;
	if (pcp->next)
		pcp->next->prev = pcp;
	zone->pcps = pcp;
	hp_lock_release(&zone->registry);
	*ret = pcp;
	return 0;
}

void hp_pcp_deinit(struct hp_pcp *pcp)
{
	struct hp_zone *zone;

	if (!pcp)
		return;
	zone = pcp->zone;
	hp_lock_acquire(&zone->registry);
	drain_unreported(pcp, false);
	if (pcp->prev)
		pcp->prev->next = pcp->next;
	else
		zone->pcps = pcp->next;
	if (pcp->next)
		pcp->next->prev = pcp->prev;
	hp_zone_lock(zone);
	zone->grants += pcp->hits;
	zone->frees += pcp->frees;
	zone->refills += pcp->refills;
	zone->drains += pcp->drains;
	hp_zone_unlock(zone);
	hp_lock_release(&zone->registry);
	hp_page_report(zone);
}

void hp_pcp_set_sizes(struct hp_pcp *pcp, uint32_t batch, uint32_t high)
{
	bool is_worker = enter(pcp);

	__atomic_store_n(&pcp->set_batch, batch, __ATOMIC_RELAXED);
	__atomic_store_n(&pcp->set_high, high, __ATOMIC_RELAXED);
	pcp->scale = 0;
	resize(pcp);
	leave(pcp, is_worker);
}

void hp_pcp_get_stats(struct hp_pcp *pcp, struct hp_pcp_stats *ret)
{
	*ret = (struct hp_pcp_stats){
		.owner = pcp->owner,
		.count = hp_pcp_pages(pcp),
		.batch = batch_of(pcp),
		.high = __atomic_load_n(&pcp->high, __ATOMIC_RELAXED),
		.hits = __atomic_load_n(&pcp->hits, __ATOMIC_RELAXED),
		.misses = __atomic_load_n(&pcp->misses, __ATOMIC_RELAXED),
		.refills = __atomic_load_n(&pcp->refills, __ATOMIC_RELAXED),
		.drains = __atomic_load_n(&pcp->drains, __ATOMIC_RELAXED),
	};
	for (unsigned i = 0; i < HP_PCP_LISTS; i++)
		ret->per_order[i] = hp_pcp_list_peek(&pcp->list[i]);
}
