/* SPDX-License-Identifier: Apache-2.0 */
/* Zeroing: all of it and nothing else, either way; and what counts as recently used. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "client/zero.h"

#define MIB (1u << 20)

static void test_bounds(void **state)
{
	static const size_t sizes[] = {64, 4096, 65536, 256 * 1024, 256 * 1024 + 64, MIB, 3 * MIB};
	size_t room = 4 * MIB;
	uint8_t *memory = aligned_alloc(4096, room);

	(void)state;
	assert_non_null(memory);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int hot = 0; hot < 2; hot++) {
			size_t n = sizes[i];

			memset(memory, 0xa5, room);
			zero_memory(memory + 4096, n, hot);
			for (size_t at = 0; at < 4096; at++)
				assert_int_equal(memory[at], 0xa5);
			for (size_t at = 0; at < n; at++)
				if (memory[4096 + at] != 0)
					fail_msg("byte %zu of %zu", at, n);
			for (size_t at = 4096 + n; at < 4096 + n + 4096; at++)
				assert_int_equal(memory[at], 0xa5);
		}
	free(memory);
}

static void test_recency(void **state)
{
	struct recency recency = {.next = 0};

	(void)state;
	assert_false(recency_is_hot(&recency, 0, 0, 1));

	recency_note(&recency, 1, 10, 2, MIB);
	assert_true(recency_is_hot(&recency, 1, 10, 1));
	assert_true(recency_is_hot(&recency, 1, 11, 1));
	assert_true(recency_is_hot(&recency, 1, 10, 2));
	assert_false(recency_is_hot(&recency, 1, 12, 1));
	assert_false(recency_is_hot(&recency, 1, 9, 1));
	assert_false(recency_is_hot(&recency, 2, 10, 1));
	/* More than was freed: most of it is cold. */
	assert_false(recency_is_hot(&recency, 1, 10, 3));

	/* Pushed out by what came later. */
	recency_note(&recency, 1, 100, 2, 2 * MIB);
	assert_true(recency_is_hot(&recency, 1, 10, 2));
	recency_note(&recency, 1, 200, 2, 2 * MIB);
	assert_false(recency_is_hot(&recency, 1, 10, 2));
	assert_true(recency_is_hot(&recency, 1, 100, 2));
	/* Larger than a cache: never hot. */
	recency_note(&recency, 1, 300, 64, 128 * (uint64_t)MIB);
	assert_false(recency_is_hot(&recency, 1, 300, 64));
	assert_false(recency_is_hot(&recency, 1, 200, 2));
}

/* The ring comes round. */
static void test_ring(void **state)
{
	struct recency recency = {.next = 0};

	(void)state;
	for (uint32_t i = 0; i < 3 * RECENT_MAX + 5; i++) {
		recency_note(&recency, 0, i, 1, 4096);
		assert_true(recency_is_hot(&recency, 0, i, 1));
		assert_true(i < 1 || recency_is_hot(&recency, 0, i - 1, 1));
		assert_true(i < RECENT_MAX || !recency_is_hot(&recency, 0, i - RECENT_MAX, 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_recency),
		cmocka_unit_test(test_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
