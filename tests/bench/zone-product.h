/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product under the benchmark: a zone as the daemon has it, all checks on, its durable words in
 * a shared file mapping, one pcp for each thread.
 *
 * All threads work for the same owner, as the workers of the daemon do for one tenant, each with a
 * pcp and a holder slot of its own. All blocks are clean at the start; nothing is limited.
 */
#pragma once

#include "alloc/zone.h"
#include "tests/bench/harness.h"

#define PRODUCT_OWNER	    1u
#define PRODUCT_MAX_ORDER   10
#define PRODUCT_BLOCK_ORDER 5 /* 64 MiB of 2 MiB pages: what the daemon does by default */

#define PRODUCT_SMALL UINT32_C(12288)  /* pages: 24 GiB */
#define PRODUCT_LARGE UINT32_C(524288) /* 1 TiB */

struct product_hand {
	_Alignas(BENCH_CACHELINE) struct hp_pcp *pcp;
	void *pcp_memory;
	struct hp_request page, order9; /* for one page, for 512 */
	uint32_t slot;
};

struct product {
	struct hp_zone *zone;
	struct hp_zone_config config;
	unsigned threads;
	void *durable, *scratch;
	size_t durable_bytes, scratch_bytes;
	struct product_hand hands[BENCH_MAX_THREADS];
};

struct product *product_new(struct bench *bench, uint32_t pages, unsigned block_order,
			    bool refcounts, unsigned threads);
struct product *product_free(struct product *product, struct bench *bench);

/* Zone lock acquisitions so far. (Looking may be one itself.) */
uint64_t product_lock_acquisitions(struct product *product);

/* Ends the program if hp_zone_check() has anything to say. */
void product_check(struct product *product);

_Noreturn void product_failed(const char *call, int r);

/* One page; the grant is all that its holder needs to give it back. */
static inline void product_take(struct product *product, unsigned thread, struct hp_grant *ret)
{
	struct product_hand *hand = &product->hands[thread];
	const int r = hp_zone_alloc(product->zone, hand->pcp, &hand->page, ret);

	if (__builtin_expect(r != 0, false))
		product_failed("hp_zone_alloc", r);
}

static inline void product_give(struct product *product, unsigned thread,
				const struct hp_grant *grant)
{
	struct product_hand *hand = &product->hands[thread];
	const int r = hp_zone_free(product->zone, hand->pcp, hand->slot, &grant->range);

	if (__builtin_expect(r != 0, false))
		product_failed("hp_zone_free", r);
}
