/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations of every kind against a naive model, on zones of every awkward shape.
 *
 * A round is a new zone of one geometry and a number of operations from one seed; each round says
 * on a line of its own how to repeat it alone. The normal run does a fixed number of operations
 * (--ops, from --seed on), so that it is the same everywhere; --seconds goes on with new seeds
 * until the time is over.
 */
#include "tests/model/zone-model.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct geometry {
	struct hp_zone_config config;
	uint32_t check_every; /* steps */
	unsigned weight;      /* share of the operations */
} geometries[] = {
#define ZONE(pages, block, max, refs)                                                            \
	{                                                                                        \
		.nr_pages = pages, .nr_owners = MODEL_OWNERS, .id = 7, .pageblock_order = block, \
		.max_order = max, .refcounts = refs                                              \
	}
	{ZONE(1, 0, 0, false), 1, 1},	       {ZONE(1, 3, 3, true), 1, 1},
	{ZONE(3, 0, 0, true), 1, 2},	       {ZONE(3, 1, 10, false), 1, 2},
	{ZONE(13, 20, 20, true), 1, 2},	       {ZONE(24, 0, 0, false), 1, 6},
	{ZONE(64, 0, 6, true), 1, 8},	       {ZONE(16, 2, 4, true), 1, 14},
	{ZONE(61, 3, 5, true), 1, 30},	       {ZONE(96, 4, 4, true), 1, 14},
	{ZONE(256, 5, 10, true), 1, 10},       {ZONE(1000, 5, 9, true), 16, 6},
	{ZONE(524288, 9, 10, true), 10000, 4},
};

#define NR_GEOMETRIES (sizeof(geometries) / sizeof(geometries[0]))
#define ROUND_OPS     4000u
#define LARGE_PAGES   10000u /* of such a zone the memories are not compared around each refusal */

struct options {
	uint64_t seed, ops;
	unsigned seconds; /* 0: by ops */
	int geometry;	  /* -1: all */
};

static void run_round(size_t geometry, uint64_t seed, uint64_t ops)
{
	const struct geometry *g = &geometries[geometry];
	struct dice dice = dice_seeded(seed);
	struct model model;

	printf("test-model --geometry %zu --seed %" PRIu64 " --ops %" PRIu64 "\n", geometry, seed,
	       ops);
	fflush(stdout);
	model_init(&model, &dice, &g->config);
	model.check_every = g->check_every;
	model.compare_memory = g->config.nr_pages < LARGE_PAGES;
	for (uint64_t i = 0; i < ops; i++)
		model_step(&model);
	model_check(&model);
	model_deinit(&model);
}

static uint64_t round_ops(const struct geometry *g)
{
	return g->check_every > 1 ? ROUND_OPS * UINT64_C(4) : ROUND_OPS;
}

static unsigned weights(void)
{
	unsigned sum = 0;

	for (size_t i = 0; i < NR_GEOMETRIES; i++)
		sum += geometries[i].weight;
	return sum;
}

/* Every geometry its share of the operations, in rounds. */
static void run_ops(uint64_t seed, uint64_t ops)
{
	for (size_t i = 0; i < NR_GEOMETRIES; i++) {
		uint64_t left = ops * geometries[i].weight / weights();

		while (left > 0) {
			uint64_t n = round_ops(&geometries[i]);

			n = n < left ? n : left;
			run_round(i, seed++, n);
			left -= n;
		}
	}
}

/* Rounds of any geometry, each with a new seed, until the time is over. */
static void run_seconds(uint64_t seed, unsigned seconds)
{
	time_t end = time(NULL) + seconds;

	do {
		struct dice dice = dice_seeded(seed);
		unsigned at = dice_roll(&dice, weights());
		size_t i = 0;

		while (at >= geometries[i].weight)
			at -= geometries[i++].weight;
		run_round(i, seed++, round_ops(&geometries[i]));
	} while (time(NULL) < end);
}

static void usage(void)
{
	fprintf(stderr, "usage: test-model [--seed N] [--ops N] [--seconds N] [--geometry N]\n");
	exit(2);
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
					      {"ops", required_argument, NULL, 'o'},
					      {"seconds", required_argument, NULL, 't'},
					      {"geometry", required_argument, NULL, 'g'},
					      {0}};
	struct options options = {.seed = 1, .ops = 1000000, .geometry = -1};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			options.seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			options.ops = strtoull(optarg, NULL, 0);
			break;
		case 't':
			options.seconds = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'g':
			options.geometry = atoi(optarg);
			if (options.geometry < 0 || options.geometry >= (int)NR_GEOMETRIES)
				usage();
			break;
		default:
			usage();
		}
	}
	return options;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);

	if (options.geometry >= 0)
		run_round((size_t)options.geometry, options.seed, options.ops);
	else if (options.seconds > 0)
		run_seconds(options.seed, options.seconds);
	else
		run_ops(options.seed, options.ops);
	printf("all as the model has it\n");
	return 0;
}
