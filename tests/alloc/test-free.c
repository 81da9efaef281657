/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving back: what is right comes back whole, what is wrong reports its own code and changes not
 * one byte of either memory.
 */
#include "tests/alloc/unit.h"

#include <errno.h>

/* --- wrong frees -------------------------------------------------------------------------------*/

/*
 * Every call that names a lease exactly answers with this code and leaves durable and scratch
 * memory byte for byte as they were.
 */
static void assert_all_refuse(uint32_t slot, struct hp_range range, int code)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct box_copy copy;
	struct hp_range kept[2];
	unsigned nr_kept;
	size_t bad = 99;

	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_lookup(box.zone, slot, &range), code);
	assert_int_equal(hp_zone_free(box.zone, NULL, slot, &range), code);
	assert_int_equal(hp_zone_free(box.zone, pcp, slot, &range), code);
	assert_int_equal(hp_zone_free_bulk(box.zone, pcp, slot, &range, 1, &bad), code);
	assert_int_equal(bad, 0);
	assert_int_equal(hp_zone_free_part(box.zone, pcp, slot, &range, 0, 1, kept, &nr_kept),
			 code);
	assert_int_equal(hp_zone_keep_parts(box.zone, slot, &range, NULL, 0), code);
	assert_int_equal(hp_zone_split(box.zone, slot, &range), code);
	assert_int_equal(hp_zone_share_get(box.zone, slot, &range), code);
	if (code != HP_REVOKED)
		assert_int_not_equal(hp_zone_ack(box.zone, slot, &range), HP_OK);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
	box_pcp_free(pcp);
}

static void wrong_zone(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	range.zone++;
	assert_all_refuse(ALICE, range, HP_WRONG_ZONE);
}

static void out_of_range(void **state)
{
	struct hp_range good = grant(ALICE, 4);
	struct hp_range range = good;

	(void)state;
	range.pfn = UNIT_PAGES;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
	range.pfn = HP_PFN_NONE;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
	range.pfn = UNIT_PAGES - 3;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
	range = good;
	range.pages = 0;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
	range.pages = UINT32_MAX;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
	range.pages = UINT32_MAX - good.pfn + 1;
	assert_all_refuse(ALICE, range, HP_OUT_OF_RANGE);
}

static void freed_twice(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	give_back(ALICE, range);
	assert_all_refuse(ALICE, range, HP_NOT_LEASED);
}

static void never_granted(void **state)
{
	struct hp_range range = {.pfn = 17, .pages = 1, .zone = UNIT_ZONE};

	(void)state;
	assert_all_refuse(ALICE, range, HP_NOT_LEASED);
	/* Also in the middle of a lease of one's own. */
	range = grant(ALICE, 4);
	range.pfn++;
	range.pages--;
	assert_all_refuse(ALICE, range, HP_NOT_LEASED);
}

static void wrong_holder(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	assert_all_refuse(BOB, range, HP_WRONG_HOLDER);
	/* The same owner, but not the same holder. */
	assert_all_refuse(ALICE_2, range, HP_WRONG_HOLDER);
}

static void stale_generation(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	give_back(ALICE, range);
	assert_int_equal(grant(ALICE, 4).pfn, range.pfn);
	assert_all_refuse(ALICE, range, HP_STALE);
	range.generation += 2;
	assert_all_refuse(ALICE, range, HP_STALE);
}

static void wrong_length(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	range.pages = 3;
	assert_all_refuse(ALICE, range, HP_WRONG_LENGTH);
	range.pages = 5;
	assert_all_refuse(ALICE, range, HP_WRONG_LENGTH);
}

static void revoked(void **state)
{
	struct hp_range range = grant(ALICE, 2 * UNIT_BLOCK_PAGES);

	(void)state;
	assert_int_equal(hp_zone_revoke_block(box.zone, block_of(range.pfn), false, NULL, NULL),
			 HP_OK);
	range.pfn += UNIT_BLOCK_PAGES;
	range.pages -= UNIT_BLOCK_PAGES;
	assert_all_refuse(ALICE, range, HP_REVOKED);
	/* Also for who has nothing to do with it. */
	assert_all_refuse(BOB, range, HP_REVOKED);
}

/* Where more than one thing is wrong, the first of them is reported. */
static void the_first_fault_counts(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	range.pages = 5;
	range.generation++;
	assert_all_refuse(ALICE, range, HP_STALE);
	assert_all_refuse(BOB, range, HP_WRONG_HOLDER);
	range.pfn++;
	assert_all_refuse(BOB, range, HP_NOT_LEASED);
	range.pages = UNIT_PAGES;
	assert_all_refuse(BOB, range, HP_OUT_OF_RANGE);
	range.zone++;
	assert_all_refuse(BOB, range, HP_WRONG_ZONE);
}

/* --- free and free_bulk ------------------------------------------------------------------------*/

static void a_freed_word_keeps_its_generation(void **state)
{
	struct hp_range range = grant(ALICE, 4);

	(void)state;
	assert_int_equal(hp_zone_lookup(box.zone, ALICE, &range), HP_OK);
	give_back(ALICE, range);
	assert_free_page(range.pfn);
	assert_int_equal(box_lease(&box, range.pfn).generation, range.generation);
	assert_int_equal(zone_stats().frees, 1);
	assert_int_equal(zone_stats().leased, 0);
}

static void buddies_merge_again(void **state)
{
	struct hp_range pages[UNIT_PAGES];

	(void)state;
	for (uint32_t i = 0; i < UNIT_PAGES; i++)
		pages[i] = grant(ALICE, 1);
	for (uint32_t i = 0; i < UNIT_PAGES; i += 2)
		give_back(ALICE, pages[i]);
	assert_int_equal(owner_stats(ALICE).free_chunks[0], UNIT_PAGES / 2);
	for (uint32_t i = 1; i < UNIT_PAGES; i += 2)
		give_back(ALICE, pages[i]);
	assert_int_equal(owner_stats(ALICE).free_chunks[6], 1);
	assert_int_equal(owner_stats(ALICE).free_chunks[0], 0);
}

static void buddies_of_two_owners_do_not_merge(void **state)
{
	struct hp_range a = grant(ALICE, UNIT_BLOCK_PAGES);
	struct hp_range b = grant(BOB, UNIT_BLOCK_PAGES);

	(void)state;
	give_back(ALICE, a);
	give_back(BOB, b);
	assert_int_equal(owner_stats(ALICE).free_chunks[3], 1);
	assert_int_equal(owner_stats(BOB).free_chunks[3], 1);
	assert_int_equal(owner_stats(ALICE).free_pages, UNIT_BLOCK_PAGES);
	assert_int_equal(owner_stats(BOB).free_pages, UNIT_BLOCK_PAGES);
}

static void bulk_free_is_all_or_none(void **state)
{
	struct hp_range ranges[5];
	struct box_copy copy;
	size_t bad = 99;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		ranges[i] = grant(ALICE, 2);
	ranges[3].generation++;
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_free_bulk(box.zone, NULL, ALICE, ranges, 5, &bad), HP_STALE);
	assert_int_equal(bad, 3);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
	ranges[3].generation--;
	assert_int_equal(hp_zone_free_bulk(box.zone, NULL, ALICE, ranges, 5, &bad), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
	assert_int_equal(zone_stats().frees, 5);
}

static void a_lease_named_twice_in_bulk_is_not_freed(void **state)
{
	struct hp_range ranges[HP_BULK_MAX];
	struct box_copy copy;
	size_t bad;

	(void)state;
	for (size_t i = 0; i < 20; i++)
		ranges[i] = grant(ALICE, 1);
	for (size_t i = 0; i < 20; i++) {
		ranges[20] = ranges[i];
		bad = 99;
		box_copy_take(&copy, &box);
		assert_int_equal(hp_zone_free_bulk(box.zone, NULL, ALICE, ranges, 21, &bad),
				 HP_NOT_LEASED);
		assert_true(bad == i || bad == 20);
		assert_true(box_copy_same(&copy, &box));
		box_copy_drop(&copy);
	}
}

/* --- free_part ---------------------------------------------------------------------------------*/

static void assert_part(uint32_t offset, uint32_t pages, unsigned expect)
{
	struct hp_range range = grant(ALICE, 12);
	struct hp_range kept[2];
	unsigned n = 99;

	assert_int_equal(hp_zone_free_part(box.zone, NULL, ALICE, &range, offset, pages, kept, &n),
			 HP_OK);
	assert_int_equal(n, expect);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(kept[i].generation, range.generation);
		assert_int_equal(hp_zone_lookup(box.zone, ALICE, &kept[i]), HP_OK);
	}
	assert_int_equal(zone_stats().leased, 12 - pages);
	for (uint32_t i = 0; i < pages; i++)
		assert_free_page(range.pfn + offset + i);
	for (unsigned i = 0; i < n; i++)
		give_back(ALICE, kept[i]);
	assert_int_equal(box_check(&box), 0);
}

static void any_part_of_a_lease_is_freed(void **state)
{
	(void)state;
	assert_part(0, 12, 0);
	assert_part(0, 5, 1);
	assert_part(5, 7, 1);
	assert_part(3, 4, 2);
	assert_part(11, 1, 1);
	assert_part(1, 10, 2);
}

static void a_part_outside_of_the_lease_is_refused(void **state)
{
	struct hp_range range = grant(ALICE, 12);
	static const uint32_t parts[][2] = {{0, 13}, {12, 1}, {11, 2}, {0, 0}, {1, UINT32_MAX}};
	struct hp_range kept[2];
	struct box_copy copy;
	unsigned n;

	(void)state;
	box_copy_take(&copy, &box);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		assert_int_equal(hp_zone_free_part(box.zone, NULL, ALICE, &range, parts[i][0],
						   parts[i][1], kept, &n),
				 HP_OUT_OF_RANGE);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
}

/* --- keep_parts --------------------------------------------------------------------------------*/

static struct hp_range part_of(struct hp_range range, uint32_t offset, uint32_t pages)
{
	range.pfn += offset;
	range.pages = pages;
	return range;
}

static void only_the_parts_named_are_kept(void **state)
{
	struct hp_range range = grant(ALICE, 30);
	struct hp_range keep[] = {part_of(range, 1, 2), part_of(range, 3, 4),
				  part_of(range, 20, 10)};

	(void)state;
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &range, keep, 3), HP_OK);
	assert_free_page(range.pfn);
	assert_int_equal(zone_stats().leased, 16);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(hp_zone_lookup(box.zone, ALICE, &keep[i]), HP_OK);
}

static void keeping_all_or_nothing_is_possible(void **state)
{
	struct hp_range range = grant(ALICE, 9);

	(void)state;
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &range, &range, 1), HP_OK);
	assert_int_equal(hp_zone_lookup(box.zone, ALICE, &range), HP_OK);
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &range, NULL, 0), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
	struct hp_range range = grant(ALICE, 10);
	struct hp_range bad[][2] = {
		{part_of(range, 0, 5), part_of(range, 4, 2)},
		{part_of(range, 5, 2), part_of(range, 0, 2)},
		{part_of(range, 0, 1), part_of(range, 9, 2)},
		{part_of(range, 0, 0), part_of(range, 2, 1)},
		{part_of(range, 0, 1), part_of(range, 10, 1)},
		{part_of(range, UINT32_MAX, 1), part_of(range, 3, 1)},
		{part_of(range, 0, 1), part_of(range, 3, UINT32_MAX)},
	};
	struct box_copy copy;

	(void)state;
	box_copy_take(&copy, &box);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_not_equal(hp_zone_keep_parts(box.zone, ALICE, &range, bad[i], 2), HP_OK);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
}

/* --- split and free_contig ---------------------------------------------------------------------*/

static void split_makes_a_lease_of_every_page(void **state)
{
	struct hp_range range = grant(ALICE, 11);

	(void)state;
	assert_int_equal(hp_zone_split(box.zone, ALICE, &range), HP_OK);
	for (uint32_t i = 0; i < 11; i++) {
		assert_lease(range.pfn + i, HP_LEASE_LEASED, ALICE, 1);
		assert_int_equal(box_lease(&box, range.pfn + i).generation, range.generation);
	}
	assert_int_equal(zone_stats().leased, 11);
	assert_int_equal(hp_zone_free(box.zone, NULL, ALICE, &range), HP_WRONG_LENGTH);
}

static void contig_frees_across_leases(void **state)
{
	struct hp_range whole = grant(ALICE, 40);
	struct hp_range keep[] = {part_of(whole, 0, 10), part_of(whole, 10, 10),
				  part_of(whole, 20, 20)};

	(void)state;
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &whole, keep, 3), HP_OK);
	/* The tail of the first, the second, the head of the third. */
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, whole.pfn + 5, 20), HP_OK);
	assert_lease(whole.pfn, HP_LEASE_LEASED, ALICE, 5);
	assert_lease(whole.pfn + 25, HP_LEASE_LEASED, ALICE, 15);
	assert_int_equal(zone_stats().leased, 20);
	/* The middle of one. */
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, whole.pfn + 30, 2), HP_OK);
	assert_lease(whole.pfn + 25, HP_LEASE_LEASED, ALICE, 5);
	assert_lease(whole.pfn + 32, HP_LEASE_LEASED, ALICE, 8);
}

static void contig_frees_high_orders_as_units(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_PAGES);
	uint64_t before;

	(void)state;
	assert_int_equal(hp_zone_split(box.zone, ALICE, &range), HP_OK);
	before = zone_stats().lock_acquisitions;
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, 0, UNIT_PAGES), HP_OK);
	/* Page by page it would be one for each page; hp_zone_stats() may take a few itself. */
	assert_true(zone_stats().lock_acquisitions - before < 8);
	assert_int_equal(owner_stats(ALICE).free_chunks[6], 1);
}

static void contig_with_one_wrong_page_changes_nothing(void **state)
{
	struct hp_range a = grant(ALICE, 20);
	struct hp_range kept[2];
	struct hp_request other = {.owner = ALICE, .slot = ALICE_2, .pages = 1};
	struct hp_grant grant_2;
	struct box_copy copy;
	unsigned n;

	(void)state;
	assert_int_equal(hp_zone_free_part(box.zone, NULL, ALICE, &a, 10, 1, kept, &n), HP_OK);
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, a.pfn, 20), HP_NOT_LEASED);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, a.pfn, 0), HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, UNIT_PAGES, 1),
			 HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, 1, UINT32_MAX),
			 HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, BOB, a.pfn, 10), HP_WRONG_HOLDER);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);

	assert_int_equal(hp_zone_alloc(box.zone, NULL, &other, &grant_2), HP_OK);
	if (grant_2.range.pfn == a.pfn + 10)
		assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, a.pfn, 20),
				 HP_WRONG_HOLDER);
}

static void contig_stops_at_revoked_pages(void **state)
{
	struct hp_range range = grant(ALICE, 3 * UNIT_BLOCK_PAGES);
	struct box_copy copy;

	(void)state;
	assert_int_equal(hp_zone_revoke_block(box.zone, block_of(range.pfn) + 1, true, NULL, NULL),
			 HP_OK);
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, ALICE, range.pfn, 4), HP_REVOKED);
	assert_int_equal(
		hp_zone_free_contig(box.zone, NULL, ALICE, range.pfn + UNIT_BLOCK_PAGES, 4),
		HP_NOT_LEASED);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
}

/* --- shared pages ------------------------------------------------------------------------------*/

static void a_page_with_references_left_splits_the_run(void **state)
{
	struct hp_range range = grant_flags(SHARE, 16, 0, HP_ALLOC_SHARED).range;
	struct hp_range middle = part_of(range, 5, 2);

	(void)state;
	assert_int_equal(hp_zone_split(box.zone, SHARE, &range), HP_OK);
	for (uint32_t i = 0; i < middle.pages; i++) {
		struct hp_range page = part_of(middle, i, 1);

		assert_int_equal(hp_zone_share_get(box.zone, SHARE, &page), HP_OK);
	}
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn, 16), HP_OK);
	assert_int_equal(zone_stats().leased, 2);
	assert_lease(middle.pfn, HP_LEASE_LEASED, SHARE, 1);
	assert_lease(middle.pfn + 1, HP_LEASE_LEASED, SHARE, 1);
	assert_int_equal(owner_stats(SHARE).free_pages, 14);
	/* Now the last reference goes. */
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, middle.pfn, 2), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
	assert_int_equal(owner_stats(SHARE).idle_blocks, 2);
}

static void references_count_on_every_page(void **state)
{
	struct hp_range range = grant_flags(SHARE, 10, 0, HP_ALLOC_SHARED).range;

	(void)state;
	assert_int_equal(hp_zone_share_get(box.zone, SHARE, &range), HP_OK);
	assert_int_equal(hp_zone_share_get(box.zone, SHARE, &range), HP_OK);
	/* Three references; the lease stays whole until pages reach zero. */
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn, 10), HP_OK);
		assert_int_equal(hp_zone_lookup(box.zone, SHARE, &range), HP_OK);
	}
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn + 2, 3), HP_OK);
	assert_lease(range.pfn, HP_LEASE_LEASED, SHARE, 2);
	assert_lease(range.pfn + 5, HP_LEASE_LEASED, SHARE, 5);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn, 2), HP_OK);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn + 5, 5), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
}

static void the_counter_of_references_ends(void **state)
{
	struct hp_range range = grant_flags(SHARE, 2, 0, HP_ALLOC_SHARED).range;
	struct box_copy copy;
	uint32_t taken = 1;
	int r;

	(void)state;
	while ((r = hp_zone_share_get(box.zone, SHARE, &range)) == HP_OK) {
		taken++;
		assert_true(taken <= UINT16_MAX);
	}
	assert_int_equal(r, HP_BUSY);
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_share_get(box.zone, SHARE, &range), HP_BUSY);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
	while (taken-- > 0)
		assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, range.pfn, 2), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
}

/* --- free_slot ---------------------------------------------------------------------------------*/

static void free_slot_frees_what_a_slot_has_and_nothing_else(void **state)
{
	struct hp_request other = {.owner = ALICE, .slot = ALICE_2, .pages = 5};
	struct hp_grant grant_2;
	struct hp_range large;
	uint64_t pages = 99;

	(void)state;
	grant(ALICE, 3);
	assert_int_equal(hp_zone_alloc(box.zone, NULL, &other, &grant_2), HP_OK);
	large = grant(ALICE, 20);
	grant(BOB, 4);
	assert_int_equal(hp_zone_free_slot(box.zone, NULL, CAROL, &pages), HP_OK);
	assert_int_equal(pages, 0);
	/* A revoked rest is freed as well. */
	assert_int_equal(hp_zone_revoke_block(box.zone, block_of(large.pfn + 8), false, NULL, NULL),
			 HP_OK);
	assert_true(zone_stats().revoked > 0);
	pages = zone_stats().leased + zone_stats().revoked - 5 - 4;
	{
		uint64_t freed = 0;

		assert_int_equal(hp_zone_free_slot(box.zone, NULL, ALICE, &freed), HP_OK);
		assert_int_equal(freed, pages);
	}
	assert_int_equal(zone_stats().leased, 9);
	assert_int_equal(zone_stats().revoked, 0);
	assert_int_equal(hp_zone_lookup(box.zone, ALICE_2, &grant_2.range), HP_OK);
}

/* --- looking -----------------------------------------------------------------------------------*/

static int stop_at_second(void *userdata, uint32_t slot, const struct hp_range *range,
			  enum hp_lease_state state)
{
	unsigned *seen = userdata;

	(void)slot, (void)range, (void)state;
	return ++*seen == 2 ? -EINTR : 0;
}

static void a_walk_over_leases_can_be_ended(void **state)
{
	unsigned seen = 0;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		grant(ALICE, 2);
	assert_int_equal(hp_zone_for_each_lease(box.zone, stop_at_second, &seen), -EINTR);
	assert_int_equal(seen, 2);
}

static int note_lease(void *userdata, uint32_t slot, const struct hp_range *range,
		      enum hp_lease_state state)
{
	struct hp_range *seen = userdata;

	assert_int_equal(slot, ALICE);
	assert_int_equal(state, HP_LEASE_LEASED);
	assert_int_equal(seen->pages, 0);
	*seen = *range;
	return 0;
}

static void a_walk_sees_what_begins_in_its_pages(void **state)
{
	struct hp_range a = grant(ALICE, 4), b = grant(ALICE, 4), seen = {0};

	(void)state;
	assert_int_equal(b.pfn, a.pfn + 4);
	hp_zone_for_each_lease_in(box.zone, a.pfn, b.pfn, note_lease, &seen);
	assert_int_equal(seen.pfn, a.pfn);
	assert_int_equal(seen.generation, a.generation);
	seen.pages = 0;
	hp_zone_for_each_lease_in(box.zone, b.pfn, b.pfn + 1, note_lease, &seen);
	assert_int_equal(seen.pfn, b.pfn);
	assert_int_equal(seen.pages, b.pages);
	hp_zone_for_each_lease_in(box.zone, b.pfn + 4, UINT32_MAX, note_lease, &seen);
}

static void a_renamed_lease_is_known_by_its_new_name_alone(void **state)
{
	struct hp_range old = grant(ALICE, 4), renamed = old;

	(void)state;
	assert_int_equal(hp_zone_rename(box.zone, BOB, &renamed), HP_WRONG_HOLDER);
	assert_int_equal(renamed.generation, old.generation);
	assert_int_equal(hp_zone_rename(box.zone, ALICE, &renamed), HP_OK);
	assert_int_equal(renamed.generation, old.generation + 1);
	assert_int_equal(hp_zone_free(box.zone, NULL, ALICE, &old), HP_STALE);
	assert_int_equal(hp_zone_free(box.zone, NULL, ALICE, &renamed), HP_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		zone_test(wrong_zone),
		zone_test(out_of_range),
		zone_test(freed_twice),
		zone_test(never_granted),
		zone_test(wrong_holder),
		zone_test(stale_generation),
		zone_test(wrong_length),
		zone_test(revoked),
		zone_test(the_first_fault_counts),
		zone_test(a_freed_word_keeps_its_generation),
		zone_test(buddies_merge_again),
		zone_test(buddies_of_two_owners_do_not_merge),
		zone_test(bulk_free_is_all_or_none),
		zone_test(a_lease_named_twice_in_bulk_is_not_freed),
		zone_test(any_part_of_a_lease_is_freed),
		zone_test(a_part_outside_of_the_lease_is_refused),
		zone_test(only_the_parts_named_are_kept),
		zone_test(keeping_all_or_nothing_is_possible),
		zone_test(parts_that_do_not_fit_are_refused),
		zone_test(split_makes_a_lease_of_every_page),
		zone_test(contig_frees_across_leases),
		zone_test(contig_frees_high_orders_as_units),
		zone_test(contig_with_one_wrong_page_changes_nothing),
		zone_test(contig_stops_at_revoked_pages),
		zone_test(a_page_with_references_left_splits_the_run),
		zone_test(references_count_on_every_page),
		zone_test(the_counter_of_references_ends),
		zone_test(free_slot_frees_what_a_slot_has_and_nothing_else),
		zone_test(a_walk_over_leases_can_be_ended),
		zone_test(a_walk_sees_what_begins_in_its_pages),
		zone_test(a_renamed_lease_is_known_by_its_new_name_alone),
	};

	return cmocka_run_group_tests_name("free", tests, NULL, NULL);
}
