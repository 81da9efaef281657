/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases of single pages. Each workload is written once and compiled for each side with direct
 * calls to functions of other translation units; both draw the same random numbers.
 *
 * What a side remembers of a page is as small as it can be where many are held for long, since it
 * is not the allocator's memory that is measured: a number for the models, for the product a word
 * of page and generation, like the one that clients keep. Where a page goes back at once, the
 * product's grant is used as it came.
 *
 * "Half of the zone" is half of it in all: with two threads a quarter for each. On the product's
 * side one owner has that half from the beginning, used and idle again, as a tenant at work has: the
 * models know no owners, so all of the zone is theirs. What a tenant pays who has just come, and
 * whose caches are therefore kept small, is a row of page_fault1.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-model.h"
#include "tests/bench/zone-product.h"

#define PAIRS_A_PASS  1024
#define RANDOM_WORDS  UINT32_C(65536) /* of a sequence drawn in advance: a power of two */
#define FAULT_PAGES   64	      /* 128 MiB */
#define FAULT_WARM_UP 100	      /* passes */
#define BLOCK_ORDER_9 9
#define PLACEMENTS    3 /* in memory, of what is compared: the median of them counts */

/* page: what the side remembers of it. */
typedef void (*take_fn)(void *allocator, unsigned thread, void *ret_page);
typedef void (*give_fn)(void *allocator, unsigned thread, const void *page);

#define FORCE_INLINE static inline __attribute__((always_inline))

/* What a thread holds. */
struct hand {
	_Alignas(BENCH_CACHELINE) char *held;
	uint32_t *order;  /* in which to give back: a permutation of 0 .. share - 1 */
	uint32_t *random; /* RANDOM_WORDS */
	uint32_t nr_held, next_random;
};

/* One allocator at work. */
struct side {
	void *allocator;
	struct product *product;
	struct model *model;
	uint32_t pages, share; /* of the zone; of one thread, when half of the zone is taken */
	unsigned block_order, threads;
	struct hand hands[BENCH_MAX_THREADS];
};

/* --- sides ------------------------------------------------------------------------------------ */

/* sizeof(page_SIDE) is what SIDE remembers of a page. */
typedef struct hp_grant page_product, page_product_order9;
typedef uint64_t page_product_word;
typedef uint32_t page_model, page_biased, page_zone_lock;

#define MAX_PAGE_BYTES sizeof(struct hp_grant)

FORCE_INLINE void take_product(void *allocator, unsigned thread, void *ret_page)
{
	product_take(allocator, thread, ret_page);
}

FORCE_INLINE void give_product(void *allocator, unsigned thread, const void *page)
{
	product_give(allocator, thread, page);
}

FORCE_INLINE void take_product_word(void *allocator, unsigned thread, void *ret_page)
{
	struct hp_grant grant;

	product_take(allocator, thread, &grant);
	*(page_product_word *)ret_page = (uint64_t)grant.range.generation << 32 | grant.range.pfn;
}

FORCE_INLINE void give_product_word(void *allocator, unsigned thread, const void *page)
{
	const uint64_t word = *(const page_product_word *)page;
	const struct hp_grant grant = {
		.range = {.pfn = (hp_pfn_t)word, .pages = 1, .generation = (uint32_t)(word >> 32)},
	};

	product_give(allocator, thread, &grant);
}

FORCE_INLINE void take_model(void *allocator, unsigned thread, void *ret_page)
{
	*(page_model *)ret_page = model_take(allocator, thread);
}

FORCE_INLINE void give_model(void *allocator, unsigned thread, const void *page)
{
	model_give(allocator, thread, *(const page_model *)page);
}

FORCE_INLINE void take_biased(void *allocator, unsigned thread, void *ret_page)
{
	*(page_biased *)ret_page = model_take_biased(allocator, thread);
}

FORCE_INLINE void give_biased(void *allocator, unsigned thread, const void *page)
{
	model_give_biased(allocator, thread, *(const page_biased *)page);
}

/* Half of the largest order of the model, so that a pair always splits and merges. */
FORCE_INLINE void take_zone_lock(void *allocator, unsigned thread, void *ret_page)
{
	(void)thread;
	*(page_zone_lock *)ret_page = model_zone_take(allocator, BLOCK_ORDER_9);
}

FORCE_INLINE void give_zone_lock(void *allocator, unsigned thread, const void *page)
{
	(void)thread;
	model_zone_give(allocator, *(const page_zone_lock *)page, BLOCK_ORDER_9);
}

FORCE_INLINE void take_product_order9(void *allocator, unsigned thread, void *ret_page)
{
	struct product *product = allocator;
	struct product_hand *hand = &product->hands[thread];
	const int r = hp_zone_alloc(product->zone, hand->pcp, &hand->order9, ret_page);

	if (__builtin_expect(r != 0, false))
		product_failed("hp_zone_alloc of order 9", r);
}

FORCE_INLINE void give_product_order9(void *allocator, unsigned thread, const void *page)
{
	product_give(allocator, thread, page);
}

static void make_hands(struct side *side)
{
	for (unsigned i = 0; i < side->threads; i++) {
		struct hand *hand = &side->hands[i];
		uint64_t random = i + 1;

		hand->held = bench_memory(side->pages * MAX_PAGE_BYTES);
		hand->order = bench_memory(side->share * sizeof(*hand->order));
		hand->random = bench_memory(RANDOM_WORDS * sizeof(*hand->random));
		for (uint32_t j = 0; j < side->share; j++) {
			const uint32_t k = bench_random_below(&random, j + 1);

			hand->order[j] = hand->order[k];
			hand->order[k] = j;
		}
		for (uint32_t j = 0; j < RANDOM_WORDS; j++)
			hand->random[j] = bench_random(&random);
	}
}

static struct side *side_new(uint32_t pages, unsigned block_order, unsigned threads)
{
	struct side *side = bench_memory(sizeof(*side));

	side->pages = pages;
	side->share = pages / 2 / threads;
	side->block_order = block_order;
	side->threads = threads;
	make_hands(side);
	return side;
}

static struct side *side_new_owner(struct bench *bench, uint32_t pages, unsigned block_order,
				   unsigned threads)
{
	struct side *side = side_new(pages, block_order, threads);

	side->allocator = side->product = product_new(bench, pages, block_order, false, threads);
	return side;
}

static void own_share(struct bench_section *section)
{
	struct side *side = section->state;
	page_product *held = (page_product *)(void *)side->hands[section->thread].held;

	for (uint32_t i = 0; i < side->share; i++)
		product_take(side->product, section->thread, &held[i]);
	for (uint32_t i = 0; i < side->share; i++)
		product_give(side->product, section->thread, &held[i]);
	hp_pcp_drain(side->product->hands[section->thread].pcp);
}

/* The owner has had half of the zone before, and its blocks are still his. */
static struct side *side_product(struct bench *bench, uint32_t pages, unsigned block_order,
				 unsigned threads)
{
	struct side *side = side_new_owner(bench, pages, block_order, threads);

	bench_on_threads(bench, threads, own_share, side);
	return side;
}

static struct side *side_model(uint32_t pages, enum model_drain drain, unsigned threads)
{
	struct side *side = side_new(pages, PRODUCT_BLOCK_ORDER, threads);

	model_self_check(pages, drain);
	side->allocator = side->model = model_new(pages, drain, threads);
	return side;
}

/* What churn still holds. */
static void give_held(struct bench_section *section)
{
	struct side *side = section->state;
	struct hand *hand = &side->hands[section->thread];

	while (hand->nr_held > 0)
		give_product_word(side->product, section->thread,
				  hand->held + --hand->nr_held * sizeof(page_product_word));
}

static void side_free(struct side *side, struct bench *bench)
{
	if (side->product)
		bench_on_threads(bench, side->threads, give_held, side);
	for (unsigned i = 0; i < side->threads; i++) {
		struct hand *hand = &side->hands[i];

		bench_memory_free(hand->held);
		bench_memory_free(hand->order);
		bench_memory_free(hand->random);
	}
	if (side->model)
		model_free(side->model);
	else
		product_free(side->product, bench);
	bench_memory_free(side);
}

/* --- workloads -------------------------------------------------------------------------------- */

/* One page taken and given back at once: the pcp serves both. */
FORCE_INLINE void work_pair(struct bench_section *section, take_fn take, give_fn give, size_t size)
{
	struct side *side = section->state;
	const unsigned thread = section->thread;
	char *page = side->hands[thread].held;

	(void)size;
	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < PAIRS_A_PASS; i++) {
			take(side->allocator, thread, page);
			give(side->allocator, thread, page);
		}
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
}

/* A share of the zone taken page by page, then all of it given back in the order it came. */
FORCE_INLINE void work_bulk(struct bench_section *section, take_fn take, give_fn give, size_t size)
{
	struct side *side = section->state;
	const unsigned thread = section->thread;
	char *held = side->hands[thread].held;

	bench_begin(section);
	while (bench_more(section)) {
		for (uint32_t i = 0; i < side->share; i++)
			take(side->allocator, thread, held + i * size);
		for (uint32_t i = 0; i < side->share; i++)
			give(side->allocator, thread, held + i * size);
		section->ops += side->share;
	}
	bench_end(section);
}

/* The same, given back in random order. */
FORCE_INLINE void work_random(struct bench_section *section, take_fn take, give_fn give,
			      size_t size)
{
	struct side *side = section->state;
	const unsigned thread = section->thread;
	const struct hand *hand = &side->hands[thread];

	bench_begin(section);
	while (bench_more(section)) {
		for (uint32_t i = 0; i < side->share; i++)
			take(side->allocator, thread, hand->held + i * size);
		for (uint32_t i = 0; i < side->share; i++)
			give(side->allocator, thread, hand->held + hand->order[i] * size);
		section->ops += side->share;
	}
	bench_end(section);
}

/*
 * Steady state. The zone is half full at the start, then each step takes a page or gives back a
 * random one, as the coin falls; a thread holds between half and one and a half of its share. Two
 * steps count as one operation, a pair.
 */
FORCE_INLINE void work_churn(struct bench_section *section, take_fn take, give_fn give, size_t size)
{
	struct side *side = section->state;
	const unsigned thread = section->thread;
	struct hand *hand = &side->hands[thread];
	char *held = hand->held;
	uint32_t n = hand->nr_held, next = hand->next_random;

	while (n < side->share)
		take(side->allocator, thread, held + n++ * size);
	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < 2 * PAIRS_A_PASS; i++) {
			const uint32_t word = hand->random[next++ & (RANDOM_WORDS - 1)];

			if ((word & 1 || n <= side->share / 2) && n < side->share * 3 / 2) {
				take(side->allocator, thread, held + n++ * size);
			} else {
				char *page = held + ((uint64_t)word * n >> 32) * size;

				give(side->allocator, thread, page);
				memcpy(page, held + --n * size, size);
			}
		}
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
	hand->nr_held = n;
	hand->next_random = next;
}

/* A program that maps 128 MiB, touches every page of it and unmaps it, over and over. */
FORCE_INLINE void fault_pass(struct side *side, unsigned thread, take_fn take, give_fn give,
			     size_t size)
{
	char *held = side->hands[thread].held;

	for (unsigned i = 0; i < FAULT_PAGES; i++)
		take(side->allocator, thread, held + i * size);
	for (unsigned i = 0; i < FAULT_PAGES; i++)
		give(side->allocator, thread, held + i * size);
}

FORCE_INLINE void work_fault(struct bench_section *section, take_fn take, give_fn give, size_t size)
{
	bench_begin(section);
	while (bench_more(section)) {
		for (unsigned i = 0; i < PAIRS_A_PASS / FAULT_PAGES; i++)
			fault_pass(section->state, section->thread, take, give, size);
		section->ops += PAIRS_A_PASS;
	}
	bench_end(section);
}

#define WORK(workload, side)                                                             \
	static void workload##_##side(struct bench_section *section)                     \
	{                                                                                \
		work_##workload(section, take_##side, give_##side, sizeof(page_##side)); \
	}

WORK(pair, product)
WORK(pair, product_order9)
WORK(pair, model)
WORK(pair, biased)
WORK(pair, zone_lock)
WORK(bulk, product_word)
WORK(bulk, model)
WORK(bulk, biased)
WORK(random, product_word)
WORK(random, model)
WORK(random, biased)
WORK(churn, product_word)
WORK(churn, model)
WORK(churn, biased)
WORK(fault, product)
WORK(fault, model)

/* --- cases ------------------------------------------------------------------------------------ */

struct comparison {
	const char *name, *baseline;
	uint32_t pages;
	unsigned block_order, threads;
	bench_run_fn product, model;
	bench_run_fn biased; /* NULL: no such variant */
};

static void row_of(const struct comparison *c, const struct bench_subject *subject,
		   const struct bench_subject *baseline, const struct bench_quality *quality,
		   struct bench_row *ret)
{
	*ret = (struct bench_row){
		.name = c->name,
		.variant = subject->variant,
		.pages = c->pages,
		.block_order = (int)c->block_order,
		.threads = c->threads,
		.unit = "ns",
		.value = subject->value,
		.baseline = baseline->variant,
		.baseline_value = baseline->value,
		.quality = quality,
	};
}

static void report(struct bench *bench, const struct comparison *c,
		   const struct bench_subject *subject, const struct bench_subject *baseline,
		   const struct bench_quality *quality)
{
	struct bench_row row;

	row_of(c, subject, baseline, quality, &row);
	bench_report(bench, &row);
}

/* One placement in memory of all sides: the rounds, and what they add to the quality. */
static void compare_placed(struct bench *bench, const struct comparison *c,
			   struct bench_subject subjects[3], unsigned n,
			   struct bench_quality *quality)
{
	struct bench_quality placed;

	subjects[0].state = side_product(bench, c->pages, c->block_order, c->threads);
	for (unsigned i = 1; i < n; i++)
		subjects[i].state = side_model(c->pages, MODEL_PICK_INSIDE, c->threads);
	bench_measure(bench, subjects, n, &placed);
	quality->rounds += placed.rounds;
	quality->discarded += placed.discarded;
	quality->disturbed += placed.disturbed;
	for (unsigned i = 0; i < n; i++)
		side_free(subjects[i].state, bench);
}

static void compare(struct bench *bench, const struct comparison *c)
{
	struct bench_subject subjects[] = {
		{.variant = "product", .threads = c->threads, .run = c->product},
		{.variant = c->baseline, .threads = c->threads, .run = c->model},
		{.variant = "kernel-like-biased", .threads = c->threads, .run = c->biased},
	};
	const unsigned n = c->biased ? 3 : 2;
	double values[3][PLACEMENTS];
	struct bench_quality quality = {0};

	for (unsigned placement = 0; placement < PLACEMENTS; placement++) {
		bench_memory_place(placement);
		compare_placed(bench, c, subjects, n, &quality);
		for (unsigned i = 0; i < n; i++)
			values[i][placement] = subjects[i].value;
	}
	for (unsigned i = 0; i < n; i++)
		subjects[i].value = bench_median(values[i], PLACEMENTS);
	report(bench, c, &subjects[0], &subjects[1], &quality);
	if (c->biased)
		report(bench, c, &subjects[2], &subjects[1], &quality);
}

/* On one thread, then on two where there are two. */
static void compare_1_2(struct bench *bench, struct comparison c)
{
	for (c.threads = 1; c.threads <= 2 && c.threads <= bench_threads(bench); c.threads++)
		compare(bench, &c);
}

#ifdef BENCH_MEMPOOL
static void compare_mempool(struct bench *bench)
{
	struct side *product = side_product(bench, PRODUCT_SMALL, PRODUCT_BLOCK_ORDER, 1);
	struct mempool *mempool = mempool_new();
	struct bench_subject subjects[] = {
		{.variant = "rte_mempool", .threads = 1, .run = mempool_pair, .state = mempool},
		{.variant = "product", .threads = 1, .run = pair_product, .state = product},
	};
	const struct comparison c = {.name = "pcp-hit",
				     .pages = PRODUCT_SMALL,
				     .block_order = PRODUCT_BLOCK_ORDER,
				     .threads = 1};
	struct bench_quality quality;

	bench_measure(bench, subjects, 2, &quality);
	report(bench, &c, &subjects[0], &subjects[1], &quality);
	mempool_free(mempool);
	side_free(product, bench);
}
#endif

void case_pcp_hit(struct bench *bench)
{
	compare_1_2(bench, (struct comparison){.name = "pcp-hit",
					       .baseline = "kernel-like",
					       .pages = PRODUCT_SMALL,
					       .block_order = PRODUCT_BLOCK_ORDER,
					       .product = pair_product,
					       .model = pair_model,
					       .biased = pair_biased});
#ifdef BENCH_MEMPOOL
	compare_mempool(bench);
#endif
}

void case_pcp_hit_order9(struct bench *bench)
{
	compare_1_2(bench, (struct comparison){.name = "pcp-hit-order9",
					       .baseline = "zone-lock",
					       .pages = PRODUCT_SMALL,
					       .block_order = BLOCK_ORDER_9,
					       .product = pair_product_order9,
					       .model = pair_zone_lock});
}

void case_bulk(struct bench *bench)
{
	compare_1_2(bench, (struct comparison){.name = "bulk",
					       .baseline = "kernel-like",
					       .pages = PRODUCT_SMALL,
					       .block_order = PRODUCT_BLOCK_ORDER,
					       .product = bulk_product_word,
					       .model = bulk_model,
					       .biased = bulk_biased});
}

void case_random(struct bench *bench)
{
	compare_1_2(bench, (struct comparison){.name = "random",
					       .baseline = "kernel-like",
					       .pages = PRODUCT_SMALL,
					       .block_order = PRODUCT_BLOCK_ORDER,
					       .product = random_product_word,
					       .model = random_model,
					       .biased = random_biased});
}

void case_churn(struct bench *bench)
{
	compare(bench, &(struct comparison){.name = "churn",
					    .baseline = "kernel-like",
					    .pages = PRODUCT_SMALL,
					    .block_order = PRODUCT_BLOCK_ORDER,
					    .threads = 2,
					    .product = churn_product_word,
					    .model = churn_model,
					    .biased = churn_biased});
}

/* Throughput of two threads against that of one. */
static void scale(struct bench *bench, const char *name, bench_run_fn run)
{
	struct side *two = side_product(bench, PRODUCT_SMALL, PRODUCT_BLOCK_ORDER, 2);
	struct side *one = side_product(bench, PRODUCT_SMALL, PRODUCT_BLOCK_ORDER, 1);
	struct bench_subject subjects[] = {
		{.variant = "product",
		 .kind = BENCH_THROUGHPUT,
		 .threads = 2,
		 .run = run,
		 .state = two},
		{.variant = "1-thread",
		 .kind = BENCH_THROUGHPUT,
		 .threads = 1,
		 .run = run,
		 .state = one},
	};
	const struct comparison c = {.name = name,
				     .pages = PRODUCT_SMALL,
				     .block_order = PRODUCT_BLOCK_ORDER,
				     .threads = 2};
	struct bench_quality quality;
	struct bench_row row;

	bench_measure(bench, subjects, 2, &quality);
	row_of(&c, &subjects[0], &subjects[1], &quality, &row);
	row.kind = BENCH_THROUGHPUT;
	row.unit = "op/s";
	bench_report(bench, &row);
	side_free(one, bench);
	side_free(two, bench);
}

void case_scale_pcp_hit(struct bench *bench)
{
	scale(bench, "scale-pcp-hit", pair_product);
}

void case_scale_bulk(struct bench *bench)
{
	scale(bench, "scale-bulk", bulk_product_word);
}

/* The product in a zone of 1 TiB against itself in one of 24 GiB. */
static void size(struct bench *bench, const char *name, bench_run_fn run)
{
	struct side *large = side_product(bench, PRODUCT_LARGE, PRODUCT_BLOCK_ORDER, 1);
	struct side *small = side_product(bench, PRODUCT_SMALL, PRODUCT_BLOCK_ORDER, 1);
	struct bench_subject subjects[] = {
		{.variant = "product", .threads = 1, .run = run, .state = large},
		{.variant = "pages-12288", .threads = 1, .run = run, .state = small},
	};
	const struct comparison c = {.name = name,
				     .pages = PRODUCT_LARGE,
				     .block_order = PRODUCT_BLOCK_ORDER,
				     .threads = 1};
	struct bench_quality quality;

	bench_measure(bench, subjects, 2, &quality);
	report(bench, &c, &subjects[0], &subjects[1], &quality);
	side_free(small, bench);
	side_free(large, bench);
}

void case_size_pcp_hit(struct bench *bench)
{
	size(bench, "size-pcp-hit", pair_product);
}

void case_size_bulk(struct bench *bench)
{
	size(bench, "size-bulk", bulk_product_word);
}

/* --- page_fault1 ------------------------------------------------------------------------------ */

void case_page_fault1(struct bench *bench)
{
	const struct comparison c = {.name = "page_fault1",
				     .pages = PRODUCT_SMALL,
				     .block_order = PRODUCT_BLOCK_ORDER,
				     .threads = 2};
	struct side *product = side_product(bench, c.pages, c.block_order, c.threads);
	struct side *model = side_model(c.pages, MODEL_PICK_INSIDE, c.threads);
	struct side *new_owner = side_new_owner(bench, c.pages, c.block_order, c.threads);
	struct bench_subject subjects[] = {
		{.variant = "product", .threads = 2, .run = fault_product, .state = product},
		{.variant = "pick-inside", .threads = 2, .run = fault_model, .state = model},
		{.variant = "product-new-owner",
		 .threads = 2,
		 .run = fault_product,
		 .state = new_owner},
	};
	struct bench_quality quality;
	struct bench_row row;

	bench_measure_pairs(bench, subjects, 3, &quality);
	row_of(&c, &subjects[0], &subjects[1], &quality, &row);
	row.pairs = quality.rounds;
	row.p = bench_sign_test(&subjects[0], &subjects[1], quality.rounds, &row.pairs_better);
	if (!bench_quick(bench)) {
		row.instructions = callgrind_instructions("product");
		row.baseline_instructions = callgrind_instructions("pick-inside");
	}
	bench_report(bench, &row);
	report(bench, &c, &subjects[2], &subjects[1], &quality);
	side_free(new_owner, bench);
	side_free(model, bench);
	side_free(product, bench);
}

static void fault_passes_product(void *side, unsigned passes)
{
	while (passes-- > 0)
		fault_pass(side, 0, take_product, give_product, sizeof(page_product));
}

static void fault_passes_model(void *side, unsigned passes)
{
	while (passes-- > 0)
		fault_pass(side, 0, take_model, give_model, sizeof(page_model));
}

unsigned page_fault1_alone(const char *variant, unsigned passes)
{
	const bool is_product = strcmp(variant, "product") == 0;
	void (*const fn)(void *, unsigned) = is_product ? fault_passes_product : fault_passes_model;
	struct bench *bench = bench_new(true, true);
	struct side *side = is_product ? side_product(bench, PRODUCT_SMALL, PRODUCT_BLOCK_ORDER, 1)
				       : side_model(PRODUCT_SMALL, MODEL_PICK_INSIDE, 1);

	fn(side, FAULT_WARM_UP);
	callgrind_watched(fn, side, passes);
	side_free(side, bench);
	bench_free(bench);
	return passes * FAULT_PAGES;
}
