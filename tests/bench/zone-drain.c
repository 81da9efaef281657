/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drain alone: pages that go from a pcp back to the zone's buddy lists.
 *
 * Each thread holds a random half of its part of the zone. A pass puts some batches of random pages
 * of these into the pcp, which has been told to keep them, then, on all threads at once, drains it
 * batch by batch; only that is timed. Afterwards as many pages are taken again. So the pages that
 * are drained are those that a program gives back, with buddies that are free, held or cached as it
 * comes, and the zone stays as mixed as it was.
 */
#include "alloc/internal.h"
#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-model.h"
#include "tests/bench/zone-product.h"

#define BATCHES	   4 /* drained in one pass */
#define PASS_PAGES (BATCHES * MODEL_BATCH)
#define SLACK	   2048 /* pages that stay free while the threads take the zone */

/* What a side remembers of a page. */
union page {
	struct hp_grant grant;
	uint32_t number;
};

/* How a side does its work. */
struct drain_ops {
	const char *variant;
	void (*take)(void *allocator, unsigned thread, union page *ret);
	void (*give)(void *allocator, unsigned thread, const union page *page);
	uint32_t (*drain_batch)(void *allocator, unsigned thread);
	uint64_t (*lock_held_ns)(void *allocator);
	bool is_product;
	enum hp_drain_variant product_drain;
	enum model_drain model_drain;
};

struct drain_hand {
	_Alignas(BENCH_CACHELINE) union page *held;
	uint32_t nr_held;
	uint64_t random;
};

struct drain_side {
	const struct drain_ops *ops;
	void *allocator;
	struct product *product;
	struct model *model;
	uint32_t pages;
	unsigned threads;
	struct drain_hand hands[BENCH_MAX_THREADS];
};

/* --- the product ------------------------------------------------------------------------------ */

static void take_product(void *allocator, unsigned thread, union page *ret)
{
	product_take(allocator, thread, &ret->grant);
}

static void give_product(void *allocator, unsigned thread, const union page *page)
{
	product_give(allocator, thread, &page->grant);
}

static uint32_t drain_product(void *allocator, unsigned thread)
{
	struct product *product = allocator;

	return hp_pcp_drain_batch(product->hands[thread].pcp);
}

static uint64_t product_held_ns(void *allocator)
{
#ifdef HP_LOCK_TIMES
	struct product *product = allocator;

	return product->zone->lock.held_ns;
#else
	(void)allocator;
	return 0;
#endif
}

#define PRODUCT_OPS(name, how)                                                                     \
	{                                                                                          \
		.variant = (name), .take = take_product, .give = give_product,                     \
		.drain_batch = drain_product, .lock_held_ns = product_held_ns, .is_product = true, \
		.product_drain = (how)                                                             \
	}

/* The product as it is, and told to drain in each way. */
static const struct drain_ops product_ops[] = {
	PRODUCT_OPS("product", HP_DRAIN_DEFAULT),
	PRODUCT_OPS("product-pick-inside", HP_DRAIN_PICK_INSIDE),
	PRODUCT_OPS("product-pick-outside", HP_DRAIN_PICK_OUTSIDE),
	PRODUCT_OPS("product-pick-outside-prefetch", HP_DRAIN_PICK_OUTSIDE_PREFETCH),
};

/* --- the models ------------------------------------------------------------------------------- */

static void take_model(void *allocator, unsigned thread, union page *ret)
{
	ret->number = model_take(allocator, thread);
}

static void give_model(void *allocator, unsigned thread, const union page *page)
{
	model_give(allocator, thread, page->number);
}

static uint32_t drain_model(void *allocator, unsigned thread)
{
	return model_drain_batch(allocator, thread);
}

static uint64_t model_held_ns(void *allocator)
{
	return model_lock_held_ns(allocator);
}

#define MODEL_OPS(name, how)                                                                    \
	{                                                                                       \
		.variant = (name), .take = take_model, .give = give_model,                      \
		.drain_batch = drain_model, .lock_held_ns = model_held_ns, .model_drain = (how) \
	}

/* The first is the baseline. */
static const struct drain_ops model_ops[] = {
	MODEL_OPS("pick-inside", MODEL_PICK_INSIDE),
	MODEL_OPS("pick-outside", MODEL_PICK_OUTSIDE),
	MODEL_OPS("pick-outside-prefetch", MODEL_PICK_OUTSIDE_PREFETCH),
};

/* --- sides ------------------------------------------------------------------------------------ */

static void drain_all(struct drain_side *side, unsigned thread)
{
	while (side->ops->drain_batch(side->allocator, thread) > 0)
		;
}

static void take(struct drain_side *side, unsigned thread)
{
	struct drain_hand *hand = &side->hands[thread];

	side->ops->take(side->allocator, thread, &hand->held[hand->nr_held++]);
}

static void give_last(struct drain_side *side, unsigned thread)
{
	struct drain_hand *hand = &side->hands[thread];

	side->ops->give(side->allocator, thread, &hand->held[--hand->nr_held]);
}

static void give_random(struct drain_side *side, unsigned thread)
{
	struct drain_hand *hand = &side->hands[thread];
	const uint32_t i = bench_random_below(&hand->random, hand->nr_held);
	const union page page = hand->held[i];

	hand->held[i] = hand->held[hand->nr_held - 1];
	hand->held[hand->nr_held - 1] = page;
	give_last(side, thread);
}

/* The thread's part of the zone, then a random half of it given back. */
static void take_random_half(struct bench_section *section)
{
	struct drain_side *side = section->state;
	struct drain_hand *hand = &side->hands[section->thread];
	const uint32_t part = (side->pages - SLACK) / side->threads;

	hand->random = section->thread + 1;
	hand->held = bench_memory(part * sizeof(*hand->held));
	while (hand->nr_held < part)
		take(side, section->thread);
	while (hand->nr_held > part / 2)
		give_random(side, section->thread);
	drain_all(side, section->thread);
	if (side->product)
		hp_pcp_set_sizes(side->product->hands[section->thread].pcp, MODEL_BATCH,
				 2 * PASS_PAGES);
}

static void give_all(struct bench_section *section)
{
	struct drain_side *side = section->state;
	struct drain_hand *hand = &side->hands[section->thread];

	while (hand->nr_held > 0)
		give_last(side, section->thread);
	bench_memory_free(hand->held);
}

static struct drain_side *side_new(struct bench *bench, const struct drain_ops *ops, uint32_t pages,
				   unsigned threads)
{
	struct drain_side *side = bench_memory(sizeof(*side));

	side->ops = ops;
	side->pages = pages;
	side->threads = threads;
	if (ops->is_product) {
		side->product = product_new(bench, pages, PRODUCT_BLOCK_ORDER, false, threads);
		hp_zone_set_drain_variant(side->product->zone, ops->product_drain);
		side->allocator = side->product;
	} else {
		model_self_check(pages, ops->model_drain);
		side->model = model_new(pages, ops->model_drain, threads);
		model_set_high(side->model, 2 * PASS_PAGES);
		side->allocator = side->model;
	}
	bench_on_threads(bench, threads, take_random_half, side);
	return side;
}

static void side_free(struct drain_side *side, struct bench *bench)
{
	bench_on_threads(bench, side->threads, give_all, side);
	if (side->product)
		product_free(side->product, bench);
	else
		model_free(side->model);
	bench_memory_free(side);
}

/* --- the work --------------------------------------------------------------------------------- */

static void fill_pcp(struct drain_side *side, unsigned thread)
{
	for (unsigned i = 0; i < PASS_PAGES; i++)
		give_random(side, thread);
}

static void take_again(struct drain_side *side, unsigned thread)
{
	for (unsigned i = 0; i < PASS_PAGES; i++)
		take(side, thread);
	drain_all(side, thread);
}

/* Return: pages drained. */
static uint32_t drain_batches(struct drain_side *side, unsigned thread)
{
	uint32_t drained = 0;

	for (unsigned i = 0; i < BATCHES; i++)
		drained += side->ops->drain_batch(side->allocator, thread);
	return drained;
}

static void check_drained(const struct drain_side *side, uint32_t drained)
{
	if (drained != PASS_PAGES)
		bench_die("%s: %u pages drained instead of %u", side->ops->variant, drained,
			  PASS_PAGES);
}

static void work_drain(struct bench_section *section)
{
	struct drain_side *side = section->state;
	uint32_t drained;

	for (;;) {
		fill_pcp(side, section->thread);
		if (!bench_more_together(section))
			break;
		bench_begin(section);
		drained = drain_batches(side, section->thread);
		bench_end(section);
		check_drained(side, drained);
		section->ops += drained;
		take_again(side, section->thread);
	}
	drain_all(side, section->thread);
	take_again(side, section->thread);
}

static void work_lock_hold(struct bench_section *section)
{
	struct drain_side *side = section->state;
	uint64_t held;
	uint32_t drained;

	for (;;) {
		fill_pcp(side, section->thread);
		if (!bench_more_together(section))
			break;
		/* Nobody takes the lock while anybody looks for how long it has been held. */
		held = side->ops->lock_held_ns(side->allocator);
		bench_meet(section);
		drained = drain_batches(side, section->thread);
		bench_meet(section);
		section->ns += (side->ops->lock_held_ns(side->allocator) - held) / side->threads;
		bench_meet(section);
		check_drained(side, drained);
		section->ops += drained;
		take_again(side, section->thread);
	}
	drain_all(side, section->thread);
	take_again(side, section->thread);
}

/* --- cases ------------------------------------------------------------------------------------ */

#define VARIANTS       7
#define VARIANTS_QUICK 4 /* without the product's other ways */

static void compare_drains(struct bench *bench, uint32_t pages, unsigned threads)
{
	const struct drain_ops *ops[VARIANTS] = {
		&product_ops[0], &model_ops[0],	  &model_ops[1],   &model_ops[2],
		&product_ops[1], &product_ops[2], &product_ops[3],
	};
	const unsigned variants = bench_quick(bench) ? VARIANTS_QUICK : VARIANTS;
	struct bench_subject subjects[VARIANTS];
	struct bench_quality quality;

	for (unsigned i = 0; i < variants; i++)
		subjects[i] = (struct bench_subject){
			.variant = ops[i]->variant,
			.threads = threads,
			.run = work_drain,
			.state = side_new(bench, ops[i], pages, threads),
		};
	bench_measure(bench, subjects, variants, &quality);
	for (unsigned i = 0; i < variants; i++) {
		bench_report(bench, &(struct bench_row){.name = "drain",
							.variant = subjects[i].variant,
							.pages = pages,
							.block_order = PRODUCT_BLOCK_ORDER,
							.threads = threads,
							.unit = "ns",
							.value = subjects[i].value,
							.baseline = subjects[1].variant,
							.baseline_value = subjects[1].value,
							.quality = &quality});
		side_free(subjects[i].state, bench);
	}
}

void case_drain(struct bench *bench)
{
	for (unsigned threads = 1; threads <= 2 && threads <= bench_threads(bench); threads++) {
		compare_drains(bench, PRODUCT_SMALL, threads);
		compare_drains(bench, PRODUCT_LARGE, threads);
	}
}

void case_lock_hold_timed(struct bench *bench)
{
	struct drain_side *product = side_new(bench, &product_ops[0], PRODUCT_SMALL, 2);
	struct drain_side *model = side_new(bench, &model_ops[0], PRODUCT_SMALL, 2);
	struct bench_subject subjects[] = {
		{.variant = "product", .threads = 2, .run = work_lock_hold, .state = product},
		{.variant = "pick-inside", .threads = 2, .run = work_lock_hold, .state = model},
	};
	struct bench_quality quality;

	bench_measure(bench, subjects, 2, &quality);
	bench_report(bench, &(struct bench_row){
				    .name = "lock-hold",
				    .variant = subjects[0].variant,
				    .pages = PRODUCT_SMALL,
				    .block_order = PRODUCT_BLOCK_ORDER,
				    .threads = 2,
				    .unit = "ns",
				    .value = subjects[0].value * MODEL_BATCH,
				    .baseline = subjects[1].variant,
				    .baseline_value = subjects[1].value * MODEL_BATCH,
				    .quality = &quality,
			    });
	side_free(model, bench);
	side_free(product, bench);
}
