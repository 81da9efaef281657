/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resize-load SEED: takes ranges, writes a pattern of its own to them, looks whether it is still there,
 * gives back, until SIGTERM; keeps some all the time. Says "ready" when it has some, and at the end how
 * often it took and what it found: exit status 1 if a byte was wrong or memory said to be zero was not.
 */
#include <hugepool/hugepool.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGES	   4
#define KEEPS	   2 /* of them: for the whole time */
#define PAGE_BYTES (UINT64_C(2) << 20)
#define STRIDE	   512 /* bytes between two words that are written */

static volatile sig_atomic_t over;

static void end(int number)
{
	(void)number;
	over = 1;
}

struct holding {
	struct hugepool_range range;
	uint64_t pattern; /* 0: nothing is held */
};

static struct hugepool *pool;
static struct holding holdings[RANGES];
static uint64_t seed, nr_taken, nr_refused, nr_wrong;

static void fill(const struct holding *holding)
{
	char *memory = holding->range.address;

	for (uint64_t i = 0; i < holding->range.bytes; i += STRIDE)
		*(uint64_t *)(void *)(memory + i) = holding->pattern + i;
}

static void look(const struct holding *holding)
{
	const char *memory = holding->range.address;

	for (uint64_t i = 0; holding->pattern && i < holding->range.bytes; i += STRIDE)
		nr_wrong += *(const uint64_t *)(const void *)(memory + i) != holding->pattern + i;
}

static void look_for_dirt(const struct hugepool_range *range)
{
	const char *memory = range->address;

	for (uint64_t i = 0; i < range->bytes; i += STRIDE)
		nr_wrong += *(const uint64_t *)(const void *)(memory + i) != 0;
}

/* Return: 0, or the exit status. */
static int take(struct holding *holding)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	int r;

	request.bytes = (1 + (uint64_t)rand() % 3) * PAGE_BYTES;
	request.flags = HUGEPOOL_ZERO;
	r = hugepool_alloc(pool, &request, &holding->range);
	if (r == -ENOMEM || r == -EDQUOT) {
		nr_refused++;
		return 0;
	}
	if (r < 0) {
		fprintf(stderr, "resize-load: alloc: %s\n", strerror(-r));
		return 1;
	}
	look_for_dirt(&holding->range);
	holding->pattern = seed << 32 | ++nr_taken;
	fill(holding);
	return 0;
}

static int give_back(struct holding *holding)
{
	int r = hugepool_free(pool, &holding->range);

	if (r < 0)
		fprintf(stderr, "resize-load: free: %s\n", strerror(-r));
	holding->pattern = 0;
	return r < 0;
}

static int step(void)
{
	struct holding *holding = &holdings[rand() % RANGES];

	look(holding);
	if (!holding->pattern)
		return take(holding);
	return holding < holdings + KEEPS ? 0 : give_back(holding);
}

int main(int argc, char **argv)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	int r;

	if (argc != 2)
		return 2;
	seed = strtoull(argv[1], NULL, 10);
	srand((unsigned)seed);
	signal(SIGTERM, end);
	r = hugepool_open(&pool, &options);
	if (r < 0) {
		fprintf(stderr, "resize-load: open: %s\n", strerror(-r));
		return 1;
	}
	while (!r && (!holdings[0].pattern || !holdings[1].pattern))
		r = step();
	if (!r) {
		puts("ready");
		fflush(stdout);
	}
	while (!r && !over)
		r = step();
	for (int i = 0; i < RANGES; i++)
		look(&holdings[i]);
	hugepool_close(pool);
	printf("taken %llu refused %llu wrong %llu\n", (unsigned long long)nr_taken,
	       (unsigned long long)nr_refused, (unsigned long long)nr_wrong);
	return r || nr_wrong;
}
