/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection breaks and is made anew: ranges, requests under way, caches and the one descriptor of
 * the event loop outlive it.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "client/handle.h"

#define PAGE	65536u
#define LONG_MS 30000

static struct hugepool *open_resumable(struct fixture *f)
{
	f->fake.resumable = true;
	return open_pool(f, 0, 0);
}

static void break_it(struct hugepool *pool)
{
	assert_int_equal(shutdown(pool->connection.socket, SHUT_RDWR), 0);
}

static bool is_filled(const struct hugepool_range *range, int value)
{
	const char *bytes = range->address;

	for (uint64_t i = 0; i < range->bytes; i++)
		if (bytes[i] != (char)value)
			return false;
	return true;
}

/* Calls that wait notice a delay, no more; what was being freed is free. */
static void test_calls(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_resumable(f);
	struct hugepool_range a = take(pool, 2, 0), b = take(pool, FAKE_BLOCK_PAGES, 0), c;

	memset(a.address, 1, a.bytes);
	memset(b.address, 2, b.bytes);
	break_it(pool);
	c = take(pool, 3, 0);
	assert_int_equal(f->fake.connections, 2);
	assert_int_equal(f->fake.leased_pages, FAKE_BLOCK_PAGES + 5);
	assert_true(is_filled(&a, 1) && is_filled(&b, 2));
	break_it(pool);
	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(f->fake.leased_pages, FAKE_BLOCK_PAGES + 3);
	break_it(pool);
	assert_int_equal(hugepool_free_part(pool, &b, PAGE, PAGE, &a), 0);
	assert_true(is_filled(&b, 2) && is_filled(&a, 2));
	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(hugepool_free(pool, &b), 0);
	assert_int_equal(hugepool_free(pool, &c), 0);
	assert_int_equal(f->fake.leased_pages, 0);
}

struct told {
	int nr_alloc, nr_free, nr_resumed, result;
	struct hugepool_range range;
};

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct told *told = userdata;

	(void)error;
	told->nr_alloc++;
	told->result = result;
	if (range)
		told->range = *range;
}

static void on_free(void *userdata, int result, const struct hugepool_range *range,
		    const struct hugepool_error *error)
{
	struct told *told = userdata;

	(void)range, (void)error;
	told->nr_free++;
	told->result = result;
}

static void on_resumed(void *userdata)
{
	struct told *told = userdata;

	told->nr_resumed++;
}

/* Nothing is answered on the first connection. */
static bool answer_later(struct fake *fake, const struct hp_frame *frame)
{
	return fake->connections == 1 && (frame->type == TYPE(ALLOC) || frame->type == TYPE(FREE));
}

/* Led by the descriptor alone, which is the same one all the time. */
static void test_pending(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_resumable(f);
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;
	struct hugepool_request request = request_of(f, 4, 0);
	struct hugepool_range kept = take(pool, 2, 0), freed = take(pool, 3, 0);
	struct told told = {0};
	int fd = hugepool_get_fd(pool), cancelled;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	callbacks.userdata = &told;
	callbacks.resumed = on_resumed;
	assert_int_equal(hugepool_set_callbacks(pool, &callbacks), 0);
	memset(kept.address, 7, kept.bytes);
	f->fake.hook = answer_later;
	assert_true(hugepool_alloc_async(pool, &request, on_alloc, &told) > 0);
	request.deadline_ms = 60000;
	assert_true(hugepool_alloc_async(pool, &request, on_alloc, &told) > 0);
	cancelled = hugepool_alloc_async(pool, &request, on_alloc, &told);
	assert_true(cancelled > 0);
	assert_int_equal(hugepool_cancel(pool, cancelled), 0);
	assert_int_equal(hugepool_free_async(pool, &freed, on_free, &told), 0);
	fake_await(&f->fake, TYPE(FREE), 1);
	assert_int_equal(hugepool_dispatch(pool, 0), 0);
	break_it(pool);
	while (told.nr_alloc < 3 || told.nr_free < 1 || told.nr_resumed < 1) {
		assert_int_equal(poll(&p, 1, LONG_MS), 1);
		assert_true(hugepool_dispatch(pool, 0) >= 0);
	}
	assert_int_equal(told.nr_resumed, 1);
	assert_int_equal(hugepool_get_fd(pool), fd);
	assert_true(is_filled(&kept, 7));
	assert_int_equal(f->fake.leased_pages, 2 + 2 * 4);
	memset(told.range.address, 1, told.range.bytes);

	/* And it tells of the new connection. */
	request.deadline_ms = 0;
	assert_true(hugepool_alloc_async(pool, &request, on_alloc, &told) > 0);
	while (told.nr_alloc < 4) {
		assert_int_equal(poll(&p, 1, LONG_MS), 1);
		assert_true(hugepool_dispatch(pool, 0) >= 0);
	}
	assert_int_equal(told.result, 0);
}

static void test_cache(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_resumable(f);
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool_range ranges[16];

	options.batch = 4;
	options.high = 8;
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), 0);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 16; i++) {
			if (i % 5 == 0)
				break_it(pool);
			assert_int_equal(hugepool_cache_alloc(cache, &ranges[i]), 0);
			memset(ranges[i].address, i, PAGE);
		}
		for (int i = 0; i < 16; i++) {
			assert_true(is_filled(&ranges[i], i));
			if (i % 5 == 0)
				break_it(pool);
			assert_int_equal(hugepool_cache_release(cache, &ranges[i]), 0);
		}
	}
	break_it(pool);
	assert_int_equal(hugepool_cache_flush(cache), 0);
	assert_int_equal(f->fake.leased_pages, 0);
	hugepool_cache_free(cache);
}

static bool forget_all(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Ranges none = HUGEPOOL__V1__RANGES__INIT;

	if (frame->type != TYPE(RESUME))
		return false;
	fake_send(fake, TYPE(RESUMED), frame->tag, &none.base);
	return true;
}

/* What the daemon has forgotten is not handed out by a cache. */
static void test_lost_in_cache(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_resumable(f);
	struct hugepool_cache *cache;
	struct hugepool_range range, again;

	assert_int_equal(hugepool_cache_new(&cache, pool, NULL), 0);
	assert_int_equal(hugepool_cache_alloc(cache, &range), 0);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	f->fake.hook = forget_all;
	break_it(pool);
	(void)take(pool, 1, 0);
	assert_int_equal(hugepool_cache_alloc(cache, &again), 0);
	assert_true(again.address != range.address);
	hugepool_cache_free(cache);
}

/* The last goodbye reaches the daemon, too. */
static void test_close(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_resumable(f);

	take(pool, 5, 0);
	break_it(pool);
	f->pool = hugepool_close(pool);
	assert_int_equal(f->fake.leased_pages, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_calls), FIXTURE_TEST(test_pending),
		FIXTURE_TEST(test_cache), FIXTURE_TEST(test_lost_in_cache),
		FIXTURE_TEST(test_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
