/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of ranges: what they ask the daemon for, and what they never do. */
#include "tests/client/common.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/handle.h"

#define PAGE 65536u

static struct hugepool_cache *cache_of(struct fixture *f, uint64_t pages, unsigned flags,
				       unsigned batch, unsigned high)
{
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache = NULL;

	options.bytes = pages * f->fake.page_bytes;
	options.flags = flags;
	options.batch = batch;
	options.high = high;
	assert_int_equal(hugepool_cache_new(&cache, f->pool, &options), 0);
	assert_non_null(cache);
	return cache;
}

static struct hugepool_range take_cached(struct hugepool_cache *cache)
{
	struct hugepool_range range;

	assert_int_equal(hugepool_cache_alloc(cache, &range), 0);
	return range;
}

static bool is_all(const struct hugepool_range *range, uint8_t byte)
{
	const uint8_t *bytes = range->address;

	for (uint64_t i = 0; i < range->bytes; i++)
		if (bytes[i] != byte)
			return false;
	return true;
}

/* Hits cost the daemon nothing, and the last one given is the first one taken. */
static void test_hits(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 2, 0, 4, 8);
	struct hugepool_range ranges[8], again;
	unsigned asked;

	for (int i = 0; i < 8; i++) {
		ranges[i] = take_cached(cache);
		assert_int_equal(ranges[i].bytes, 2 * PAGE);
		assert_int_equal(ranges[i].page_size, PAGE);
		memset(ranges[i].address, i, ranges[i].bytes);
	}
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 2);
	for (int i = 0; i < 8; i++)
		assert_true(is_all(&ranges[i], (uint8_t)i));
	asked = f->fake.seen[TYPE(ALLOC)];
	for (int i = 0; i < 10000; i++) {
		assert_int_equal(hugepool_cache_release(cache, &ranges[i % 8]), 0);
		again = take_cached(cache);
		assert_memory_equal(&again, &ranges[i % 8], sizeof(again));
	}
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], asked);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 0);

	/* Its ranges are the handle's: one is freed as any other, and one of the handle's put in. */
	assert_int_equal(hugepool_free(pool, &ranges[0]), 0);
	ranges[0] = take(pool, 2, 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(hugepool_cache_release(cache, &ranges[i]), 0);
	assert_int_equal(f->fake.leased_pages, 16);
	assert_null(hugepool_cache_free(cache));
	assert_int_equal(f->fake.leased_pages, 0);
}

/* Full: the coldest go, a batch in one request. */
static void test_drain(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 3, 6);
	struct hugepool_range ranges[7], range;

	for (int i = 0; i < 7; i++)
		ranges[i] = take(pool, 1, 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(hugepool_cache_release(cache, &ranges[i]), 0);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 0);
	assert_int_equal(hugepool_cache_release(cache, &ranges[6]), 0);
	assert_int_equal(f->fake.seen[TYPE(FREE)], 1);
	assert_int_equal(f->fake.leased_pages, 4);
	for (int i = 6; i >= 3; i--) {
		range = take_cached(cache);
		assert_ptr_equal(range.address, ranges[i].address);
	}
	assert_int_equal(hugepool_cache_fill(cache, 7), -EINVAL);
	assert_int_equal(hugepool_cache_fill(cache, 5), 0);
	assert_int_equal(f->fake.leased_pages, 9);
	assert_int_equal(hugepool_cache_fill(cache, 5), 0);
	assert_int_equal(f->fake.leased_pages, 9);
	assert_int_equal(hugepool_cache_flush(cache), 0);
	assert_int_equal(f->fake.leased_pages, 4);
	hugepool_cache_free(cache);
}

/* What was released is dirty, whatever it was when it was granted. */
static void test_zero(void **state)
{
	struct fixture *f = *state;
	struct hugepool_cache *cache;
	struct hugepool_range range;

	open_pool(f, HUGEPOOL_KEEP_BLOCKS, 0);
	for (int claim = 0; claim < 2; claim++) {
		f->fake.claim_zeroed = claim; /* and rightly so: nothing was written there yet */
		cache = cache_of(f, 3, HUGEPOOL_ZERO, 2, 4);
		for (int i = 0; i < 5; i++) {
			range = take_cached(cache);
			assert_true(is_all(&range, 0));
			memset(range.address, 0xa5, range.bytes);
			assert_int_equal(hugepool_cache_release(cache, &range), 0);
		}
		if (claim == 0) {
			range = take_cached(cache);
			memset(range.address, 0, range.bytes);
			assert_int_equal(hugepool_cache_release(cache, &range), 0);
		}
		hugepool_cache_free(cache);
	}
	/* Without the flag nothing is touched. */
	cache = cache_of(f, 3, 0, 2, 4);
	range = take_cached(cache);
	memset(range.address, 0xa5, range.bytes);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	range = take_cached(cache);
	assert_true(is_all(&range, 0xa5));
	hugepool_cache_free(cache);
}

/* The last ones are given one by one, and then there is an error with numbers. */
static void test_no_memory(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 5, 0, 0, 16);
	struct hugepool_range range;

	for (int i = 0; i < FAKE_PAGES / 5; i++)
		range = take_cached(cache);
	assert_int_equal(hugepool_cache_alloc(cache, &range), -ENOMEM);
	assert_int_equal(error_of(pool).asked_bytes, 5 * PAGE);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	range = take_cached(cache);
	assert_int_equal(hugepool_cache_alloc(cache, &range), -ENOMEM);
	hugepool_cache_free(cache);
}

static bool press(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__Pressure pressure = HUGEPOOL__V1__PRESSURE__INIT;

	if (frame->type != TYPE(FREE_PART))
		return false;
	pressure.zone = FAKE_ZONE;
	fake_answer(fake, frame);
	fake_send(fake, TYPE(PRESSURE), 0, &pressure.base);
	return true;
}

/* Somebody waits for room: noticed by a cache that never asks the daemon for anything. */
static void test_pressure(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 8, 16);
	struct hugepool_range range, other = take(pool, 2, 0);

	f->fake.hook = press;
	assert_int_equal(hugepool_cache_fill(cache, 16), 0);
	range = take_cached(cache);
	assert_int_equal(f->fake.leased_pages, 18);
	assert_int_equal(hugepool_free_part(pool, &other, 0, PAGE, NULL), 0);
	/* Each pair finds one in it, so nothing but a look at the socket can tell. */
	for (int i = 0; i < 100000000 && f->fake.seen[TYPE(FREE)] == 0; i++) {
		assert_int_equal(hugepool_cache_release(cache, &range), 0);
		range = take_cached(cache);
	}
	assert_int_equal(f->fake.seen[TYPE(FREE)], 1);
	assert_in_range(f->fake.leased_pages, 2, 3);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	hugepool_cache_free(cache);

	/* And where others have read it. */
	cache = cache_of(f, 1, 0, 8, 16);
	assert_int_equal(hugepool_cache_fill(cache, 16), 0);
	event_pressure(pool, &pool->windows[0]);
	range = take_cached(cache);
	assert_in_range(f->fake.leased_pages, 2, 3);
	hugepool_cache_free(cache);
}

/* A range that was revoked is not handed out again. */
static void test_revoked(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 4, 8);
	struct hugepool_range range = take_cached(cache), again;
	struct hp_wire_range wire;

	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	assert_int_equal(hp_wire_get_range(range.lease, &wire), 0);
	event_revoked(pool, range_table_find(&pool->ranges, wire.zone, wire.page));
	again = take_cached(cache);
	assert_true(memcmp(again.lease, range.lease, sizeof(range.lease)) != 0);
	hugepool_cache_free(cache);
}

static void test_wrong_ranges(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 2, 4);
	struct hugepool_range a = take(pool, 1, 0), b = take(pool, 2, 0), c = take(pool, 1, 0);

	assert_int_equal(hugepool_cache_release(cache, &b), -EINVAL);
	assert_int_equal(hugepool_cache_release(cache, &a), 0);
	assert_int_equal(hugepool_cache_release(cache, &a), -EINVAL);
	assert_int_equal(hugepool_cache_release(cache, &c), 0);
	/* Not found out here, but by the handle; it does the others no harm. */
	assert_int_equal(hugepool_free(pool, &a), 0);
	assert_int_equal(hugepool_cache_flush(cache), -EINVAL);
	assert_int_equal(f->fake.leased_pages, 2);
	assert_int_equal(hugepool_cache_flush(cache), 0);
	hugepool_cache_free(cache);
}

static void test_options(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache = NULL;
	struct hugepool_range range;

	options.flags = HUGEPOOL_EXCLUSIVE;
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), -EINVAL);
	options.flags = 0;
	options.high = HUGEPOOL_CACHE_MAX + 1;
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), -EINVAL);
	options.high = 4;
	options.batch = 5;
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), -EINVAL);
	options.batch = 0;
	options.zone = "elsewhere";
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), -ENODEV);
	options.size--;
	assert_int_equal(hugepool_cache_new(&cache, pool, &options), -EINVAL);
	assert_null(cache);
	assert_null(hugepool_cache_free(NULL));

	assert_int_equal(hugepool_cache_new(&cache, pool, NULL), 0);
	range = take_cached(cache);
	assert_int_equal(range.bytes, PAGE);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	hugepool_cache_free(cache);
}

/* The daemon is gone: what is there is handed out, what does not fit stays the caller's. */
static bool hang_up(struct fake *fake, const struct hp_frame *frame)
{
	shutdown(fake->session, SHUT_RDWR);
	return frame->type == TYPE(FREE) || frame->type == TYPE(ALLOC);
}

static void test_end(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 1, 2);
	struct hugepool_range ranges[3];

	for (int i = 0; i < 3; i++)
		ranges[i] = take(pool, 1, 0);
	f->fake.hook = hang_up;
	assert_int_equal(hugepool_cache_release(cache, &ranges[0]), 0);
	assert_int_equal(hugepool_cache_release(cache, &ranges[1]), 0);
	assert_int_equal(hugepool_cache_release(cache, &ranges[2]), -ECONNRESET);
	ranges[0] = take_cached(cache);
	ranges[1] = take_cached(cache);
	assert_int_equal(hugepool_cache_alloc(cache, &ranges[0]), -ECONNRESET);
	assert_int_equal(hugepool_cache_flush(cache), 0);
	hugepool_cache_free(cache);
}

/* A child finds nothing in it, however it goes about it. */
static void test_fork(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	struct hugepool_cache *cache = cache_of(f, 1, 0, 4, 8);
	struct hugepool_range range = take_cached(cache), other;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(30);
		_exit(hugepool_cache_alloc(cache, &other) != -ECHILD ||
		      hugepool_cache_release(cache, &range) != -ECHILD ||
		      hugepool_cache_fill(cache, 1) != -ECHILD ||
		      hugepool_cache_flush(cache) != -ECHILD ||
		      hugepool_cache_new(&cache, pool, NULL) != -ECHILD ||
		      hugepool_cache_free(cache) || hugepool_close(pool));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(hugepool_cache_release(cache, &range), 0);
	other = take_cached(cache);
	assert_ptr_equal(other.address, range.address);
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 1);
	hugepool_cache_free(cache);
}

#define THREADS 4

static void *churn(void *userdata)
{
	struct hugepool *pool = userdata;
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool_range held[6];
	size_t n = 0;

	options.batch = 3;
	options.high = 5;
	options.flags = HUGEPOOL_ZERO;
	if (hugepool_cache_new(&cache, pool, &options))
		return pool;
	for (unsigned i = 0; i < 3000; i++) {
		if (n < 6 && (n == 0 || i * 2654435761u >> 31)) {
			if (hugepool_cache_alloc(cache, &held[n]))
				return pool;
			if (!is_all(&held[n], 0))
				return pool;
			memset(held[n].address, (int)i, 64);
			n++;
		} else if (hugepool_cache_release(cache, &held[--n])) {
			return pool;
		}
	}
	while (n > 0)
		if (hugepool_free(pool, &held[--n]))
			return pool;
	hugepool_cache_free(cache);
	return NULL;
}

/* One cache a thread, one handle for all. */
static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct hugepool *pool = open_pool(f, 0, 0);
	pthread_t threads[THREADS];
	void *failed;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, pool), 0);
	for (int i = 0; i < 50; i++) {
		assert_true(hugepool_dispatch(pool, 0) >= 0);
		assert_int_equal(handle_enter(pool), 0);
		event_pressure(pool, &pool->windows[0]);
		assert_int_equal(handle_leave(pool, 0), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(f->fake.leased_pages, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_hits),	 FIXTURE_TEST(test_drain),
		FIXTURE_TEST(test_zero),	 FIXTURE_TEST(test_no_memory),
		FIXTURE_TEST(test_pressure),	 FIXTURE_TEST(test_revoked),
		FIXTURE_TEST(test_wrong_ranges), FIXTURE_TEST(test_options),
		FIXTURE_TEST(test_end),		 FIXTURE_TEST(test_fork),
		FIXTURE_TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
