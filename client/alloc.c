/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking ranges. The mutex is held for as long as the daemon is talked to, also while a request
 * with a deadline waits; the slow part, zeroing, comes afterwards: the range is its caller's by
 * then.
 *
 * Nothing the daemon says is believed unseen: ranges have to be what was asked for and lie in their
 * zone, in blocks that we have mapped. A daemon that says otherwise is not listened to any more.
 * Room for writing the ranges down is made before it is asked, so that a grant is never lost.
 */
#include "client/handle.h"

#include <errno.h>
#include <string.h>

#include "client/request.h"

#define GRANT_TRIES 2
#define NS_PER_MS   UINT64_C(1000000)

/* All that came later is behind it, in no padding of the first version. */
#define REQUEST_FIRST_BYTES offsetof(struct hugepool_request, deadline_ms)

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* A request in the daemon's words. */
struct wanted {
	struct window *window;
	uint64_t alignment; /* bytes */
	uint64_t bytes;	    /* asked for in all */
	uint32_t pages, align_pages;
	size_t count;
	bool zero, exclusive;
	uint64_t until_ns; /* it may wait, CLOCK_MONOTONIC; 0: not at all */
	uint32_t priority;
};

static struct window *find_window(struct hugepool *pool, const struct hugepool_request *request)
{
	for (size_t i = 0; i < pool->nr_windows; i++) {
		struct window *window = &pool->windows[i];

		if (request->zone && strcmp(request->zone, window->name) != 0)
			continue;
		if (!request->page_size || request->page_size == window->page_bytes)
			return window;
	}
	return NULL;
}

static int fail_no_zone(struct hugepool *pool, const struct hugepool_request *request)
{
	const char *name = request->zone ? request->zone : "";

	if (request->page_size)
		return handle_fail(pool, -ENODEV,
				   "no zone %s%swith pages of %llu kB is yours to use", name,
				   *name ? " " : "", (unsigned long long)request->page_size / 1024);
	return handle_fail(pool, -ENODEV, "no zone %s%sis yours to use", name, *name ? " " : "");
}

/* Longer than there is, for the daemon to refuse, is as good as any other such number. */
static uint64_t until_ns(uint64_t deadline_ms)
{
	if (deadline_ms > UINT32_MAX)
		deadline_ms = UINT32_MAX;
	return deadline_ms ? connection_now_ns() + deadline_ms * NS_PER_MS : 0;
}

/* What is left of the time it may wait, rounded up, and at least 1 if it may wait. */
static uint32_t left_ms(const struct wanted *wanted)
{
	uint64_t now = connection_now_ns();

	if (!wanted->until_ns)
		return 0;
	if (wanted->until_ns <= now)
		return 1;
	return (uint32_t)((wanted->until_ns - now - 1) / NS_PER_MS + 1);
}

static int translate(struct hugepool *pool, const struct hugepool_request *theirs, size_t count,
		     struct wanted *ret)
{
	struct hugepool_request request;
	struct window *window;
	uint64_t pages;

	if (handle_take_struct(&request, sizeof(request), REQUEST_FIRST_BYTES, theirs) < 0)
		return handle_fail(pool, -EINVAL, "the request's size is not one of its struct");
	if (request.flags & ~(unsigned)(HUGEPOOL_ZERO | HUGEPOOL_EXCLUSIVE))
		return handle_fail(pool, -EINVAL, "unknown flags in the request: %#x",
				   request.flags);
	if (count < 1 || count > HP_RANGES_MAX)
		return handle_fail(pool, -EINVAL, "%zu ranges asked for, 1 to %d can be", count,
				   HP_RANGES_MAX);
	if (request.bytes == 0)
		return handle_fail(pool, -EINVAL, "a range of no bytes");
	if (request.alignment & (request.alignment - 1))
		return handle_fail(pool, -EINVAL, "the alignment is not a power of two");

	window = find_window(pool, &request);
	if (!window)
		return fail_no_zone(pool, &request);
	window_reserve(window);
	if (request.alignment > window->page_bytes << 31 ||
	    (!window->per_range && request.alignment > window->alignment))
		return handle_fail(pool, -EINVAL, "the alignment is larger than there can be");

	/* What a zone cannot have is for the daemon to refuse: it has the numbers. */
	pages = (request.bytes - 1) / window->page_bytes + 1;
	if (pages > HP_RANGE_PAGES_MAX && window->pages >= HP_RANGE_PAGES_MAX)
		return handle_fail(pool, -EINVAL, "a range is at most %u pages",
				   HP_RANGE_PAGES_MAX);
	if (pages > HP_RANGE_PAGES_MAX)
		pages = HP_RANGE_PAGES_MAX;
	*ret = (struct wanted){
		.window = window,
		.alignment = request.alignment,
		.bytes = request.bytes > UINT64_MAX / count ? UINT64_MAX : request.bytes * count,
		.pages = (uint32_t)pages,
		.align_pages = (uint32_t)(request.alignment / window->page_bytes),
		.count = count,
		.zero = request.flags & HUGEPOOL_ZERO,
		.exclusive = request.flags & HUGEPOOL_EXCLUSIVE,
		.until_ns = until_ns(request.deadline_ms),
		.priority = request.priority,
	};
	return 0;
}

/* Whether a range from the daemon is one that was asked for. */
static bool is_as_wanted(const struct wanted *wanted, const struct hp_wire_range *wire)
{
	const struct window *window = wanted->window;

	return wire->zone == window->id && wire->pages == wanted->pages &&
	       wire->pages <= window->pages && wire->page <= window->pages - wire->pages &&
	       (wanted->align_pages == 0 || wire->page % wanted->align_pages == 0);
}

static int read_grant(const struct wanted *wanted, const Hugepool__V1__Ranges *grant,
		      struct hp_wire_range *ret)
{
	if (grant->n_ranges != wanted->count * HP_WIRE_RANGE_WORDS)
		return -EPROTO;
	for (size_t i = 0; i < wanted->count; i++)
		if (hp_wire_get_range(grant->ranges + i * HP_WIRE_RANGE_WORDS, &ret[i]) < 0 ||
		    !is_as_wanted(wanted, &ret[i]))
			return -EPROTO;
	return 0;
}

static int ask(struct hugepool *pool, const struct wanted *wanted, struct hp_wire_range *ret)
{
	Hugepool__V1__Alloc alloc = HUGEPOOL__V1__ALLOC__INIT;
	const ProtobufCMessage *reply;
	int r;

	alloc.zone.data = (uint8_t *)wanted->window->name;
	alloc.zone.len = strlen(wanted->window->name);
	alloc.pages = wanted->pages;
	alloc.align_pages = wanted->align_pages;
	alloc.count = (uint32_t)wanted->count;
	alloc.zero = wanted->zero;
	alloc.exclusive = wanted->exclusive;
	alloc.deadline_ms = left_ms(wanted);
	alloc.priority = wanted->priority;

	pool->keep_fds = wanted->exclusive;
	r = request_exchange_waiting(pool, TYPE(ALLOC), &alloc.base, alloc.deadline_ms, TYPE(GRANT),
				     &reply);
	pool->keep_fds = false;
	if (r == -ENOMEM || r == -EDQUOT || (r == -ETIMEDOUT && !pool->connection.broken))
		pool->error.asked_bytes = wanted->bytes;
	if (r)
		return r;
	if (read_grant(wanted, (const Hugepool__V1__Ranges *)reply, ret) < 0)
		return request_fail_protocol(pool);
	return 0;
}

/* Undoes the first n of what map_grant() does. */
static void unmap_grant(struct hugepool *pool, const struct wanted *wanted,
			const struct hp_wire_range *wire, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct held_range *held =
			range_table_find(&pool->ranges, wire[i].zone, wire[i].page);

		window_unmap_range(wanted->window, held->page, held->pages, held->address);
		range_table_remove(&pool->ranges, held);
	}
}

/* Maps all ranges and writes them down, or none. -EEXIST: one of them is held already. */
static int map_grant(struct hugepool *pool, const struct wanted *wanted,
		     const struct hp_wire_range *wire)
{
	for (size_t i = 0; i < wanted->count; i++) {
		struct held_range held = {
			.zone = wire[i].zone,
			.page = wire[i].page,
			.pages = wire[i].pages,
			.generation = wire[i].generation,
		};
		int r = -EEXIST;

		if (!range_table_find(&pool->ranges, held.zone, held.page))
			r = window_map_range(wanted->window, held.page, held.pages,
					     wanted->alignment, &held.address);
		if (r == 0)
			r = range_table_add(&pool->ranges, &held);
		if (r < 0) {
			unmap_grant(pool, wanted, wire, i);
			return r;
		}
	}
	return 0;
}

/* A grant that we cannot use, and the blocks that are to blame. */
static int give_back(struct hugepool *pool, const struct wanted *wanted,
		     const struct hp_wire_range *wire)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;
	struct release release;
	int r;

	for (size_t i = 0; i < wanted->count; i++)
		hp_wire_put_range(words + i * HP_WIRE_RANGE_WORDS, &wire[i]);
	ranges.n_ranges = wanted->count * HP_WIRE_RANGE_WORDS;
	ranges.ranges = words;
	r = request_exchange(pool, TYPE(FREE), &ranges.base, TYPE(DONE), NULL);
	if (r < 0)
		return r;
	request_release_init(&release);
	for (size_t i = 0; i < wanted->count; i++)
		request_release(pool, &release, wanted->window, wire[i].page, wire[i].pages, true);
	request_release_flush(pool, &release);
	return 0;
}

static int take_grant(struct hugepool *pool, const struct wanted *wanted,
		      struct hp_wire_range *ret_wire)
{
	int r;

	for (int i = 0; i < GRANT_TRIES; i++) {
		r = ask(pool, wanted, ret_wire);
		if (r)
			return r;
		r = map_grant(pool, wanted, ret_wire);
		if (r == 0)
			return 0;
		if (r == -EEXIST)
			return request_fail_protocol(pool);
		if (give_back(pool, wanted, ret_wire) < 0)
			return -pool->error.error;
		if (r != -EAGAIN)
			return handle_fail(pool, r, "a granted block could not be mapped: %s",
					   strerror(-r));
	}
	/* Twice it named a block whose descriptor it never sent. */
	return request_fail_protocol(pool);
}

/*
 * An exclusive range needs the descriptors of its blocks. Of blocks that are kept idle we may have
 * none, and the daemon would not send them again.
 */
static void release_without_fd(struct hugepool *pool, struct window *window)
{
	struct release release;

	request_release_init(&release);
	for (uint32_t i = 0; i < window->nr_blocks; i++) {
		struct block *block = &window->blocks[i];

		if (block->state != BLOCK_MAPPED || block->ranges || block->fd >= 0)
			continue;
		block->retired = true;
		request_release(pool, &release, window, i * window->block_pages, 1, false);
	}
	request_release_flush(pool, &release);
}

static int alloc_locked(struct hugepool *pool, const struct hugepool_request *request,
			struct hp_wire_range *ret_wire, struct hugepool_range *ret_ranges,
			bool *ret_hot, size_t n)
{
	struct wanted wanted;
	int r;

	r = translate(pool, request, n, &wanted);
	if (r < 0)
		return r;
	if (range_table_reserve(&pool->ranges, n) < 0)
		return handle_fail(pool, -ENOMEM, "no memory to write the ranges down");
	if (wanted.exclusive && pool->flags & HUGEPOOL_KEEP_BLOCKS)
		release_without_fd(pool, wanted.window);
	r = take_grant(pool, &wanted, ret_wire);
	if (r)
		return r;

	for (size_t i = 0; i < n; i++) {
		const struct held_range *held =
			range_table_find(&pool->ranges, ret_wire[i].zone, ret_wire[i].page);

		ret_ranges[i] = (struct hugepool_range){
			.address = held->address,
			.bytes = held->pages * wanted.window->page_bytes,
			.page_size = wanted.window->page_bytes,
		};
		ret_hot[i] = recency_is_hot(&pool->recency, held->zone, held->page, held->pages);
		/* Whether it is zero is true now, not for good: no part of its name. */
		struct hp_wire_range name = ret_wire[i];
		name.zeroed = false;
		hp_wire_put_range(ret_ranges[i].lease, &name);
	}
	return 0;
}

int hugepool_alloc_bulk(struct hugepool *pool, const struct hugepool_request *request,
			struct hugepool_range *ret, size_t n)
{
	struct hp_wire_range wire[HP_RANGES_MAX];
	bool hot[HP_RANGES_MAX];
	int r;

	r = handle_enter(pool);
	if (r < 0)
		return r;
	r = handle_leave(pool, alloc_locked(pool, request, wire, ret, hot, n));
	if (r)
		return r;

	for (size_t i = 0; i < n && request->flags & HUGEPOOL_ZERO; i++)
		if (!wire[i].zeroed)
			zero_memory(ret[i].address, ret[i].bytes, hot[i]);
	return 0;
}

int hugepool_alloc(struct hugepool *pool, const struct hugepool_request *request,
		   struct hugepool_range *ret)
{
	return hugepool_alloc_bulk(pool, request, ret, 1);
}
