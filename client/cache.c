/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack of ranges of one kind, for one thread at a time, so that taking and giving is a few loads
 * and stores: the one given back last is taken first, while it is still in the processor's cache.
 * The daemon is asked for, and given, many at once.
 *
 * There is nothing to lock, and nothing to ask the kernel, which would cost more than all the rest.
 * Three things have to be noticed all the same, each for the price of a comparison:
 * - fork(): the cache lies in memory that the kernel wipes in a child. There it is empty, and has no
 *   handle.
 * - the daemon wants memory back, or has taken some: a count in the zone's window has changed.
 * - nobody reads the socket while the cache serves everything: so it is looked at now and then.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "client/alloc.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define DEFAULT_BYTES	 (64u << 20) /* that a cache keeps at most, unless told otherwise */
#define DEFAULT_RANGES	 256u
#define FIRST_BATCH	 4u	    /* doubled with every refill, up to the batch */
#define CALLS_PER_GLANCE 512	    /* at the socket */
#define HOT_BYTES	 (4u << 20) /* a range above that is not in the processor's cache */

/* All that came later is behind it. */
#define OPTIONS_FIRST_BYTES sizeof(struct hugepool_cache_options)

struct slot {
	void *address;
	uint64_t lease[2];
	struct origin origin;
};

struct hugepool_cache {
	struct hugepool *pool; /* NULL: in a child of fork() */
	uint32_t nr, high;
	uint32_t countdown; /* calls until the next glance at the socket */
	unsigned drains;    /* of the window, seen so far */
	uint64_t bytes, page_size;
	struct window *window;
	bool zero;
	uint32_t batch, next_batch;
	struct hugepool_request request;
	struct slot slots[HUGEPOOL_CACHE_MAX]; /* the hottest is the last */
};

/* --- filling and draining --------------------------------------------------------------------- */

static struct hugepool_range range_of(const struct hugepool_cache *cache, const struct slot *slot)
{
	return (struct hugepool_range){
		.address = slot->address,
		.bytes = cache->bytes,
		.page_size = cache->page_size,
		.lease = {slot->lease[0], slot->lease[1]},
	};
}

static void put(struct hugepool_cache *cache, const struct hugepool_range *range,
		struct origin origin)
{
	cache->slots[cache->nr++] = (struct slot){
		.address = range->address,
		.lease = {range->lease[0], range->lease[1]},
		.origin = origin,
	};
}

/* Takes n from the daemon, or at least one. */
static int take(struct hugepool_cache *cache, uint32_t n)
{
	struct hugepool_range ranges[HP_RANGES_MAX];
	struct origin origin[HP_RANGES_MAX];
	int r;

	r = alloc_take(cache->pool, &cache->request, ranges, origin, n);
	if (n > 1 && (r == -ENOMEM || r == -EDQUOT)) {
		n = 1;
		cache->next_batch = 1;
		r = alloc_take(cache->pool, &cache->request, ranges, origin, n);
	}
	if (r < 0)
		return r;
	/* The first of them is the first to be taken. */
	while (n > 0) {
		n--;
		put(cache, &ranges[n], origin[n]);
	}
	return 0;
}

static int refill(struct hugepool_cache *cache)
{
	uint32_t n = cache->next_batch;

	if (n < cache->batch)
		cache->next_batch = n * 2 < cache->batch ? n * 2 : cache->batch;
	return take(cache, n);
}

/*
 * Gives back the n coldest, at most HP_RANGES_MAX. One that is not held (released twice, freed by other
 * means, lost by the daemon) is thrown out: the others are none the worse for it.
 */
static int drain(struct hugepool_cache *cache, uint32_t n)
{
	struct hugepool_range ranges[HP_RANGES_MAX] = {{.address = NULL}};
	uint32_t gone = n;
	int r;

	for (uint32_t i = 0; i < n; i++)
		ranges[i] = range_of(cache, &cache->slots[i]);
	r = hugepool_free_bulk(cache->pool, ranges, n);
	if (r == -EINVAL || r == -ESTALE)
		for (uint32_t i = 0; i < n; i++)
			(void)hugepool_free(cache->pool, &ranges[i]);
	else if (r < 0)
		gone = 0;
	memmove(cache->slots, cache->slots + gone, (cache->nr - gone) * sizeof(cache->slots[0]));
	cache->nr -= gone;
	return r;
}

static int drain_all(struct hugepool_cache *cache)
{
	int first = 0;

	while (cache->nr) {
		uint32_t before = cache->nr, n = before < HP_RANGES_MAX ? before : HP_RANGES_MAX;
		int r = drain(cache, n);

		if (r < 0 && first == 0)
			first = r;
		if (cache->nr == before)
			break;
	}
	return first;
}

/* --- news ------------------------------------------------------------------------------------- */

static unsigned drains_of(const struct hugepool_cache *cache)
{
	return atomic_load_explicit(&cache->window->drains, memory_order_relaxed);
}

/* What has to be seen to before anything else. Return: 0, or -ECHILD. */
static int attend(struct hugepool_cache *cache)
{
	if (!cache->pool)
		return -ECHILD;
	if (cache->countdown == 0) {
		cache->countdown = CALLS_PER_GLANCE;
		loop_glance(cache->pool);
	}
	if (cache->drains != drains_of(cache)) {
		cache->drains = drains_of(cache);
		cache->next_batch = 1;
		(void)drain_all(cache);
	}
	return 0;
}

/* Whether there is nothing to attend to. False in a child of fork(): its countdown is 0. */
static inline bool is_quiet(struct hugepool_cache *cache)
{
	if (cache->countdown == 0)
		return false;
	cache->countdown--;
	return cache->drains == drains_of(cache);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static int take_slowly(struct hugepool_cache *cache)
{
	int r = attend(cache);

	if (r == 0 && cache->nr == 0)
		r = refill(cache);
	return r;
}

int hugepool_cache_alloc(struct hugepool_cache *cache, struct hugepool_range *ret)
{
	const struct slot *slot;

	if (!is_quiet(cache) || cache->nr == 0) {
		int r = take_slowly(cache);

		if (r < 0)
			return r;
	}
	slot = &cache->slots[--cache->nr];
	*ret = range_of(cache, slot);
	if (cache->zero && !slot->origin.zeroed)
		zero_memory(ret->address, ret->bytes, slot->origin.hot);
	return 0;
}

/* Whether it can be one of these. What is in order beyond that is found out when it is drained. */
static bool is_of_kind(const struct hugepool_cache *cache, const struct hugepool_range *range)
{
	return range->bytes == cache->bytes && range->page_size == cache->page_size &&
	       range->lease[0] >> 32 == cache->window->id &&
	       (cache->nr == 0 || cache->slots[cache->nr - 1].address != range->address);
}

int hugepool_cache_release(struct hugepool_cache *cache, const struct hugepool_range *range)
{
	/* What its user has written to it is there. */
	const struct origin used = {.zeroed = false, .hot = range->bytes <= HOT_BYTES};
	int r = 0;

	if (!is_quiet(cache)) {
		r = attend(cache);
		if (r < 0)
			return r;
	}
	if (!is_of_kind(cache, range))
		return -EINVAL;
	if (cache->nr == cache->high) {
		if (cache->next_batch > 1)
			cache->next_batch /= 2;
		r = drain(cache, cache->batch);
		if (r < 0 && cache->nr == cache->high)
			return r;
	}
	put(cache, range, used);
	return 0;
}

int hugepool_cache_fill(struct hugepool_cache *cache, size_t n)
{
	int r = attend(cache);

	if (r == 0 && n > cache->high)
		r = -EINVAL;
	while (r == 0 && cache->nr < n) {
		size_t want = n - cache->nr;

		r = take(cache, (uint32_t)(want < HP_RANGES_MAX ? want : HP_RANGES_MAX));
	}
	return r;
}

int hugepool_cache_flush(struct hugepool_cache *cache)
{
	int r = attend(cache);

	return r < 0 ? r : drain_all(cache);
}

/* --- new and free ----------------------------------------------------------------------------- */

static int check_options(const struct hugepool_cache_options *options)
{
	if (options->flags & ~(unsigned)HUGEPOOL_ZERO)
		return -EINVAL;
	if (options->high > HUGEPOOL_CACHE_MAX || options->batch > HP_RANGES_MAX)
		return -EINVAL;
	return options->high && options->batch > options->high ? -EINVAL : 0;
}

/* How many it keeps, and how many it takes and gives at a time. */
static void set_sizes(struct hugepool_cache *cache, const struct hugepool_cache_options *options)
{
	uint64_t high = options->high ? options->high : DEFAULT_BYTES / cache->bytes;

	if (!options->high && high > DEFAULT_RANGES)
		high = DEFAULT_RANGES;
	if (!options->high && high < options->batch)
		high = options->batch;
	if (!options->high && high < 2)
		high = 2;
	cache->high = (uint32_t)high;
	cache->batch = options->batch ? options->batch : (cache->high + 1) / 2;
	if (cache->batch > HP_RANGES_MAX)
		cache->batch = HP_RANGES_MAX;
	cache->next_batch = FIRST_BATCH < cache->batch ? FIRST_BATCH : cache->batch;
}

static int new_locked(struct hugepool *pool, const struct hugepool_cache_options *options,
		      struct hugepool_cache **ret)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_cache *cache;
	struct wanted wanted;
	int r;

	if (check_options(options) < 0)
		return handle_fail(pool, -EINVAL, "no cache can be like that");
	request.zone = options->zone;
	request.page_size = options->page_size;
	request.bytes = options->bytes ? options->bytes : 1;
	request.alignment = options->alignment;
	request.flags = options->flags;
	r = alloc_translate(pool, &request, 1, &wanted);
	if (r < 0)
		return r;

	cache = mmap(NULL, sizeof(*cache), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (cache == MAP_FAILED)
		return handle_fail(pool, -ENOMEM, "no memory for a cache");
	if (madvise(cache, sizeof(*cache), MADV_WIPEONFORK)) {
		r = -errno;
		munmap(cache, sizeof(*cache));
		return handle_fail(pool, r, "a cache cannot be kept from children of fork()");
	}
	request.zone = wanted.window->name;
	cache->pool = pool;
	cache->window = wanted.window;
	cache->request = request;
	cache->page_size = wanted.window->page_bytes;
	cache->bytes = wanted.pages * wanted.window->page_bytes;
	cache->zero = wanted.zero;
	cache->countdown = CALLS_PER_GLANCE;
	cache->drains = drains_of(cache);
	set_sizes(cache, options);
	*ret = cache;
	return 0;
}

int hugepool_cache_new(struct hugepool_cache **ret, struct hugepool *pool,
		       const struct hugepool_cache_options *theirs)
{
	struct hugepool_cache_options options = HUGEPOOL_CACHE_OPTIONS_INIT;
	int r = 0;

	if (theirs)
		r = handle_take_struct(&options, sizeof(options), OPTIONS_FIRST_BYTES, theirs);
	if (r == 0)
		r = handle_enter(pool);
	return r < 0 ? r : handle_leave(pool, new_locked(pool, &options, ret));
}

struct hugepool_cache *hugepool_cache_free(struct hugepool_cache *cache)
{
	if (!cache)
		return NULL;
	if (cache->pool)
		(void)drain_all(cache);
	munmap(cache, sizeof(*cache));
	return NULL;
}
