/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zones' lease words are the only record of who holds what, so that is what is looked at: once
 * for the targets, and then again and again at those, whether their words are still there. It costs
 * one load for each, twenty times a second, and only while a revocation is under way.
 *
 * What is taken is taken by blocks, since only a whole block can be given a new life. Everything
 * that a notice needs is allocated before a block is taken: under the lock of its zone nothing may
 * fail any more.
 */
#include "daemon/tenancy/revoke.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tenancy/clock.h"

#define LOOK_MS		 50
#define BLOCKS_AT_A_TIME 4
#define GIVE_UP_MS	 10000 /* after the deadline: somebody else has the block in hand */
#define PARTS_PER_HIT	 2     /* of a lease that begins before the block and ends behind it */

struct revokes {
	struct pool *pool;
	struct slots *slots;
	const struct leases *leases;
	revokes_tell_fn tell;
	void *userdata;
};

struct target {
	struct hp_range range;
	uint32_t slot;
	uint32_t next_block; /* to be taken */
};

struct revocation {
	struct revokes *revokes;
	uint64_t deadline_ms; /* CLOCK_MONOTONIC */
	bool force;
	bool by_blocks; /* only these, of the one zone, are counted and taken */
	uint64_t blocks[HP_ZONE_BLOCKS_MAX / 64 + 1];
	struct target *targets; /* by zone and page */
	size_t nr, room;
	uint64_t asked_pages, forced_pages;
	uint32_t nr_hit;
	struct revocation_row hit[REVOCATION_ROWS_MAX];
	struct notice *spare; /* nr_spare of them */
	size_t nr_spare;
};

int revokes_new(struct revokes **ret, struct pool *pool, struct slots *slots,
		const struct leases *leases, revokes_tell_fn tell, void *userdata)
{
	struct revokes *revokes = malloc(sizeof(*revokes));

	if (!revokes)
		return -ENOMEM;
	*revokes = (struct revokes){pool, slots, leases, tell, userdata};
	*ret = revokes;
	return 0;
}

struct revokes *revokes_free(struct revokes *revokes)
{
	free(revokes);
	return NULL;
}

/* --- targets ---------------------------------------------------------------------------------- */

static bool has_bit(const uint64_t *bits, size_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

/* How many of pages [from, to) are meant. */
static uint32_t pages_meant(const struct revocation *revocation, uint32_t block_pages,
			    hp_pfn_t from, hp_pfn_t to)
{
	uint32_t pages = 0;

	if (!revocation->by_blocks)
		return to - from;
	while (from < to) {
		uint32_t block = from / block_pages;
		hp_pfn_t end = (block + 1) * block_pages;

		if (end > to)
			end = to;
		if (has_bit(revocation->blocks, block))
			pages += end - from;
		from = end;
	}
	return pages;
}

static int add_target(struct revocation *revocation, uint32_t slot, const struct hp_range *range)
{
	if (revocation->nr == revocation->room) {
		size_t room = revocation->room ? revocation->room * 2 : 64;
		struct target *targets =
			realloc(revocation->targets, room * sizeof(*revocation->targets));

		if (!targets)
			return -ENOMEM;
		revocation->targets = targets;
		revocation->room = room;
	}
	revocation->targets[revocation->nr++] = (struct target){.range = *range, .slot = slot};
	revocation->asked_pages += pages_meant(
		revocation, pool_zone(revocation->revokes->pool, range->zone)->block_pages,
		range->pfn, range->pfn + range->pages);
	return 0;
}

/*
 * Which leases of a zone are meant: those of these slots, and those that touch the blocks. What is
 * left of a lease that was taken before counts like one, but its holder knows already.
 */
struct search {
	struct revocation *revocation;
	const struct pool_zone *zone;
	uint64_t slots[HP_SLOTS_MAX / 64 + 1];
	/* in the slots */
	enum revoke_by by;
	uint64_t session;
	uint32_t owner;
	bool found;
};

static int look_at_lease(void *userdata, uint32_t slot, const struct hp_range *range,
			 enum hp_lease_state state)
{
	const struct search *search = userdata;
	struct revocation *revocation = search->revocation;
	bool meant;

	(void)state;
	if (revocation->by_blocks)
		meant = pages_meant(revocation, search->zone->block_pages, range->pfn,
				    range->pfn + range->pages) > 0;
	else
		meant = slot <= HP_SLOTS_MAX && has_bit(search->slots, slot);
	return meant ? add_target(revocation, slot, range) : 0;
}

static int look_at_slot(void *userdata, const struct slot *slot)
{
	struct search *search = userdata;

	if (search->by == REVOKE_SESSION ? slot->session != search->session
					 : slot->tenant->owner != search->owner)
		return 0;
	search->slots[slot->number / 64] |= UINT64_C(1) << slot->number % 64;
	search->found = true;
	return 0;
}

static int search_zone(struct search *search, const struct pool_zone *zone)
{
	search->zone = zone;
	return hp_zone_for_each_lease(zone->zone, look_at_lease, search);
}

static int find_of_holders(struct search *search)
{
	struct pool *pool = search->revocation->revokes->pool;
	int rc = 0;

	slots_look(search->revocation->revokes->slots, 1, look_at_slot, search);
	if (!search->found && search->by == REVOKE_SESSION)
		return REVOKE_NO_SESSION;
	for (size_t i = 0; i < pool_nr_zones(pool) && !rc; i++)
		rc = search_zone(search, pool_zone(pool, i));
	return rc;
}

static int find_in_blocks(struct search *search, const struct revoke_what *what, size_t *ret_bad)
{
	for (size_t i = 0; i < what->n; i++) {
		const struct revoke_block *block = &what->blocks[i];

		*ret_bad = i;
		if (block->index >= what->zone->nr_blocks ||
		    (block->generation &&
		     hp_zone_block_word(what->zone->zone, block->index).generation !=
			     block->generation))
			return REVOKE_NO_BLOCK;
		search->revocation->blocks[block->index / 64] |= UINT64_C(1) << block->index % 64;
	}
	return search_zone(search, what->zone);
}

struct exact {
	struct revocation *revocation;
	const struct hp_range *range;
	int rc;
};

static int take_exact(void *userdata, uint32_t slot, const struct hp_range *range,
		      enum hp_lease_state state)
{
	struct exact *exact = userdata;

	if (state == HP_LEASE_LEASED && range_equal(range, exact->range))
		exact->rc = add_target(exact->revocation, slot, range);
	return 1;
}

static int compare(const void *a, const void *b)
{
	const struct hp_range *x = &((const struct target *)a)->range;
	const struct hp_range *y = &((const struct target *)b)->range;

	if (x->zone != y->zone)
		return x->zone < y->zone ? -1 : 1;
	return x->pfn < y->pfn ? -1 : x->pfn > y->pfn;
}

static int find_ranges(struct revocation *revocation, const struct revoke_what *what,
		       size_t *ret_bad)
{
	for (size_t i = 0; i < what->n; i++) {
		const struct hp_range *range = &what->ranges[i];
		struct pool_zone *zone = pool_zone(revocation->revokes->pool, range->zone);
		struct exact exact = {revocation, range, REVOKE_NO_LEASE};

		*ret_bad = i;
		if (zone)
			hp_zone_for_each_lease_in(zone->zone, range->pfn, range->pfn + 1,
						  take_exact, &exact);
		if (exact.rc)
			return exact.rc;
	}
	qsort(revocation->targets, revocation->nr, sizeof(*revocation->targets), compare);
	for (size_t i = 1; i < revocation->nr; i++)
		if (compare(&revocation->targets[i - 1], &revocation->targets[i]) == 0)
			return REVOKE_NO_LEASE; /* named twice */
	return 0;
}

static int find_targets(struct revocation *revocation, const struct revoke_what *what,
			size_t *ret_bad)
{
	struct search search = {
		.revocation = revocation,
		.by = what->by,
		.session = what->session,
		.owner = what->owner,
	};

	switch (what->by) {
	case REVOKE_RANGES:
		return find_ranges(revocation, what, ret_bad);
	case REVOKE_BLOCKS:
		revocation->by_blocks = true;
		return find_in_blocks(&search, what, ret_bad);
	default:
		return find_of_holders(&search);
	}
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Makes sure that so many notices can be posted. Return: 0 or -ENOMEM. */
static int reserve_notices(struct revocation *revocation, size_t n)
{
	while (revocation->nr_spare < n) {
		struct notice *notice = malloc(sizeof(*notice));

		if (!notice)
			return -ENOMEM;
		notice->next = revocation->spare;
		revocation->spare = notice;
		revocation->nr_spare++;
	}
	return 0;
}

/* Nobody is to be told where the holder is no session. */
static void post(struct revocation *revocation, uint32_t slot, const struct notice *what)
{
	struct notice *notice = revocation->spare;

	if (slot > HP_SLOTS_MAX)
		return;
	revocation->spare = notice->next;
	revocation->nr_spare--;
	*notice = *what;
	notice_post(slots_get(revocation->revokes->slots, slot), notice);
}

static int ask(struct revocation *revocation)
{
	int rc = reserve_notices(revocation, revocation->nr);

	for (size_t i = 0; i < revocation->nr && !rc; i++)
		post(revocation, revocation->targets[i].slot,
		     &(struct notice){
			     .kind = NOTICE_ASKED,
			     .range = revocation->targets[i].range,
			     .deadline_ms = revocation->deadline_ms,
			     .force = revocation->force,
		     });
	if (!rc)
		revocation->revokes->tell(revocation->revokes->userdata);
	return rc;
}

int revocation_new(struct revocation **ret, struct revokes *revokes, const struct revoke_what *what,
		   uint32_t deadline_ms, bool force, size_t *ret_bad)
{
	struct revocation *revocation = calloc(1, sizeof(*revocation));
	int rc;

	if (!revocation)
		return -ENOMEM;
	revocation->revokes = revokes;
	revocation->deadline_ms = clock_now_ms() + deadline_ms;
	revocation->force = force;
	rc = find_targets(revocation, what, ret_bad);
	if (!rc && !(force && deadline_ms == 0))
		rc = ask(revocation);
	if (rc) {
		revocation_free(revocation);
		return rc;
	}
	for (size_t i = 0; i < revocation->nr; i++) {
		struct target *target = &revocation->targets[i];

		target->next_block = target->range.pfn /
				     pool_zone(revokes->pool, target->range.zone)->block_pages;
	}
	*ret = revocation;
	return 0;
}

struct revocation *revocation_free(struct revocation *revocation)
{
	if (!revocation)
		return NULL;
	notice_free_all(revocation->spare);
	free(revocation->targets);
	free(revocation);
	return NULL;
}

/* --- looking ---------------------------------------------------------------------------------- */

/* Pages of a target that are meant and still its holder's, in [from, to). */
struct count {
	const struct revocation *revocation;
	uint32_t block_pages;
	const struct target *target;
	hp_pfn_t from, to;
	uint32_t pages;
};

static int count_word(void *userdata, uint32_t slot, const struct hp_range *range,
		      enum hp_lease_state state)
{
	struct count *count = userdata;
	hp_pfn_t from = range->pfn > count->from ? range->pfn : count->from;
	hp_pfn_t end = range->pfn + range->pages, to = end < count->to ? end : count->to;

	(void)state;
	if (slot == count->target->slot && range->generation == count->target->range.generation &&
	    from < to)
		count->pages += pages_meant(count->revocation, count->block_pages, from, to);
	return 0;
}

static uint32_t pages_left(const struct revocation *revocation, const struct target *target,
			   hp_pfn_t from, hp_pfn_t to)
{
	const struct hp_range *range = &target->range;
	const struct pool_zone *zone = pool_zone(revocation->revokes->pool, range->zone);
	struct count count = {
		.revocation = revocation,
		.block_pages = zone->block_pages,
		.target = target,
		.from = from,
		.to = to,
	};

	hp_zone_for_each_lease_in(zone->zone, range->pfn, range->pfn + range->pages, count_word,
				  &count);
	return count.pages;
}

static bool any_left(const struct revocation *revocation)
{
	for (size_t i = 0; i < revocation->nr; i++) {
		const struct hp_range *range = &revocation->targets[i].range;

		if (pages_left(revocation, &revocation->targets[i], range->pfn,
			       range->pfn + range->pages))
			return true;
	}
	return false;
}

/* --- taking ----------------------------------------------------------------------------------- */

struct taking {
	struct revocation *revocation;
	const struct pool_zone *zone;
	uint32_t block;
	uint64_t generation;
};

/* The target that this word is, or is a part of; NULL: it was not meant. */
static const struct target *find_target(const struct revocation *revocation, uint32_t slot,
					const struct hp_range *range)
{
	size_t low = 0, high = revocation->nr;
	const struct target *target;

	while (low < high) { /* the first that begins behind it */
		size_t middle = low + (high - low) / 2;

		if (compare(&revocation->targets[middle], &(struct target){.range = *range}) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	target = &revocation->targets[low - 1];
	return target->slot == slot && target->range.zone == range->zone &&
			       target->range.generation == range->generation &&
			       range->pfn - target->range.pfn < target->range.pages
		       ? target
		       : NULL;
}

static struct revocation_row row(const struct revocation *revocation, uint32_t slot,
				 const struct hp_range *range)
{
	struct revokes *revokes = revocation->revokes;

	return (struct revocation_row){
		.range = *range,
		.session = slot <= HP_SLOTS_MAX ? slots_get(revokes->slots, slot)->session : 0,
		.age_ms = leases_age_ms(revokes->leases, range->zone, range->pfn),
	};
}

/* hp_hit_fn: its words are as they were, and so its slot cannot have gone to somebody else. */
static void hit(void *userdata, uint32_t slot, const struct hp_range *range,
		enum hp_lease_state state)
{
	const struct taking *taking = userdata;
	struct revocation *revocation = taking->revocation;
	hp_pfn_t from = taking->block * taking->zone->block_pages;
	hp_pfn_t to = from + taking->zone->block_pages, end = range->pfn + range->pages;
	struct notice notice = {
		.kind = NOTICE_TAKEN,
		.range = *range,
		.block = taking->block,
		.generation = taking->generation,
		.taken_pages = (end < to ? end : to) - (range->pfn > from ? range->pfn : from),
		.again = state == HP_LEASE_REVOKED,
	};
	struct hp_range before = *range, behind = *range;

	if (find_target(revocation, slot, range))
		revocation->forced_pages += notice.taken_pages;
	else if (state == HP_LEASE_LEASED && revocation->nr_hit++ < REVOCATION_ROWS_MAX)
		revocation->hit[revocation->nr_hit - 1] = row(revocation, slot, range);

	before.pages = range->pfn < from ? from - range->pfn : 0;
	behind.pfn = to;
	behind.pages = end > to ? end - to : 0;
	notice.part = before.pages ? before : behind;
	post(revocation, slot, &notice);
	if (before.pages && behind.pages) {
		notice.taken_pages = 0;
		notice.part = behind;
		post(revocation, slot, &notice);
	}
}

/* Return: 0, -ENOMEM, or HP_BUSY: not now. */
static int take_block(struct revocation *revocation, struct pool_zone *zone, uint32_t block)
{
	struct taking taking = {
		.revocation = revocation,
		.zone = zone,
		.block = block,
		.generation = hp_zone_block_word(zone->zone, block).generation,
	};

	if (reserve_notices(revocation, zone->block_pages + PARTS_PER_HIT))
		return -ENOMEM;
	return pool_take_block(zone, block, hit, &taking);
}

/* Takes the blocks of a target that hold something of it. Return: as take_block(). */
static int take_target(struct revocation *revocation, struct target *target, unsigned *budget)
{
	struct pool_zone *zone = pool_zone(revocation->revokes->pool, target->range.zone);
	hp_pfn_t end = target->range.pfn + target->range.pages;

	/* Whoever is attached to a shared range can be neither asked nor told. */
	if (target->slot > HP_SLOTS_MAX)
		return 0;
	for (; target->next_block * zone->block_pages < end; target->next_block++) {
		hp_pfn_t from = target->next_block * zone->block_pages;
		int rc;

		if (!pages_left(revocation, target, from, from + zone->block_pages))
			continue;
		if (*budget == 0)
			return HP_BUSY;
		--*budget;
		rc = take_block(revocation, zone, target->next_block);
		if (rc)
			return rc;
	}
	return 0;
}

/* Return: whether there is more to be taken. */
static bool take_some(struct revocation *revocation)
{
	unsigned budget = BLOCKS_AT_A_TIME;
	bool more = false;

	for (size_t i = 0; i < revocation->nr && budget; i++)
		more |= take_target(revocation, &revocation->targets[i], &budget) != 0;
	revocation->revokes->tell(revocation->revokes->userdata);
	return more || budget == 0;
}

uint32_t revocation_step(struct revocation *revocation)
{
	uint64_t now = clock_now_ms();

	if (!any_left(revocation))
		return 0;
	if (now < revocation->deadline_ms) {
		uint64_t ms = revocation->deadline_ms - now;

		return ms < LOOK_MS ? (uint32_t)ms : LOOK_MS;
	}
	if (!revocation->force || now >= revocation->deadline_ms + GIVE_UP_MS)
		return 0;
	return take_some(revocation) ? 1 : 0;
}

void revocation_get_result(struct revocation *revocation, struct revocation_result *ret)
{
	*ret = (struct revocation_result){
		.forced_pages = revocation->forced_pages,
		.nr_hit = revocation->nr_hit,
	};
	memcpy(ret->hit, revocation->hit, sizeof(ret->hit));
	for (size_t i = 0; i < revocation->nr; i++) {
		const struct target *target = &revocation->targets[i];
		uint32_t left = pages_left(revocation, target, target->range.pfn,
					   target->range.pfn + target->range.pages);

		if (!left)
			continue;
		ret->left_pages += left;
		if (ret->nr_left++ < REVOCATION_ROWS_MAX)
			ret->left[ret->nr_left - 1] = row(revocation, target->slot, &target->range);
	}
	ret->acknowledged_pages = revocation->asked_pages - ret->forced_pages - ret->left_pages;
}
