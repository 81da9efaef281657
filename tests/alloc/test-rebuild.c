/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding from durable words that a test wrote by hand: what a kill can leave behind, what no
 * kill can leave behind, and the readings of the protocol that look right and are not.
 */
#include "tests/alloc/unit.h"

#include <stdio.h>

static unsigned reports;
static uint32_t not_whole = UINT32_MAX; /* a block that lost its file */

/* Slots up to 100 have the owner of their number, ALICE_2 is Alice's, all others are not in use. */
static uint32_t owner_of_slot(void *userdata, uint32_t slot)
{
	(void)userdata;
	if (slot == ALICE_2)
		return ALICE;
	return slot < UNIT_OWNERS ? slot : HP_OWNER_NONE;
}

static bool block_whole(void *userdata, uint32_t block, struct hp_block_word word)
{
	(void)userdata;
	assert_int_equal(hp_block_encode(word), hp_durable_load(&box.blocks[block]));
	return block != not_whole;
}

static void report(void *userdata, const char *message)
{
	(void)userdata;
	assert_non_null(message);
	reports++;
}

static const struct hp_rebuild_ops ops = {
	.owner_of_slot = owner_of_slot,
	.block_whole = block_whole,
	.report = report,
};

/* All blocks live and Alice's, all pages free. */
static int rebuild_setup(void **state)
{
	(void)state;
	alarm(UNIT_SECONDS);
	reports = 0;
	not_whole = UINT32_MAX;
	box_init_bare(&box, &unit_config);
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		box.blocks[b] = hp_block_encode((struct hp_block_word){
			.generation = 1, .owner = ALICE, .state = HP_BLOCK_LIVE});
	return 0;
}

#define rebuild_test(f) cmocka_unit_test_setup_teardown(f, rebuild_setup, unit_teardown)

static void put_block(uint32_t block, enum hp_block_state state, uint32_t owner)
{
	box.blocks[block] = hp_block_encode(
		(struct hp_block_word){.generation = 1, .owner = owner, .state = state});
}

static void put_lease(hp_pfn_t pfn, uint32_t pages, uint32_t slot, enum hp_lease_state state)
{
	box.leases[pfn] = hp_lease_encode((struct hp_lease_word){
		.generation = 7, .slot = slot, .pages = pages, .state = state});
}

/* Rebuilds, looks the zone over, and shows that a second rebuild changes nothing. */
static struct hp_rebuild_stats rebuild(void)
{
	struct hp_rebuild_stats stats, again;
	struct box_copy copy;

	assert_int_equal(box_rebuild(&box, &ops, &stats), 0);
	assert_int_equal(box_check(&box), 0);
	box_copy_take(&copy, &box);
	hp_zone_deinit(box.zone);
	assert_int_equal(box_rebuild(&box, &ops, &again), 0);
	assert_memory_equal(copy.durable, box.durable, box.durable_bytes);
	assert_int_equal(again.leases, stats.leases);
	assert_int_equal(again.wiped_words, 0);
	assert_int_equal(again.isolated_blocks, 0);
	box_copy_drop(&copy);
	return stats;
}

/* --- what a kill leaves ------------------------------------------------------------------------*/

static void leases_come_back_as_they_were(void **state)
{
	struct hp_rebuild_stats stats;
	struct hp_range range = {.pfn = 3, .pages = 20, .generation = 7, .zone = UNIT_ZONE};

	(void)state;
	put_lease(3, 20, ALICE, HP_LEASE_LEASED);
	put_lease(23, 1, ALICE_2, HP_LEASE_LEASED);
	put_lease(60, 4, ALICE, HP_LEASE_REVOKED);
	stats = rebuild();
	assert_int_equal(stats.leases, 2);
	assert_int_equal(stats.revoked, 1);
	assert_int_equal(stats.wiped_words, 0);
	assert_int_equal(stats.quarantined_blocks, 0);
	assert_int_equal(zone_stats().leased, 21);
	assert_int_equal(zone_stats().revoked, 4);
	assert_int_equal(hp_zone_lookup(box.zone, ALICE, &range), HP_OK);
	give_back(ALICE, range);
	assert_int_equal(account_stats(ALICE).held_blocks, UNIT_BLOCKS);
	assert_int_equal(reports, 0);
}

/* free_part, killed before the head was stored: the words of the parts are inside the lease. */
static void words_inside_a_lease_are_wiped(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	put_lease(0, 30, ALICE, HP_LEASE_LEASED);
	put_lease(10, 5, ALICE, HP_LEASE_LEASED);
	put_lease(20, 10, ALICE, HP_LEASE_LEASED);
	stats = rebuild();
	assert_int_equal(stats.leases, 1);
	assert_int_equal(stats.wiped_words, 2);
	assert_lease(0, HP_LEASE_LEASED, ALICE, 30);
	assert_free_page(10);
	assert_free_page(20);
	assert_int_equal(zone_stats().leased, 30);
}

/*
 * Wiping has to be complete before anything is freed or cut: here the outer lease is cut by an
 * isolated block, and what lies inside must not come to life in the part that is given up.
 */
static void wiping_comes_before_cutting(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	put_block(1, HP_BLOCK_ISOLATED, ALICE);
	put_lease(0, 24, ALICE, HP_LEASE_LEASED);
	put_lease(9, 2, ALICE, HP_LEASE_LEASED);
	put_lease(18, 6, ALICE, HP_LEASE_LEASED);
	stats = rebuild();
	assert_int_equal(stats.leases, 0);
	assert_int_equal(stats.revoked, 1);
	assert_int_equal(stats.wiped_words, 2);
	assert_lease(0, HP_LEASE_REVOKED, ALICE, 8);
	assert_lease(16, HP_LEASE_REVOKED, ALICE, 8);
	assert_free_page(18);
	for (hp_pfn_t pfn = 8; pfn < 16; pfn++)
		assert_free_page(pfn);
}

/* A revocation, killed after the block word: the head is in the block, the rest is not. */
static void the_rest_of_a_lease_with_its_head_in_a_revoked_block_stays(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	put_block(1, HP_BLOCK_ISOLATED, ALICE);
	put_lease(10, 20, ALICE, HP_LEASE_LEASED);
	stats = rebuild();
	assert_int_equal(stats.revoked, 1);
	assert_free_page(10);
	assert_lease(16, HP_LEASE_REVOKED, ALICE, 14);
	assert_int_equal(box_lease(&box, 16).generation, 7);
	assert_block(1, HP_BLOCK_ISOLATED, ALICE);
	assert_int_equal(zone_stats().revoked, 14);
}

/* The same, killed when the part behind had its word and the head had not been stored yet. */
static void a_half_done_revocation_is_finished(void **state)
{
	(void)state;
	put_block(1, HP_BLOCK_QUARANTINED, ALICE);
	put_lease(4, 20, ALICE, HP_LEASE_LEASED);
	put_lease(16, 8, ALICE, HP_LEASE_REVOKED);
	rebuild();
	assert_lease(4, HP_LEASE_REVOKED, ALICE, 4);
	assert_lease(16, HP_LEASE_REVOKED, ALICE, 8);
	assert_block(1, HP_BLOCK_QUARANTINED, ALICE);
}

static void coverage_makes_a_block_used_not_heads(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	/* The head in block 0, the middle over block 1, the tail in block 2. */
	put_lease(7, 10, ALICE, HP_LEASE_LEASED);
	stats = rebuild();
	assert_int_equal(stats.isolated_blocks, UNIT_BLOCKS - 3);
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		assert_block(b, b < 3 ? HP_BLOCK_LIVE : HP_BLOCK_ISOLATED, ALICE);
	assert_int_equal(zone_stats().isolated, (UNIT_BLOCKS - 3) * UNIT_BLOCK_PAGES);
	assert_int_equal(zone_stats().free, 3 * UNIT_BLOCK_PAGES - 10);
}

static void a_claim_without_a_lease_is_undone_by_recycling(void **state)
{
	(void)state;
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		put_block(b, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	put_block(4, HP_BLOCK_LIVE, BOB);
	assert_int_equal(rebuild().isolated_blocks, 1);
	assert_block(4, HP_BLOCK_ISOLATED, BOB);
	assert_int_equal(account_stats(BOB).held_blocks, 1);
	assert_int_equal(hp_zone_put_clean(box.zone, 4, 2), HP_OK);
	assert_int_equal(grant(ALICE, UNIT_PAGES).pfn, 0);
}

static void failing_blocks_keep_their_leases_or_go(void **state)
{
	(void)state;
	put_block(0, HP_BLOCK_FAILING, ALICE);
	put_block(1, HP_BLOCK_FAILING, ALICE);
	put_lease(2, 3, ALICE, HP_LEASE_LEASED);
	rebuild();
	assert_block(0, HP_BLOCK_FAILING, ALICE);
	assert_block(1, HP_BLOCK_OFFLINE, HP_OWNER_NONE);
	assert_lease(2, HP_LEASE_LEASED, ALICE, 3);
	assert_int_equal(refused(ALICE, 1, 0, 0), HP_NO_ROOM);
}

static void every_block_state_comes_back(void **state)
{
	struct hp_zone_stats stats;

	(void)state;
	put_block(0, HP_BLOCK_OFFLINE, HP_OWNER_NONE);
	put_block(1, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	put_block(2, HP_BLOCK_LENT, BOB);
	put_block(3, HP_BLOCK_ISOLATED, ALICE);
	put_block(4, HP_BLOCK_QUARANTINED, CAROL);
	put_block(5, HP_BLOCK_LIVE, ALICE);
	put_lease(40, 1, ALICE, HP_LEASE_LEASED);
	put_block(6, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	put_block(7, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	rebuild();
	stats = zone_stats();
	assert_int_equal(stats.offline, 8);
	assert_int_equal(stats.clean, 24);
	assert_int_equal(stats.lent, 8);
	assert_int_equal(stats.isolated, 8);
	assert_int_equal(stats.quarantined, 8);
	assert_int_equal(stats.leased, 1);
	assert_int_equal(stats.free, 7);
	assert_int_equal(account_stats(ALICE).held_blocks, 2);
	assert_int_equal(account_stats(BOB).held_blocks, 1);
	assert_int_equal(account_stats(CAROL).held_blocks, 1);
	/* Clean is zero, a live block is not known to be. */
	assert_true(grant_flags(BOB, 16, 0, 0).zeroed);
	assert_false(grant_flags(ALICE, 1, 0, HP_ALLOC_NO_CLAIM).zeroed);
}

/* References are made again from the attachments, one for each. */
static void references_are_counted_anew(void **state)
{
	struct hp_range range = {.pfn = 0, .pages = 6, .generation = 7, .zone = UNIT_ZONE};

	(void)state;
	put_block(0, HP_BLOCK_LIVE, SHARE);
	put_lease(0, 6, SHARE, HP_LEASE_LEASED);
	rebuild();
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(hp_zone_share_get(box.zone, SHARE, &range), HP_OK);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, 0, 6), HP_OK);
	assert_int_equal(zone_stats().leased, 6);
	assert_int_equal(hp_zone_free_contig(box.zone, NULL, SHARE, 0, 6), HP_OK);
	assert_int_equal(zone_stats().leased, 0);
}

/* --- what does not fit -------------------------------------------------------------------------*/

static void a_slot_that_is_not_in_use_quarantines_its_blocks(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	put_lease(6, 4, 77, HP_LEASE_LEASED);
	put_lease(30, 1, ALICE, HP_LEASE_LEASED);
	stats = rebuild();
	assert_int_equal(stats.quarantined_blocks, 2);
	assert_block(0, HP_BLOCK_QUARANTINED, ALICE);
	assert_block(1, HP_BLOCK_QUARANTINED, ALICE);
	assert_block(3, HP_BLOCK_LIVE, ALICE);
	assert_free_page(6);
	assert_true(reports > 0);
	assert_int_equal(zone_stats().quarantined, 16);
}

static void a_lease_in_somebody_elses_block_quarantines_it(void **state)
{
	(void)state;
	put_lease(6, 4, ALICE, HP_LEASE_LEASED);
	put_block(1, HP_BLOCK_LIVE, BOB);
	put_lease(13, 1, BOB, HP_LEASE_LEASED);
	assert_true(rebuild().quarantined_blocks >= 1);
	assert_block(1, HP_BLOCK_QUARANTINED, BOB);
	assert_true(reports > 0);
	for (hp_pfn_t pfn = 8; pfn < 16; pfn++)
		assert_free_page(pfn);
}

static void a_block_that_lost_its_file_is_quarantined(void **state)
{
	struct hp_rebuild_stats stats;

	(void)state;
	put_lease(6, 12, ALICE, HP_LEASE_LEASED);
	not_whole = 1;
	stats = rebuild();
	assert_int_equal(stats.quarantined_blocks, 1);
	assert_block(1, HP_BLOCK_QUARANTINED, ALICE);
	assert_lease(6, HP_LEASE_REVOKED, ALICE, 2);
	assert_lease(16, HP_LEASE_REVOKED, ALICE, 2);
}

static void a_clean_block_that_lost_its_file_is_quarantined(void **state)
{
	(void)state;
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		put_block(b, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	not_whole = 5;
	assert_int_equal(rebuild().quarantined_blocks, 1);
	assert_int_equal(box_block(&box, 5).state, HP_BLOCK_QUARANTINED);
	assert_int_equal(zone_stats().clean, UNIT_PAGES - UNIT_BLOCK_PAGES);
}

static void lengths_that_cannot_be_do_no_harm(void **state)
{
	(void)state;
	put_lease(5, 0, ALICE, HP_LEASE_LEASED);
	put_lease(40, UNIT_PAGES, ALICE, HP_LEASE_LEASED);
	put_lease(63, 2, ALICE, HP_LEASE_LEASED);
	put_lease(20, 1, ALICE, (enum hp_lease_state)3);
	rebuild();
	assert_true(reports > 0);
	/* Whatever it made of it: no page of a block still in use is in two hands. */
	assert_int_equal(zone_stats().nr_pages, UNIT_PAGES);
}

static void block_words_that_cannot_be_do_no_harm(void **state)
{
	(void)state;
	box.blocks[0] = UINT64_MAX;
	box.blocks[1] =
		hp_block_encode((struct hp_block_word){.owner = 999, .state = HP_BLOCK_LIVE});
	box.blocks[2] = hp_block_encode((struct hp_block_word){.state = HP_BLOCK_LIVE});
	box.blocks[3] =
		hp_block_encode((struct hp_block_word){.owner = BOB, .state = HP_BLOCK_CLEAN});
	put_lease(10, 1, ALICE, HP_LEASE_LEASED);
	put_lease(17, 1, ALICE, HP_LEASE_LEASED);
	put_lease(26, 1, BOB, HP_LEASE_LEASED);
	rebuild();
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++)
		assert_true(box_block(&box, b).state < HP_BLOCK_STATES);
	for (hp_pfn_t pfn = 0; pfn < 32; pfn++)
		assert_free_page(pfn);
}

static void a_lease_in_a_clean_block_is_never_granted_over(void **state)
{
	(void)state;
	put_block(2, HP_BLOCK_CLEAN, HP_OWNER_NONE);
	put_lease(17, 3, ALICE, HP_LEASE_LEASED);
	rebuild();
	/* Either the lease is gone and the block recycled before use, or nothing is granted in it. */
	assert_int_not_equal(box_block(&box, 2).state, HP_BLOCK_CLEAN);
	assert_int_equal(zone_stats().clean, 0);
}

/* --- generations -------------------------------------------------------------------------------*/

static void the_generation_of_a_lease_wraps(void **state)
{
	struct hp_grant g;

	(void)state;
	for (hp_pfn_t pfn = 0; pfn < 8; pfn++)
		box.leases[pfn] =
			hp_lease_encode((struct hp_lease_word){.generation = HP_GENERATION_MAX});
	put_lease(7, 1, ALICE, HP_LEASE_LEASED);
	rebuild();
	g = grant_flags(ALICE, 4, 0, HP_ALLOC_NO_CLAIM);
	assert_int_equal(g.range.generation, 0);
	give_back(ALICE, g.range);
}

/* --- a rebuilt zone works ----------------------------------------------------------------------*/

static void all_of_a_rebuilt_zone_can_be_used(void **state)
{
	struct hp_range range = {.pfn = 3, .pages = 20, .generation = 7, .zone = UNIT_ZONE};

	(void)state;
	put_lease(3, 20, ALICE, HP_LEASE_LEASED);
	rebuild();
	give_back(ALICE, range);
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++) {
		if (box_block(&box, b).state == HP_BLOCK_LIVE)
			assert_int_equal(hp_zone_isolate(box.zone, b), HP_OK);
		assert_int_equal(hp_zone_put_clean(box.zone, b, 2), HP_OK);
	}
	range = grant(BOB, UNIT_PAGES);
	assert_int_equal(range.pfn, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rebuild_test(leases_come_back_as_they_were),
		rebuild_test(words_inside_a_lease_are_wiped),
		rebuild_test(wiping_comes_before_cutting),
		rebuild_test(the_rest_of_a_lease_with_its_head_in_a_revoked_block_stays),
		rebuild_test(a_half_done_revocation_is_finished),
		rebuild_test(coverage_makes_a_block_used_not_heads),
		rebuild_test(a_claim_without_a_lease_is_undone_by_recycling),
		rebuild_test(failing_blocks_keep_their_leases_or_go),
		rebuild_test(every_block_state_comes_back),
		rebuild_test(references_are_counted_anew),
		rebuild_test(a_slot_that_is_not_in_use_quarantines_its_blocks),
		rebuild_test(a_lease_in_somebody_elses_block_quarantines_it),
		rebuild_test(a_block_that_lost_its_file_is_quarantined),
		rebuild_test(a_clean_block_that_lost_its_file_is_quarantined),
		rebuild_test(lengths_that_cannot_be_do_no_harm),
		rebuild_test(block_words_that_cannot_be_do_no_harm),
		rebuild_test(a_lease_in_a_clean_block_is_never_granted_over),
		rebuild_test(the_generation_of_a_lease_wraps),
		rebuild_test(all_of_a_rebuilt_zone_can_be_used),
	};

	return cmocka_run_group_tests_name("rebuild", tests, NULL, NULL);
}
