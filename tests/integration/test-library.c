/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library and the real daemon: what the library's own tests do with a daemon that is played, where
 * it depends on how the daemon really behaves. On ordinary memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"

#define MIB	     (UINT64_C(1) << 20)
#define PAGE	     (2 * MIB)
#define BLOCK_PAGES  4
#define LIMIT_BLOCKS 12
#define LIMIT_PAGES  (LIMIT_BLOCKS * BLOCK_PAGES)
#define PAGES	     64
#define LONG_MS	     60000
#define NR_MANY	     100 /* more than may wait */

static const char *executable;

struct fixture {
	struct program *program;
	struct peer *admin;
	struct hugepool *pool, *other; /* closed at the end */
};

static struct hugepool *open_pool(struct fixture *f)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool = NULL;

	options.socket = f->program->socket;
	assert_int_equal(hugepool_open(&pool, &options), 0);
	return pool;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->program = program_new(executable, "idle-delay = 100ms\n"
					     "[zone small]\npage-size = 2M\nblock-size = 8M\n"
					     "size = 128M\nbacking = shmem\n"
					     "[default]\nlimit.small = 12\n");
	program_start(f->program);
	f->admin = peer_connect(f->program->admin_socket);
	peer_hello(f->admin);
	f->pool = open_pool(f);
	f->other = open_pool(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	hugepool_close(f->pool);
	hugepool_close(f->other);
	for (int i = 0; i < 6000 && peer_zone(f->admin, 0).clean != PAGES; i++)
		poll(NULL, 0, 5);
	assert_int_equal(peer_zone(f->admin, 0).clean, PAGES);
	peer_check(f->admin);
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	program_free(f->program);
	free(f);
	return 0;
}

static struct hugepool_range take(struct hugepool *pool, uint64_t pages)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;

	request.bytes = pages * PAGE;
	assert_int_equal(hugepool_alloc(pool, &request, &range), 0);
	memset(range.address, 0xa5, range.bytes);
	return range;
}

struct answer {
	int nr, result;
	struct hugepool_range range;
	struct hugepool_error error;
};

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct answer *answer = userdata;

	answer->nr++;
	answer->result = result;
	if (range)
		answer->range = *range;
	else
		answer->error = *error;
}

static int ask(struct hugepool *pool, uint64_t pages, uint64_t deadline_ms, struct answer *answer)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = pages * PAGE;
	request.deadline_ms = deadline_ms;
	request.flags = HUGEPOOL_ZERO;
	return hugepool_alloc_async(pool, &request, on_alloc, answer);
}

static void await(struct hugepool *pool, const struct answer *answer, int nr)
{
	while (answer->nr < nr)
		assert_true(hugepool_dispatch(pool, LONG_MS) > 0);
}

static void wait_for_waiting(struct fixture *f, unsigned n)
{
	for (int i = 0; i < 6000 && peer_zone(f->admin, 0).waiting != n; i++)
		poll(NULL, 0, 5);
	assert_int_equal(peer_zone(f->admin, 0).waiting, n);
}

/* Waits until somebody else gives; the handle is of use meanwhile; what comes is zero. */
static void test_waits(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range all = take(f->other, LIMIT_PAGES), part;
	struct answer answer = {0};
	int id;

	id = ask(f->pool, LIMIT_PAGES / 2, LONG_MS, &answer);
	assert_true(id > 0);
	wait_for_waiting(f, 1);
	assert_int_equal(hugepool_free_part(f->other, &all, 0, BLOCK_PAGES * PAGE, NULL), 0);
	part = take(f->pool, 1);
	assert_int_equal(hugepool_free(f->pool, &part), 0);
	assert_int_equal(hugepool_dispatch(f->pool, 0), 0);
	assert_int_equal(hugepool_free(f->other, &all), 0);
	await(f->pool, &answer, 1);
	assert_int_equal(answer.result, 0);
	for (uint64_t i = 0; i < answer.range.bytes; i += 4096)
		assert_int_equal(((char *)answer.range.address)[i], 0);
	assert_int_equal(hugepool_cancel(f->pool, id), -ENOENT);
	assert_int_equal(hugepool_free_async(f->pool, &answer.range, NULL, NULL), 0);
}

/* The deadline passes with numbers; cancelled is cancelled; above the limit is refused at once. */
static void test_ends_of_waiting(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range all = take(f->other, LIMIT_PAGES);
	struct answer answer = {0};
	int id;

	assert_true(ask(f->pool, 2, 1, &answer) > 0);
	await(f->pool, &answer, 1);
	assert_int_equal(answer.result, -ETIMEDOUT);
	assert_int_equal(answer.error.asked_bytes, 2 * PAGE);
	assert_string_equal(answer.error.zone, "small");

	id = ask(f->pool, 2, LONG_MS, &answer);
	assert_true(id > 0);
	wait_for_waiting(f, 1);
	assert_int_equal(hugepool_cancel(f->pool, id), 0);
	await(f->pool, &answer, 2);
	assert_int_equal(answer.result, -ECANCELED);
	wait_for_waiting(f, 0);

	assert_true(ask(f->pool, LIMIT_PAGES + 1, LONG_MS, &answer) > 0);
	await(f->pool, &answer, 3);
	assert_int_equal(answer.result, -EDQUOT);
	assert_int_equal(answer.error.limit_bytes, LIMIT_PAGES * PAGE);
	assert_int_equal(hugepool_free(f->other, &all), 0);
}

/* Blocks go back to the daemon though a request waits: it is not its own hindrance. */
static void test_releases_while_waiting(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range most = take(f->other, LIMIT_PAGES - BLOCK_PAGES);
	struct hugepool_range own = take(f->pool, BLOCK_PAGES);
	struct hugepool_stats stats = {.size = sizeof(stats)};
	struct answer answer = {0};

	assert_true(ask(f->pool, 2 * BLOCK_PAGES, LONG_MS, &answer) > 0);
	wait_for_waiting(f, 1);
	assert_int_equal(hugepool_free(f->pool, &own), 0);
	do {
		assert_true(hugepool_dispatch(f->pool, 100) >= 0);
		assert_int_equal(hugepool_stats(f->pool, &stats), 0);
	} while (stats.block_bytes);
	assert_int_equal(answer.nr, 0);
	assert_int_equal(hugepool_free(f->other, &most), 0);
	await(f->pool, &answer, 1);
	assert_int_equal(answer.result, 0);
	assert_int_equal(hugepool_free(f->pool, &answer.range), 0);
}

/* More than may wait: held back here, and all of them come to their end. */
static void test_many(void **state)
{
	struct fixture *f = *state;
	struct hugepool_range all = take(f->other, LIMIT_PAGES);
	struct answer answers[NR_MANY] = {{0}};
	bool given = false;
	int over = 0;

	for (int i = 0; i < NR_MANY; i++)
		assert_true(ask(f->pool, 1, LONG_MS, &answers[i]) > 0);
	wait_for_waiting(f, HP_WAITS_PER_SESSION_MAX - 1);
	while (over < NR_MANY) {
		if (!given)
			assert_int_equal(hugepool_free(f->other, &all), 0);
		given = true;
		assert_true(hugepool_dispatch(f->pool, LONG_MS) > 0);
		for (int i = 0; i < NR_MANY; i++)
			if (answers[i].nr == 1) {
				assert_int_equal(answers[i].result, 0);
				answers[i].nr = 2;
				over++;
				assert_int_equal(
					hugepool_free_async(f->pool, &answers[i].range, NULL, NULL),
					0);
			}
	}
}

/* A cache gives back what somebody waits for, when it is used again. */
static void test_cache(void **state)
{
	struct fixture *f = *state;
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool_range range;
	struct answer answer = {0};

	options.high = LIMIT_PAGES;
	assert_int_equal(hugepool_cache_new(&cache, f->pool, &options), 0);
	assert_int_equal(hugepool_cache_fill(cache, LIMIT_PAGES), 0);
	assert_true(ask(f->other, LIMIT_PAGES - BLOCK_PAGES, LONG_MS, &answer) > 0);
	wait_for_waiting(f, 1);
	while (answer.nr == 0) {
		for (int i = 0; i < 1000; i++) {
			assert_int_equal(hugepool_cache_alloc(cache, &range), 0);
			*(volatile char *)range.address = 1;
			assert_int_equal(hugepool_cache_release(cache, &range), 0);
		}
		assert_true(hugepool_dispatch(f->other, 1) >= 0);
	}
	assert_int_equal(answer.result, 0);
	assert_int_equal(hugepool_free(f->other, &answer.range), 0);
	hugepool_cache_free(cache);
}

static void test_stats(void **state)
{
	struct fixture *f = *state;
	struct hugepool_stats stats = {.size = sizeof(stats)};
	struct hugepool_zone_stats zone = {.size = sizeof(zone)};
	struct hugepool_range range = take(f->pool, BLOCK_PAGES + 1);

	assert_int_equal(hugepool_stats(f->pool, &stats), 0);
	assert_int_equal(stats.zones, 1);
	assert_int_equal(stats.bytes, range.bytes);
	assert_int_equal(stats.block_bytes, 2 * BLOCK_PAGES * PAGE);
	assert_int_equal(hugepool_zone_stats(f->pool, 0, &zone), 0);
	assert_string_equal(zone.name, "small");
	assert_int_equal(zone.total_bytes, PAGES * PAGE);
	assert_int_equal(zone.free_bytes, PAGES * PAGE - range.bytes);
	assert_int_equal(zone.limit_bytes, LIMIT_PAGES * PAGE);
	assert_int_equal(zone.charged_bytes, 2 * BLOCK_PAGES * PAGE);
	assert_int_equal(zone.leasable_bytes, LIMIT_PAGES * PAGE - range.bytes);
	assert_int_equal(hugepool_zone_stats(f->pool, 1, &zone), -ENODEV);
	assert_int_equal(hugepool_free(f->pool, &range), 0);
}

#define THREADS 3

static atomic_bool failed;

/* What a cache hands out is nobody else's. */
static void *churn(void *userdata)
{
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool_range range;
	uint64_t mine = (uintptr_t)&range;

	options.batch = 2;
	options.high = 4;
	if (hugepool_cache_new(&cache, userdata, &options))
		failed = true;
	for (uint64_t i = 0; i < 1000 && !failed; i++) {
		volatile uint64_t *word;

		if (hugepool_cache_alloc(cache, &range)) {
			failed = true;
			break;
		}
		word = range.address;
		*word = mine ^ i;
		if (i % 16 == 0 && hugepool_cache_flush(cache))
			failed = true;
		if (*word != (mine ^ i) || hugepool_cache_release(cache, &range))
			failed = true;
	}
	hugepool_cache_free(cache);
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	pthread_t threads[THREADS];
	struct answer answer = {0};

	failed = false;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, f->pool), 0);
	for (int i = 1; i <= 50; i++) {
		assert_true(ask(f->pool, 3, LONG_MS, &answer) > 0);
		await(f->pool, &answer, i);
		assert_int_equal(answer.result, 0);
		assert_int_equal(hugepool_free_async(f->pool, &answer.range, NULL, NULL), 0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_false(failed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends_of_waiting, setup, teardown),
		cmocka_unit_test_setup_teardown(test_releases_while_waiting, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stats, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
	};

	if (argc != 2)
		return 2;
	executable = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
