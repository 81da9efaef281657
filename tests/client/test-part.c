/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of ranges given back: what is left, where it is, what happens to the blocks, and a daemon
 * that says something else is left. A model holds what each page must be.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE	   UINT64_C(65536)
#define ROUNDS	   400
#define RANGES_MAX 24

static void fill(const struct hugepool_range *range, uint64_t seed)
{
	uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / 8; i++)
		words[i] = seed + i;
}

/* From word `first` of what was filled on. */
static bool is_filled(const struct hugepool_range *range, uint64_t seed, uint64_t first_byte)
{
	const uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / 8; i++)
		if (words[i] != seed + first_byte / 8 + i)
			return false;
	return true;
}

static bool is_nothing(const struct hugepool_range *range)
{
	static const struct hugepool_range nothing;

	return memcmp(range, &nothing, sizeof(nothing)) == 0;
}

static void test_head(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 5, 0), old = range, rest;

	fill(&range, 7);
	memset(&rest, 0xa5, sizeof(rest));
	assert_int_equal(hugepool_free_part(pool, &range, 0, 2 * PAGE, &rest), 0);
	assert_ptr_equal(range.address, (char *)old.address + 2 * PAGE);
	assert_int_equal(range.bytes, 3 * PAGE);
	assert_int_equal(range.page_size, PAGE);
	assert_true(is_nothing(&rest));
	assert_true(is_filled(&range, 7, 2 * PAGE));
	assert_int_equal(f->fake.leased_pages, 3);

	/* The old name is none any more; the new one is. */
	assert_int_equal(hugepool_free(pool, &old), -EINVAL);
	assert_int_equal(hugepool_free_part(pool, &old, 0, PAGE, NULL), -EINVAL);
	assert_int_equal(hugepool_free_part(pool, &range, 0, PAGE, NULL), 0);
	assert_true(is_filled(&range, 7, 3 * PAGE));
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

static void test_tail(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 5, 0), old = range, rest;

	fill(&range, 7);
	memset(&rest, 0xa5, sizeof(rest));
	assert_int_equal(hugepool_free_part(pool, &range, 3 * PAGE, 2 * PAGE, &rest), 0);
	assert_ptr_equal(range.address, old.address);
	assert_int_equal(range.bytes, 3 * PAGE);
	assert_true(is_nothing(&rest));
	assert_true(is_filled(&range, 7, 0));
	assert_int_equal(f->fake.leased_pages, 3);
	assert_int_equal(hugepool_free(pool, &old), -EINVAL);
	assert_int_equal(hugepool_free(pool, &range), 0);
}

static void test_middle(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 6, 0), old = range, rest, again;

	fill(&range, 7);
	assert_int_equal(hugepool_free_part(pool, &range, PAGE, 2 * PAGE, &rest), 0);
	assert_ptr_equal(range.address, old.address);
	assert_int_equal(range.bytes, PAGE);
	assert_ptr_equal(rest.address, (char *)old.address + 3 * PAGE);
	assert_int_equal(rest.bytes, 3 * PAGE);
	assert_int_equal(rest.page_size, PAGE);

	/* The hole goes to somebody else. */
	again = take(pool, 2, 0);
	assert_ptr_equal(again.address, (char *)old.address + PAGE);
	fill(&again, 99);
	assert_true(is_filled(&range, 7, 0));
	assert_true(is_filled(&rest, 7, 3 * PAGE));
	assert_int_equal(hugepool_free(pool, &rest), 0);
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_true(is_filled(&again, 99, 0));
	assert_int_equal(hugepool_free(pool, &again), 0);
	assert_int_equal(f->fake.leased_pages, 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 0);
}

static void test_whole(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 3, 0);

	assert_int_equal(hugepool_free_part(pool, &range, 0, 3 * PAGE, NULL), 0);
	assert_true(is_nothing(&range));
	assert_int_equal(f->fake.leased_pages, 0);
	assert_int_equal(hugepool_free(pool, &range), -EINVAL);
	assert_int_equal(hugepool_free_part(pool, &range, 0, PAGE, NULL), -EINVAL);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 0);
}

/* What is refused leaves everything as it was, and the daemon is not asked. */
static void test_refused_here(void **state)
{
	static const struct {
		uint64_t offset, length;
	} wrong[] = {
		{0, 0},
		{2 * PAGE, 0},
		{0, 1},
		{1, PAGE},
		{4096, PAGE},
		{0, PAGE - 1},
		{0, PAGE + 4096},
		{0, 7 * PAGE},
		{6 * PAGE, PAGE},
		{5 * PAGE, 2 * PAGE},
		{PAGE, UINT64_MAX},
		{UINT64_MAX, PAGE},
		{UINT64_MAX - PAGE + 1, PAGE},
		{PAGE, UINT64_MAX - PAGE + 1},
		{UINT64_C(1) << 48, PAGE},
	};
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 6, 0), before = range, rest = {.bytes = 1};

	fill(&range, 5);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(
			hugepool_free_part(pool, &range, wrong[i].offset, wrong[i].length, &rest),
			-EINVAL);
		assert_true(error_of(pool).message[0] != '\0');
	}
	/* Two would be left, and there is room for one. */
	assert_int_equal(hugepool_free_part(pool, &range, PAGE, PAGE, NULL), -EINVAL);
	assert_int_equal(f->fake.seen[TYPE(FREE_PART)], 0);
	assert_memory_equal(&range, &before, sizeof(range));
	assert_int_equal(rest.bytes, 1);
	assert_true(is_filled(&range, 5, 0));
	assert_int_equal(hugepool_free(pool, &range), 0);
}

static bool refuse_part(struct fake *fake, const struct hp_frame *frame)
{
	if (frame->type != TYPE(FREE_PART))
		return false;
	fake_error(fake, frame->tag, CODE(REVOKED));
	return true;
}

static void test_refused_there(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 6, 0), before = range, rest = {.bytes = 1};

	f->fake.hook = refuse_part;
	assert_int_equal(hugepool_free_part(pool, &range, PAGE, PAGE, &rest), -EOWNERDEAD);
	assert_memory_equal(&range, &before, sizeof(range));
	assert_int_equal(rest.bytes, 1);
	f->fake.hook = NULL;
	assert_int_equal(hugepool_free_part(pool, &range, PAGE, PAGE, &rest), 0);
}

/* A block in which nothing is left is unmapped and told; those of the rest are not. */
static void test_empty_block_is_released(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 4 * FAKE_BLOCK_PAGES, 0), rest;
	unsigned char there;

	fill(&range, 3);
	assert_int_equal(count_mapped(), 4);
	/* Half of the second block: it stays. */
	assert_int_equal(hugepool_free_part(pool, &range, 40 * PAGE, 8 * PAGE, &rest), 0);
	assert_int_equal(count_mapped(), 4);
	/* All of the second, and what was left of the third. */
	assert_int_equal(hugepool_free_part(pool, &range, 16 * PAGE, 24 * PAGE, NULL), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 1);
	assert_int_equal(count_mapped(), 2);
	assert_int_equal(mincore((char *)range.address + 15 * PAGE, 4096, &there), 0);
	assert_true(is_filled(&range, 3, 0));
	assert_true(is_filled(&rest, 3, 48 * PAGE));
	assert_int_equal(hugepool_free(pool, &range), 0);
	assert_int_equal(hugepool_free(pool, &rest), 0);
	fake_await(&f->fake, TYPE(RELEASE_BLOCK), 3);
	assert_int_equal(count_mapped(), 0);
}

static void test_kept_blocks(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	struct hugepool_range range = take(pool, 2 * FAKE_BLOCK_PAGES, 0);

	assert_int_equal(hugepool_free_part(pool, &range, 0, FAKE_BLOCK_PAGES * PAGE, NULL), 0);
	assert_int_equal(count_mapped(), 2);
	assert_int_equal(f->fake.seen[TYPE(RELEASE_BLOCK)], 0);
}

static void test_descriptor_of_the_rest(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 6, HUGEPOOL_EXCLUSIVE), rest;
	uint64_t offset;

	assert_int_equal(hugepool_free_part(pool, &range, 2 * PAGE, PAGE, &rest), 0);
	assert_true(hugepool_range_fd(pool, &rest, &offset) >= 0);
	assert_int_equal(offset, 3 * PAGE);
	assert_true(hugepool_range_fd(pool, &range, &offset) >= 0);
	assert_int_equal(offset, 0);
}

/* --- a model ---------------------------------------------------------------------------------- */

struct model {
	struct hugepool_range ranges[RANGES_MAX];
	uint64_t seeds[RANGES_MAX], firsts[RANGES_MAX]; /* how they were filled */
	size_t n;
	uint64_t pages;
};

static void model_take(struct model *model, struct hugepool *pool, uint64_t pages, uint64_t seed)
{
	struct hugepool_range *range = &model->ranges[model->n];
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = pages * PAGE;
	if (model->n == RANGES_MAX || hugepool_alloc(pool, &request, range))
		return;
	fill(range, seed);
	model->seeds[model->n] = seed;
	model->firsts[model->n++] = 0;
	model->pages += pages;
}

static void model_cut(struct model *model, struct hugepool *pool, size_t i, unsigned *seed)
{
	struct hugepool_range *range = &model->ranges[i], old = *range, rest;
	uint64_t pages = range->bytes / PAGE, offset = (unsigned)rand_r(seed) % pages;
	uint64_t length = (unsigned)rand_r(seed) % (pages - offset) + 1;

	if (model->n == RANGES_MAX)
		length = pages - offset;
	assert_int_equal(hugepool_free_part(pool, range, offset * PAGE, length * PAGE, &rest), 0);
	model->pages -= length;
	assert_int_equal(range->bytes + rest.bytes, old.bytes - length * PAGE);
	if (rest.bytes) {
		assert_ptr_equal(rest.address, (char *)old.address + (offset + length) * PAGE);
		model->ranges[model->n] = rest;
		model->seeds[model->n] = model->seeds[i];
		model->firsts[model->n++] = model->firsts[i] + (offset + length) * PAGE;
	}
	if (range->bytes) {
		if (range->address != old.address)
			model->firsts[i] += length * PAGE;
		return;
	}
	model->n--;
	model->ranges[i] = model->ranges[model->n];
	model->seeds[i] = model->seeds[model->n];
	model->firsts[i] = model->firsts[model->n];
}

static void test_model(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct model model = {.n = 0};
	unsigned seed = 20260 + (unsigned)f->open_before;

	print_message("seed %u\n", seed);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t pages = (unsigned)rand_r(&seed) % 40 + 1;

		if (model.n == 0 || rand_r(&seed) % 2)
			model_take(&model, pool, pages, (uint64_t)round << 32);
		else
			model_cut(&model, pool, (unsigned)rand_r(&seed) % model.n, &seed);
		assert_int_equal(f->fake.leased_pages, model.pages);
		for (size_t i = 0; i < model.n; i += 1 + round % 4)
			assert_true(is_filled(&model.ranges[i], model.seeds[i], model.firsts[i]));
	}
	for (size_t i = 0; i < model.n; i++) {
		assert_true(is_filled(&model.ranges[i], model.seeds[i], model.firsts[i]));
		assert_int_equal(hugepool_free(pool, &model.ranges[i]), 0);
	}
	assert_int_equal(f->fake.leased_pages, 0);
	assert_int_equal(count_mapped(), 0);
}

/* --- a daemon that says otherwise ------------------------------------------------------------- */

enum {
	LEFT_NONE,
	LEFT_FIRST_ONLY,
	LEFT_SWAPPED,
	LEFT_THREE,
	LEFT_LONGER,
	LEFT_ELSEWHERE,
	LEFT_OTHER_ZONE,
	LEFT_DONE,
	LEFT_MISCHIEFS,
};

/* Of pages 0 to 5, pages 2 and 3 are given back. */
static bool bad_rest(struct fake *fake, const struct hp_frame *frame)
{
	struct hp_wire_range left[3] = {
		{.zone = FAKE_ZONE, .page = 0, .pages = 2, .generation = 8},
		{.zone = FAKE_ZONE, .page = 4, .pages = 2, .generation = 9},
		{.zone = FAKE_ZONE, .page = 2, .pages = 2, .generation = 10},
	};
	struct hp_wire_range first = left[0];
	size_t n = 2;

	if (frame->type != TYPE(FREE_PART))
		return false;
	switch (fake->counter) {
	case LEFT_NONE:
		n = 0;
		break;
	case LEFT_FIRST_ONLY:
		n = 1;
		break;
	case LEFT_SWAPPED:
		left[0] = left[1];
		left[1] = first;
		break;
	case LEFT_THREE:
		n = 3;
		break;
	case LEFT_LONGER:
		left[0].pages = 3;
		break;
	case LEFT_ELSEWHERE:
		left[1].page = 3;
		break;
	case LEFT_OTHER_ZONE:
		left[1].zone = FAKE_ZONE + 1;
		break;
	default:
		fake_done(fake, frame->tag);
		return true;
	}
	fake_grant(fake, frame->tag, left, n);
	return true;
}

static void test_bad_rest(void **state)
{
	struct fixture *f = *state;

	for (int mischief = 0; mischief < LEFT_MISCHIEFS; mischief++) {
		struct hugepool *pool = open_pool(f, 0, 0);
		struct hugepool_range range = take(pool, 6, 0), before = range, rest = {.bytes = 1};

		f->fake.counter = mischief;
		f->fake.hook = bad_rest;
		assert_int_equal(hugepool_free_part(pool, &range, 2 * PAGE, 2 * PAGE, &rest),
				 -EPROTO);
		assert_memory_equal(&range, &before, sizeof(range));
		assert_int_equal(rest.bytes, 1);
		f->fake.hook = NULL;
		assert_int_equal(hugepool_free(pool, &range), -ECONNRESET);
		/* What it has stays mapped. */
		fill(&range, 1);
		f->pool = hugepool_close(pool);
	}
}

static bool grant_twice(struct fake *fake, const struct hp_frame *frame)
{
	const struct hp_wire_range range = {
		.zone = FAKE_ZONE, .page = 4, .pages = 2, .generation = 1000};

	if (frame->type != TYPE(ALLOC))
		return false;
	fake_grant(fake, frame->tag, &range, 1);
	return true;
}

/* What would be left begins where another range does, which the daemon granted long ago. */
static void test_rest_in_anothers_place(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_range range = take(pool, 6, 0), rest;

	f->fake.hook = grant_twice;
	take(pool, 2, 0);
	f->fake.hook = NULL;
	assert_int_equal(hugepool_free_part(pool, &range, 2 * PAGE, 2 * PAGE, &rest), -EPROTO);
	assert_int_equal(range.bytes, 6 * PAGE);
	assert_int_equal(hugepool_free(pool, &range), -ECONNRESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_head),
		FIXTURE_TEST(test_tail),
		FIXTURE_TEST(test_middle),
		FIXTURE_TEST(test_whole),
		FIXTURE_TEST(test_refused_here),
		FIXTURE_TEST(test_refused_there),
		FIXTURE_TEST(test_empty_block_is_released),
		FIXTURE_TEST(test_kept_blocks),
		FIXTURE_TEST(test_descriptor_of_the_rest),
		FIXTURE_TEST(test_model),
		FIXTURE_TEST(test_bad_rest),
		FIXTURE_TEST(test_rest_in_anothers_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
