/* SPDX-License-Identifier: Apache-2.0 */
/* Figures: what the handle knows itself, and what the daemon says of a zone. */
#include <errno.h>
#include <string.h>

#include "client/handle.h"
#include "client/request.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* Copies to a struct of the caller's, which has said its size. */
static int give_struct(void *theirs, size_t theirs_size, const void *ours, size_t size)
{
	memset(theirs, 0, theirs_size);
	memcpy(theirs, ours, theirs_size < size ? theirs_size : size);
	memcpy(theirs, &theirs_size, sizeof(theirs_size));
	return 0;
}

/* --- of the handle ---------------------------------------------------------------------------- */

static void count(struct hugepool *pool, struct hugepool_stats *ret)
{
	ret->zones = pool->nr_windows;
	ret->ranges = pool->ranges.nr;
	ret->pending = pool->pendings.nr;
	for (size_t i = 0; i < pool->ranges.capacity; i++) {
		const struct held_range *held = &pool->ranges.slots[i];

		if (held->pages)
			ret->bytes += held->pages * handle_window(pool, held->zone)->page_bytes;
	}
	for (size_t w = 0; w < pool->nr_windows; w++)
		for (uint32_t i = 0; i < pool->windows[w].nr_blocks; i++)
			if (pool->windows[w].blocks[i].state == BLOCK_MAPPED)
				ret->block_bytes += pool->windows[w].block_bytes;
}

int hugepool_stats(struct hugepool *pool, struct hugepool_stats *ret)
{
	struct hugepool_stats stats = {.size = sizeof(stats)};
	size_t size = ret->size;
	int r;

	if (handle_check_size(size) < 0)
		return -EINVAL;
	r = handle_enter(pool);
	if (r < 0)
		return r;
	count(pool, &stats);
	(void)handle_leave(pool, 0);
	return give_struct(ret, size, &stats, sizeof(stats));
}

/* --- of a zone -------------------------------------------------------------------------------- */

static void take_figures(const struct window *window, const Hugepool__V1__Zone *zone,
			 struct hugepool_zone_stats *ret)
{
	memcpy(ret->name, window->name, sizeof(ret->name));
	ret->node = zone->node;
	ret->page_size = window->page_bytes;
	ret->block_size = window->block_bytes;
	ret->total_bytes = zone->pages * window->page_bytes;
	ret->free_bytes =
		(zone->clean + zone->free + zone->pcp + zone->draining) * window->page_bytes;
	ret->leasable_bytes = zone->leasable * window->page_bytes;
	ret->largest_bytes = zone->largest * window->page_bytes;
	ret->limit_bytes = zone->limit_blocks * window->block_bytes;
	ret->guarantee_bytes = zone->guarantee_blocks * window->block_bytes;
	ret->charged_bytes = zone->held_blocks * window->block_bytes;
}

static const Hugepool__V1__Zone *find(const Hugepool__V1__ListReply *reply, uint32_t id)
{
	for (size_t i = 0; i < reply->n_zones; i++)
		if (reply->zones[i]->id == id)
			return reply->zones[i];
	return NULL;
}

/* The list comes in pieces. */
static int ask_for_zone(struct hugepool *pool, const struct window *window,
			struct hugepool_zone_stats *ret)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;

	list.what = HUGEPOOL__V1__LIST_WHAT__LIST_WHAT_ZONES;
	do {
		const Hugepool__V1__Zone *zone;
		const ProtobufCMessage *reply;
		uint64_t next;
		int r;

		r = request_exchange(pool, TYPE(LIST), &list.base, TYPE(LIST_REPLY), &reply);
		if (r < 0)
			return r;
		zone = find((const Hugepool__V1__ListReply *)reply, window->id);
		if (zone) {
			take_figures(window, zone, ret);
			return 0;
		}
		next = ((const Hugepool__V1__ListReply *)reply)->next;
		if (next && next <= list.cursor)
			return request_fail_protocol(pool);
		list.cursor = next;
	} while (list.cursor);
	return handle_fail(pool, -ENODEV, "the daemon has no zone %s any more", window->name);
}

static int zone_locked(struct hugepool *pool, size_t index, struct hugepool_zone_stats *ret)
{
	if (index >= pool->nr_windows)
		return handle_fail(pool, -ENODEV, "there are %zu zones", pool->nr_windows);
	return ask_for_zone(pool, &pool->windows[index], ret);
}

int hugepool_zone_stats(struct hugepool *pool, size_t index, struct hugepool_zone_stats *ret)
{
	struct hugepool_zone_stats stats = {.size = sizeof(stats)};
	size_t size = ret->size;
	int r;

	if (handle_check_size(size) < 0)
		return -EINVAL;
	r = handle_enter(pool);
	if (r == 0)
		r = handle_leave(pool, zone_locked(pool, index, &stats));
	return r < 0 ? r : give_struct(ret, size, &stats, sizeof(stats));
}
