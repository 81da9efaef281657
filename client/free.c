/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving ranges back, and their descriptors. A range is looked up before the daemon is asked: what
 * is not held must not be unmapped, and copies of a range that was freed are found out here. Memory
 * is unmapped only after the daemon has agreed, so that an error leaves everything as it was.
 */
#include "client/handle.h"

#include <errno.h>
#include <string.h>

#include "client/request.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* The range as we hold it. NULL: not ours, or not any more. */
static struct held_range *find_held(struct hugepool *pool, const struct hugepool_range *range)
{
	struct hp_wire_range wire;
	struct held_range *held;
	const struct window *window;

	if (hp_wire_get_range(range->lease, &wire) < 0)
		return NULL;
	window = handle_window(pool, wire.zone);
	held = range_table_find(&pool->ranges, wire.zone, wire.page);
	if (!window || !held || held->pages != wire.pages || held->generation != wire.generation ||
	    held->address != range->address || range->bytes != held->pages * window->page_bytes)
		return NULL;
	return held;
}

static int fail_not_held(struct hugepool *pool, size_t index)
{
	handle_note(pool, -EINVAL,
		    "not a range of this handle: freed before, or not as it was granted");
	pool->error.index = index;
	return -EINVAL;
}

/* Marks the first n as not leaving after all. */
static void stay(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		find_held(pool, &ranges[i])->leaving = false;
}

static void forget(struct hugepool *pool, struct held_range *held, struct release *release)
{
	struct window *window = handle_window(pool, held->zone);
	uint32_t page = held->page, pages = held->pages;

	recency_note(&pool->recency, held->zone, page, pages, pages * window->page_bytes);
	window_unmap_range(window, page, pages, held->address);
	range_table_remove(&pool->ranges, held);
	request_release(pool, release, window, page, pages, false);
}

static int free_locked(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;
	struct release release;
	int r;

	if (n < 1 || n > HP_RANGES_MAX)
		return handle_fail(pool, -EINVAL, "%zu ranges to free, 1 to %d can be", n,
				   HP_RANGES_MAX);
	for (size_t i = 0; i < n; i++) {
		struct held_range *held = find_held(pool, &ranges[i]);

		if (!held || held->leaving) {
			stay(pool, ranges, i);
			return fail_not_held(pool, i);
		}
		held->leaving = true;
		memcpy(words + i * HP_WIRE_RANGE_WORDS, ranges[i].lease, sizeof(ranges[i].lease));
	}
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	r = request_exchange(pool, TYPE(FREE), &message.base, TYPE(DONE), NULL);
	if (r < 0) {
		stay(pool, ranges, n);
		return r;
	}
	request_release_init(&release);
	for (size_t i = 0; i < n; i++)
		forget(pool, find_held(pool, &ranges[i]), &release);
	request_release_flush(pool, &release);
	return 0;
}

int hugepool_free_bulk(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, free_locked(pool, ranges, n));
}

int hugepool_free(struct hugepool *pool, const struct hugepool_range *range)
{
	return hugepool_free_bulk(pool, range, 1);
}

static int range_fd_locked(struct hugepool *pool, const struct hugepool_range *range,
			   uint64_t *ret_offset)
{
	const struct held_range *held = find_held(pool, range);
	const struct window *window;
	uint32_t index;

	if (!held)
		return fail_not_held(pool, 0);
	window = handle_window(pool, held->zone);
	index = held->page / window->block_pages;
	if ((held->page + held->pages - 1) / window->block_pages != index)
		return handle_fail(pool, -EXDEV,
				   "the range lies in several pageblocks, each with a descriptor "
				   "of its own; use a zone with larger ones");
	if (window->blocks[index].fd < 0)
		return handle_fail(pool, -EBADF,
				   "descriptors are not kept: open with HUGEPOOL_KEEP_FDS, or ask "
				   "for the range with HUGEPOOL_EXCLUSIVE");
	*ret_offset = held->page % window->block_pages * window->page_bytes;
	return window->blocks[index].fd;
}

int hugepool_range_fd(struct hugepool *pool, const struct hugepool_range *range,
		      uint64_t *ret_offset)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, range_fd_locked(pool, range, ret_offset));
}
