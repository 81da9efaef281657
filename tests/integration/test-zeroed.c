/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zeroed means zeroed, whichever way a range comes that was asked for so, also when it is memory that
 * the same tenant has just dirtied: one page stays taken, so that its block is never recycled.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/daemon/program.h"

#define PAGE	   (UINT64_C(2) << 20)
#define ROUNDS	   4
#define DIRT	   0xa5
#define PAGES_LEFT 7 /* of the one block of 8, beside the one that stays */

#define ZONE(backing) "[zone one]\npage-size = 2M\nblock-size = 16M\nsize = 16M\n" backing

static const char *executable;
static bool on_huge_pages;

struct fixture {
	struct program *program;
	struct hugepool *pool;
	struct hugepool_range anchor;
};

static struct hugepool_request request_of(uint64_t pages, unsigned flags)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = pages * PAGE;
	request.flags = flags;
	return request;
}

static void soil(const struct hugepool_range *range)
{
	memset(range->address, DIRT, range->bytes);
}

static void expect_zero(const struct hugepool_range *range)
{
	const uint64_t *word = range->address;

	for (uint64_t i = 0; i < range->bytes / sizeof(*word); i++)
		if (word[i])
			fail_msg("byte %llu of %llu is not zero", (unsigned long long)i * 8,
				 (unsigned long long)range->bytes);
}

/* Without being asked to be zero it comes as it was left: the paths below have something to do. */
static void expect_dirty(struct fixture *f, uint64_t pages)
{
	struct hugepool_request request = request_of(pages, 0);
	struct hugepool_range range;

	assert_int_equal(hugepool_alloc(f->pool, &request, &range), 0);
	assert_int_equal(((unsigned char *)range.address)[range.bytes - 1], DIRT);
	assert_int_equal(hugepool_free(f->pool, &range), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_request request = request_of(1, 0);
	struct hugepool_range rest;

	assert_non_null(f);
	f->program = program_new(
		executable, on_huge_pages
				    ? ZONE("grow-nr-hugepages = yes\n") "[default]\nlimit.one = 1\n"
				    : ZONE("backing = shmem\n") "[default]\nlimit.one = 1\n");
	program_start(f->program);
	options.socket = f->program->socket;
	assert_int_equal(hugepool_open(&f->pool, &options), 0);
	assert_int_equal(hugepool_alloc(f->pool, &request, &f->anchor), 0);
	request = request_of(PAGES_LEFT, 0);
	assert_int_equal(hugepool_alloc(f->pool, &request, &rest), 0);
	soil(&rest);
	assert_int_equal(hugepool_free(f->pool, &rest), 0);
	expect_dirty(f, PAGES_LEFT);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->pool = hugepool_close(f->pool);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	program_free(f->program);
	free(f);
	return 0;
}

/* One at a time, of every size: just freed, and so in a cache, and long ago. */
static void test_alloc(void **state)
{
	struct fixture *f = *state;

	for (uint64_t pages = 1; pages <= PAGES_LEFT; pages++) {
		struct hugepool_request request = request_of(pages, HUGEPOOL_ZERO);
		struct hugepool_range range;

		for (int i = 0; i < 2; i++) {
			assert_int_equal(hugepool_alloc(f->pool, &request, &range), 0);
			expect_zero(&range);
			soil(&range);
			assert_int_equal(hugepool_free(f->pool, &range), 0);
		}
	}
}

static void test_bulk(void **state)
{
	struct fixture *f = *state;
	struct hugepool_request request = request_of(1, HUGEPOOL_ZERO);
	struct hugepool_range ranges[PAGES_LEFT];

	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(hugepool_alloc_bulk(f->pool, &request, ranges, PAGES_LEFT), 0);
		for (int j = 0; j < PAGES_LEFT; j++) {
			expect_zero(&ranges[j]);
			soil(&ranges[j]);
		}
		assert_int_equal(hugepool_free_bulk(f->pool, ranges, PAGES_LEFT), 0);
	}
}

/* What is given back of a range comes zeroed, and what is kept of it stays as it is. */
static void test_part(void **state)
{
	struct fixture *f = *state;
	struct hugepool_request whole = request_of(PAGES_LEFT, 0);
	struct hugepool_request hole = request_of(3, HUGEPOOL_ZERO);
	struct hugepool_range range, rest, range_in_hole;

	assert_int_equal(hugepool_alloc(f->pool, &whole, &range), 0);
	soil(&range);
	assert_int_equal(hugepool_free_part(f->pool, &range, 2 * PAGE, 3 * PAGE, &rest), 0);
	assert_int_equal(hugepool_alloc(f->pool, &hole, &range_in_hole), 0);
	expect_zero(&range_in_hole);
	assert_int_equal(((unsigned char *)range.address)[range.bytes - 1], DIRT);
	assert_int_equal(((unsigned char *)rest.address)[0], DIRT);
	assert_int_equal(hugepool_free(f->pool, &range_in_hole), 0);
	assert_int_equal(hugepool_free(f->pool, &range), 0);
	assert_int_equal(hugepool_free(f->pool, &rest), 0);
}

static void on_grant(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct hugepool_range *ret = userdata;

	assert_int_equal(result, 0);
	assert_null(error);
	*ret = *range;
}

/* It waits, and is granted what somebody has just left. */
static void test_wait(void **state)
{
	struct fixture *f = *state;
	struct hugepool_request whole = request_of(PAGES_LEFT, 0);
	struct hugepool_request waiting = request_of(PAGES_LEFT, HUGEPOOL_ZERO);
	struct hugepool_range range, granted = {0};

	waiting.deadline_ms = 20000;
	for (int i = 0; i < ROUNDS; i++, granted.bytes = 0) {
		assert_int_equal(hugepool_alloc(f->pool, &whole, &range), 0);
		soil(&range);
		assert_true(hugepool_alloc_async(f->pool, &waiting, on_grant, &granted) > 0);
		assert_int_equal(hugepool_dispatch(f->pool, 20), 0);
		assert_int_equal(hugepool_free(f->pool, &range), 0);
		while (!granted.bytes)
			assert_true(hugepool_dispatch(f->pool, 20000) > 0);
		expect_zero(&granted);
		soil(&granted);
		assert_int_equal(hugepool_free(f->pool, &granted), 0);
	}
}

static void test_cache(void **state)
{
	struct fixture *f = *state;
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool_range range;

	options.flags = HUGEPOOL_ZERO;
	options.batch = 2;
	options.high = 4;
	assert_int_equal(hugepool_cache_new(&cache, f->pool, &options), 0);
	for (int i = 0; i < 4 * ROUNDS; i++) {
		assert_int_equal(hugepool_cache_alloc(cache, &range), 0);
		expect_zero(&range);
		soil(&range);
		assert_int_equal(hugepool_cache_release(cache, &range), 0);
	}
	assert_null(hugepool_cache_free(cache));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_alloc), TEST(test_bulk),  TEST(test_part),
		TEST(test_wait),  TEST(test_cache),
	};

	if (argc != 3) {
		(void)fprintf(stderr, "usage: test-zeroed HUGEPOOLD shmem|hugetlb\n");
		return 2;
	}
	executable = argv[1];
	on_huge_pages = strcmp(argv[2], "hugetlb") == 0;
	if (on_huge_pages && getuid() != 0) {
		(void)fprintf(stderr, "huge pages need root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
