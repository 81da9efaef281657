/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kill before every single store to durable memory.
 *
 * The random operations of the model run on an allocator built with HP_DURABLE_HOOK. Nothing but
 * the durable words survives a kill, so a copy of them taken in the hook is the kill. When the
 * operation is over, every copy is rebuilt in memories of its own and judged: each lease that was
 * there before or is there after must be, as a whole, as before or as after, never a third; pages
 * in neither must be free; hp_zone_check() must be content. The stores of that rebuild are points
 * at which it is killed in turn, down to a third rebuild, which must come to the same words.
 */
#include "tests/model/zone-model.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MAX  3u	 /* a rebuild, a rebuild of a killed one, and once more */
#define COPIES_MAX 2048u /* kill points of one operation or rebuild */
#define ROUND_OPS  2000u

/* Copies the durable words before each store to them. */
struct catcher {
	const char *durable; /* NULL: not watching */
	size_t bytes;
	uint64_t *copies;
	uint32_t n;
};

/* The zone that operations run on is at depth 0, rebuilt ones below. */
struct crash {
	struct model model;
	struct catcher catchers[DEPTH_MAX + 1];
	struct box boxes[DEPTH_MAX + 1]; /* from 1 */
	bool used[DEPTH_MAX + 1];	 /* has the box a zone? */
	struct words raw_before, before, after, found[DEPTH_MAX + 1];
	struct page_fact *before_facts, *after_facts, *found_facts;
};

static struct crash crash;
static uint64_t points[DEPTH_MAX + 1];

void hp_durable_hook(hp_word_t *word, uint64_t value)
{
	(void)value;
	for (unsigned i = 0; i <= DEPTH_MAX; i++) {
		struct catcher *catcher = &crash.catchers[i];

		if (!catcher->durable || (const char *)word < catcher->durable ||
		    (const char *)word >= catcher->durable + catcher->bytes)
			continue;
		if (catcher->n == COPIES_MAX)
			model_die(&crash.model, "more than %u stores in one go", COPIES_MAX);
		memcpy((char *)catcher->copies + catcher->n * catcher->bytes, catcher->durable,
		       catcher->bytes);
		catcher->n++;
	}
}

static void catch_begin(unsigned depth, const struct box *box)
{
	crash.catchers[depth].durable = box->durable;
	crash.catchers[depth].n = 0;
}

static void catch_end(unsigned depth)
{
	crash.catchers[depth].durable = NULL;
	points[depth] += crash.catchers[depth].n;
}

static const uint64_t *catch_copy(unsigned depth, uint32_t i)
{
	const struct catcher *catcher = &crash.catchers[depth];

	return (const uint64_t *)((const char *)catcher->copies + i * catcher->bytes);
}

/* --- judging -----------------------------------------------------------------------------------*/

/* Are all pages of the lease at pfn, found in one set of facts, as these facts have them? */
static bool lease_is_as(const struct page_fact *lease, hp_pfn_t pfn, const struct page_fact *facts)
{
	for (uint32_t i = 0; i < lease[pfn].word.pages; i++) {
		if (!page_fact_same(&crash.found_facts[pfn + i], &facts[pfn + i]))
			return false;
	}
	return true;
}

static void judge_leases(const struct words *found)
{
	const struct page_fact *sides[] = {crash.before_facts, crash.after_facts};

	if (words_facts(found, crash.found_facts) != 0)
		model_die(&crash.model, "kill: words inside other leases after the rebuild");
	for (hp_pfn_t pfn = 0; pfn < found->nr_pages; pfn++) {
		bool used = false;

		for (unsigned side = 0; side < 2; side++) {
			used = used || sides[side][pfn].head != HP_PFN_NONE;
			if (sides[side][pfn].head != pfn)
				continue;
			if (!lease_is_as(sides[side], pfn, crash.before_facts) &&
			    !lease_is_as(sides[side], pfn, crash.after_facts))
				model_die(&crash.model,
					  "kill: the lease at %u, %u pages, is neither as before "
					  "nor as after",
					  pfn, sides[side][pfn].word.pages);
		}
		if (!used && crash.found_facts[pfn].head != HP_PFN_NONE)
			model_die(&crash.model, "kill: page %u leased out of nothing", pfn);
	}
}

static void judge_blocks(const struct words *found)
{
	for (uint32_t b = 0; b < found->nr_blocks; b++) {
		struct hp_block_word was = hp_block_decode(crash.raw_before.blocks[b]);
		struct hp_block_word is = hp_block_decode(found->blocks[b]);

		if (found->blocks[b] == crash.before.blocks[b] ||
		    found->blocks[b] == crash.after.blocks[b])
			continue;
		/*
		 * Claimed, and killed before the lease was stored, or before a bulk request that
		 * was to be refused had given it back: to be recycled.
		 */
		if (was.state == HP_BLOCK_CLEAN && is.state == HP_BLOCK_ISOLATED &&
		    is.owner != HP_OWNER_NONE && is.generation == was.generation)
			continue;
		model_die(&crash.model,
			  "kill: block word %u is %016" PRIx64 ", before %016" PRIx64
			  ", after %016" PRIx64,
			  b, found->blocks[b], crash.before.blocks[b], crash.after.blocks[b]);
	}
}

static void rebuild_copy(unsigned depth, const uint64_t *copy);

static void kill_rebuild(unsigned depth)
{
	uint32_t step = 1;

	if (depth == DEPTH_MAX)
		return;
	/* The third rebuild of everything would be most of the time for little more. */
	if (depth == DEPTH_MAX - 1)
		step = 1 + crash.catchers[depth].n / 4;
	for (uint32_t i = 0; i < crash.catchers[depth].n; i += step)
		rebuild_copy(depth + 1, catch_copy(depth, i));
}

/* Rebuilds these words in the box of this depth, judges the outcome and kills the rebuild. */
static void rebuild_copy(unsigned depth, const uint64_t *copy)
{
	struct box *box = &crash.boxes[depth];
	struct words *found = &crash.found[depth];
	struct hp_rebuild_stats stats;

	if (crash.used[depth])
		hp_zone_deinit(box->zone);
	crash.used[depth] = true;
	memcpy(box->durable, copy, words_bytes(found));
	catch_begin(depth, box);
	if (box_rebuild(box, &model_rebuild_ops, &stats) != 0)
		model_die(&crash.model, "kill: rebuild refused the configuration");
	catch_end(depth);
	memcpy(found->all, box->durable, words_bytes(found));
	if (box_check(box) != 0)
		model_die(&crash.model, "kill: hp_zone_check() found something");
	judge_leases(found);
	judge_blocks(found);
	if (depth > 1 && memcmp(found->all, crash.found[depth - 1].all, words_bytes(found)) != 0)
		model_die(&crash.model, "kill: a killed rebuild, repeated, comes to other words");
	kill_rebuild(depth);
}

static void before_call(void *userdata, const struct words *before)
{
	(void)userdata;
	words_copy(&crash.raw_before, before);
	words_copy(&crash.before, before);
	catch_begin(0, &crash.model.box);
}

static void after_call(void *userdata, const struct words *after)
{
	(void)userdata;
	catch_end(0);
	words_facts(&crash.before, crash.before_facts);
	words_settle(&crash.before, crash.before_facts);
	words_copy(&crash.after, after);
	words_facts(&crash.after, crash.after_facts);
	words_settle(&crash.after, crash.after_facts);
	for (uint32_t i = 0; i < crash.catchers[0].n; i++)
		rebuild_copy(1, catch_copy(0, i));
	if (crash.catchers[0].n > 0)
		rebuild_copy(1, after->all);
}

/* --- rounds ------------------------------------------------------------------------------------*/

static void crash_init(struct dice *dice, const struct hp_zone_config *config)
{
	memset(&crash, 0, sizeof(crash));
	model_init(&crash.model, dice, config);
	crash.model.watch = (struct model_watch){.begin = before_call, .end = after_call};
	words_init(&crash.raw_before, config);
	words_init(&crash.before, config);
	words_init(&crash.after, config);
	crash.before_facts = calloc(config->nr_pages, sizeof(struct page_fact));
	crash.after_facts = calloc(config->nr_pages, sizeof(struct page_fact));
	crash.found_facts = calloc(config->nr_pages, sizeof(struct page_fact));
	for (unsigned i = 0; i <= DEPTH_MAX; i++) {
		words_init(&crash.found[i], config);
		crash.catchers[i].bytes = words_bytes(&crash.found[i]);
		crash.catchers[i].copies = calloc(COPIES_MAX, crash.catchers[i].bytes);
		if (i > 0)
			box_init_bare(&crash.boxes[i], config);
		if (!crash.catchers[i].copies)
			model_die(&crash.model, "out of memory");
	}
	if (!crash.before_facts || !crash.after_facts || !crash.found_facts)
		model_die(&crash.model, "out of memory");
}

static void crash_deinit(void)
{
	model_deinit(&crash.model);
	words_deinit(&crash.raw_before);
	words_deinit(&crash.before);
	words_deinit(&crash.after);
	free(crash.before_facts);
	free(crash.after_facts);
	free(crash.found_facts);
	for (unsigned i = 0; i <= DEPTH_MAX; i++) {
		words_deinit(&crash.found[i]);
		free(crash.catchers[i].copies);
		if (i == 0)
			continue;
		if (!crash.used[i]) {
			struct hp_rebuild_stats stats;

			/* A box wants a zone before it is taken apart. */
			box_rebuild(&crash.boxes[i], &model_rebuild_ops, &stats);
		}
		box_deinit(&crash.boxes[i]);
	}
}

static const struct hp_zone_config configs[] = {
#define ZONE(pages, block, max, refs)                                                            \
	{                                                                                        \
		.nr_pages = pages, .nr_owners = MODEL_OWNERS, .id = 3, .pageblock_order = block, \
		.max_order = max, .refcounts = refs                                              \
	}
	ZONE(16, 2, 4, true),  ZONE(29, 2, 3, true), ZONE(48, 3, 6, true),
	ZONE(12, 0, 3, false), ZONE(3, 1, 1, true),
};

#define NR_CONFIGS (sizeof(configs) / sizeof(configs[0]))

static void run_round(uint64_t seed, uint64_t ops)
{
	struct dice dice = dice_seeded(seed);

	printf("test-crash --seed %" PRIu64 " --ops %" PRIu64 "\n", seed, ops);
	fflush(stdout);
	crash_init(&dice, &configs[seed % NR_CONFIGS]);
	for (uint64_t i = 0; i < ops; i++)
		model_step(&crash.model);
	crash_deinit();
}

static void usage(void)
{
	fprintf(stderr, "usage: test-crash [--seed N] [--ops N] [--seconds N]\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
					      {"ops", required_argument, NULL, 'o'},
					      {"seconds", required_argument, NULL, 't'},
					      {0}};
	uint64_t seed = 1, ops = 30000, left;
	time_t end = time(NULL);
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (c == 'o')
			ops = strtoull(optarg, NULL, 0);
		else if (c == 't')
			end += (time_t)strtoul(optarg, NULL, 0), ops = 0;
		else
			usage();
	}
	for (left = ops; left > 0 || time(NULL) < end; seed++) {
		uint64_t n = left > 0 && left < ROUND_OPS ? left : ROUND_OPS;

		run_round(seed, n);
		left -= n < left ? n : left;
	}

	printf("%" PRIu64 " kill points in operations, %" PRIu64 " in rebuilds of them, %" PRIu64
	       " in rebuilds of those\n",
	       points[0], points[1], points[2]);
	/* Without points nothing was tested: the allocator was not built with the hook. */
	return points[0] > 0 ? 0 : 1;
}
