/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is missing is worked out from the kernel's own figures: pages that are free and promised to
 * nobody are used first. All of it happens under the locks of the page sizes, so that two set-ups
 * side by side do not count the same free pages twice. Pages that were added and are of no use in the
 * end, since they do not fill a block, go back at once.
 *
 * Reservations are kept by the kernel for the machine, not for a node. For a zone of a node they are
 * all taken to be on that node: rather a page too many asked for than a block short.
 */
#include "daemon/setup/make.h"

#include "daemon/setup/blockfs.h"
#include "daemon/setup/hugepages.h"
#include "daemon/setup/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Zones of one page size and node draw on one number. */
struct group {
	uint64_t page_bytes;
	int node;
	uint64_t wanted_pages;	 /* of blocks that are not there yet */
	uint64_t growable_pages; /* of those, in zones that may grow */
	int64_t raised;
};

struct making {
	const struct setup_plan *plan;
	struct setup_record *record;
	const struct make_place *place;
	struct make_outcome *outcome;
	struct group groups[HP_ZONES_MAX];
	uint32_t nr_groups;
	struct {
		uint64_t page_bytes;
		int fd;
	} locks[HP_ZONES_MAX]; /* one for each page size, ascending */
	uint32_t nr_locks;
};

__attribute__((format(printf, 2, 3))) static void tell(struct make_outcome *outcome,
						       const char *format, ...)
{
	size_t n = strlen(outcome->text);
	va_list args;

	if (n && n < sizeof(outcome->text) - 2) {
		memcpy(outcome->text + n, "; ", 3);
		n += 2;
	}
	va_start(args, format);
	(void)vsnprintf(outcome->text + n, sizeof(outcome->text) - n, format, args);
	va_end(args);
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static struct group *group_of(struct making *making, const struct setup_zone *zone)
{
	struct group *group = making->groups;

	for (; group < making->groups + making->nr_groups; group++)
		if (group->page_bytes == zone->page_bytes && group->node == zone->node)
			return group;
	*group = (struct group){.page_bytes = zone->page_bytes, .node = zone->node};
	making->nr_groups++;
	return group;
}

static void count_wanted(struct making *making)
{
	for (uint32_t z = 0; z < making->plan->nr_zones; z++) {
		const struct setup_zone *zone = &making->plan->zones[z];
		struct group *group = group_of(making, zone);
		uint64_t pages;

		for (uint32_t block = 0; block < zone->max_blocks; block++)
			making->outcome->blocks[z] +=
				making->place->has(making->place->userdata, z, block);
		pages = above(zone->nr_blocks, making->outcome->blocks[z]) *
			setup_zone_block_pages(zone);
		group->wanted_pages += pages;
		if (zone->grow)
			group->growable_pages += pages;
	}
}

/* The smallest page size above this one that zones are of; 0: none. */
static uint64_t next_page_size(const struct making *making, uint64_t page_bytes)
{
	uint64_t next = 0;

	for (uint32_t g = 0; g < making->nr_groups; g++) {
		uint64_t size = making->groups[g].page_bytes;

		if (size > page_bytes && (!next || size < next))
			next = size;
	}
	return next;
}

/* In one order for all set-ups, whatever the order of their zones: two cannot wait for one another. */
static int lock_page_sizes(struct making *making)
{
	uint64_t page_bytes = 0;

	while ((page_bytes = next_page_size(making, page_bytes))) {
		int fd = lock_page_size(page_bytes);

		if (fd < 0)
			return fd;
		making->locks[making->nr_locks].page_bytes = page_bytes;
		making->locks[making->nr_locks++].fd = fd;
	}
	return 0;
}

static void unlock_page_sizes(struct making *making)
{
	for (; making->nr_locks; making->nr_locks--)
		unlock_page_size_consume_fd(making->locks[making->nr_locks - 1].page_bytes,
					    making->locks[making->nr_locks - 1].fd);
}

/* What zones of single nodes will take out of the machine's free pages. */
static uint64_t wanted_on_nodes(const struct making *making, uint64_t page_bytes)
{
	uint64_t pages = 0;

	for (uint32_t g = 0; g < making->nr_groups; g++)
		if (making->groups[g].page_bytes == page_bytes && making->groups[g].node >= 0)
			pages += making->groups[g].wanted_pages;
	return pages;
}

static int raise_group(struct making *making, struct group *group)
{
	struct hugepages_counts counts;
	uint64_t usable, missing;
	char size[CONFIG_SIZE_TEXT_MAX];
	int r;

	r = hugepages_read(group->page_bytes, group->node, &counts);
	if (r < 0)
		return r;
	usable = above(counts.free, counts.reserved);
	if (group->node < 0)
		usable = above(usable, wanted_on_nodes(making, group->page_bytes));
	missing = minimum(above(group->wanted_pages, usable), group->growable_pages);
	if (!missing)
		return 0;
	r = setup_record_change(making->record, group->page_bytes, group->node, (int64_t)missing,
				&group->raised);
	if (r == 0 && group->raised < (int64_t)missing)
		tell(making->outcome,
		     "asked the kernel for %" PRIu64 " more huge pages of %s and got %" PRId64,
		     missing, config_format_size(group->page_bytes, size), group->raised);
	return r;
}

/* Nodes first: what they lack cannot come from elsewhere. */
static int raise_numbers(struct making *making)
{
	int r = 0;

	for (int nodes = 1; nodes >= 0; nodes--)
		for (uint32_t g = 0; r == 0 && g < making->nr_groups; g++)
			if ((making->groups[g].node >= 0) == nodes)
				r = raise_group(making, &making->groups[g]);
	return r;
}

static int make_zone(struct making *making, uint32_t z)
{
	const struct setup_zone *zone = &making->plan->zones[z];
	const struct make_place *place = making->place;
	char size[CONFIG_SIZE_TEXT_MAX];
	int fd, r;

	for (uint32_t block = 0; making->outcome->blocks[z] < zone->nr_blocks; block++) {
		if (place->has(place->userdata, z, block))
			continue;
		fd = blockfs_new(zone->page_bytes, zone->block_bytes, making->record->uid);
		if (fd == -ENOMEM) {
			uint64_t pages = setup_zone_block_pages(zone);

			making->outcome->complete = false;
			tell(making->outcome,
			     "zone %s has %" PRIu64 " of %" PRIu64 " huge pages of %s", zone->name,
			     making->outcome->blocks[z] * pages, zone->nr_blocks * pages,
			     config_format_size(zone->page_bytes, size));
			return 0;
		}
		if (fd < 0)
			return fd;
		r = place->put_consume_fd(place->userdata, z, block, fd);
		if (r < 0)
			return r;
		making->outcome->blocks[z]++;
	}
	return 0;
}

/* Of the pages that were added just now, those that nothing was made of. */
static int give_back_rest(struct making *making)
{
	for (uint32_t g = 0; g < making->nr_groups; g++) {
		struct group *group = &making->groups[g];
		struct hugepages_counts counts;
		int64_t rest, moved;
		int r;

		if (group->raised <= 0)
			continue;
		r = hugepages_read(group->page_bytes, group->node, &counts);
		if (r < 0)
			return r;
		rest = (int64_t)minimum(above(counts.free, counts.reserved),
					(uint64_t)group->raised);
		if (!rest)
			continue;
		r = setup_record_change(making->record, group->page_bytes, group->node, -rest,
					&moved);
		if (r < 0)
			return r;
	}
	return 0;
}

int make_blocks(const struct setup_plan *plan, struct setup_record *record,
		const struct make_place *place, struct make_outcome *ret)
{
	struct making making = {.plan = plan, .record = record, .place = place, .outcome = ret};
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->complete = true;
	count_wanted(&making);
	r = lock_page_sizes(&making);
	if (r == 0)
		r = raise_numbers(&making);
	for (uint32_t z = 0; r == 0 && z < plan->nr_zones; z++)
		r = make_zone(&making, z);
	if (r == 0 && !ret->complete)
		r = give_back_rest(&making);
	unlock_page_sizes(&making);
	return r;
}
