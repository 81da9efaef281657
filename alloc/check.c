/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every invariant of a zone, verified from scratch.
 *
 * Nothing is believed that could be computed: lists are walked against the bits, bits against the
 * lease words and the caches, counters against all of them. There is no memory to take notes in but
 * one bit a page, mark[], which notes what the caches hold and is left zero.
 */
#include "alloc/lease.h"
#include "alloc/pageblock.h"
#include "alloc/pcp.h"
#include "alloc/share.h"

#include <stdarg.h>
#include <stdio.h>

struct check {
	struct hp_zone *zone;
	void (*report)(void *userdata, const char *message);
	void *userdata;
	unsigned violations;
	hp_pfn_t at;	    /* lease_at() has read the words below */
	hp_pfn_t head, end; /* the last lease it met */
};

__attribute__((format(printf, 2, 3))) static void wrong(struct check *c, const char *format, ...)
{
	char line[160];
	va_list args;

	c->violations++;
	if (!c->report)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	c->report(c->userdata, line);
}

#define EXPECT(c, condition, ...)              \
	do {                                   \
		if (!(condition))              \
			wrong(c, __VA_ARGS__); \
	} while (0)

static uint64_t valid_bits(const struct hp_zone *zone, uint32_t a)
{
	uint32_t pages = zone->config.nr_pages - hp_area_pfn(zone, a);

	return hp_bits(pages < hp_area_pages(zone) ? pages : hp_area_pages(zone));
}

static bool may_hold(enum hp_block_state state)
{
	return state == HP_BLOCK_LIVE || state == HP_BLOCK_FAILING;
}

/* --- caches --- */

static void note_entry(struct check *c, const struct hp_pcp *pcp, unsigned index, hp_entry_t entry)
{
	struct hp_zone *zone = c->zone;
	hp_pfn_t pfn = hp_entry_pfn(entry);
	unsigned order = index == HP_PCP_BLOCK ? zone->config.pageblock_order : (unsigned)index;

	EXPECT(c, hp_entry_order(entry) == order, "pfn %u: order %u in list %u of a cache", pfn,
	       hp_entry_order(entry), index);
	if (pfn >= zone->config.nr_pages || (pfn & ((1u << order) - 1)) != 0 ||
	    (1u << order) > zone->config.nr_pages - pfn) {
		wrong(c, "pfn %u, order %u: impossible entry of a cache", pfn, order);
		return;
	}
	struct hp_block_word word = hp_block_get(zone, hp_block_of(zone, pfn));

	EXPECT(c, word.owner == pcp->owner, "pfn %u: in a cache of owner %u, of owner %u", pfn,
	       pcp->owner, word.owner);
	EXPECT(c, word.state == HP_BLOCK_LIVE, "pfn %u: in a cache, block in state %d", pfn,
	       word.state);
	for (hp_pfn_t end = pfn + (1u << order); pfn < end; pfn++) {
		EXPECT(c, !hp_page_bit(zone->mark, pfn), "pfn %u: in caches twice", pfn);
		zone->mark[pfn / 64] |= UINT64_C(1) << pfn % 64;
	}
}

static void check_pcp(struct check *c, struct hp_pcp *pcp)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < HP_PCP_LISTS; i++) {
		const struct hp_pcp_list *list = &pcp->list[i];
		uint32_t nr = hp_pcp_list_nr(list);

		if (nr > list->mask + 1) {
			wrong(c, "cache of owner %u: %u entries in list %u", pcp->owner, nr, i);
			continue;
		}
		if (i != HP_PCP_BLOCK)
			count += nr << i;
		for (uint32_t at = list->cold; at != list->hot; at++)
			note_entry(c, pcp, i, pcp->entries[list->base + (at & list->mask)]);
	}
	EXPECT(c, count == hp_pcp_count(pcp), "cache of owner %u: count %u, has %u", pcp->owner,
	       hp_pcp_count(pcp), count);
	EXPECT(c, pcp->draining == 0, "cache of owner %u: %u pages draining", pcp->owner,
	       pcp->draining);
}

/* --- areas and lists --- */

/* The lease that holds this page, by the words alone; for rising pages. */
static hp_pfn_t lease_at(struct check *c, hp_pfn_t pfn)
{
	for (; c->at <= pfn; c->at++) {
		struct hp_lease_word word = hp_lease_get(c->zone, c->at);

		if (c->at < c->end || word.state == HP_LEASE_FREE)
			continue;
		c->head = c->at;
		c->end = c->at + word.pages;
	}
	return pfn < c->end ? c->head : HP_PFN_NONE;
}

static void check_area(struct check *c, uint32_t a)
{
	struct hp_zone *zone = c->zone;
	const struct hp_area *area = &zone->areas[a];
	hp_pfn_t pfn = hp_area_pfn(zone, a);
	struct hp_block_word word = hp_block_get(zone, hp_block_of(zone, pfn));
	unsigned closed = 0;

	if (word.state != HP_BLOCK_CLEAN && !may_hold(word.state))
		closed |= HP_CLOSED_STATE;
	if (word.state == HP_BLOCK_FAILING)
		closed |= HP_CLOSED_FAILING;
	if (word.exclusive)
		closed |= HP_CLOSED_EXCLUSIVE;
	EXPECT(c, (area->closed & ~(unsigned)HP_CLOSED_ISOLATING) == closed,
	       "area %u: closed %u, should be %u", a, area->closed, closed);
	EXPECT(c, area->owner == word.owner, "area %u: owner %u, its block's %u", a, area->owner,
	       word.owner);
	EXPECT(c, !(area->free & ~valid_bits(zone, a)), "area %u: free beyond the zone", a);
	EXPECT(c, !(area->zero & ~area->free), "area %u: zero but not free", a);
	if (word.state == HP_BLOCK_CLEAN)
		EXPECT(c, area->zero == valid_bits(zone, a), "area %u: clean and not all zero", a);
	if (closed & HP_CLOSED_STATE)
		EXPECT(c, area->free == 0, "area %u: free pages in state %d", a, word.state);
	if (area->closed)
		EXPECT(c, area->order == HP_ORDER_NONE, "area %u: closed and on a list", a);

	hp_pfn_t head = lease_at(c, pfn);
	bool chunk = head != HP_PFN_NONE &&
		     hp_lease_is_chunk(zone, head, hp_lease_get(zone, head).pages);
	hp_pfn_t cover = head != HP_PFN_NONE && head < pfn && !chunk ? head : HP_PFN_NONE;

	EXPECT(c, area->cover == cover, "area %u: covered by %u, should be %u", a, area->cover,
	       cover);
}

/* One run: whole, of one owner, and as large as it can be. Returns how many areas it has. */
static uint32_t check_run(struct check *c, uint32_t head, unsigned order)
{
	const struct hp_zone *zone = c->zone;
	uint32_t nr = 1u << (order - zone->area_order), buddy = head ^ nr;

	if (head & (nr - 1) || head + nr > zone->nr_areas) {
		wrong(c, "area %u: run of order %u out of place", head, order);
		return 0;
	}
	for (uint32_t a = head; a < head + nr; a++) {
		EXPECT(c, zone->areas[a].free == hp_bits(hp_area_pages(zone)),
		       "area %u: in a run and not free", a);
		EXPECT(c, zone->areas[a].owner == zone->areas[head].owner,
		       "area %u: run across owners", a);
		EXPECT(c, !zone->areas[a].closed, "area %u: closed, in a run", a);
		EXPECT(c, a == head || zone->areas[a].order == HP_ORDER_NONE,
		       "area %u: inside a run and listed", a);
	}
	EXPECT(c,
	       order == zone->config.max_order || buddy >= zone->nr_areas ||
		       zone->areas[buddy].order != order ||
		       zone->areas[buddy].owner != zone->areas[head].owner,
	       "area %u: run of order %u not merged", head, order);
	return nr;
}

/* Returns how many areas with free pages the lists of this owner account for. */
static uint32_t check_lists(struct check *c, uint32_t number)
{
	struct hp_zone *zone = c->zone;
	const struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t areas = 0;

	for (unsigned k = 0; k <= zone->config.max_order; k++) {
		uint32_t prev = HP_AREA_NONE, steps = 0;

		EXPECT(c, (owner->heads[k] != HP_AREA_NONE) == (owner->nonempty >> k & 1),
		       "owner %u: bit of list %u", number, k);
		for (uint32_t a = owner->heads[k]; a != HP_AREA_NONE; a = zone->areas[a].next) {
			const struct hp_area *area;

			if (a >= zone->nr_areas || ++steps > zone->nr_areas) {
				wrong(c, "owner %u: list %u is broken", number, k);
				break;
			}
			area = &zone->areas[a];
			EXPECT(c, area->prev == prev, "area %u: previous one", a);
			EXPECT(c, area->owner == number, "area %u: on a list of owner %u", a,
			       number);
			EXPECT(c, area->order == k, "area %u: order %u on list %u", a, area->order,
			       k);
			EXPECT(c, !area->closed, "area %u: closed and on a list", a);
			if (k < zone->area_order) {
				EXPECT(c, hp_bits_largest(area->free) == k,
				       "area %u: largest chunk is not of order %u", a, k);
				areas++;
			} else {
				areas += check_run(c, a, k);
			}
			prev = a;
		}
	}
	return areas;
}

/* --- pages --- */

struct sums {
	uint64_t leased, revoked, bad, free_pages;
	uint64_t pages_in[HP_BLOCK_STATES];
	uint32_t blocks_in[HP_BLOCK_STATES];
};

static void check_page(struct check *c, hp_pfn_t pfn, bool leased, struct sums *sums)
{
	struct hp_zone *zone = c->zone;
	uint32_t a = hp_area_of(zone, pfn);
	bool is_free = zone->areas[a].free >> (pfn - hp_area_pfn(zone, a)) & 1;
	bool cached = hp_page_bit(zone->mark, pfn);
	struct hp_block_word word = hp_block_get(zone, hp_block_of(zone, pfn));

	EXPECT(c, !leased || hp_lease_get(zone, pfn).state == HP_LEASE_FREE,
	       "pfn %u: a word inside a lease", pfn);
	EXPECT(c, leased + is_free + cached <= 1, "pfn %u: leased %d, free %d, cached %d", pfn,
	       leased, is_free, cached);
	if (!may_hold(word.state)) {
		EXPECT(c, !leased && !cached, "pfn %u: used in a block of state %d", pfn,
		       word.state);
		return;
	}
	sums->free_pages += is_free;
	if (!leased && !is_free && !cached) {
		EXPECT(c, hp_page_bit(zone->bad, pfn), "pfn %u: lost", pfn);
		sums->bad++;
	}
	if (is_free)
		EXPECT(c, !hp_page_bit(zone->bad, pfn), "pfn %u: broken and free", pfn);
	if (!leased)
		EXPECT(c, !hp_share_is_shared(zone, pfn), "pfn %u: references, not leased", pfn);
}

static void check_pages(struct check *c, struct sums *sums)
{
	struct hp_zone *zone = c->zone;
	hp_pfn_t end = 0;
	uint32_t last_owner = 0;

	for (hp_pfn_t pfn = 0; pfn < zone->config.nr_pages; pfn++) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);
		uint32_t owner = hp_block_get(zone, hp_block_of(zone, pfn)).owner;

		if (pfn >= end && word.state != HP_LEASE_FREE) {
			if (word.pages == 0 || word.pages > zone->config.nr_pages - pfn) {
				wrong(c, "pfn %u: lease of %u pages", pfn, word.pages);
				continue;
			}
			end = pfn + word.pages;
			last_owner = owner;
			*(word.state == HP_LEASE_REVOKED ? &sums->revoked : &sums->leased) +=
				word.pages;
			/* The head is free of the rule for words inside. */
			for (hp_pfn_t p = pfn + 1; p < end; p++)
				EXPECT(c, !zone->refs || !zone->refs[p] == !zone->refs[pfn],
				       "pfn %u: only part of a lease is shared", p);
			EXPECT(c, !hp_page_bit(zone->mark, pfn), "pfn %u: leased and cached", pfn);
			uint32_t a = hp_area_of(zone, pfn);

			EXPECT(c, !(zone->areas[a].free >> (pfn - hp_area_pfn(zone, a)) & 1),
			       "pfn %u: leased and free", pfn);
			EXPECT(c, may_hold(hp_block_get(zone, hp_block_of(zone, pfn)).state),
			       "pfn %u: leased in a block that is not live", pfn);
			continue;
		}
		if (pfn < end)
			EXPECT(c, owner == last_owner, "pfn %u: lease across owners", pfn);
		check_page(c, pfn, pfn < end, sums);
	}
}

/* --- counters --- */

static void check_owner(struct check *c, uint32_t number)
{
	struct hp_zone *zone = c->zone;
	const struct hp_owner *owner = hp_owner_get(zone, number);
	uint32_t blocks = 0, charged = 0, pages = 0, free_pages = 0, revoked = 0, held = 0;

	if (owner->charged == 0 && owner->held == 0 && owner->free_pages == 0 &&
	    owner->revoked_pages == 0 && owner->blocks == 0 && owner->pages == 0)
		return;
	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_get(zone, b);

		if (word.owner != number || word.state < HP_BLOCK_LIVE)
			continue;
		charged++;
		if (!may_hold(word.state))
			continue;
		blocks++;
		pages += hp_block_pages(zone, b);
		free_pages += hp_pageblock_free_pages(zone, b);
	}
	for (hp_pfn_t pfn = 0; owner->revoked_pages && pfn < zone->config.nr_pages; pfn++) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);

		if (word.state == HP_LEASE_REVOKED &&
		    hp_block_get(zone, hp_block_of(zone, pfn)).owner == number)
			revoked += word.pages;
	}
	for (uint32_t i = 0; owner->held && i < zone->config.nr_owners; i++)
		if (hp_owner_get(zone, i)->account == number)
			held += hp_owner_get(zone, i)->charged;
	EXPECT(c, owner->charged == charged, "owner %u: charged %u, has %u", number, owner->charged,
	       charged);
	EXPECT(c, owner->blocks == blocks, "owner %u: blocks %u, has %u", number, owner->blocks,
	       blocks);
	EXPECT(c, owner->pages == pages, "owner %u: pages %u, has %u", number, owner->pages, pages);
	EXPECT(c, owner->free_pages == free_pages, "owner %u: free %u, has %u", number,
	       owner->free_pages, free_pages);
	EXPECT(c, owner->revoked_pages == revoked, "owner %u: revoked %u, has %u", number,
	       owner->revoked_pages, revoked);
	EXPECT(c, owner->held == held, "account %u: held %u, should be %u", number, owner->held,
	       held);
}

static void check_counters(struct check *c, struct sums *sums)
{
	struct hp_zone *zone = c->zone;
	uint64_t charged = 0, held = 0, guaranteed = 0, unmet = 0, broken = 0;

	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_get(zone, b);

		if (word.state >= HP_BLOCK_STATES || word.owner >= zone->config.nr_owners) {
			wrong(c, "block %u: impossible word", b);
			continue;
		}
		sums->blocks_in[word.state]++;
		sums->pages_in[word.state] += hp_block_pages(zone, b);
		charged += word.state >= HP_BLOCK_LIVE;
		EXPECT(c, word.state >= HP_BLOCK_LIVE || word.owner == HP_OWNER_NONE,
		       "block %u: nobody's, but owner %u", b, word.owner);
	}
	for (unsigned s = 0; s < HP_BLOCK_STATES; s++) {
		EXPECT(c, zone->blocks_in[s] == sums->blocks_in[s], "state %u: %u blocks, has %u",
		       s, zone->blocks_in[s], sums->blocks_in[s]);
		EXPECT(c, zone->pages_in[s] == sums->pages_in[s], "pages of state %u", s);
	}
	for (uint32_t i = 0; i < zone->config.nr_owners; i++) {
		const struct hp_owner *owner = hp_owner_get(zone, i);

		check_owner(c, i);
		held += owner->held;
		guaranteed += owner->guarantee;
		if (owner->guarantee > owner->held)
			unmet += owner->guarantee - owner->held;
	}
	for (uint32_t i = 0; i < (zone->config.nr_pages + 63) / 64; i++)
		broken += (uint64_t)__builtin_popcountll(zone->bad[i]);
	EXPECT(c, held == charged, "accounts hold %llu blocks of %llu", (unsigned long long)held,
	       (unsigned long long)charged);
	EXPECT(c, zone->guaranteed_blocks == guaranteed, "sum of guarantees");
	EXPECT(c, zone->unmet_blocks == unmet, "sum of unmet guarantees");
	EXPECT(c, zone->nr_broken == broken, "broken pages");
	EXPECT(c, zone->attention == zone->closing + zone->nr_broken + zone->sharing, "attention");
	EXPECT(c, zone->free_pages == sums->free_pages, "free pages");
	EXPECT(c, zone->revoked_pages == sums->revoked, "revoked pages");
	EXPECT(c, zone->bad_pages == sums->bad, "bad pages");
}

static void check_zone(struct check *c)
{
	struct hp_zone *zone = c->zone;
	uint32_t listed = 0, open = 0;
	struct sums sums = {0};

	for (struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next)
		check_pcp(c, pcp);
	for (uint32_t a = 0; a < zone->nr_areas; a++) {
		check_area(c, a);
		open += zone->areas[a].free != 0 && !zone->areas[a].closed;
	}
	for (uint32_t i = 0; i < zone->config.nr_owners; i++)
		listed += check_lists(c, i);
	EXPECT(c, listed == open, "%u areas with free pages, %u on lists", open, listed);
	check_pages(c, &sums);
	check_counters(c, &sums);
	for (uint32_t i = 0; i < (zone->config.nr_pages + 63) / 64; i++)
		zone->mark[i] = 0;
}

/*
 * The one who holds several caches at once: all of them. Only whoever has the registry may do that,
 * and nobody who holds a cache ever waits for another.
 */
unsigned hp_zone_check(struct hp_zone *zone, void (*report)(void *userdata, const char *message),
		       void *userdata)
{
	struct check c = {.zone = zone, .report = report, .userdata = userdata};

	hp_lock_acquire(&zone->registry);
	for (struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next)
		hp_bias_revoke(&pcp->lock);
	hp_zone_lock(zone);
	check_zone(&c);
	hp_zone_unlock(zone);
	for (struct hp_pcp *pcp = zone->pcps; pcp; pcp = pcp->next)
		hp_bias_restore(&pcp->lock);
	hp_lock_release(&zone->registry);
	return c.violations;
}
