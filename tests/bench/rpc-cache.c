/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range out of a thread's own cache and back into it, without the daemon. The baseline is the least
 * that sharing between threads costs: a lock that nobody else wants. The harness has threads running,
 * so the C library takes no short cut.
 */
#include <pthread.h>
#include <string.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/rpc-cases.h"

#define PAIRS_A_PASS 1000
#define STOCK	     32

static void run_cache(struct bench_section *section)
{
	struct hugepool_cache *cache = section->state;
	struct hugepool_range range;
	int failed = 0;

	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < PAIRS_A_PASS; i++) {
			failed |= hugepool_cache_alloc(cache, &range);
			failed |= hugepool_cache_release(cache, &range);
		}
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
	if (failed)
		bench_die("the cache has failed");
}

static void run_mutex(struct bench_section *section)
{
	pthread_mutex_t *mutex = section->state;

	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < PAIRS_A_PASS; i++) {
			pthread_mutex_lock(mutex);
			pthread_mutex_unlock(mutex);
		}
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
}

static void compare(struct bench *bench, struct hugepool_cache *cache)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct bench_subject subjects[] = {
		{.variant = "product", .threads = 1, .run = run_cache, .state = cache},
		{.variant = "pthread_mutex", .threads = 1, .run = run_mutex, .state = &mutex},
	};
	struct bench_quality quality;

	bench_measure(bench, subjects, 2, &quality);
	bench_report(bench, &(struct bench_row){
				    .name = "cache-hit",
				    .variant = "product",
				    .threads = 1,
				    .unit = "ns",
				    .value = subjects[0].value,
				    .baseline = subjects[1].variant,
				    .baseline_value = subjects[1].value,
				    .kind = BENCH_COST,
				    .quality = &quality,
			    });
}

void case_cache_hit(struct bench *bench)
{
	const struct stage_shape shape = RPC_SHAPE(16, 1);
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_cache *cache;
	struct hugepool *pool;
	int r;

	if (!stage_begin("cache-hit", &shape))
		return;
	options.socket = stage_socket();
	r = hugepool_open(&pool, &options);
	if (r == 0)
		r = hugepool_cache_new(&cache, pool, NULL);
	if (r == 0)
		r = hugepool_cache_fill(cache, STOCK);
	if (r < 0)
		bench_die("a cache: %s", strerror(-r));
	compare(bench, cache);
	hugepool_cache_free(cache);
	hugepool_close(pool);
	stage_end();
}
