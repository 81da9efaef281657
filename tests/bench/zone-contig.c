/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges: freeing many neighbouring pages as a few large chunks, against freeing them one by one.
 *
 * Both sides are the product, in zones of the same kind, and begin with the same thing: ranges of
 * pages that have been split, so that each page is a lease of its own, as it is when pages of a
 * range are given back apart. One side frees a range by one hp_zone_free_contig(), the other frees
 * each of its pages by hp_zone_free() through its pcp. Taking and splitting is not timed, nor is
 * emptying the pcp between two passes (which spares the page-by-page side a part of its drains),
 * except in contig-loop, where all is.
 *
 * Blocks are of order 9 here, so that a range of 512 pages is a block and may be cached as one;
 * contig-512 has rows for the default, order 5, too, where such a range is 16 blocks. The rows
 * "product-whole" free leases that were never split, which is what a holder usually does.
 */
#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-product.h"

#define BLOCK_ORDER  9
#define RANGE_PAGES  512
#define RANGES	     8	/* held by each thread in one pass */
#define SMALL_PAGES  16 /* of contig-16 */
#define SMALL_RANGES 256
#define MAX_RANGES   SMALL_RANGES
#define LOOP	     16 /* rounds in one pass of contig-loop */

struct contig;

typedef void (*free_fn)(struct contig *contig, unsigned thread, const struct hp_range *range);

/* What is done with ranges, and how they are freed. */
struct shape {
	uint32_t range_pages, ranges; /* taken by each thread */
	uint32_t offset, pages;	      /* freed of each range */
	bool shared;		      /* pages count their references */
};

struct contig {
	struct product *product;
	const struct shape *shape;
	free_fn free;
	bool split;
	uint64_t locks; /* counted by count_locks() */
	struct hp_range held[BENCH_MAX_THREADS][MAX_RANGES];
};

/* --- ways to free ----------------------------------------------------------------------------- */

static void must(const char *call, int r)
{
	if (__builtin_expect(r != 0, false))
		product_failed(call, r);
}

static void free_pages(struct contig *contig, unsigned thread, hp_pfn_t pfn, uint32_t pages)
{
	struct product_hand *hand = &contig->product->hands[thread];

	must("hp_zone_free_contig",
	     hp_zone_free_contig(contig->product->zone, hand->pcp, hand->slot, pfn, pages));
}

static void free_contig(struct contig *contig, unsigned thread, const struct hp_range *range)
{
	free_pages(contig, thread, range->pfn + contig->shape->offset, contig->shape->pages);
}

static void free_one_by_one(struct contig *contig, unsigned thread, const struct hp_range *range)
{
	struct product_hand *hand = &contig->product->hands[thread];
	struct hp_range page = *range;

	page.pages = 1;
	page.pfn += contig->shape->offset;
	for (uint32_t i = 0; i < contig->shape->pages; i++, page.pfn++)
		must("hp_zone_free",
		     hp_zone_free(contig->product->zone, hand->pcp, hand->slot, &page));
}

/* --- work ------------------------------------------------------------------------------------- */

static void take_range(struct contig *contig, unsigned thread, struct hp_range *ret)
{
	const struct shape *shape = contig->shape;
	struct product_hand *hand = &contig->product->hands[thread];
	struct hp_request request = hand->page;
	struct hp_grant grant;

	request.pages = request.align = shape->range_pages;
	request.flags = shape->shared ? HP_ALLOC_SHARED : 0;
	must("hp_zone_alloc", hp_zone_alloc(contig->product->zone, hand->pcp, &request, &grant));
	if (contig->split)
		must("hp_zone_split",
		     hp_zone_split(contig->product->zone, hand->slot, &grant.range));
	*ret = grant.range;
}

/* What the timed part left of a range. */
static void free_rest(struct contig *contig, unsigned thread, const struct hp_range *range)
{
	const struct shape *shape = contig->shape;
	const uint32_t end = shape->offset + shape->pages;

	if (shape->offset > 0)
		free_pages(contig, thread, range->pfn, shape->offset);
	if (end < shape->range_pages)
		free_pages(contig, thread, range->pfn + end, shape->range_pages - end);
}

static void work_free(struct bench_section *section)
{
	struct contig *contig = section->state;
	struct hp_range *held = contig->held[section->thread];
	const uint32_t ranges = contig->shape->ranges;

	while (bench_more_together(section)) {
		for (uint32_t i = 0; i < ranges; i++)
			take_range(contig, section->thread, &held[i]);
		bench_meet(section);
		bench_begin(section);
		for (uint32_t i = 0; i < ranges; i++)
			contig->free(contig, section->thread, &held[i]);
		bench_end(section);
		section->ops += ranges;
		for (uint32_t i = 0; i < ranges; i++)
			free_rest(contig, section->thread, &held[i]);
		hp_pcp_drain(contig->product->hands[section->thread].pcp);
	}
}

static void work_loop(struct bench_section *section)
{
	struct contig *contig = section->state;

	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < LOOP; i++) {
			struct hp_range range;

			take_range(contig, section->thread, &range);
			contig->free(contig, section->thread, &range);
		}
		section->ops += LOOP;
	}
	bench_end(section);
}

/* --- cases ------------------------------------------------------------------------------------ */

static const struct shape shape_512 = {RANGE_PAGES, RANGES, 0, RANGE_PAGES, false};
static const struct shape shape_510 = {RANGE_PAGES, RANGES, 1, RANGE_PAGES - 2, false};
static const struct shape shape_16 = {SMALL_PAGES, SMALL_RANGES, 0, SMALL_PAGES, false};
static const struct shape shape_shared = {RANGE_PAGES, RANGES, 0, RANGE_PAGES, true};

/* A zone for each way, so that none works in the other's fragments. */
static struct contig *contig_new(struct bench *bench, const struct shape *shape,
				 unsigned block_order, unsigned threads, free_fn free, bool split)
{
	struct contig *contig = bench_memory(sizeof(*contig));

	contig->product = product_new(bench, PRODUCT_SMALL, block_order, shape->shared, threads);
	contig->shape = shape;
	contig->free = free;
	contig->split = split;
	return contig;
}

static void contig_free(struct contig *contig, struct bench *bench)
{
	product_free(contig->product, bench);
	bench_memory_free(contig);
}

static void report(struct bench *bench, const char *name, unsigned block_order,
		   const struct bench_subject *subject, const struct bench_subject *baseline,
		   const struct bench_quality *quality)
{
	bench_report(bench, &(struct bench_row){
				    .name = name,
				    .variant = subject->variant,
				    .pages = PRODUCT_SMALL,
				    .block_order = (int)block_order,
				    .threads = subject->threads,
				    .unit = "ns",
				    .value = subject->value,
				    .baseline = baseline->variant,
				    .baseline_value = baseline->value,
				    .quality = quality,
			    });
}

static void compare(struct bench *bench, const char *name, const struct shape *shape,
		    unsigned block_order, unsigned threads, bench_run_fn run)
{
	struct bench_subject subjects[] = {
		{.variant = "product",
		 .state = contig_new(bench, shape, block_order, threads, free_contig, true)},
		{.variant = "page-by-page",
		 .state = contig_new(bench, shape, block_order, threads, free_one_by_one, true)},
		{.variant = "product-whole",
		 .state = contig_new(bench, shape, block_order, threads, free_contig, false)},
	};
	/* A whole lease only where all of it is freed; the loop is about split ones. */
	const bool whole = shape->pages == shape->range_pages && run == work_free;
	struct bench_quality quality;

	for (unsigned i = 0; i < 3; i++) {
		subjects[i].threads = threads;
		subjects[i].run = run;
	}
	bench_measure(bench, subjects, whole ? 3 : 2, &quality);
	report(bench, name, block_order, &subjects[0], &subjects[1], &quality);
	if (whole)
		report(bench, name, block_order, &subjects[2], &subjects[1], &quality);
	for (unsigned i = 0; i < 3; i++)
		contig_free(subjects[i].state, bench);
}

void case_contig_512(struct bench *bench)
{
	for (unsigned threads = 1; threads <= 2 && threads <= bench_threads(bench); threads++) {
		compare(bench, "contig-512", &shape_512, BLOCK_ORDER, threads, work_free);
		compare(bench, "contig-512", &shape_512, PRODUCT_BLOCK_ORDER, threads, work_free);
	}
}

void case_contig_510(struct bench *bench)
{
	compare(bench, "contig-510", &shape_510, BLOCK_ORDER, 1, work_free);
}

void case_contig_16(struct bench *bench)
{
	compare(bench, "contig-16", &shape_16, BLOCK_ORDER, 1, work_free);
}

void case_contig_shared(struct bench *bench)
{
	compare(bench, "contig-shared", &shape_shared, BLOCK_ORDER, 1, work_free);
}

void case_contig_loop(struct bench *bench)
{
	compare(bench, "contig-loop", &shape_512, BLOCK_ORDER, 1, work_loop);
}

/* --- what is counted, not timed --------------------------------------------------------------- */

/* Zone lock acquisitions while the ranges of one pass are freed, until all of it is in the zone. */
static void count_locks(struct bench_section *section)
{
	struct contig *contig = section->state;
	struct product *product = contig->product;
	struct hp_range *held = contig->held[0];
	uint64_t before, look, after;

	for (uint32_t i = 0; i < contig->shape->ranges; i++)
		take_range(contig, 0, &held[i]);
	before = product_lock_acquisitions(product);
	look = product_lock_acquisitions(product) - before; /* looking itself may take it */
	before += look;
	for (uint32_t i = 0; i < contig->shape->ranges; i++)
		contig->free(contig, 0, &held[i]);
	hp_pcp_drain(product->hands[0].pcp);
	after = product_lock_acquisitions(product);
	contig->locks = after - before - look;
}

static double locks_per_range(struct bench *bench, free_fn free)
{
	struct contig *contig = contig_new(bench, &shape_512, BLOCK_ORDER, 1, free, true);
	double locks;

	bench_on_threads(bench, 1, count_locks, contig);
	locks = (double)contig->locks / shape_512.ranges;
	contig_free(contig, bench);
	return locks;
}

void case_locks_per_range(struct bench *bench)
{
	bench_report(bench, &(struct bench_row){
				    .name = "locks-per-range",
				    .variant = "product",
				    .pages = PRODUCT_SMALL,
				    .block_order = BLOCK_ORDER,
				    .threads = 1,
				    .unit = "locks",
				    .value = locks_per_range(bench, free_contig),
				    .baseline = "page-by-page",
				    .baseline_value = locks_per_range(bench, free_one_by_one),
			    });
}

void case_metadata(struct bench *bench)
{
	static const uint32_t sizes[] = {PRODUCT_SMALL, PRODUCT_LARGE};

	for (unsigned i = 0; i < 2; i++) {
		struct product *product =
			product_new(bench, sizes[i], PRODUCT_BLOCK_ORDER, false, 1);
		const size_t bytes = product->durable_bytes + product->scratch_bytes;

		bench_report(bench, &(struct bench_row){
					    .name = "metadata",
					    .variant = "product",
					    .pages = sizes[i],
					    .block_order = PRODUCT_BLOCK_ORDER,
					    .unit = "bytes",
					    .value = (double)bytes / sizes[i],
				    });
		product_free(product, bench);
	}
}
