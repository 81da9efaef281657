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
#include "client/alloc.h"

#include <errno.h>
#include <string.h>

#include "client/request.h"

#define NS_PER_MS UINT64_C(1000000)

/* All that came later is behind it, in no padding of the first version. */
#define REQUEST_FIRST_BYTES offsetof(struct hugepool_request, deadline_ms)

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

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

int alloc_translate(struct hugepool *pool, const struct hugepool_request *theirs, size_t count,
		    struct wanted *ret)
{
	struct hugepool_request request;
	struct window *window;
	uint64_t pages;

	if (handle_take_struct(&request, sizeof(request), REQUEST_FIRST_BYTES, theirs) < 0)
		return handle_fail(pool, -EINVAL, "the request's size is not one of its struct");
	if (request.flags & ~(unsigned)(HUGEPOOL_ZERO | HUGEPOOL_EXCLUSIVE | HUGEPOOL_SHAREABLE))
		return handle_fail(pool, -EINVAL, "unknown flags in the request: %#x",
				   request.flags);
	if (count < 1 || count > HP_RANGES_MAX)
		return handle_fail(pool, -EINVAL, "%zu ranges asked for, 1 to %d can be", count,
				   HP_RANGES_MAX);
	if (count > 1 && request.flags & HUGEPOOL_SHAREABLE)
		return handle_fail(pool, -EINVAL, "a shareable range is asked for by itself");
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
		.exclusive = request.flags & (HUGEPOOL_EXCLUSIVE | HUGEPOOL_SHAREABLE),
		.shareable = request.flags & HUGEPOOL_SHAREABLE,
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

void alloc_put_message(const struct wanted *wanted, Hugepool__V1__Alloc *ret)
{
	*ret = (Hugepool__V1__Alloc)HUGEPOOL__V1__ALLOC__INIT;
	ret->zone.data = (uint8_t *)wanted->window->name;
	ret->zone.len = strlen(wanted->window->name);
	ret->pages = wanted->pages;
	ret->align_pages = wanted->align_pages;
	ret->count = (uint32_t)wanted->count;
	ret->zero = wanted->zero;
	ret->exclusive = wanted->exclusive;
	ret->shareable = wanted->shareable;
	ret->deadline_ms = left_ms(wanted);
	ret->priority = wanted->priority;
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

/*
 * Maps all ranges and writes them down, or none. -EEXIST: one of them is held already; -EBUSY: one that
 * was taken from us is in its place, and has not been freed.
 */
static int map_grant(struct hugepool *pool, const struct wanted *wanted,
		     const struct hp_wire_range *wire)
{
	for (size_t i = 0; i < wanted->count; i++) {
		struct held_range held = {
			.zone = wire[i].zone,
			.page = wire[i].page,
			.pages = wire[i].pages,
			.generation = wire[i].generation,
			.shared = wanted->shareable,
		};
		const struct held_range *there =
			range_table_find(&pool->ranges, held.zone, held.page);
		int r = there && there->revoked ? -EBUSY : -EEXIST;

		if (!there && !window_is_writable(wanted->window, held.page, held.pages))
			r = -EACCES;
		else if (!there)
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

/* The ranges of a mapped grant, and what is known of them. */
static void name_grant(struct hugepool *pool, const struct wanted *wanted,
		       const struct hp_wire_range *wire, struct hugepool_range *ret,
		       struct origin *ret_origin)
{
	for (size_t i = 0; i < wanted->count; i++) {
		const struct held_range *held =
			range_table_find(&pool->ranges, wire[i].zone, wire[i].page);

		/* Whether it is zero is true now, not for good: no part of its name. */
		ret[i] = handle_name_range(pool, held);
		ret_origin[i] = (struct origin){
			.zeroed = wire[i].zeroed,
			.hot = recency_is_hot(&pool->recency, held->zone, held->page, held->pages),
		};
	}
}

int alloc_accept(struct hugepool *pool, const struct wanted *wanted,
		 const Hugepool__V1__Ranges *grant, struct hugepool_range *ret,
		 struct origin *ret_origin)
{
	struct hp_wire_range wire[HP_RANGES_MAX];
	int r;

	r = read_grant(wanted, grant, wire);
	if (r == 0)
		r = map_grant(pool, wanted, wire);
	if (r == -EPROTO || r == -EEXIST)
		return request_fail_protocol(pool);
	if (r == 0)
		name_grant(pool, wanted, wire, ret, ret_origin);
	return r;
}

uint8_t alloc_free_type(const struct wanted *wanted)
{
	return wanted->shareable ? TYPE(DETACH) : TYPE(FREE);
}

void alloc_release_blocks(struct hugepool *pool, const struct wanted *wanted,
			  const Hugepool__V1__Ranges *grant)
{
	struct release release;

	request_release_init(&release);
	for (size_t i = 0; i < wanted->count; i++) {
		struct hp_wire_range wire;

		if (hp_wire_get_range(grant->ranges + i * HP_WIRE_RANGE_WORDS, &wire) < 0)
			continue;
		if (wanted->shareable)
			request_drop_blocks(wanted->window, wire.page, wire.pages);
		else
			request_release(pool, &release, wanted->window, wire.page, wire.pages,
					true);
	}
	request_release_flush(pool, &release);
}

/*
 * An exclusive range needs the descriptors of its blocks. Of blocks that are kept idle we may have
 * none, and the daemon would not send them again. Return: 0, or -ENOMEM if one of them cannot be let
 * go of.
 */
static int release_without_fd(struct hugepool *pool, struct window *window)
{
	struct release release;
	int r = 0;

	request_release_init(&release);
	for (uint32_t i = 0; i < window->nr_blocks; i++) {
		struct block *block = &window->blocks[i];

		if (block->state != BLOCK_MAPPED || block->ranges || block->fd >= 0)
			continue;
		block->retired = true;
		request_release(pool, &release, window, i * window->block_pages, 1, false);
		if (block->state == BLOCK_MAPPED && !block->leaving)
			r = -ENOMEM;
	}
	request_release_flush(pool, &release);
	return r;
}

int alloc_prepare(struct hugepool *pool, const struct wanted *wanted)
{
	if (range_table_reserve(&pool->ranges, wanted->count) < 0)
		return handle_fail(pool, -ENOMEM, "no memory to write the ranges down");
	if (wanted->exclusive && release_without_fd(pool, wanted->window) < 0)
		return handle_fail(pool, -ENOMEM, "no memory to let go of an idle block");
	return 0;
}

/* --- a call that waits ------------------------------------------------------------------------ */

static int ask(struct hugepool *pool, const struct wanted *wanted, const Hugepool__V1__Ranges **ret)
{
	const ProtobufCMessage *reply = NULL;
	Hugepool__V1__Alloc alloc;
	int r;

	do { /* with what is left of its time */
		alloc_put_message(wanted, &alloc);
		pool->keep_fds = wanted->exclusive;
		r = request_exchange_waiting(pool, TYPE(ALLOC), &alloc.base, alloc.deadline_ms,
					     TYPE(GRANT), &reply);
		pool->keep_fds = false;
	} while (r == REQUEST_RESUMED);
	if (r == -ENOMEM || r == -EDQUOT || (r == -ETIMEDOUT && !pool->connection.broken))
		pool->error.asked_bytes = wanted->bytes;
	*ret = (const Hugepool__V1__Ranges *)reply;
	return r;
}

/* A grant that we cannot use, and the blocks that are to blame. */
static int give_back(struct hugepool *pool, const struct wanted *wanted,
		     const Hugepool__V1__Ranges *grant)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;
	int r;

	/* The grant does not outlive the exchange. */
	ranges.n_ranges = wanted->count * HP_WIRE_RANGE_WORDS;
	ranges.ranges = memcpy(words, grant->ranges, ranges.n_ranges * sizeof(words[0]));
	r = request_exchange(pool, alloc_free_type(wanted), &ranges.base, TYPE(DONE), NULL);
	if (r < 0)
		return r;
	alloc_release_blocks(pool, wanted, &ranges);
	return 0;
}

static int take_locked(struct hugepool *pool, const struct hugepool_request *request,
		       struct hugepool_range *ret, struct origin *ret_origin, size_t n)
{
	const Hugepool__V1__Ranges *grant;
	struct wanted wanted;
	int r;

	r = alloc_translate(pool, request, n, &wanted);
	if (r == 0)
		r = alloc_prepare(pool, &wanted);
	if (r < 0)
		return r;
	for (int i = 0; i < ALLOC_TRIES; i++) {
		r = ask(pool, &wanted, &grant);
		if (r < 0)
			return r;
		r = alloc_accept(pool, &wanted, grant, ret, ret_origin);
		if (r == 0 || r == -EPROTO)
			return r;
		if (give_back(pool, &wanted, grant) < 0)
			return -pool->error.error;
		if (r == -EBUSY)
			return handle_fail(
				pool, r,
				"a range that was revoked is in the place of what was granted; free it");
		if (r != -EAGAIN)
			return handle_fail(pool, r, "a granted block could not be mapped: %s",
					   strerror(-r));
	}
	/* Twice it named a block whose descriptor it never sent. */
	return request_fail_protocol(pool);
}

int alloc_take(struct hugepool *pool, const struct hugepool_request *request,
	       struct hugepool_range *ret, struct origin *ret_origin, size_t n)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, take_locked(pool, request, ret, ret_origin, n));
}

int hugepool_alloc_bulk(struct hugepool *pool, const struct hugepool_request *request,
			struct hugepool_range *ret, size_t n)
{
	struct origin origin[HP_RANGES_MAX] = {{.zeroed = false}};
	int r = alloc_take(pool, request, ret, origin, n);

	for (size_t i = 0; r == 0 && i < n && request->flags & HUGEPOOL_ZERO; i++)
		if (!origin[i].zeroed)
			zero_memory(ret[i].address, ret[i].bytes, origin[i].hot);
	return r;
}

int hugepool_alloc(struct hugepool *pool, const struct hugepool_request *request,
		   struct hugepool_range *ret)
{
	return hugepool_alloc_bulk(pool, request, ret, 1);
}
