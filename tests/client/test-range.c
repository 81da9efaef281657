/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ranges against a plain array, by seeded random operations. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "client/range.h"

#define ZONES 3
#define PAGES 512

static uint64_t seed;

static uint32_t dice(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(seed >> 33) % n;
}

/* Everything that is in is found, nothing else is, and no look-up runs for ever. */
static void check(const struct range_table *table, uint32_t model[ZONES][PAGES])
{
	size_t n = 0, slots = 0;

	for (uint8_t zone = 0; zone < ZONES; zone++)
		for (uint32_t page = 0; page < PAGES; page++) {
			const struct held_range *found = range_table_find(table, zone, page);

			if (model[zone][page]) {
				assert_non_null(found);
				assert_int_equal(found->zone, zone);
				assert_int_equal(found->page, page);
				assert_int_equal(found->pages, model[zone][page]);
				n++;
			} else {
				assert_null(found);
			}
		}
	for (size_t i = 0; i < table->capacity; i++)
		slots += table->slots[i].pages != 0;
	assert_int_equal(table->nr, n);
	assert_int_equal(slots, n);
	assert_true(n <= table->capacity / 4 * 3);
}

static void test_random(void **state)
{
	static uint32_t model[ZONES][PAGES];
	struct range_table table = {.nr = 0};

	(void)state;
	seed = 20260;
	print_message("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 200000; i++) {
		uint8_t zone = (uint8_t)dice(ZONES);
		/* Few pages most of the time, so that chains meet. */
		uint32_t page = dice(dice(4) ? 40 : PAGES), pages = dice(100) + 1;
		struct held_range *found = range_table_find(&table, zone, page);

		if (found && dice(2)) {
			range_table_remove(&table, found);
			model[zone][page] = 0;
		} else {
			const struct held_range range = {
				.zone = zone, .page = page, .pages = pages};

			assert_int_equal(range_table_reserve(&table, 1), 0);
			if (found) {
				assert_int_equal(range_table_add(&table, &range), -EEXIST);
			} else {
				assert_int_equal(range_table_add(&table, &range), 0);
				model[zone][page] = pages;
			}
		}
		if (i % 500 == 0)
			check(&table, model);
	}
	check(&table, model);
	range_table_deinit(&table);
	assert_int_equal(table.capacity, 0);
}

static void test_empty(void **state)
{
	struct range_table table = {.nr = 0};

	(void)state;
	assert_null(range_table_find(&table, 0, 0));
	range_table_deinit(&table);
}

/* Room for many at once, made before they are there. */
static void test_reserve(void **state)
{
	struct range_table table = {.nr = 0};
	size_t capacity;

	(void)state;
	assert_int_equal(range_table_reserve(&table, 1000), 0);
	capacity = table.capacity;
	for (uint32_t page = 0; page < 1000; page++)
		assert_int_equal(range_table_add(&table, &(struct held_range){.page = page * 64,
									      .pages = 64}),
				 0);
	assert_int_equal(table.capacity, capacity);
	for (uint32_t page = 0; page < 1000; page++)
		assert_non_null(range_table_find(&table, 0, page * 64));
	range_table_deinit(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
