/* SPDX-License-Identifier: Apache-2.0 */
/* The words, and how much memory a zone asks for. */
#include "tests/alloc/unit.h"

#include <errno.h>

static void lease_words_keep_every_field(void **state)
{
	struct hp_lease_word word = {.generation = HP_GENERATION_MAX,
				     .slot = HP_SLOT_MAX,
				     .pages = HP_RANGE_MAX_PAGES,
				     .state = HP_LEASE_REVOKED};
	struct hp_lease_word back = hp_lease_decode(hp_lease_encode(word));

	(void)state;
	assert_int_equal(back.generation, word.generation);
	assert_int_equal(back.slot, word.slot);
	assert_int_equal(back.pages, word.pages);
	assert_int_equal(back.state, word.state);
	assert_int_equal(hp_lease_encode((struct hp_lease_word){.generation = 1}), UINT64_C(1)
											   << 40);
	assert_int_equal(hp_lease_encode((struct hp_lease_word){.slot = 1}), UINT64_C(1) << 22);
	assert_int_equal(hp_lease_encode((struct hp_lease_word){.pages = 1}), UINT64_C(1) << 2);
	assert_int_equal(hp_lease_encode((struct hp_lease_word){0}), 0);
}

static void block_words_keep_every_field(void **state)
{
	struct hp_block_word word = {.generation = HP_BLOCK_GENERATION_MAX,
				     .owner = HP_OWNER_MAX,
				     .state = HP_BLOCK_LENT};
	struct hp_block_word back = hp_block_decode(hp_block_encode(word));

	(void)state;
	assert_int_equal(back.generation, word.generation);
	assert_int_equal(back.owner, word.owner);
	assert_int_equal(back.state, word.state);
	assert_int_equal(hp_block_encode((struct hp_block_word){.generation = 1}), UINT64_C(1)
											   << 24);
	assert_int_equal(hp_block_encode((struct hp_block_word){.owner = 1}), UINT64_C(1) << 8);
}

static int sizes(struct hp_zone_config config)
{
	size_t durable = 0, scratch = 0;

	return hp_zone_sizes(&config, &durable, &scratch);
}

static void impossible_configurations_are_refused(void **state)
{
	struct hp_zone_config config = unit_config;

	(void)state;
	assert_int_equal(sizes(config), 0);
	config.nr_pages = 0;
	assert_int_equal(sizes(config), -EINVAL);
	config.nr_pages = HP_ZONE_MAX_PAGES + 1;
	assert_int_equal(sizes(config), -EINVAL);
	config = unit_config;
	config.nr_owners = 0;
	assert_int_equal(sizes(config), -EINVAL);
	config.nr_owners = HP_OWNER_MAX + 2;
	assert_int_equal(sizes(config), -EINVAL);
	config = unit_config;
	config.max_order = (uint8_t)(config.pageblock_order - 1);
	assert_int_equal(sizes(config), -EINVAL);
	config.max_order = HP_MAX_ORDER + 1;
	assert_int_equal(sizes(config), -EINVAL);
	config.pageblock_order = HP_MAX_ORDER + 1;
	assert_int_equal(sizes(config), -EINVAL);
}

static void impossible_zones_are_not_made(void **state)
{
	static const struct hp_rebuild_ops ops = {0};
	struct hp_zone_config config = unit_config;
	struct hp_rebuild_stats stats;
	struct hp_zone *zone = malloc(hp_zone_struct_size());

	(void)state;
	assert_non_null(zone);
	config.nr_pages = 0;
	assert_int_equal(hp_zone_init(zone, &config, box.durable, box.scratch), -EINVAL);
	assert_int_equal(hp_zone_rebuild(zone, &config, box.durable, box.scratch, &ops, &stats),
			 -EINVAL);
	free(zone);
}

static void a_page_costs_at_most_sixteen_bytes(void **state)
{
	static const uint32_t pages[] = {1u << 12, 1u << 16, 524288, 1u << 20, HP_ZONE_MAX_PAGES};

	(void)state;
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		for (uint8_t order = 3; order <= 10; order++) {
			struct hp_zone_config config = {.nr_pages = pages[i],
							.nr_owners = 8,
							.pageblock_order = order,
							.max_order = 10,
							.refcounts = true};
			size_t durable, scratch;

			assert_int_equal(hp_zone_sizes(&config, &durable, &scratch), 0);
			assert_int_equal(durable % 64, 0);
			assert_int_equal(scratch % 64, 0);
			assert_true(durable >= (size_t)pages[i] * sizeof(uint64_t));
			if (durable + scratch > (size_t)pages[i] * 16)
				fail_msg("%u pages, block order %u: %zu + %zu bytes", pages[i],
					 order, durable, scratch);
		}
	}
}

static void a_new_zone_is_offline(void **state)
{
	struct box bare;
	struct hp_zone_stats stats;
	struct hp_block_info info;

	(void)state;
	box_init(&bare, &unit_config);
	hp_zone_stats(bare.zone, &stats);
	assert_int_equal(stats.nr_pages, UNIT_PAGES);
	assert_int_equal(stats.offline, UNIT_PAGES);
	assert_int_equal(stats.nr_blocks, UNIT_BLOCKS);
	assert_int_equal(stats.clean_blocks, 0);
	for (uint32_t b = 0; b < UNIT_BLOCKS; b++) {
		assert_int_equal(hp_zone_block_info(bare.zone, b, &info), HP_OK);
		assert_int_equal(info.word.state, HP_BLOCK_OFFLINE);
		assert_int_equal(info.word.generation, 0);
		assert_int_equal(info.word.owner, HP_OWNER_NONE);
	}
	for (hp_pfn_t pfn = 0; pfn < UNIT_PAGES; pfn++)
		assert_int_equal(hp_durable_load(&bare.leases[pfn]), 0);
	assert_int_equal(hp_zone_get_config(bare.zone)->nr_pages, UNIT_PAGES);
	assert_int_equal(hp_zone_get_config(bare.zone)->id, UNIT_ZONE);
	assert_int_equal(box_check(&bare), 0);
	box_deinit(&bare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lease_words_keep_every_field),
		cmocka_unit_test(block_words_keep_every_field),
		cmocka_unit_test(impossible_configurations_are_refused),
		zone_test(impossible_zones_are_not_made),
		cmocka_unit_test(a_page_costs_at_most_sixteen_bytes),
		cmocka_unit_test(a_new_zone_is_offline),
	};

	return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
