/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the units of alloc/ have in common: a small zone for each test, and short names for the
 * calls that are not what a test is about.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/alloc/box.h"

enum { ALICE = 1, BOB = 2, CAROL = 3, SHARE = 4, UNIT_OWNERS = 5 };

/* Holders: of an owner, a slot equal to his number and others a hundred up. */
enum { ALICE_2 = 101 };

#define UNIT_PAGES	 64u
#define UNIT_BLOCK_PAGES 8u
#define UNIT_BLOCKS	 (UNIT_PAGES / UNIT_BLOCK_PAGES)
#define UNIT_ZONE	 5u

static const struct hp_zone_config unit_config = {
	.nr_pages = UNIT_PAGES,
	.nr_owners = UNIT_OWNERS,
	.id = UNIT_ZONE,
	.pageblock_order = 3,
	.max_order = 6,
	.refcounts = true,
};

/* The zone of the test that is running. */
static struct box box;

/* A test that hangs, on a lock for one, ends here and not when everything else has been waited for. */
#define UNIT_SECONDS 30u

static inline int unit_setup(void **state)
{
	(void)state;
	alarm(UNIT_SECONDS);
	box_init_online(&box, &unit_config);
	return 0;
}

/* Every test ends with the zone looked over. */
static inline int unit_teardown(void **state)
{
	unsigned violations = box_check(&box);

	(void)state;
	box_deinit(&box);
	return violations == 0 ? 0 : -1;
}

#define zone_test(f) cmocka_unit_test_setup_teardown(f, unit_setup, unit_teardown)

static inline struct hp_grant grant_flags(uint32_t owner, uint32_t pages, uint32_t align,
					  uint32_t flags)
{
	struct hp_request request = {
		.owner = owner, .slot = owner, .pages = pages, .align = align, .flags = flags};
	struct hp_grant grant;

	assert_int_equal(hp_zone_alloc(box.zone, NULL, &request, &grant), HP_OK);
	assert_int_equal(grant.range.pages, pages);
	assert_int_equal(grant.range.zone, UNIT_ZONE);
	return grant;
}

static inline struct hp_range grant(uint32_t owner, uint32_t pages)
{
	return grant_flags(owner, pages, 0, 0).range;
}

/* A range that cannot be had. Return: the code. */
static inline int refused(uint32_t owner, uint32_t pages, uint32_t align, uint32_t flags)
{
	struct hp_request request = {
		.owner = owner, .slot = owner, .pages = pages, .align = align, .flags = flags};
	struct hp_grant grant;
	struct box_copy copy;
	int r;

	box_copy_take(&copy, &box);
	r = hp_zone_alloc(box.zone, NULL, &request, &grant);
	assert_int_not_equal(r, HP_OK);
	assert_true(box_copy_same(&copy, &box));
	box_copy_drop(&copy);
	return r;
}

static inline void give_back(uint32_t slot, struct hp_range range)
{
	assert_int_equal(hp_zone_free(box.zone, NULL, slot, &range), HP_OK);
}

static inline struct hp_zone_stats zone_stats(void)
{
	struct hp_zone_stats s;

	hp_zone_stats(box.zone, &s);
	assert_int_equal(s.nr_pages, s.clean + s.free + s.pcp + s.draining + s.leased + s.revoked +
					     s.isolated + s.quarantined + s.lent + s.offline +
					     s.bad);
	return s;
}

static inline struct hp_owner_stats owner_stats(uint32_t owner)
{
	struct hp_owner_stats stats;

	hp_zone_owner_stats(box.zone, owner, &stats);
	return stats;
}

static inline struct hp_account_stats account_stats(uint32_t account)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(box.zone, account, &stats);
	return stats;
}

static inline uint32_t block_of(hp_pfn_t pfn)
{
	return pfn / UNIT_BLOCK_PAGES;
}

static inline void assert_block(uint32_t block, enum hp_block_state state, uint32_t owner)
{
	assert_int_equal(box_block(&box, block).state, state);
	assert_int_equal(box_block(&box, block).owner, owner);
}

static inline void assert_lease(hp_pfn_t pfn, enum hp_lease_state state, uint32_t slot,
				uint32_t pages)
{
	struct hp_lease_word word = box_lease(&box, pfn);

	assert_int_equal(word.state, state);
	assert_int_equal(word.slot, slot);
	assert_int_equal(word.pages, pages);
}

static inline void assert_free_page(hp_pfn_t pfn)
{
	assert_lease(pfn, HP_LEASE_FREE, HP_SLOT_NONE, 0);
}
