/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache PAIRS: two ways to take many pages. All at once, in one exchange with the daemon, for what is
 * kept; from a cache for what comes and goes, which then costs the daemon nothing.
 */
#include <hugepool/hugepool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KEPT 16

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* One page of a cache after the other, taken and given back. */
static int use(struct hugepool_cache *cache, long pairs)
{
	struct hugepool_range range;
	double start;
	int r = hugepool_cache_fill(cache, 1);

	start = seconds();
	for (long i = 0; i < pairs && r == 0; i++) {
		r = hugepool_cache_alloc(cache, &range);
		if (r == 0) {
			*(volatile char *)range.address = 1;
			r = hugepool_cache_release(cache, &range);
		}
	}
	if (r == 0)
		printf("%.1f ns a pair\n", (seconds() - start) / (double)pairs * 1e9);
	return r;
}

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? strtol(argv[1], NULL, 10) : 10000000;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	struct hugepool_range kept[KEPT];
	struct hugepool_cache *cache = NULL;
	struct hugepool *pool = NULL;
	int r;

	request.bytes = 1; /* one page */
	options.high = 8;
	r = hugepool_open(&pool, NULL);
	if (r == 0)
		r = hugepool_alloc_bulk(pool, &request, kept, KEPT);
	if (r == 0)
		printf("%d pages of %llu kB\n", KEPT, (unsigned long long)kept[0].page_size >> 10);
	if (r == 0)
		r = hugepool_cache_new(&cache, pool, &options); /* one for each thread */
	if (r == 0)
		r = use(cache, pairs);
	hugepool_cache_free(cache);
	if (r == 0)
		r = hugepool_free_bulk(pool, kept, KEPT);
	hugepool_close(pool);
	return r != 0;
}
