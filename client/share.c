/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared ranges: published, attached, detached. Blocks of a shared range hold nothing else, so they
 * come with it and go with it, whatever the handle keeps otherwise. Whether they can be written is
 * seen from their descriptors where they are mapped (window.c).
 */
#include <errno.h>
#include <string.h>

#include "client/free.h"
#include "client/request.h"

_Static_assert(HUGEPOOL_SHARE_UIDS_MAX == HP_SHARE_UIDS_MAX, "as documented");

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* The daemon says what else is wrong with it; this is what has to fit a frame. */
static int take_name(struct hugepool *pool, const char *name, ProtobufCBinaryData *ret)
{
	size_t n = name ? strlen(name) : 0;

	if (n == 0 || n > HP_NAME_MAX)
		return handle_fail(pool, -EINVAL, "a name has 1 to %d bytes", HP_NAME_MAX);
	*ret = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)name};
	return 0;
}

static int fail_flags(struct hugepool *pool, unsigned flags)
{
	return handle_fail(pool, -EINVAL, "unknown flags in the options: %#x", flags);
}

/* NULL, with the reason noted: it is not ours, or not shared. */
static struct held_range *find_shared(struct hugepool *pool, const struct hugepool_range *range)
{
	struct held_range *held = free_find(pool, range);

	if (held && !held->shared) {
		handle_note(pool, -EINVAL,
			    "the range was not asked for as HUGEPOOL_SHAREABLE, nor attached");
		return NULL;
	}
	return held;
}

/* --- publishing ------------------------------------------------------------------------------- */

static int share_locked(struct hugepool *pool, const struct hugepool_range *range, const char *name,
			const struct hugepool_share_options *theirs)
{
	struct hugepool_share_options options = HUGEPOOL_SHARE_OPTIONS_INIT;
	Hugepool__V1__Share message = HUGEPOOL__V1__SHARE__INIT;
	uint64_t words[HP_WIRE_RANGE_WORDS];
	int r = take_name(pool, name, &message.name);

	if (r < 0)
		return r;
	if (theirs && handle_take_struct(&options, sizeof(options), sizeof(options), theirs) < 0)
		return handle_fail(pool, -EINVAL, "the options' size is not one of their struct");
	if (options.flags & ~(unsigned)HUGEPOOL_READ_ONLY)
		return fail_flags(pool, options.flags);
	if (options.nr_uids > HP_SHARE_UIDS_MAX)
		return handle_fail(pool, -EINVAL, "%zu uids, a range is for at most %d",
				   options.nr_uids, HP_SHARE_UIDS_MAX);
	if (!find_shared(pool, range))
		return -pool->error.error;
	message.n_range = HP_WIRE_RANGE_WORDS;
	message.range = memcpy(words, range->lease, sizeof(words));
	message.n_uids = options.nr_uids;
	message.uids = (uint32_t *)(uintptr_t)options.uids;
	message.read_only = options.flags & HUGEPOOL_READ_ONLY;
	return request_exchange(pool, TYPE(SHARE), &message.base, TYPE(DONE), NULL);
}

int hugepool_share(struct hugepool *pool, const struct hugepool_range *range, const char *name,
		   const struct hugepool_share_options *options)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, share_locked(pool, range, name, options));
}

/* --- attaching -------------------------------------------------------------------------------- */

/* Whether a range of the daemon's can be one that others have: in blocks that hold nothing of ours. */
static bool makes_sense(struct hugepool *pool, const struct hp_wire_range *wire)
{
	const struct window *window = handle_window(pool, wire->zone);

	if (!window || wire->pages > window->pages || wire->page > window->pages - wire->pages)
		return false;
	for (uint32_t i = wire->page / window->block_pages;
	     i <= (wire->page + wire->pages - 1) / window->block_pages; i++)
		if (window->blocks[i].ranges)
			return false;
	return true;
}

/* What cannot be mapped goes back. */
static int give_back(struct hugepool *pool, const struct hp_wire_range *wire, int error)
{
	uint64_t words[HP_WIRE_RANGE_WORDS];
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;

	hp_wire_put_range(words, wire);
	message.n_ranges = HP_WIRE_RANGE_WORDS;
	message.ranges = words;
	if (request_exchange(pool, TYPE(DETACH), &message.base, TYPE(DONE), NULL) < 0)
		return -pool->error.error;
	request_drop_blocks(handle_window(pool, wire->zone), wire->page, wire->pages);
	return handle_fail(pool, error, "a block of the range could not be mapped: %s",
			   strerror(-error));
}

static int take_grant(struct hugepool *pool, const Hugepool__V1__Ranges *grant, bool read_only,
		      struct hugepool_range *ret)
{
	struct held_range held = {.shared = true};
	struct hp_wire_range wire;
	struct window *window;
	int r;

	if (grant->n_ranges != HP_WIRE_RANGE_WORDS || hp_wire_get_range(grant->ranges, &wire) < 0 ||
	    !makes_sense(pool, &wire))
		return request_fail_protocol(pool);
	window = handle_window(pool, wire.zone);
	r = window_map_range(window, wire.page, wire.pages, 0, &held.address);
	if (r == 0 && window_is_writable(window, wire.page, wire.pages) == read_only) {
		window_unmap_range(window, wire.page, wire.pages, held.address);
		r = -EAGAIN;
	}
	if (r ==
	    -EAGAIN) /* descriptors come with every attachment, of the kind that was asked for */
		return request_fail_protocol(pool);
	if (r < 0)
		return give_back(pool, &wire, r);
	held.zone = wire.zone;
	held.page = wire.page;
	held.pages = wire.pages;
	held.generation = wire.generation;
	(void)range_table_add(&pool->ranges, &held);
	*ret = handle_name_range(pool, &held);
	return 0;
}

static int attach_locked(struct hugepool *pool, const char *name,
			 const struct hugepool_attach_options *theirs, struct hugepool_range *ret)
{
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	Hugepool__V1__Attach message = HUGEPOOL__V1__ATTACH__INIT;
	const ProtobufCMessage *reply;
	int r = take_name(pool, name, &message.name);

	if (r < 0)
		return r;
	if (theirs && handle_take_struct(&options, sizeof(options), sizeof(options), theirs) < 0)
		return handle_fail(pool, -EINVAL, "the options' size is not one of their struct");
	if (options.flags & ~(unsigned)HUGEPOOL_READ_ONLY)
		return fail_flags(pool, options.flags);
	if (options.tenant)
		r = take_name(pool, options.tenant, &message.tenant);
	if (r < 0)
		return r;
	if (range_table_reserve(&pool->ranges, 1) < 0)
		return handle_fail(pool, -ENOMEM, "no memory to write the range down");
	message.read_only = options.flags & HUGEPOOL_READ_ONLY;
	/* Over a new connection: whatever was attached by the old one was not told of, and is gone. */
	do
		r = request_exchange(pool, TYPE(ATTACH), &message.base, TYPE(GRANT), &reply);
	while (r == REQUEST_RESUMED);
	return r < 0 ? r
		     : take_grant(pool, (const Hugepool__V1__Ranges *)reply, message.read_only,
				  ret);
}

int hugepool_attach(struct hugepool *pool, const char *name,
		    const struct hugepool_attach_options *options, struct hugepool_range *ret)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, attach_locked(pool, name, options, ret));
}

/* --- detaching -------------------------------------------------------------------------------- */

static int detach_locked(struct hugepool *pool, const struct hugepool_range *range)
{
	Hugepool__V1__Ranges message = HUGEPOOL__V1__RANGES__INIT;
	uint64_t words[HP_WIRE_RANGE_WORDS];
	struct held_range *held = find_shared(pool, range);
	int r;

	if (!held)
		return -pool->error.error;
	held->leaving = true;
	message.n_ranges = HP_WIRE_RANGE_WORDS;
	message.ranges = memcpy(words, range->lease, sizeof(words));
	r = request_exchange(pool, TYPE(DETACH), &message.base, TYPE(DONE), NULL);
	if (r < 0) {
		free_undo(pool, range, 1);
		return r;
	}
	free_finish(pool, range, 1);
	return 0;
}

int hugepool_detach(struct hugepool *pool, const struct hugepool_range *range)
{
	int r = handle_enter(pool);

	return r < 0 ? r : handle_leave(pool, detach_locked(pool, range));
}
