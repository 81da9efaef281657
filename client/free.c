/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving ranges back, in whole and in part, and their descriptors. A range is looked up before the
 * daemon is asked: what is not held must not be unmapped, and copies of a range that was freed are
 * found out here. Memory is unmapped only after the daemon has agreed, so that an error leaves
 * everything as it was.
 *
 * A part given back leaves leases of other names, which come with the reply. Where they must lie is
 * known before, so that nothing else is believed.
 */
#include "client/free.h"

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

static int fail_lost(struct hugepool *pool, size_t index)
{
	handle_note(pool, -ESTALE,
		    "the daemon came back without this range: it must not be used any more");
	pool->error.index = index;
	return -ESTALE;
}

struct held_range *free_find(struct hugepool *pool, const struct hugepool_range *range)
{
	struct held_range *held = find_held(pool, range);

	if (held && held->lost)
		fail_lost(pool, 0);
	else if (!held || held->leaving)
		fail_not_held(pool, 0);
	return held && !held->lost && !held->leaving ? held : NULL;
}

static int fail_shared(struct hugepool *pool, size_t index)
{
	handle_note(pool, -EINVAL,
		    "a shared range, which hugepool_detach() gives back, as a whole");
	pool->error.index = index;
	return -EINVAL;
}

void free_undo(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		find_held(pool, &ranges[i])->leaving = false;
}

int free_begin(struct hugepool *pool, const struct hugepool_range *ranges, size_t n,
	       uint64_t *words)
{
	for (size_t i = 0; i < n; i++) {
		struct held_range *held = find_held(pool, &ranges[i]);

		if (!held || held->leaving || held->shared || held->lost) {
			free_undo(pool, ranges, i);
			return held && held->shared ? fail_shared(pool, i)
			       : held && held->lost ? fail_lost(pool, i)
						    : fail_not_held(pool, i);
		}
		held->leaving = true;
		memcpy(words + i * HP_WIRE_RANGE_WORDS, ranges[i].lease, sizeof(ranges[i].lease));
	}
	return 0;
}

static void forget(struct hugepool *pool, struct held_range *held, struct release *release)
{
	struct window *window = handle_window(pool, held->zone);
	uint32_t page = held->page, pages = held->pages;
	bool shared = held->shared;

	recency_note(&pool->recency, held->zone, page, pages, pages * window->page_bytes);
	window_unmap_range(window, page, pages, held->address);
	event_forget(pool, held);
	range_table_remove(&pool->ranges, held);
	if (shared)
		request_drop_blocks(window, page, pages);
	else
		request_release(pool, release, window, page, pages, false);
}

void free_finish(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	struct release release;

	request_release_init(&release);
	for (size_t i = 0; i < n; i++)
		forget(pool, find_held(pool, &ranges[i]), &release);
	request_release_flush(pool, &release);
}

/* Was it taken, and does the daemon know nothing of it any more? Then there is nobody to be told. */
static bool is_over(struct hugepool *pool, const struct hugepool_range *range)
{
	const struct held_range *held = find_held(pool, range);

	return held && held->revoked && held->lost && !held->leaving;
}

static int free_locked(struct hugepool *pool, const struct hugepool_range *ranges, size_t n)
{
	uint64_t words[HP_RANGES_MAX * HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;
	int r;

	if (n < 1 || n > HP_RANGES_MAX)
		return handle_fail(pool, -EINVAL, "%zu ranges to free, 1 to %d can be", n,
				   HP_RANGES_MAX);
	if (n == 1 && is_over(pool, ranges)) {
		free_finish(pool, ranges, 1);
		return 0;
	}
	r = free_begin(pool, ranges, n, words);
	if (r < 0)
		return r;
	message.n_ranges = n * HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	r = request_exchange(pool, TYPE(FREE), &message.base, TYPE(DONE), NULL);
	if (r < 0) {
		free_undo(pool, ranges, n);
		return r;
	}
	free_finish(pool, ranges, n);
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

/* --- a part ----------------------------------------------------------------------------------- */

/* A part of a range, in pages, and what the daemon calls the rest. */
struct part {
	uint32_t offset, pages;
	struct held_range left[2]; /* before it and behind it; pages 0: none */
};

/* Return: 0, or -EINVAL with the reason noted. The generations are not known yet. */
static int get_part(struct hugepool *pool, const struct held_range *held, uint64_t offset_bytes,
		    uint64_t length_bytes, struct part *ret)
{
	const struct window *window = handle_window(pool, held->zone);
	uint64_t bytes = held->pages * window->page_bytes;
	uint32_t behind;

	if (length_bytes == 0 || offset_bytes > bytes || length_bytes > bytes - offset_bytes)
		return handle_fail(pool, -EINVAL, "the part is not inside of the range");
	if ((offset_bytes | length_bytes) % window->page_bytes)
		return handle_fail(pool, -EINVAL, "the part is not whole pages of %llu kB",
				   (unsigned long long)window->page_bytes / 1024);
	*ret = (struct part){
		.offset = (uint32_t)(offset_bytes / window->page_bytes),
		.pages = (uint32_t)(length_bytes / window->page_bytes),
		.left = {*held, *held},
	};
	behind = ret->offset + ret->pages;
	ret->left[0].pages = ret->offset;
	ret->left[1].page += behind;
	ret->left[1].pages -= behind;
	ret->left[1].address = (uint8_t *)held->address + behind * window->page_bytes;
	return 0;
}

/*
 * Takes the new names of what is left. It has to be what must be left, in order of address, and in
 * no other range's place.
 */
static int read_left(const struct hugepool *pool, const Hugepool__V1__Ranges *grant,
		     struct part *part)
{
	size_t at = 0;

	for (size_t i = 0; i < 2; i++) {
		struct held_range *left = &part->left[i];
		struct hp_wire_range wire;

		if (left->pages == 0)
			continue;
		if (grant->n_ranges < at + HP_WIRE_RANGE_WORDS ||
		    hp_wire_get_range(grant->ranges + at, &wire) < 0 || wire.zone != left->zone ||
		    wire.page != left->page || wire.pages != left->pages)
			return -EPROTO;
		left->generation = wire.generation;
		at += HP_WIRE_RANGE_WORDS;
	}
	if (part->left[1].pages &&
	    range_table_find(&pool->ranges, part->left[1].zone, part->left[1].page))
		return -EPROTO;
	return grant->n_ranges == at ? 0 : -EPROTO;
}

static struct hugepool_range name_left(struct hugepool *pool, const struct held_range *left)
{
	return left->pages ? handle_name_range(pool, left)
			   : (struct hugepool_range){.address = NULL};
}

/* The range becomes what is left of it. Room in the table has been reserved. */
static void cut(struct hugepool *pool, struct held_range *held, const struct part *part)
{
	struct window *window = handle_window(pool, held->zone);
	uint32_t page = held->page + part->offset;
	struct release release;

	recency_note(&pool->recency, held->zone, page, part->pages,
		     part->pages * window->page_bytes);
	window_unmap_part(window, held->page, held->pages, held->address, part->offset,
			  part->pages);
	event_forget(pool, held);
	range_table_remove(&pool->ranges, held);
	for (size_t i = 0; i < 2; i++)
		if (part->left[i].pages)
			(void)range_table_add(&pool->ranges, &part->left[i]);
	request_release_init(&release);
	request_release(pool, &release, window, page, part->pages, false);
	request_release_flush(pool, &release);
}

static int free_part_locked(struct hugepool *pool, struct hugepool_range *range,
			    uint64_t offset_bytes, uint64_t length_bytes,
			    struct hugepool_range *ret_rest)
{
	Hugepool__V1__FreePart message = HUGEPOOL__V1__FREE_PART__INIT;
	struct hugepool_range ranges[2];
	const ProtobufCMessage *reply;
	struct held_range *held;
	struct part part;
	int r;

	/* A hole makes two of one. */
	if (range_table_reserve(&pool->ranges, 1) < 0)
		return handle_fail(pool, -ENOMEM, "no memory to write the rest down");
	held = find_held(pool, range);
	if (!held || held->leaving)
		return fail_not_held(pool, 0);
	if (held->shared)
		return fail_shared(pool, 0);
	if (held->lost)
		return fail_lost(pool, 0);
	r = get_part(pool, held, offset_bytes, length_bytes, &part);
	if (r < 0)
		return r;
	if (!ret_rest && part.left[0].pages && part.left[1].pages)
		return handle_fail(
			pool, -EINVAL,
			"a part in the middle leaves two ranges, and there is no place for the second");

	message.n_range = HP_WIRE_RANGE_WORDS;
	message.range = range->lease;
	message.offset = part.offset;
	message.pages = part.pages;
	held->cut_offset = part.offset;
	held->cut_pages = part.pages;
	r = request_exchange(pool, TYPE(FREE_PART), &message.base, TYPE(GRANT), &reply);
	held = find_held(pool, range); /* others may have moved in the table meanwhile */
	held->cut_pages = 0;
	if (r < 0)
		return r;
	/* What is left of a lease keeps its generation. */
	if (r == 0 && read_left(pool, (const Hugepool__V1__Ranges *)reply, &part) < 0)
		return request_fail_protocol(pool);

	for (size_t i = 0; i < 2; i++)
		ranges[i] = name_left(pool, &part.left[i]);
	cut(pool, held, &part);
	*range = ranges[part.left[0].pages == 0];
	if (ret_rest)
		*ret_rest =
			part.left[0].pages ? ranges[1] : (struct hugepool_range){.address = NULL};
	return 0;
}

int hugepool_free_part(struct hugepool *pool, struct hugepool_range *range, uint64_t offset_bytes,
		       uint64_t length_bytes, struct hugepool_range *ret_rest)
{
	int r = handle_enter(pool);

	return r < 0 ? r
		     : handle_leave(pool, free_part_locked(pool, range, offset_bytes, length_bytes,
							   ret_rest));
}

/* --- descriptors ------------------------------------------------------------------------------ */

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
		return handle_fail(
			pool, -EXDEV,
			"the range lies in several pageblocks, each with a descriptor of its own; use a zone with larger ones");
	if (window->blocks[index].fd < 0)
		return handle_fail(
			pool, -EBADF,
			"descriptors are not kept: open with HUGEPOOL_KEEP_FDS, or ask for the range with HUGEPOOL_EXCLUSIVE");
	*ret_offset = held->page % window->block_pages * window->page_bytes;
	return window->blocks[index].fd;
}

int hugepool_range_fd(struct hugepool *pool, const struct hugepool_range *range,
		      uint64_t *ret_offset)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, range_fd_locked(pool, range, ret_offset));
}
