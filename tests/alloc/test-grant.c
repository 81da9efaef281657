/* SPDX-License-Identifier: Apache-2.0 */
/* Granting: claims, alignment, ranges over blocks, holes, zero, exclusive ranges, bulk. */
#include "tests/alloc/unit.h"

#include <errno.h>

/* --- claims ------------------------------------------------------------------------------------*/

static void a_small_range_claims_one_block(void **state)
{
	struct hp_range range = grant(ALICE, 1);

	(void)state;
	assert_block(block_of(range.pfn), HP_BLOCK_LIVE, ALICE);
	assert_int_equal(zone_stats().clean_blocks, UNIT_BLOCKS - 1);
	assert_int_equal(zone_stats().claims, 1);
	assert_lease(range.pfn, HP_LEASE_LEASED, ALICE, 1);
	assert_int_equal(owner_stats(ALICE).blocks, 1);
	assert_int_equal(owner_stats(ALICE).leased_pages, 1);
	assert_int_equal(owner_stats(ALICE).free_pages, UNIT_BLOCK_PAGES - 1);
}

static void a_block_is_filled_before_another_is_claimed(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < UNIT_BLOCK_PAGES; i++)
		grant(ALICE, 1);
	assert_int_equal(owner_stats(ALICE).blocks, 1);
	grant(ALICE, 1);
	assert_int_equal(owner_stats(ALICE).blocks, 2);
}

static void owners_do_not_share_a_block(void **state)
{
	struct hp_range a = grant(ALICE, 1);
	struct hp_range b = grant(BOB, 1);

	(void)state;
	assert_int_not_equal(block_of(a.pfn), block_of(b.pfn));
	assert_block(block_of(a.pfn), HP_BLOCK_LIVE, ALICE);
	assert_block(block_of(b.pfn), HP_BLOCK_LIVE, BOB);
}

static void a_free_block_stays_its_owners(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_BLOCK_PAGES);
	uint32_t block = block_of(range.pfn);

	(void)state;
	give_back(ALICE, range);
	assert_block(block, HP_BLOCK_LIVE, ALICE);
	assert_int_equal(owner_stats(ALICE).idle_blocks, 1);
	assert_int_equal(zone_stats().idle_blocks, 1);
	/* Bob gets another one, Alice this one again. */
	assert_int_not_equal(block_of(grant(BOB, 1).pfn), block);
	assert_int_equal(block_of(grant(ALICE, UNIT_BLOCK_PAGES).pfn), block);
	assert_int_equal(owner_stats(ALICE).blocks, 1);
}

static void no_claim_takes_only_what_is_there(void **state)
{
	(void)state;
	assert_int_equal(refused(ALICE, 1, 0, HP_ALLOC_NO_CLAIM), HP_NO_ROOM);
	grant(ALICE, 1);
	grant_flags(ALICE, UNIT_BLOCK_PAGES / 2, 0, HP_ALLOC_NO_CLAIM);
	assert_int_equal(refused(ALICE, UNIT_BLOCK_PAGES, 0, HP_ALLOC_NO_CLAIM), HP_NO_ROOM);
	assert_int_equal(owner_stats(ALICE).blocks, 1);
}

static void a_large_range_claims_as_few_blocks_as_it_needs(void **state)
{
	struct hp_range range = grant(ALICE, 2 * UNIT_BLOCK_PAGES + 3);

	(void)state;
	assert_int_equal(owner_stats(ALICE).blocks, 3);
	for (uint32_t b = block_of(range.pfn); b <= block_of(range.pfn + range.pages - 1); b++)
		assert_block(b, HP_BLOCK_LIVE, ALICE);
	/* The tail is there for others. */
	assert_int_equal(owner_stats(ALICE).free_pages, UNIT_BLOCK_PAGES - 3);
}

static void the_whole_zone_is_one_range(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_PAGES);

	(void)state;
	assert_int_equal(range.pfn, 0);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	assert_int_equal(refused(BOB, 1, 0, 0), HP_NO_ROOM);
	give_back(ALICE, range);
	assert_int_equal(owner_stats(ALICE).largest_pages, UNIT_PAGES);
	assert_int_equal(owner_stats(ALICE).free_chunks[6], 1);
}

/* --- where -------------------------------------------------------------------------------------*/

static void alignment_is_kept(void **state)
{
	(void)state;
	grant(ALICE, 1);
	for (uint32_t align = 1; align <= 32; align *= 2) {
		struct hp_range range = grant_flags(ALICE, 1, align, 0).range;

		assert_int_equal(range.pfn % align, 0);
	}
}

static void alignment_beyond_the_zone_finds_page_zero(void **state)
{
	struct hp_range range = grant_flags(ALICE, 3, 1u << 20, 0).range;

	(void)state;
	assert_int_equal(range.pfn, 0);
	assert_int_equal(refused(ALICE, 3, 1u << 20, 0), HP_NO_ROOM);
}

static void a_range_runs_from_ones_own_block_into_clean_ones(void **state)
{
	struct hp_range blocks[UNIT_BLOCKS];
	struct hp_range range;

	(void)state;
	/* Alice has all of it; then only the upper half of block 2 and block 3 are not in use. */
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		blocks[b] = grant_flags(ALICE, UNIT_BLOCK_PAGES, UNIT_BLOCK_PAGES, 0).range;
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++) {
		struct hp_range kept[2];
		unsigned n;

		if (block_of(blocks[b].pfn) == 2) {
			assert_int_equal(hp_zone_free_part(box.zone, NULL, ALICE, &blocks[b], 4, 4,
							   kept, &n),
					 HP_OK);
		} else if (block_of(blocks[b].pfn) == 3) {
			give_back(ALICE, blocks[b]);
			assert_int_equal(hp_zone_isolate(box.zone, 3), HP_OK);
			assert_int_equal(hp_zone_put_clean(box.zone, 3, 2), HP_OK);
		}
	}
	assert_int_equal(owner_stats(ALICE).largest_pages, 12);
	range = grant(ALICE, 10);
	assert_int_equal(range.pfn, 20);
	assert_block(3, HP_BLOCK_LIVE, ALICE);
	assert_int_equal(owner_stats(ALICE).largest_pages, 2);
}

static void the_smallest_hole_is_used(void **state)
{
	struct hp_range whole = grant(ALICE, UNIT_PAGES);
	/* Holes of 3 (at 5), 6 (at 18), 13 (at 34). */
	struct hp_range keep[] = {
		{.pfn = 0, .pages = 5, .generation = whole.generation, .zone = UNIT_ZONE},
		{.pfn = 8, .pages = 10, .generation = whole.generation, .zone = UNIT_ZONE},
		{.pfn = 24, .pages = 10, .generation = whole.generation, .zone = UNIT_ZONE},
		{.pfn = 47, .pages = 17, .generation = whole.generation, .zone = UNIT_ZONE},
	};

	(void)state;
	assert_int_equal(hp_zone_keep_parts(box.zone, ALICE, &whole, keep, 4), HP_OK);
	assert_int_equal(owner_stats(ALICE).free_pages, 3 + 6 + 13);
	assert_int_equal(owner_stats(ALICE).largest_pages, 13);
	assert_int_equal(grant(ALICE, 5).pfn, 18);
	assert_int_equal(grant(ALICE, 3).pfn, 5);
	assert_int_equal(grant(ALICE, 13).pfn, 34);
	assert_int_equal(owner_stats(ALICE).free_pages, 1);
}

static void impossible_requests_are_refused(void **state)
{
	struct hp_request good = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_request bad[7];
	struct hp_grant grants[2];
	struct box_copy copy;

	(void)state;
	for (size_t i = 0; i < 7; i++)
		bad[i] = good;
	bad[0].owner = HP_OWNER_NONE;
	bad[1].owner = UNIT_OWNERS;
	bad[2].slot = HP_SLOT_NONE;
	bad[3].slot = HP_SLOT_MAX + 1;
	bad[4].pages = 0;
	bad[5].pages = HP_RANGE_MAX_PAGES + 1;
	bad[6].align = 6;
	box_copy_take(&copy, &box);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(hp_zone_alloc(box.zone, NULL, &bad[i], grants), -EINVAL);
		assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &bad[i], grants, 2), -EINVAL);
	}
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &good, grants, 0), -EINVAL);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &good, grants, HP_BULK_MAX + 1),
			 -EINVAL);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
	assert_int_equal(refused(ALICE, UNIT_PAGES + 1, 0, 0), HP_NO_ROOM);
}

/* --- generations -------------------------------------------------------------------------------*/

static void each_grant_at_a_page_has_the_next_generation(void **state)
{
	struct hp_range first = grant(ALICE, UNIT_PAGES);
	struct hp_range second;

	(void)state;
	give_back(ALICE, first);
	assert_int_equal(box_lease(&box, 0).generation, first.generation);
	second = grant(ALICE, UNIT_PAGES);
	assert_int_equal(second.generation, first.generation + 1);
	assert_int_equal(hp_zone_free(box.zone, NULL, ALICE, &first), HP_STALE);
}

/* --- zero --------------------------------------------------------------------------------------*/

static void fresh_pages_are_zero_and_used_ones_are_not(void **state)
{
	struct hp_grant first = grant_flags(ALICE, UNIT_BLOCK_PAGES, 0, 0);
	struct hp_grant second;

	(void)state;
	assert_true(first.zeroed);
	give_back(ALICE, first.range);
	second = grant_flags(ALICE, UNIT_BLOCK_PAGES, 0, HP_ALLOC_NO_CLAIM);
	assert_false(second.zeroed);
}

static void the_rest_of_a_block_is_still_zero(void **state)
{
	struct hp_grant first = grant_flags(ALICE, 1, 0, 0);
	struct hp_grant rest = grant_flags(ALICE, 4, 4, HP_ALLOC_ZEROED | HP_ALLOC_NO_CLAIM);

	(void)state;
	assert_true(first.zeroed);
	assert_true(rest.zeroed);
}

static void zero_is_preferred_where_it_is_wanted(void **state)
{
	struct hp_grant used = grant_flags(ALICE, 4, 4, 0);
	struct hp_grant zeroed, dirty;

	(void)state;
	give_back(ALICE, used.range);
	/* One half of the block is dirty, the other zero. */
	zeroed = grant_flags(ALICE, 1, 0, HP_ALLOC_ZEROED);
	assert_true(zeroed.zeroed);
	assert_int_not_equal(zeroed.range.pfn / 4, used.range.pfn / 4);
	dirty = grant_flags(ALICE, 4, 4, HP_ALLOC_NO_CLAIM);
	assert_false(dirty.zeroed);
	assert_int_equal(dirty.range.pfn, used.range.pfn);
}

static void one_dirty_page_makes_a_range_dirty(void **state)
{
	struct hp_range one = grant(ALICE, 1);
	struct hp_grant all;

	(void)state;
	give_back(ALICE, one);
	all = grant_flags(ALICE, UNIT_BLOCK_PAGES, 0, HP_ALLOC_NO_CLAIM);
	assert_false(all.zeroed);
}

static void a_recycled_block_is_zero_again(void **state)
{
	struct hp_range range = grant(ALICE, UNIT_BLOCK_PAGES);
	uint32_t block = block_of(range.pfn);
	struct hp_grant all;

	(void)state;
	give_back(ALICE, range);
	assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
	assert_int_equal(hp_zone_put_clean(box.zone, block, 2), HP_OK);
	all = grant_flags(BOB, UNIT_PAGES, 0, HP_ALLOC_ZEROED);
	assert_true(all.zeroed);
}

/* --- exclusive ---------------------------------------------------------------------------------*/

static void an_exclusive_range_has_its_blocks_to_itself(void **state)
{
	struct hp_range other = grant(ALICE, 1);
	struct hp_range range =
		grant_flags(ALICE, UNIT_BLOCK_PAGES + 2, 0, HP_ALLOC_EXCLUSIVE).range;
	uint32_t first = block_of(range.pfn);

	(void)state;
	assert_int_equal(range.pfn % UNIT_BLOCK_PAGES, 0);
	assert_int_not_equal(block_of(other.pfn), first);
	assert_int_not_equal(block_of(other.pfn), first + 1);
	/* Everything else of the zone can be had, page by page, and none of it is in there. */
	for (uint32_t i = 1; i < UNIT_PAGES - 2 * UNIT_BLOCK_PAGES; i++) {
		uint32_t block = block_of(grant(ALICE, 1).pfn);

		assert_true(block != first && block != first + 1);
	}
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
}

static void a_block_in_use_is_never_exclusive(void **state)
{
	(void)state;
	/* One page in every block. */
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		grant_flags(ALICE, 1, UNIT_BLOCK_PAGES, 0);
	assert_int_equal(refused(ALICE, 1, 0, HP_ALLOC_EXCLUSIVE), HP_NO_ROOM);
}

static void what_is_freed_of_an_exclusive_range_goes_to_nobody(void **state)
{
	struct hp_range range = grant_flags(ALICE, UNIT_BLOCK_PAGES, 0, HP_ALLOC_EXCLUSIVE).range;
	uint32_t block = block_of(range.pfn);
	struct hp_range kept[2];
	unsigned n;

	(void)state;
	assert_int_equal(hp_zone_free_part(box.zone, NULL, ALICE, &range, 0, 4, kept, &n), HP_OK);
	for (uint32_t i = 0; i < UNIT_PAGES - UNIT_BLOCK_PAGES; i++)
		assert_int_not_equal(block_of(grant(ALICE, 1).pfn), block);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	give_back(ALICE, kept[0]);
	assert_int_equal(hp_zone_isolate(box.zone, block), HP_OK);
}

/* --- bulk --------------------------------------------------------------------------------------*/

static void bulk_grants_do_not_overlap(void **state)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 3};
	struct hp_grant grants[10];
	bool seen[UNIT_PAGES] = {false};

	(void)state;
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, 10), HP_OK);
	for (size_t i = 0; i < 10; i++) {
		assert_lease(grants[i].range.pfn, HP_LEASE_LEASED, ALICE, 3);
		for (uint32_t p = 0; p < 3; p++) {
			assert_false(seen[grants[i].range.pfn + p]);
			seen[grants[i].range.pfn + p] = true;
		}
	}
	assert_int_equal(zone_stats().leased, 30);
	assert_int_equal(zone_stats().grants, 10);
}

static void bulk_is_all_or_none(void **state)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = UNIT_BLOCK_PAGES};
	struct hp_grant grants[UNIT_BLOCKS + 1];
	struct hp_zone_stats before, after;
	struct box_copy copy;

	(void)state;
	grant(BOB, 1);
	grant(ALICE, 3);
	before = zone_stats();
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, UNIT_BLOCKS - 1),
			 HP_NO_ROOM);
	assert_memory_equal(copy.durable, box.durable, box.durable_bytes);
	box_copy_drop(&copy);
	after = zone_stats();
	after.lock_acquisitions = before.lock_acquisitions;
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(box_check(&box), 0);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, UNIT_BLOCKS - 2),
			 HP_OK);
}

static void bulk_through_a_pcp_is_all_or_none(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant grants[UNIT_PAGES + 1];

	(void)state;
	assert_int_equal(hp_zone_alloc_bulk(box.zone, pcp, &request, grants, UNIT_PAGES + 1),
			 HP_NO_ROOM);
	assert_int_equal(zone_stats().leased, 0);
	assert_int_equal(zone_stats().clean_blocks, UNIT_BLOCKS);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, pcp, &request, grants, UNIT_PAGES), HP_OK);
	assert_int_equal(zone_stats().leased, UNIT_PAGES);
	box_pcp_free(pcp);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		zone_test(a_small_range_claims_one_block),
		zone_test(a_block_is_filled_before_another_is_claimed),
		zone_test(owners_do_not_share_a_block),
		zone_test(a_free_block_stays_its_owners),
		zone_test(no_claim_takes_only_what_is_there),
		zone_test(a_large_range_claims_as_few_blocks_as_it_needs),
		zone_test(the_whole_zone_is_one_range),
		zone_test(alignment_is_kept),
		zone_test(alignment_beyond_the_zone_finds_page_zero),
		zone_test(a_range_runs_from_ones_own_block_into_clean_ones),
		zone_test(the_smallest_hole_is_used),
		zone_test(impossible_requests_are_refused),
		zone_test(each_grant_at_a_page_has_the_next_generation),
		zone_test(fresh_pages_are_zero_and_used_ones_are_not),
		zone_test(the_rest_of_a_block_is_still_zero),
		zone_test(zero_is_preferred_where_it_is_wanted),
		zone_test(one_dirty_page_makes_a_range_dirty),
		zone_test(a_recycled_block_is_zero_again),
		zone_test(an_exclusive_range_has_its_blocks_to_itself),
		zone_test(a_block_in_use_is_never_exclusive),
		zone_test(what_is_freed_of_an_exclusive_range_goes_to_nobody),
		zone_test(bulk_grants_do_not_overlap),
		zone_test(bulk_is_all_or_none),
		zone_test(bulk_through_a_pcp_is_all_or_none),
	};

	return cmocka_run_group_tests_name("grant", tests, NULL, NULL);
}
