/* SPDX-License-Identifier: Apache-2.0 */
/* Page caches: hits, refills, drains of every kind, sizes, and whose pages they take. */
#include "tests/alloc/unit.h"

/* Large enough that a cache may hold some: its bound is an eighth of the owner's pages. */
static const struct hp_zone_config large_config = {
	.nr_pages = 4096,
	.nr_owners = UNIT_OWNERS,
	.id = UNIT_ZONE,
	.pageblock_order = 5,
	.max_order = 10,
};

static struct hp_pcp *pcp;

static int pcp_setup(void **state)
{
	(void)state;
	alarm(UNIT_SECONDS);
	box_init_online(&box, &large_config);
	pcp = box_pcp_new(&box, ALICE);
	return 0;
}

static int pcp_teardown(void **state)
{
	box_pcp_free(pcp);
	return unit_teardown(state);
}

#define pcp_test(f) cmocka_unit_test_setup_teardown(f, pcp_setup, pcp_teardown)

static struct hp_pcp_stats pcp_stats(void)
{
	struct hp_pcp_stats stats;
	uint32_t pages = 0;

	hp_pcp_get_stats(pcp, &stats);
	for (uint32_t order = 0; order < 4; order++)
		pages += stats.per_order[order] << order;
	pages += stats.per_order[4] << box.config.pageblock_order;
	assert_int_equal(stats.count, pages);
	assert_int_equal(owner_stats(ALICE).pcp_pages, pages);
	assert_int_equal(zone_stats().pcp, pages);
	return stats;
}

static struct hp_range cached(uint32_t pages)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = pages};
	struct hp_grant g;

	assert_int_equal(hp_zone_alloc(box.zone, pcp, &request, &g), HP_OK);
	return g.range;
}

static void uncached(struct hp_range range)
{
	assert_int_equal(hp_zone_free(box.zone, pcp, ALICE, &range), HP_OK);
}

/* Gives Alice the whole zone, so that nothing but the size bounds her cache. */
static void own_the_zone(void)
{
	struct hp_request request = {.owner = ALICE, .slot = ALICE, .pages = large_config.nr_pages};
	struct hp_grant g;

	assert_int_equal(hp_zone_alloc(box.zone, NULL, &request, &g), HP_OK);
	give_back(ALICE, g.range);
}

static void the_page_freed_last_is_granted_first(void **state)
{
	struct hp_range a, b;

	(void)state;
	own_the_zone();
	a = cached(1);
	b = cached(1);
	uncached(a);
	uncached(b);
	assert_int_equal(cached(1).pfn, b.pfn);
	assert_int_equal(cached(1).pfn, a.pfn);
}

static void hits_take_no_lock_of_the_zone(void **state)
{
	struct hp_range range;
	struct hp_pcp_stats before, after;
	uint64_t locks;

	(void)state;
	own_the_zone();
	range = cached(1);
	uncached(range);
	before = pcp_stats();
	locks = zone_stats().lock_acquisitions;
	for (unsigned i = 0; i < 1000; i++)
		uncached(cached(1));
	/* The statistics themselves may take a few. */
	assert_true(zone_stats().lock_acquisitions - locks < 8);
	after = pcp_stats();
	assert_int_equal(after.hits - before.hits, 1000);
	assert_int_equal(after.misses, before.misses);
	assert_int_equal(after.refills, before.refills);
}

static void each_cached_order_has_its_own_chunks(void **state)
{
	static const uint32_t pages[] = {1, 2, 4, 8, 32};
	struct hp_pcp_stats stats;

	(void)state;
	own_the_zone();
	for (uint32_t i = 0; i < 5; i++) {
		struct hp_range range = cached(pages[i]);

		assert_int_equal(range.pfn % pages[i], 0);
		hp_pcp_drain(pcp);
		uncached(range);
		stats = pcp_stats();
		assert_int_equal(stats.count, pages[i]);
		assert_int_equal(stats.per_order[i], 1);
		assert_int_equal(cached(pages[i]).pfn, range.pfn);
	}
}

static void sizes_that_are_not_cached_go_by(void **state)
{
	static const uint32_t pages[] = {3, 5, 7, 16, 33, 64, 1000};

	(void)state;
	own_the_zone();
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		struct hp_range range = cached(pages[i]);

		hp_pcp_drain(pcp);
		give_back(ALICE, range);
		assert_int_equal(pcp_stats().count, 0);
	}
}

static void a_full_drain_leaves_nothing(void **state)
{
	struct hp_range ranges[100];
	uint32_t count;

	(void)state;
	own_the_zone();
	for (unsigned i = 0; i < 100; i++)
		ranges[i] = cached(1 + i % 4 / 2);
	for (unsigned i = 0; i < 100; i++)
		uncached(ranges[i]);
	count = pcp_stats().count;
	assert_true(count > 0);
	assert_int_equal(hp_pcp_drain(pcp), count);
	assert_int_equal(pcp_stats().count, 0);
	assert_int_equal(hp_pcp_drain(pcp), 0);
	assert_int_equal(hp_pcp_drain_batch(pcp), 0);
	assert_int_equal(owner_stats(ALICE).free_pages, large_config.nr_pages);
	assert_int_equal(owner_stats(ALICE).free_chunks[10], 4);
}

static void a_batch_is_the_coldest_pages(void **state)
{
	struct hp_range ranges[12];
	uint32_t drained;

	(void)state;
	own_the_zone();
	for (unsigned i = 0; i < 12; i++)
		ranges[i] = cached(1);
	hp_pcp_drain(pcp);
	hp_pcp_set_sizes(pcp, 4, 400);
	for (unsigned i = 0; i < 12; i++)
		uncached(ranges[i]);
	drained = hp_pcp_drain_batch(pcp);
	assert_int_equal(drained, 4);
	assert_int_equal(pcp_stats().count, 8);
	/* What is left are the ones freed last, and in that order. */
	for (unsigned i = 12; i > 4; i--)
		assert_int_equal(cached(1).pfn, ranges[i - 1].pfn);
}

static void high_bounds_the_cache(void **state)
{
	struct hp_range ranges[200];

	(void)state;
	own_the_zone();
	for (unsigned i = 0; i < 200; i++)
		ranges[i] = cached(1);
	hp_pcp_drain(pcp);
	hp_pcp_set_sizes(pcp, 8, 32);
	for (unsigned i = 0; i < 200; i++) {
		uncached(ranges[i]);
		assert_true(pcp_stats().count <= 32);
	}
	assert_int_equal(pcp_stats().batch, 8);
	assert_int_equal(pcp_stats().high, 32);
	assert_true(pcp_stats().drains > 0);
	assert_true(zone_stats().drains > 0);
}

static void high_is_bounded_by_an_eighth_of_the_owners_pages(void **state)
{
	struct hp_range ranges[512];

	(void)state;
	hp_pcp_set_sizes(pcp, 8, 4000);
	for (unsigned i = 0; i < 512; i++)
		ranges[i] = cached(1);
	hp_pcp_drain(pcp);
	/* Sixteen blocks of 32. */
	assert_int_equal(owner_stats(ALICE).blocks, 16);
	for (unsigned i = 0; i < 512; i++) {
		uncached(ranges[i]);
		assert_true(pcp_stats().count <= 64);
	}
}

static void refills_grow_with_demand(void **state)
{
	uint64_t early, late;

	(void)state;
	own_the_zone();
	for (unsigned i = 0; i < 200; i++)
		cached(1);
	early = pcp_stats().refills;
	for (unsigned i = 0; i < 200; i++)
		cached(1);
	late = pcp_stats().refills - early;
	assert_true(early > 0);
	assert_true(late <= early);
	assert_int_equal(pcp_stats().hits + pcp_stats().misses, 400);
}

static void pages_of_another_owner_are_not_cached(void **state)
{
	struct hp_request request = {.owner = BOB, .slot = BOB, .pages = 1};
	struct hp_grant g;

	(void)state;
	own_the_zone();
	assert_int_equal(hp_zone_isolate(box.zone, 0), HP_OK);
	assert_int_equal(hp_zone_put_clean(box.zone, 0, 2), HP_OK);
	assert_int_equal(hp_zone_alloc(box.zone, NULL, &request, &g), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, pcp, BOB, &g.range), HP_OK);
	assert_int_equal(pcp_stats().count, 0);
	assert_int_equal(owner_stats(BOB).free_pages, 32);
}

static void anybody_drains_by_owner_or_all(void **state)
{
	struct hp_pcp *other = box_pcp_new(&box, BOB);
	struct hp_request request = {.owner = BOB, .slot = BOB, .pages = 1};
	struct hp_grant g;
	uint32_t mine, bobs;

	(void)state;
	uncached(cached(1));
	assert_int_equal(hp_zone_alloc(box.zone, other, &request, &g), HP_OK);
	assert_int_equal(hp_zone_free(box.zone, other, BOB, &g.range), HP_OK);
	mine = owner_stats(ALICE).pcp_pages;
	assert_true(mine > 0);
	bobs = owner_stats(BOB).pcp_pages;
	assert_true(bobs > 0);
	assert_int_equal(hp_zone_drain(box.zone, ALICE), mine);
	assert_int_equal(owner_stats(ALICE).pcp_pages, 0);
	assert_int_equal(owner_stats(BOB).pcp_pages, bobs);
	assert_int_equal(hp_zone_drain(box.zone, HP_OWNER_NONE), bobs);
	assert_int_equal(zone_stats().pcp, 0);
	box_pcp_free(other);
}

static void every_way_to_drain_gives_the_same(void **state)
{
	static const enum hp_drain_variant variants[] = {HP_DRAIN_DEFAULT, HP_DRAIN_PICK_INSIDE,
							 HP_DRAIN_PICK_OUTSIDE,
							 HP_DRAIN_PICK_OUTSIDE_PREFETCH};
	struct hp_range ranges[120];

	(void)state;
	own_the_zone();
	for (unsigned v = 0; v < 4; v++) {
		uint32_t count;

		hp_zone_set_drain_variant(box.zone, variants[v]);
		for (unsigned i = 0; i < 120; i++)
			ranges[i] = cached(1u << i % 4);
		for (unsigned i = 0; i < 120; i++)
			uncached(ranges[i]);
		count = pcp_stats().count;
		assert_true(count > 0);
		if (v % 2)
			assert_true(hp_pcp_drain_batch(pcp) > 0);
		hp_zone_drain(box.zone, ALICE);
		assert_int_equal(owner_stats(ALICE).free_chunks[10], 4);
		assert_int_equal(box_check(&box), 0);
	}
}

static void chunks_of_a_contiguous_free_enter_the_cache_whole(void **state)
{
	struct hp_range range;
	struct hp_pcp_stats stats;

	(void)state;
	own_the_zone();
	range = cached(32);
	hp_pcp_drain(pcp);
	assert_int_equal(hp_zone_split(box.zone, ALICE, &range), HP_OK);
	assert_int_equal(hp_zone_free_contig(box.zone, pcp, ALICE, range.pfn, 32), HP_OK);
	stats = pcp_stats();
	assert_int_equal(stats.per_order[4], 1);
	assert_int_equal(stats.per_order[0], 0);

	range = cached(32);
	hp_pcp_drain(pcp);
	assert_int_equal(hp_zone_split(box.zone, ALICE, &range), HP_OK);
	/* 7 pages from the second on: 1, 2, 4. */
	assert_int_equal(hp_zone_free_contig(box.zone, pcp, ALICE, range.pfn + 1, 7), HP_OK);
	stats = pcp_stats();
	assert_int_equal(stats.per_order[0], 1);
	assert_int_equal(stats.per_order[1], 1);
	assert_int_equal(stats.per_order[2], 1);
}

static void no_pcp_is_fine(void **state)
{
	(void)state;
	hp_pcp_deinit(NULL);
}

static void a_pcp_for_nobody_is_refused(void **state)
{
	void *memory = aligned_alloc(64, (hp_pcp_size(box.zone) + 63) / 64 * 64);
	struct hp_pcp *p;

	(void)state;
	assert_non_null(memory);
	assert_true(hp_pcp_init(&p, memory, box.zone, HP_OWNER_NONE) < 0);
	assert_true(hp_pcp_init(&p, memory, box.zone, UNIT_OWNERS) < 0);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		pcp_test(the_page_freed_last_is_granted_first),
		pcp_test(hits_take_no_lock_of_the_zone),
		pcp_test(each_cached_order_has_its_own_chunks),
		pcp_test(sizes_that_are_not_cached_go_by),
		pcp_test(a_full_drain_leaves_nothing),
		pcp_test(a_batch_is_the_coldest_pages),
		pcp_test(high_bounds_the_cache),
		pcp_test(high_is_bounded_by_an_eighth_of_the_owners_pages),
		pcp_test(refills_grow_with_demand),
		pcp_test(pages_of_another_owner_are_not_cached),
		pcp_test(anybody_drains_by_owner_or_all),
		pcp_test(every_way_to_drain_gives_the_same),
		pcp_test(chunks_of_a_contiguous_free_enter_the_cache_whole),
		pcp_test(no_pcp_is_fine),
		pcp_test(a_pcp_for_nobody_is_refused),
	};

	return cmocka_run_group_tests_name("pcp", tests, NULL, NULL);
}
