/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts: a limit is never exceeded, a guarantee is always obtainable. */
#include "tests/alloc/unit.h"

#include <errno.h>

static int quota(uint32_t account, uint32_t limit, uint32_t guarantee)
{
	return hp_zone_account_set_quota(box.zone, account, limit, guarantee);
}

static void new_accounts_have_no_limit(void **state)
{
	struct hp_account_stats stats = account_stats(ALICE);

	(void)state;
	assert_int_equal(stats.held_blocks, 0);
	assert_int_equal(stats.limit_blocks, HP_UNLIMITED);
	assert_int_equal(stats.guarantee_blocks, 0);
	assert_int_equal(stats.claimable_blocks, UNIT_BLOCKS);
}

static void a_limit_is_never_exceeded(void **state)
{
	(void)state;
	assert_int_equal(quota(ALICE, 2, 0), HP_OK);
	for (uint32_t i = 0; i < 2 * UNIT_BLOCK_PAGES; i++)
		grant(ALICE, 1);
	assert_int_equal(account_stats(ALICE).held_blocks, 2);
	assert_int_equal(account_stats(ALICE).claimable_blocks, 0);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_OVER_LIMIT);
	assert_int_equal(owner_stats(ALICE).leasable_pages, 0);
	/* Others are not concerned. */
	grant(BOB, 3 * UNIT_BLOCK_PAGES);
}

static void a_request_beyond_the_limit_claims_nothing(void **state)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = UNIT_BLOCK_PAGES};
	struct hp_grant grants[4];
	struct box_copy copy;

	(void)state;
	assert_int_equal(quota(ALICE, 2, 0), HP_OK);
	assert_int_equal(refused(ALICE, 2 * UNIT_BLOCK_PAGES + 1, 0, 0), HP_OVER_LIMIT);
	assert_int_equal(owner_stats(ALICE).largest_pages, 2 * UNIT_BLOCK_PAGES);
	assert_int_equal(owner_stats(ALICE).leasable_pages, 2 * UNIT_BLOCK_PAGES);
	box_copy_take(&copy, &box);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, 3), HP_OVER_LIMIT);
	assert_memory_equal(copy.durable, box.durable, box.durable_bytes);
	box_copy_drop(&copy);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, 2), HP_OK);
}

static void a_limit_lowered_takes_nothing_away(void **state)
{
	struct hp_range range = grant(ALICE, 3 * UNIT_BLOCK_PAGES);

	(void)state;
	assert_int_equal(quota(ALICE, 1, 0), HP_OK);
	assert_int_equal(account_stats(ALICE).held_blocks, 3);
	assert_int_equal(account_stats(ALICE).claimable_blocks, 0);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_OVER_LIMIT);
	give_back(ALICE, range);
	/* His own blocks he may use still. */
	grant(ALICE, 2 * UNIT_BLOCK_PAGES);
}

static void every_state_that_holds_memory_is_charged(void **state)
{
	struct hp_range range = grant(ALICE, 5 * UNIT_BLOCK_PAGES);
	uint32_t first = block_of(range.pfn), lent;

	(void)state;
	give_back(ALICE, range);
	assert_int_equal(hp_zone_isolate(box.zone, first), HP_OK);
	assert_int_equal(hp_zone_isolate(box.zone, first + 1), HP_OK);
	assert_int_equal(hp_zone_quarantine(box.zone, first + 1), HP_OK);
	assert_int_equal(hp_zone_fail(box.zone, first + 2), HP_OK);
	assert_int_equal(hp_zone_lend(box.zone, ALICE, &lent), HP_OK);
	assert_int_equal(account_stats(ALICE).held_blocks, 6);
	assert_int_equal(hp_zone_put_clean(box.zone, first, 2), HP_OK);
	assert_int_equal(hp_zone_offline(box.zone, first + 1), HP_OK);
	assert_int_equal(hp_zone_offline(box.zone, first + 2), HP_OK);
	assert_int_equal(account_stats(ALICE).held_blocks, 3);
}

static void a_guarantee_cannot_be_taken_by_others(void **state)
{
	(void)state;
	assert_int_equal(quota(BOB, HP_UNLIMITED, 3), HP_OK);
	assert_int_equal(zone_stats().unmet_guarantee_blocks, 3);
	assert_int_equal(account_stats(ALICE).claimable_blocks, UNIT_BLOCKS - 3);
	assert_int_equal(account_stats(BOB).claimable_blocks, UNIT_BLOCKS);
	assert_int_equal(refused(ALICE, (UNIT_BLOCKS - 3) * UNIT_BLOCK_PAGES + 1, 0, 0),
			 HP_NO_ROOM);
	for (uint32_t i = 0; i < (UNIT_BLOCKS - 3) * UNIT_BLOCK_PAGES; i++)
		grant(ALICE, 1);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	assert_int_equal(refused(CAROL, 1, 0, 0), HP_NO_ROOM);
	for (uint32_t i = 0; i < 3 * UNIT_BLOCK_PAGES; i++)
		grant(BOB, 1);
	assert_int_equal(zone_stats().unmet_guarantee_blocks, 0);
	assert_int_equal(refused(BOB, 1, 0, 0), HP_NO_ROOM);
}

static void a_guarantee_that_is_used_sets_the_rest_free(void **state)
{
	(void)state;
	assert_int_equal(quota(BOB, HP_UNLIMITED, 3), HP_OK);
	grant(BOB, 2 * UNIT_BLOCK_PAGES);
	assert_int_equal(zone_stats().unmet_guarantee_blocks, 1);
	assert_int_equal(account_stats(ALICE).claimable_blocks, UNIT_BLOCKS - 3);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 0), HP_OK);
	assert_int_equal(account_stats(ALICE).claimable_blocks, UNIT_BLOCKS - 2);
}

static void guarantees_hold_against_bulk_and_lending(void **state)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = UNIT_BLOCK_PAGES};
	struct hp_grant grants[UNIT_BLOCKS];
	uint32_t block;

	(void)state;
	assert_int_equal(quota(BOB, HP_UNLIMITED, 2), HP_OK);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, UNIT_BLOCKS - 1),
			 HP_NO_ROOM);
	assert_int_equal(hp_zone_alloc_bulk(box.zone, NULL, &request, grants, UNIT_BLOCKS - 2),
			 HP_OK);
	assert_int_equal(hp_zone_lend(box.zone, ALICE, &block), HP_NO_ROOM);
	assert_int_equal(hp_zone_lend(box.zone, BOB, &block), HP_OK);
}

static void two_guarantees_leave_each_other_their_share(void **state)
{
	(void)state;
	assert_int_equal(quota(ALICE, HP_UNLIMITED, 4), HP_OK);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 4), HP_OK);
	assert_int_equal(quota(CAROL, HP_UNLIMITED, 1), HP_BUSY);
	assert_int_equal(account_stats(CAROL).guarantee_blocks, 0);
	assert_int_equal(account_stats(CAROL).claimable_blocks, 0);
	assert_int_equal(account_stats(ALICE).claimable_blocks, 4);
	grant(ALICE, 4 * UNIT_BLOCK_PAGES);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
	grant(BOB, 4 * UNIT_BLOCK_PAGES);
}

static void quotas_that_cannot_be_are_refused(void **state)
{
	(void)state;
	assert_int_equal(quota(ALICE, 1, 2), -EINVAL);
	assert_int_equal(quota(ALICE, HP_UNLIMITED, UNIT_BLOCKS + 1), HP_BUSY);
	assert_int_equal(quota(ALICE, HP_UNLIMITED, UNIT_BLOCKS), HP_OK);
	assert_int_equal(quota(ALICE, UNIT_BLOCKS, UNIT_BLOCKS), HP_OK);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 1), HP_BUSY);
}

static void several_owners_are_charged_to_one_account(void **state)
{
	(void)state;
	hp_zone_owner_set_account(box.zone, SHARE, ALICE);
	assert_int_equal(quota(ALICE, 2, 0), HP_OK);
	grant(ALICE, 1);
	grant_flags(SHARE, 1, 0, HP_ALLOC_SHARED);
	assert_int_equal(account_stats(ALICE).held_blocks, 2);
	assert_int_equal(account_stats(SHARE).held_blocks, 0);
	assert_int_equal(hp_zone_owner_account(box.zone, SHARE), ALICE);
	assert_int_equal(hp_zone_owner_blocks(box.zone, SHARE), 1);
	assert_int_equal(hp_zone_owner_blocks(box.zone, ALICE), 1);
	assert_int_equal(refused(SHARE, UNIT_BLOCK_PAGES, 0, HP_ALLOC_SHARED), HP_OVER_LIMIT);
	assert_int_equal(refused(ALICE, UNIT_BLOCK_PAGES, 0, 0), HP_OVER_LIMIT);
	/* What an owner holds goes with him. */
	hp_zone_owner_set_account(box.zone, SHARE, BOB);
	assert_int_equal(account_stats(ALICE).held_blocks, 1);
	assert_int_equal(account_stats(BOB).held_blocks, 1);
}

static void caches_claim_nothing_ahead_of_need(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant g;

	(void)state;
	for (uint32_t i = 1; i <= UNIT_PAGES; i++) {
		assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &g), HP_OK);
		assert_int_equal(account_stats(ALICE).held_blocks,
				 (i + UNIT_BLOCK_PAGES - 1) / UNIT_BLOCK_PAGES);
	}
	box_pcp_free(pcp);
}

static void a_cache_cannot_pass_the_limit(void **state)
{
	struct hp_pcp *pcp = box_pcp_new(&box, ALICE);
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = 1};
	struct hp_grant g;

	(void)state;
	assert_int_equal(quota(ALICE, 1, 0), HP_OK);
	for (uint32_t i = 0; i < UNIT_BLOCK_PAGES; i++)
		assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &g), HP_OK);
	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &g), HP_OVER_LIMIT);
	assert_int_equal(account_stats(ALICE).held_blocks, 1);
	box_pcp_free(pcp);
}

/* The size that guarantees are held against may be less than what there is room for. */
static void guarantees_fit_into_the_size(void **state)
{
	uint32_t guaranteed;

	(void)state;
	assert_int_equal(quota(ALICE, HP_UNLIMITED, 3), HP_OK);
	assert_int_equal(hp_zone_set_size(box.zone, UNIT_BLOCKS + 1, &guaranteed), HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_set_size(box.zone, 2, &guaranteed), HP_BUSY);
	assert_int_equal(guaranteed, 3);
	assert_int_equal(hp_zone_set_size(box.zone, 4, &guaranteed), HP_OK);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 2), HP_BUSY);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 1), HP_OK);
	assert_int_equal(hp_zone_set_size(box.zone, UNIT_BLOCKS, &guaranteed), HP_OK);
	assert_int_equal(guaranteed, 4);
	assert_int_equal(quota(BOB, HP_UNLIMITED, 2), HP_OK);
}

/* What is needed is not given up: not what guarantees lack, not what is to stay clean. */
static void only_spare_blocks_are_given_up(void **state)
{
	uint32_t last = UNIT_BLOCKS - 1, n = 0;

	(void)state;
	grant(BOB, 1);
	assert_int_equal(quota(ALICE, HP_UNLIMITED, 2), HP_OK);
	assert_int_equal(hp_zone_give_up(box.zone, UNIT_BLOCKS, 0), HP_OUT_OF_RANGE);
	assert_int_equal(hp_zone_give_up(box.zone, 0, 0), HP_BUSY); /* live */
	while (hp_zone_give_up(box.zone, last - n, 0) == HP_OK)
		n++;
	assert_int_equal(n, UNIT_BLOCKS - 1 - 2);
	assert_int_equal(quota(ALICE, HP_UNLIMITED, 0), HP_OK);
	assert_int_equal(hp_zone_give_up(box.zone, last - n, 2), HP_BUSY);
	assert_int_equal(hp_zone_give_up(box.zone, last - n, 1), HP_OK);
	assert_int_equal(hp_zone_give_up(box.zone, last - n, 0), HP_BUSY); /* it is offline */
	assert_int_equal(hp_zone_online(box.zone, last, 5), HP_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		zone_test(new_accounts_have_no_limit),
		zone_test(a_limit_is_never_exceeded),
		zone_test(a_request_beyond_the_limit_claims_nothing),
		zone_test(a_limit_lowered_takes_nothing_away),
		zone_test(every_state_that_holds_memory_is_charged),
		zone_test(a_guarantee_cannot_be_taken_by_others),
		zone_test(a_guarantee_that_is_used_sets_the_rest_free),
		zone_test(guarantees_hold_against_bulk_and_lending),
		zone_test(two_guarantees_leave_each_other_their_share),
		zone_test(quotas_that_cannot_be_are_refused),
		zone_test(several_owners_are_charged_to_one_account),
		zone_test(caches_claim_nothing_ahead_of_need),
		zone_test(a_cache_cannot_pass_the_limit),
		zone_test(guarantees_fit_into_the_size),
		zone_test(only_spare_blocks_are_given_up),
	};

	return cmocka_run_group_tests_name("quota", tests, NULL, NULL);
}
