/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pageblocks and the states they go through.
 *
 * The block word is the truth; areas repeat owner and "closed" from it so that giving a page back
 * looks at its area only. What happens to pages of a block that is being taken out of use is
 * decided by that one byte: a closed block is on no list and merges with nothing, and pages freed
 * into it only set their bits. So isolating is: close, pass through every cache of the owner, look
 * whether all pages are there, and store the word.
 */
#include "alloc/pageblock.h"

#include <assert.h>

#include "alloc/buddy.h"
#include "alloc/lease.h"

#include <errno.h>
#include <string.h>

#define TO(state) (1u << HP_BLOCK_##state)

static const uint8_t allowed[HP_BLOCK_STATES] = {
	[HP_BLOCK_OFFLINE] = TO(CLEAN),
	[HP_BLOCK_CLEAN] = TO(LIVE) | TO(OFFLINE) | TO(LENT),
	[HP_BLOCK_LIVE] = TO(ISOLATED) | TO(FAILING) | TO(QUARANTINED),
	[HP_BLOCK_FAILING] = TO(OFFLINE) | TO(ISOLATED) | TO(QUARANTINED),
	[HP_BLOCK_ISOLATED] = TO(CLEAN) | TO(QUARANTINED) | TO(OFFLINE),
	[HP_BLOCK_QUARANTINED] = TO(CLEAN) | TO(ISOLATED) | TO(OFFLINE),
	[HP_BLOCK_LENT] = TO(ISOLATED),
};

static bool has_pages(enum hp_block_state state)
{
	return state == HP_BLOCK_LIVE || state == HP_BLOCK_FAILING;
}

void hp_pageblock_count(struct hp_zone *zone, uint32_t block, struct hp_block_word word, int change)
{
	uint32_t pages = hp_block_pages(zone, block);
	struct hp_owner *owner = hp_owner_get(zone, word.owner);

	zone->blocks_in[word.state] += (uint32_t)change;
	zone->pages_in[word.state] += (uint64_t)((int64_t)change * pages);
	if (has_pages(word.state)) {
		owner->blocks += (uint32_t)change;
		__atomic_store_n(&owner->pages, owner->pages + (uint32_t)(change * (int32_t)pages),
				 __ATOMIC_RELAXED);
	}
	hp_account_charge(zone, word.owner, word.state, change);
}

void hp_pageblock_set(struct hp_zone *zone, uint32_t block, struct hp_block_word word)
{
	struct hp_block_word old = hp_block_get(zone, block);

	assert(allowed[old.state] >> word.state & 1);
	hp_durable_store(&zone->blocks[block], hp_block_encode(word));
	hp_pageblock_count(zone, block, old, -1);
	hp_pageblock_count(zone, block, word, 1);
}

uint32_t hp_pageblock_free_pages(const struct hp_zone *zone, uint32_t block)
{
	uint32_t last = hp_block_last_area(zone, block), n = 0;

	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++)
		n += (uint32_t)__builtin_popcountll(zone->areas[a].free);
	return n;
}

void hp_pageblock_close(struct hp_zone *zone, uint32_t block, enum hp_closed reason)
{
	uint32_t last = hp_block_last_area(zone, block);

	hp_buddy_unlink_block(zone, block);
	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++)
		zone->areas[a].closed |= (uint8_t)reason;
}

void hp_pageblock_open(struct hp_zone *zone, uint32_t block, enum hp_closed reason)
{
	uint32_t last = hp_block_last_area(zone, block);

	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++)
		zone->areas[a].closed &= (uint8_t)~reason;
	hp_buddy_link_block(zone, block);
}

void hp_pageblock_reset(struct hp_zone *zone, uint32_t block, enum hp_block_state state)
{
	uint32_t owner = hp_block_get(zone, block).owner;
	hp_pfn_t end = hp_block_end(zone, block);
	uint32_t last = hp_block_last_area(zone, block);
	bool clean = state == HP_BLOCK_CLEAN;

	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++) {
		uint32_t pages = end - hp_area_pfn(zone, a);
		uint64_t bits = hp_bits(pages < hp_area_pages(zone) ? pages : hp_area_pages(zone));

		zone->areas[a] = (struct hp_area){
			.free = clean ? bits : 0,
			.zero = clean ? bits : 0,
			.next = HP_AREA_NONE,
			.prev = HP_AREA_NONE,
			.cover = HP_PFN_NONE,
			.owner = (uint16_t)owner,
			.order = HP_ORDER_NONE,
			.closed = clean ? 0 : HP_CLOSED_STATE,
		};
	}
	if (clean)
		hp_buddy_link_block(zone, block);
}

static void set_owner(struct hp_zone *zone, uint32_t block, uint32_t owner, unsigned closed)
{
	uint32_t last = hp_block_last_area(zone, block);

	for (uint32_t a = hp_block_first_area(zone, block); a <= last; a++) {
		zone->areas[a].owner = (uint16_t)owner;
		zone->areas[a].closed = (uint8_t)closed;
	}
}

void hp_pageblock_claim(struct hp_zone *zone, uint32_t block, uint32_t owner, bool exclusive)
{
	struct hp_block_word word = hp_block_get(zone, block);
	uint32_t pages = hp_block_pages(zone, block);

	assert(word.state == HP_BLOCK_CLEAN);
	hp_buddy_unlink_block(zone, block);
	word.state = HP_BLOCK_LIVE;
	word.owner = owner;
	word.exclusive = exclusive;
	hp_pageblock_set(zone, block, word);
	set_owner(zone, block, owner, exclusive ? HP_CLOSED_EXCLUSIVE : 0);
	hp_owner_get(zone, owner)->free_pages += pages;
	zone->free_pages += pages;
	zone->claims++;
	hp_buddy_link_block(zone, block);
}

void hp_pageblock_end_exclusive(struct hp_zone *zone, uint32_t block)
{
	struct hp_block_word word = hp_block_get(zone, block);

	if (!word.exclusive || hp_lease_pages_in_block(zone, block) != 0)
		return;
	word.exclusive = false;
	hp_durable_store(&zone->blocks[block], hp_block_encode(word));
	hp_pageblock_open(zone, block, HP_CLOSED_EXCLUSIVE);
}

void hp_pageblock_leave(struct hp_zone *zone, uint32_t block, enum hp_block_state state)
{
	struct hp_block_word word = hp_block_get(zone, block);
	uint32_t free_pages = hp_pageblock_free_pages(zone, block);
	uint32_t kept_out =
		hp_block_pages(zone, block) - free_pages - hp_lease_pages_in_block(zone, block);

	hp_owner_get(zone, word.owner)->free_pages -= free_pages;
	zone->free_pages -= free_pages;
	zone->bad_pages -= kept_out;
	hp_page_forgive(zone, hp_block_pfn(zone, block), hp_block_end(zone, block));
	word.state = state;
	word.exclusive = false;
	if (state == HP_BLOCK_OFFLINE)
		word.owner = HP_OWNER_NONE;
	hp_pageblock_set(zone, block, word);
	hp_pageblock_reset(zone, block, state);
}

/* --- what the caller of the zone can do with a block --- */

/* Takes the zone lock if the block exists and is in one of these states. */
static int lock_block(struct hp_zone *zone, uint32_t block, unsigned states,
		      struct hp_block_word *ret)
{
	if (block >= zone->nr_blocks)
		return HP_OUT_OF_RANGE;
	hp_zone_lock(zone);
	*ret = hp_block_get(zone, block);
	if (!(states >> ret->state & 1) ||
	    hp_block_area(zone, block)->closed & HP_CLOSED_ISOLATING) {
		hp_zone_unlock(zone);
		return HP_BUSY;
	}
	return 0;
}

static int make_clean(struct hp_zone *zone, uint32_t block, uint64_t generation, unsigned from)
{
	struct hp_block_word word;
	int r;

	if (generation > HP_BLOCK_GENERATION_MAX)
		return -EINVAL;
	r = lock_block(zone, block, from, &word);
	if (r)
		return r;
	hp_pageblock_set(zone, block,
			 (struct hp_block_word){.generation = generation, .state = HP_BLOCK_CLEAN});
	hp_pageblock_reset(zone, block, HP_BLOCK_CLEAN);
	hp_zone_unlock(zone);
	return 0;
}

int hp_zone_online(struct hp_zone *zone, uint32_t block, uint64_t generation)
{
	return make_clean(zone, block, generation, TO(OFFLINE));
}

int hp_zone_put_clean(struct hp_zone *zone, uint32_t block, uint64_t generation)
{
	return make_clean(zone, block, generation, TO(ISOLATED) | TO(QUARANTINED));
}

/* Bits of bad[] in a block of which nothing is leased: pages kept out, or still in a cache. */
static uint32_t broken_pages(const struct hp_zone *zone, uint32_t block)
{
	uint32_t last = hp_block_last_area(zone, block), n = 0;

	for (uint32_t a = hp_block_first_area(zone, block); zone->nr_broken && a <= last; a++)
		n += (uint32_t)__builtin_popcountll(hp_page_bits(zone, zone->bad, a));
	return n;
}

static bool all_free(const struct hp_zone *zone, uint32_t block)
{
	return hp_lease_pages_in_block(zone, block) == 0 &&
	       hp_pageblock_free_pages(zone, block) + broken_pages(zone, block) ==
		       hp_block_pages(zone, block);
}

int hp_zone_isolate(struct hp_zone *zone, uint32_t block)
{
	struct hp_block_word word;
	int r = lock_block(zone, block, TO(LIVE) | TO(QUARANTINED), &word);

	if (r)
		return r;
	if (word.state == HP_BLOCK_QUARANTINED) {
		word.state = HP_BLOCK_ISOLATED;
		hp_pageblock_set(zone, block, word);
		hp_zone_unlock(zone);
		return 0;
	}
	if (hp_lease_pages_in_block(zone, block)) {
		hp_zone_unlock(zone);
		return HP_BUSY;
	}
	hp_zone_attend(zone, &zone->closing, 1);
	hp_pageblock_close(zone, block, HP_CLOSED_ISOLATING);
	hp_zone_unlock(zone);

	hp_zone_drain(zone, word.owner);

	hp_zone_lock(zone);
	if (all_free(zone, block)) {
		hp_pageblock_leave(zone, block, HP_BLOCK_ISOLATED);
	} else {
		hp_pageblock_open(zone, block, HP_CLOSED_ISOLATING);
		r = HP_BUSY;
	}
	hp_zone_attend(zone, &zone->closing, -1);
	hp_zone_unlock(zone);
	return r;
}

/* A block that holds nothing goes from one of these states to another, and stays whose it is. */
static int change_state(struct hp_zone *zone, uint32_t block, unsigned from, enum hp_block_state to)
{
	struct hp_block_word word;
	int r = lock_block(zone, block, from, &word);

	if (r)
		return r;
	word.state = to;
	hp_pageblock_set(zone, block, word);
	hp_zone_unlock(zone);
	return 0;
}

int hp_zone_quarantine(struct hp_zone *zone, uint32_t block)
{
	return change_state(zone, block, TO(ISOLATED), HP_BLOCK_QUARANTINED);
}

int hp_zone_unlend(struct hp_zone *zone, uint32_t block)
{
	return change_state(zone, block, TO(LENT), HP_BLOCK_ISOLATED);
}

/* A block with nobody's pages. */
static void go_offline(struct hp_zone *zone, uint32_t block, struct hp_block_word word)
{
	if (word.state == HP_BLOCK_CLEAN)
		hp_buddy_unlink_block(zone, block);
	word.state = HP_BLOCK_OFFLINE;
	word.owner = HP_OWNER_NONE;
	hp_pageblock_set(zone, block, word);
	hp_pageblock_reset(zone, block, HP_BLOCK_OFFLINE);
}

int hp_zone_offline(struct hp_zone *zone, uint32_t block)
{
	struct hp_block_word word;
	int r = lock_block(zone, block, TO(CLEAN) | TO(ISOLATED) | TO(QUARANTINED) | TO(FAILING),
			   &word);

	if (r)
		return r;
	if (word.state == HP_BLOCK_FAILING) {
		if (all_free(zone, block))
			hp_pageblock_leave(zone, block, HP_BLOCK_OFFLINE);
		else
			r = HP_BUSY;
		hp_zone_unlock(zone);
		return r;
	}
	go_offline(zone, block, word);
	hp_zone_unlock(zone);
	return 0;
}

int hp_zone_give_up(struct hp_zone *zone, uint32_t block, uint32_t keep_clean_blocks)
{
	uint32_t keep = keep_clean_blocks;
	struct hp_block_word word;
	int r = lock_block(zone, block, TO(CLEAN), &word);

	if (r)
		return r;
	if (keep < zone->unmet_blocks)
		keep = zone->unmet_blocks;
	if (zone->blocks_in[HP_BLOCK_CLEAN] > keep)
		go_offline(zone, block, word);
	else
		r = HP_BUSY;
	hp_zone_unlock(zone);
	return r;
}

int hp_zone_fail(struct hp_zone *zone, uint32_t block)
{
	struct hp_block_word word;
	int r = lock_block(zone, block, TO(LIVE), &word);

	if (r)
		return r;
	hp_pageblock_close(zone, block, HP_CLOSED_FAILING);
	word.state = HP_BLOCK_FAILING;
	hp_pageblock_set(zone, block, word);
	hp_zone_unlock(zone);
	/* No cache takes a page of a failing block; what they have of it already comes back. */
	hp_zone_drain(zone, word.owner);
	return 0;
}

int hp_zone_poison(struct hp_zone *zone, hp_pfn_t pfn)
{
	struct hp_block_word word;
	int r;

	if (pfn >= zone->config.nr_pages)
		return HP_OUT_OF_RANGE;
	r = lock_block(zone, hp_block_of(zone, pfn), TO(LIVE) | TO(FAILING), &word);
	if (r)
		return r;
	struct hp_area *area = &zone->areas[hp_area_of(zone, pfn)];

	if (!hp_page_bit(zone->bad, pfn)) {
		hp_page_mark_broken(zone, pfn);
		if (area->free >> (pfn & (hp_area_pages(zone) - 1)) & 1) {
			hp_buddy_take_range(zone, pfn, 1);
			hp_page_keep_out(zone, pfn, "broken");
		}
	}
	hp_zone_unlock(zone);
	/* If a cache has it, it comes back and is kept out. */
	hp_zone_drain(zone, word.owner);
	hp_page_report(zone);
	return 0;
}

int hp_zone_lend(struct hp_zone *zone, uint32_t owner, uint32_t *ret_block)
{
	int r;

	if (owner == HP_OWNER_NONE || owner >= zone->config.nr_owners)
		return -EINVAL;
	hp_zone_lock(zone);
	r = hp_account_check(zone, owner, 1);
	if (r == 0) {
		uint32_t a = hp_buddy_peek(zone, HP_OWNER_NONE, 0);
		uint32_t block = hp_block_of(zone, hp_area_pfn(zone, a));
		struct hp_block_word word = hp_block_get(zone, block);

		hp_buddy_unlink_block(zone, block);
		word.state = HP_BLOCK_LENT;
		word.owner = owner;
		hp_pageblock_set(zone, block, word);
		hp_pageblock_reset(zone, block, HP_BLOCK_LENT);
		*ret_block = block;
	}
	hp_zone_unlock(zone);
	return r;
}

/* --- taking a block away with its leases --- */

/* Cuts the lease at head down to what lies outside [from, to). Returns its pages inside. */
static uint32_t cut_out(struct hp_zone *zone, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to,
			hp_hit_fn hit, void *userdata)
{
	struct hp_lease_word word = hp_lease_get(zone, head);
	hp_pfn_t end = head + word.pages;
	uint32_t inside = (end < to ? end : to) - (head > from ? head : from);
	struct hp_owner *owner = hp_owner_get(zone, zone->areas[hp_area_of(zone, head)].owner);
	uint32_t revoked = word.state == HP_LEASE_REVOKED ? -inside : word.pages - inside;
	struct hp_cut cut;

	if (hit)
		hit(userdata, word.slot,
		    &(struct hp_range){.pfn = head,
				       .pages = word.pages,
				       .generation = word.generation,
				       .zone = zone->config.id},
		    word.state);
	hp_cut_begin(&cut, zone, head, HP_LEASE_REVOKED);
	if (head < from)
		hp_cut_keep(&cut, head, from - head);
	if (end > to)
		hp_cut_keep(&cut, to, end - to);
	hp_cut_commit(&cut);
	if (zone->refs)
		memset(&zone->refs[head], 0, word.pages * sizeof(zone->refs[0]));
	owner->revoked_pages += revoked;
	zone->revoked_pages += (uint64_t)(int64_t)(int32_t)revoked;
	return inside;
}

int hp_zone_revoke_block(struct hp_zone *zone, uint32_t block, bool quarantine, hp_hit_fn hit,
			 void *userdata)
{
	struct hp_block_word word;
	int r = lock_block(zone, block, TO(LIVE) | TO(FAILING), &word);

	if (r)
		return r;
	hp_zone_attend(zone, &zone->closing, 1);
	hp_pageblock_close(zone, block, HP_CLOSED_ISOLATING);
	hp_zone_unlock(zone);

	/* After this no cache has a page of it, and no hit is under way in it. */
	hp_zone_drain(zone, word.owner);

	hp_zone_lock(zone);
	hp_pfn_t from = hp_block_pfn(zone, block), to = hp_block_end(zone, block);
	hp_pfn_t before = hp_lease_find(zone, from);

	/* The block first. Then its leases, each with its old extent announced before it changes. */
	hp_pageblock_leave(zone, block, quarantine ? HP_BLOCK_QUARANTINED : HP_BLOCK_ISOLATED);
	hp_pfn_t pfn = from;

	if (before != HP_PFN_NONE && before < from)
		pfn += cut_out(zone, before, from, to, hit, userdata);
	while (pfn < to) {
		if (hp_lease_get(zone, pfn).state == HP_LEASE_FREE)
			pfn++;
		else
			pfn += cut_out(zone, pfn, from, to, hit, userdata);
	}
	hp_zone_attend(zone, &zone->closing, -1);
	hp_zone_unlock(zone);
	return 0;
}

int hp_zone_block_info(struct hp_zone *zone, uint32_t block, struct hp_block_info *ret)
{
	if (block >= zone->nr_blocks)
		return HP_OUT_OF_RANGE;
	hp_zone_lock(zone);
	struct hp_block_word word = hp_block_get(zone, block);

	*ret = (struct hp_block_info){
		.word = word,
		.pages = hp_block_pages(zone, block),
		.free_pages = hp_pageblock_free_pages(zone, block),
		.idle = word.state == HP_BLOCK_LIVE && hp_lease_pages_in_block(zone, block) == 0,
	};
	hp_zone_unlock(zone);
	return 0;
}

struct hp_block_word hp_zone_block_word(const struct hp_zone *zone, uint32_t block)
{
	assert(block < zone->nr_blocks);
	return hp_block_get(zone, block);
}
