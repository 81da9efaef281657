/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rte_mempool of DPDK: get and put of one object through a cache, for orientation. It is what the
 * users of such memory have at hand inside one process: no holders, no checks, nothing durable, no
 * ranges, and all of its functions inlined.
 *
 * The environment runs without huge pages and devices and only for this row; it binds the thread
 * that starts it to a processor, which is undone.
 */
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mempool.h>
#include <sched.h>

#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-product.h"

#define PAIRS_A_PASS 1024
#define CACHE	     256
#define OBJECT_BYTES 64

struct mempool {
	struct rte_mempool *pool;
	struct rte_mempool_cache *cache;
};

static void start_environment(void)
{
	char *args[] = {"bench-zone",  "--no-huge",
			"--no-pci",    "--no-telemetry",
			"--no-shconf", "--log-level=*:error",
			"-m",	       "64",
			"-l",	       "0",
			NULL};
	cpu_set_t before;

	if (sched_getaffinity(0, sizeof(before), &before) < 0)
		bench_die("sched_getaffinity");
	if (rte_eal_init((int)(sizeof(args) / sizeof(*args)) - 1, args) < 0)
		bench_die("rte_eal_init: %s", rte_strerror(rte_errno));
	if (sched_setaffinity(0, sizeof(before), &before) < 0)
		bench_die("sched_setaffinity");
}

struct mempool *mempool_new(void)
{
	struct mempool *mempool = bench_memory(sizeof(*mempool));

	start_environment();
	mempool->pool = rte_mempool_create("bench-zone", PRODUCT_SMALL, OBJECT_BYTES, 0, 0, NULL,
					   NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	mempool->cache = rte_mempool_cache_create(CACHE, SOCKET_ID_ANY);
	if (!mempool->pool || !mempool->cache)
		bench_die("rte_mempool_create: %s", rte_strerror(rte_errno));
	return mempool;
}

void mempool_pair(struct bench_section *section)
{
	struct mempool *mempool = section->state;

	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < PAIRS_A_PASS; i++) {
			void *object;

			if (rte_mempool_generic_get(mempool->pool, &object, 1, mempool->cache) < 0)
				bench_die("rte_mempool_generic_get");
			rte_mempool_generic_put(mempool->pool, &object, 1, mempool->cache);
		}
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
}

struct mempool *mempool_free(struct mempool *mempool)
{
	rte_mempool_cache_flush(mempool->cache, mempool->pool);
	rte_mempool_cache_free(mempool->cache);
	rte_mempool_free(mempool->pool);
	(void)rte_eal_cleanup();
	bench_memory_free(mempool);
	return NULL;
}
