/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch memory from the durable words alone.
 *
 * The order is what makes it repeatable at any kill. First, words inside an earlier lease are
 * wiped: they are what an interrupted cut has stored already, and until they are gone the words say
 * two things about one page. Then blocks that cannot be trusted are quarantined; then leases that
 * touch such blocks are cut; then live blocks that hold nothing are isolated. Each step reads only
 * words, decides the same again after a kill, and finds the earlier steps done.
 */
#include "alloc/buddy.h"
#include "alloc/lease.h"
#include "alloc/pageblock.h"
#include "alloc/zone-setup.h"

#include <stdarg.h>
#include <stdio.h>

struct rebuild {
	struct hp_zone *zone;
	const struct hp_rebuild_ops *ops;
	struct hp_rebuild_stats stats;
};

__attribute__((format(printf, 2, 3))) static void report(const struct rebuild *r,
							 const char *format, ...)
{
	char line[128];
	va_list args;

	if (!r->ops->report)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	r->ops->report(r->ops->userdata, line);
}

static bool may_hold(enum hp_block_state state)
{
	return state == HP_BLOCK_LIVE || state == HP_BLOCK_FAILING;
}

static void store_block(struct rebuild *r, uint32_t block, struct hp_block_word word)
{
	hp_durable_store(&r->zone->blocks[block], hp_block_encode(word));
}

static void quarantine(struct rebuild *r, uint32_t block, const char *why)
{
	struct hp_block_word word = hp_block_get(r->zone, block);

	if (word.state == HP_BLOCK_QUARANTINED)
		return;
	report(r, "block %u, generation %llu: %s, quarantined", block,
	       (unsigned long long)word.generation, why);
	word.state = HP_BLOCK_QUARANTINED;
	word.exclusive = false;
	store_block(r, block, word);
	r->stats.quarantined_blocks++;
}

/* Could this word have been stored by us at this page? */
static bool sound(const struct rebuild *r, hp_pfn_t pfn, struct hp_lease_word word)
{
	return word.state <= HP_LEASE_REVOKED && word.pages != 0 &&
	       word.pages <= r->zone->config.nr_pages - pfn;
}

static void wipe(struct rebuild *r, hp_pfn_t pfn)
{
	hp_word_t *word = &r->zone->leases[pfn];

	hp_durable_store(word, hp_lease_freed(hp_durable_load(word)));
	r->stats.wiped_words++;
}

/* Step 2. */
static void wipe_inside(struct rebuild *r)
{
	hp_pfn_t end = 0; /* of the last lease */

	for (hp_pfn_t pfn = 0; pfn < r->zone->config.nr_pages; pfn++) {
		struct hp_lease_word word = hp_lease_get(r->zone, pfn);

		if (word.state == HP_LEASE_FREE)
			continue;
		if (pfn < end) {
			wipe(r, pfn);
		} else if (sound(r, pfn, word)) {
			end = pfn + word.pages;
		}
	}
}

/* Words that were never ours to store: damage. What they stood in is not used again. */
static void drop_unsound(struct rebuild *r)
{
	for (hp_pfn_t pfn = 0; pfn < r->zone->config.nr_pages;) {
		struct hp_lease_word word = hp_lease_get(r->zone, pfn);

		if (word.state == HP_LEASE_FREE) {
			pfn++;
		} else if (sound(r, pfn, word)) {
			pfn += word.pages;
		} else {
			uint32_t b = hp_block_of(r->zone, pfn);

			if (may_hold(hp_block_get(r->zone, b).state))
				quarantine(r, b, "impossible lease word");
			wipe(r, pfn);
			pfn++;
		}
	}
}

/* Step 1, after step 2 for the reason above: it changes nothing that step 2 looks at. */
static void adopt_blocks(struct rebuild *r)
{
	const struct hp_zone *zone = r->zone;

	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_get(r->zone, b);

		bool nobodys = word.state == HP_BLOCK_CLEAN || word.state == HP_BLOCK_OFFLINE;

		if (word.state >= HP_BLOCK_STATES || word.owner >= zone->config.nr_owners ||
		    (nobodys && word.owner != HP_OWNER_NONE) ||
		    (word.exclusive && !may_hold(word.state)) ||
		    (may_hold(word.state) && word.owner == HP_OWNER_NONE)) {
			if (word.owner >= zone->config.nr_owners)
				word.owner = HP_OWNER_NONE;
			word.state = HP_BLOCK_QUARANTINED;
			word.exclusive = false;
			report(r, "block %u: impossible word, quarantined", b);
			store_block(r, b, word);
			r->stats.quarantined_blocks++;
			continue;
		}
		if (word.state == HP_BLOCK_OFFLINE || word.state == HP_BLOCK_QUARANTINED ||
		    word.state == HP_BLOCK_LENT)
			continue;
		if (r->ops->block_whole && !r->ops->block_whole(r->ops->userdata, b, word))
			quarantine(r, b, "not as its word says");
	}
}

/* Step 3, first half: blocks of leases whose holder or owner does not fit. */
static void check_holders(struct rebuild *r)
{
	struct hp_zone *zone = r->zone;

	for (hp_pfn_t pfn = 0; pfn < zone->config.nr_pages;) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);
		uint32_t owner, last;

		if (word.state == HP_LEASE_FREE) {
			pfn++;
			continue;
		}
		owner = r->ops->owner_of_slot(r->ops->userdata, word.slot);
		last = hp_block_of(zone, pfn + word.pages - 1);
		for (uint32_t b = hp_block_of(zone, pfn); b <= last; b++) {
			struct hp_block_word block = hp_block_get(zone, b);

			if (block.state == HP_BLOCK_CLEAN)
				quarantine(r, b, "leased, but clean");
			if (!may_hold(block.state))
				continue;
			if (owner == HP_OWNER_NONE)
				quarantine(r, b, "lease of a slot not in use");
			else if (block.owner != owner)
				quarantine(r, b, "lease of another owner");
		}
		pfn += word.pages;
	}
}

/* Step 3, second half: leases keep, as revoked, what lies in usable blocks. */
static void cut_leases(struct rebuild *r)
{
	struct hp_zone *zone = r->zone;

	for (hp_pfn_t pfn = 0, end; pfn < zone->config.nr_pages; pfn = end) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);
		bool whole = true, any = false;
		struct hp_cut cut;

		end = pfn + 1;
		if (word.state == HP_LEASE_FREE)
			continue;
		end = pfn + word.pages;
		for (uint32_t b = hp_block_of(zone, pfn); b <= hp_block_of(zone, end - 1); b++) {
			bool usable = may_hold(hp_block_get(zone, b).state);

			whole &= usable;
			any |= usable;
		}
		r->stats.leases += whole && word.state == HP_LEASE_LEASED;
		r->stats.revoked += any && !(whole && word.state == HP_LEASE_LEASED);
		if (whole)
			continue;
		report(r, "lease at page %u, %u pages, slot %u: it lies in a block out of use", pfn,
		       word.pages, word.slot);
		hp_cut_begin(&cut, zone, pfn, HP_LEASE_REVOKED);
		for (hp_pfn_t from = pfn, at = pfn; at < end;) {
			uint32_t b = hp_block_of(zone, at);
			bool usable = may_hold(hp_block_get(zone, b).state);

			at = hp_block_end(zone, b) < end ? hp_block_end(zone, b) : end;
			if (!usable)
				from = at;
			else if (at == end || !may_hold(hp_block_get(zone, b + 1).state))
				hp_cut_keep(&cut, from, at - from);
		}
		hp_cut_commit(&cut);
	}
}

/* Pages that leases cover, as long as nothing else needs the free bits: a set bit is not leased. */
static void mark_leases(struct rebuild *r)
{
	struct hp_zone *zone = r->zone;

	for (uint32_t a = 0; a < zone->nr_areas; a++) {
		uint32_t pages = zone->config.nr_pages - hp_area_pfn(zone, a);

		zone->areas[a].free =
			hp_bits(pages < hp_area_pages(zone) ? pages : hp_area_pages(zone));
		zone->areas[a].next = zone->areas[a].prev = HP_AREA_NONE;
		zone->areas[a].cover = HP_PFN_NONE;
		zone->areas[a].order = HP_ORDER_NONE;
	}
	for (hp_pfn_t pfn = 0; pfn < zone->config.nr_pages;) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);
		hp_pfn_t end = pfn + (word.state == HP_LEASE_FREE ? 1 : word.pages);

		if (word.state != HP_LEASE_FREE && !hp_lease_is_chunk(zone, pfn, word.pages))
			for (uint32_t a = hp_area_of(zone, pfn) + 1; a <= hp_area_of(zone, end - 1);
			     a++)
				zone->areas[a].cover = pfn;
		while (word.state != HP_LEASE_FREE && pfn < end) {
			uint32_t a = hp_area_of(zone, pfn);
			unsigned bit = pfn - hp_area_pfn(zone, a);
			unsigned n = hp_area_pages(zone) - bit;

			n = n < end - pfn ? n : end - pfn;
			zone->areas[a].free &= ~(hp_bits(n) << bit);
			pfn += n;
		}
		pfn = end;
	}
}

/* Step 6, and the metadata of each block. */
static void settle_blocks(struct rebuild *r)
{
	struct hp_zone *zone = r->zone;

	for (uint32_t b = 0; b < zone->nr_blocks; b++) {
		struct hp_block_word word = hp_block_get(zone, b);
		uint32_t last = hp_block_last_area(zone, b), free_pages;

		free_pages = hp_pageblock_free_pages(zone, b);
		if (may_hold(word.state) && free_pages == hp_block_pages(zone, b)) {
			if (word.state == HP_BLOCK_LIVE) {
				word.state = HP_BLOCK_ISOLATED;
				r->stats.isolated_blocks++;
			} else {
				word.state = HP_BLOCK_OFFLINE;
				word.owner = HP_OWNER_NONE;
			}
			word.exclusive = false;
			store_block(r, b, word);
		}
		hp_pageblock_count(zone, b, word, 1);
		if (!may_hold(word.state)) {
			hp_pageblock_reset(zone, b, word.state);
			continue;
		}
		for (uint32_t a = hp_block_first_area(zone, b); a <= last; a++) {
			zone->areas[a].owner = (uint16_t)word.owner;
			if (word.state == HP_BLOCK_FAILING)
				zone->areas[a].closed |= HP_CLOSED_FAILING;
			if (word.exclusive)
				zone->areas[a].closed |= HP_CLOSED_EXCLUSIVE;
		}
		hp_owner_get(zone, word.owner)->free_pages += free_pages;
		zone->free_pages += free_pages;
		hp_buddy_link_block(zone, b);
	}
}

static void count_revoked(struct rebuild *r)
{
	struct hp_zone *zone = r->zone;

	for (hp_pfn_t pfn = 0; pfn < zone->config.nr_pages;) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);

		if (word.state == HP_LEASE_REVOKED) {
			uint32_t owner = zone->areas[hp_area_of(zone, pfn)].owner;

			hp_owner_get(zone, owner)->revoked_pages += word.pages;
			zone->revoked_pages += word.pages;
		}
		pfn += word.state == HP_LEASE_FREE ? 1 : word.pages;
	}
}

int hp_zone_rebuild(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		    void *scratch, const struct hp_rebuild_ops *ops,
		    struct hp_rebuild_stats *ret_stats)
{
	struct rebuild r = {.zone = zone, .ops = ops};
	int error = hp_zone_setup(zone, config, durable, scratch);

	if (error)
		return error;
	wipe_inside(&r);
	drop_unsound(&r);
	adopt_blocks(&r);
	check_holders(&r);
	cut_leases(&r);
	mark_leases(&r);
	settle_blocks(&r);
	count_revoked(&r);
	*ret_stats = r.stats;
	return 0;
}
