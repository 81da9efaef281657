/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone for the benchmark. The durable words are in a memfd, which is what a file of /run is to
 * the processor: shared, page by page, never written back. Scratch memory and the pcps are private
 * memory, of the same kind as the memory of the models.
 */
#include "tests/bench/zone-product.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Noreturn void product_failed(const char *call, int r)
{
	if (r < 0)
		bench_die("%s: %s", call, strerror(-r));
	bench_die("%s: condition %d", call, r);
}

static void *shared_file(size_t bytes)
{
	const int fd = memfd_create("bench-zone-durable", MFD_CLOEXEC);
	void *memory;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		bench_die("memfd of %zu bytes: %s", bytes, strerror(errno));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED)
		bench_die("mmap of the memfd: %s", strerror(errno));
	close(fd);
	return memory;
}

/* A pcp is made by the thread that works with it. */
static void make_hand(struct bench_section *section)
{
	struct product *product = section->state;
	struct product_hand *hand = &product->hands[section->thread];
	int r;

	hand->slot = section->thread + 1;
	hand->page = (struct hp_request){.owner = PRODUCT_OWNER, .slot = hand->slot, .pages = 1};
	hand->order9 = hand->page;
	hand->order9.pages = 512;
	hand->pcp_memory = bench_memory(hp_pcp_size(product->zone));
	r = hp_pcp_init(&hand->pcp, hand->pcp_memory, product->zone, PRODUCT_OWNER);
	if (r)
		product_failed("hp_pcp_init", r);
}

static void unmake_hand(struct bench_section *section)
{
	struct product *product = section->state;
	struct product_hand *hand = &product->hands[section->thread];

	hp_pcp_deinit(hand->pcp);
	bench_memory_free(hand->pcp_memory);
}

struct product *product_new(struct bench *bench, uint32_t pages, unsigned block_order,
			    bool refcounts, unsigned threads)
{
	struct product *product = bench_memory(sizeof(*product));
	int r;

	product->config = (struct hp_zone_config){
		.nr_pages = pages,
		.nr_owners = 8,
		.id = 0,
		.pageblock_order = (uint8_t)block_order,
		.max_order = PRODUCT_MAX_ORDER,
		.refcounts = refcounts,
	};
	product->threads = threads;
	product->zone = bench_memory(hp_zone_struct_size());
	r = hp_zone_sizes(&product->config, &product->durable_bytes, &product->scratch_bytes);
	if (r)
		product_failed("hp_zone_sizes", r);
	product->durable = shared_file(product->durable_bytes);
	product->scratch = bench_memory(product->scratch_bytes);
	r = hp_zone_init(product->zone, &product->config, product->durable, product->scratch);
	if (r)
		product_failed("hp_zone_init", r);
	for (uint32_t block = 0; block < hp_zone_nr_blocks(product->zone); block++) {
		r = hp_zone_online(product->zone, block, 1);
		if (r)
			product_failed("hp_zone_online", r);
	}
	bench_on_threads(bench, threads, make_hand, product);
	return product;
}

struct product *product_free(struct product *product, struct bench *bench)
{
	bench_on_threads(bench, product->threads, unmake_hand, product);
	product_check(product);
	hp_zone_deinit(product->zone);
	munmap(product->durable, product->durable_bytes);
	bench_memory_free(product->scratch);
	bench_memory_free(product->zone);
	bench_memory_free(product);
	return NULL;
}

uint64_t product_lock_acquisitions(struct product *product)
{
	struct hp_zone_stats stats;

	hp_zone_stats(product->zone, &stats);
	return stats.lock_acquisitions;
}

static void print_violation(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "bench-zone: %s\n", message);
}

void product_check(struct product *product)
{
	if (hp_zone_check(product->zone, print_violation, NULL) != 0)
		bench_die("the zone is damaged");
}
