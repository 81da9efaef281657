/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup grow and shrink.
 *
 * How things stood is written down first: how many blocks the zone had, how many pages had been
 * added. Whatever happens then, be it that the kernel gave less, that blocks are used, or a kill, one
 * sum says what is to be given back: pages added since, less pages of blocks that came since (or plus
 * those of blocks that went). So the end of a resize and the repair of one that was killed are the
 * same few lines, and nothing is taken off that others had before.
 */
#include "daemon/setup/resize.h"

#include "daemon/setup/commands.h"
#include "daemon/setup/hugepages.h"
#include "daemon/setup/lock.h"
#include "daemon/setup/namespace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Somebody who looks at the set-up holds blocks for a moment. */
#define TAKE_PASSES	 4
#define TAKE_INTERVAL_MS 50

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* By at most so many pages, of those that we added and that are free and promised to nobody. */
static int give_back(struct setup_record *record, const struct setup_resize *resize, int64_t pages)
{
	struct hugepages_counts counts;
	int64_t moved;
	int lock, r;

	pages = smaller(pages,
			(int64_t)setup_record_added(record, resize->page_bytes, resize->node));
	if (pages <= 0)
		return 0;
	lock = lock_page_size(resize->page_bytes);
	if (lock < 0)
		return lock;
	r = hugepages_read(resize->page_bytes, resize->node, &counts);
	if (r == 0) {
		pages = smaller(pages, (int64_t)counts.free - (int64_t)counts.reserved);
		if (pages > 0)
			r = setup_record_change(record, resize->page_bytes, resize->node, -pages,
						&moved);
	}
	unlock_page_size_consume_fd(resize->page_bytes, lock);
	return r;
}

/* blocks: of its zone, now. */
static int settle(struct setup_record *record, uint32_t blocks)
{
	const struct setup_resize *resize = &record->resize;
	int64_t added, came;
	int r;

	added = (int64_t)setup_record_added(record, resize->page_bytes, resize->node) -
		(int64_t)resize->added_pages;
	came = ((int64_t)blocks - resize->blocks) * resize->block_pages;
	r = give_back(record, resize, added - came);
	if (r < 0)
		return r;
	record->resize.pending = false;
	return setup_record_save(record);
}

int resize_settle(const struct setup_blocks *blocks, struct setup_record *record)
{
	if (!record->resize.pending)
		return 0;
	for (uint32_t z = 0; z < blocks->plan.nr_zones; z++)
		if (strcmp(blocks->plan.zones[z].name, record->resize.zone) == 0)
			return settle(record, setup_blocks_count(blocks, z));
	return settle(record, record->resize.blocks); /* not configured any more */
}

static int begin(struct setup_record *record, const struct setup_zone *zone, uint32_t blocks)
{
	record->resize = (struct setup_resize){
		.pending = true,
		.page_bytes = zone->page_bytes,
		.node = zone->node,
		.block_pages = setup_zone_block_pages(zone),
		.blocks = blocks,
		.added_pages = setup_record_added(record, zone->page_bytes, zone->node),
	};
	memcpy(record->resize.zone, zone->name, sizeof(record->resize.zone));
	return setup_record_save(record);
}

static uint32_t count(const struct setup_zone *zone, uint32_t z, const struct make_place *place)
{
	uint32_t n = 0;

	for (uint32_t block = 0; block < zone->max_blocks; block++)
		n += place->has(place->userdata, z, block);
	return n;
}

/* --- smaller ---------------------------------------------------------------------------------- */

/* From the end, so that those that stay are low numbers if they can be. */
static int take_pass(const struct setup_zone *zone, uint32_t z, const struct make_place *place,
		     uint32_t *blocks)
{
	for (uint32_t i = zone->max_blocks; i-- && *blocks > zone->nr_blocks;) {
		int r;

		if (!place->has(place->userdata, z, i))
			continue;
		r = place->take(place->userdata, z, i);
		if (r < 0)
			return r;
		*blocks -= r == 1;
	}
	return 0;
}

static int take_blocks(const struct setup_zone *zone, uint32_t z, const struct make_place *place,
		       struct make_outcome *ret)
{
	const struct timespec interval = {.tv_nsec = TAKE_INTERVAL_MS * 1000000};
	uint32_t *blocks = &ret->blocks[z];
	int r = 0;

	for (int pass = 0; r == 0 && pass<TAKE_PASSES && * blocks> zone->nr_blocks; pass++) {
		if (pass)
			nanosleep(&interval, NULL);
		r = take_pass(zone, z, place, blocks);
	}
	ret->complete = *blocks == zone->nr_blocks;
	if (r == 0 && !ret->complete)
		(void)snprintf(ret->text, sizeof(ret->text),
			       "zone %s has %u blocks, not %u: the others are in use or hold data: "
			       "hugepoold has to give them up first (hugepoolctl resize)",
			       zone->name, *blocks, zone->nr_blocks);
	return r;
}

/* --- both ------------------------------------------------------------------------------------- */

/* The other zones are to be as they are. */
static int grow(const struct setup_plan *plan, uint32_t z, struct setup_record *record,
		const struct make_place *place, struct make_outcome *ret)
{
	struct setup_plan wanted = *plan;

	for (uint32_t i = 0; i < plan->nr_zones; i++)
		if (i != z)
			wanted.zones[i].nr_blocks = count(&plan->zones[i], i, place);
	return make_blocks(&wanted, record, place, ret);
}

int resize_zone(const struct setup_plan *plan, uint32_t z, enum resize_which which,
		struct setup_record *record, const struct make_place *place,
		struct make_outcome *ret)
{
	const struct setup_zone *zone = &plan->zones[z];
	int r, settled;

	memset(ret, 0, sizeof(*ret));
	ret->complete = true;
	ret->blocks[z] = count(zone, z, place);
	if (ret->blocks[z] == zone->nr_blocks)
		return 0;
	if (which != RESIZE_BOTH && (ret->blocks[z] > zone->nr_blocks) != (which == RESIZE_SHRINK))
		return 0;
	r = begin(record, zone, ret->blocks[z]);
	if (r < 0)
		return r;
	r = ret->blocks[z] > zone->nr_blocks ? take_blocks(zone, z, place, ret)
					     : grow(plan, z, record, place, ret);
	settled = settle(record, count(zone, z, place));
	return r < 0 ? r : settled;
}

/* --- the commands ----------------------------------------------------------------------------- */

struct resizing {
	struct setup_blocks blocks;
	struct setup_namespace ns;
	struct setup_record record;
};

static int resize_inside(struct resizing *resizing, uint32_t z, enum resize_which which,
			 struct make_outcome *ret)
{
	const struct make_place place = setup_blocks_place(&resizing->blocks);
	int r, back;

	r = namespace_enter(&resizing->ns);
	if (r < 0)
		return r;
	r = setup_blocks_look(&resizing->blocks);
	if (r == 0)
		r = resize_settle(&resizing->blocks, &resizing->record);
	if (r == 0)
		r = resize_zone(&resizing->blocks.plan, z, which, &resizing->record, &place, ret);
	back = namespace_leave(&resizing->ns);
	return r < 0 ? r : back;
}

/* Return: 0; -ENOENT: nothing is set up; -errno. */
static int resize_pinned(struct resizing *resizing, uint32_t z, enum resize_which which,
			 struct make_outcome *ret)
{
	int r;

	setup_record_init(&resizing->record, resizing->ns.dirfd, 0);
	r = namespace_is_pinned(&resizing->ns);
	if (r == 1)
		r = setup_record_load(&resizing->record);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	resizing->blocks.uid = resizing->record.uid;
	r = setup_record_recover(&resizing->record);
	return r < 0 ? r : resize_inside(resizing, z, which, ret);
}

static int report(const struct setup_zone *zone, uint32_t blocks, const char *text)
{
	char size[CONFIG_SIZE_TEXT_MAX];

	(void)printf("zone %s: %u of %u blocks of %s\n", zone->name, blocks, zone->nr_blocks,
		     config_format_size(zone->block_bytes, size));
	if (*text)
		setup_warn("%s", text);
	return 0;
}

static int resize_to(struct resizing *resizing, uint32_t z, const struct setup_options *options,
		     enum resize_which which)
{
	const struct setup_zone *zone = &resizing->blocks.plan.zones[z];
	struct make_outcome outcome = {0};
	int r;

	r = namespace_open(&resizing->ns, options->config->namespace_path, NAMESPACE_CHANGE);
	if (r == -EBUSY)
		return setup_fail("another hugepool-setup is at work in %s",
				  resizing->ns.directory);
	if (r == 0) {
		r = resize_pinned(resizing, z, which, &outcome);
		if (r == -ENOENT)
			(void)lock_setup_remove(resizing->ns.dirfd);
		namespace_close(&resizing->ns);
	}
	if (r == -ENOENT)
		return setup_fail("nothing is set up at %s: run \"hugepool-setup up\"",
				  options->config->namespace_path);
	if (r < 0)
		return r == -EEXIST ? 1 : setup_fail("cannot resize: %s", strerror(-r));
	return report(zone, outcome.blocks[z], outcome.text);
}

/* Return: 0 or the exit status, which is said. */
static int find_zone(const struct setup_plan *plan, const struct setup_options *options,
		     uint32_t *ret)
{
	char size[CONFIG_SIZE_TEXT_MAX], block[CONFIG_SIZE_TEXT_MAX];
	const struct setup_zone *zone = plan->zones;
	uint64_t bytes = options->size_bytes;

	while (zone < plan->zones + plan->nr_zones && strcmp(zone->name, options->zone) != 0)
		zone++;
	if (zone == plan->zones + plan->nr_zones)
		return setup_fail("there is no zone %s with backing = hugetlb in the configuration",
				  options->zone);
	if (bytes % zone->block_bytes || bytes / zone->block_bytes > zone->max_blocks)
		return setup_fail("zone %s cannot be of %s: a multiple of its block size of %s, at "
				  "most max-size, which is %u blocks",
				  zone->name, config_format_size(bytes, size),
				  config_format_size(zone->block_bytes, block), zone->max_blocks);
	*ret = (uint32_t)(zone - plan->zones);
	return 0;
}

/*
 * "grow" never takes away and "shrink" never adds, whatever happened since somebody counted: each is
 * a bound that the zone is brought to from one side.
 */
static int run(const struct setup_options *options, enum resize_which which)
{
	static struct resizing resizing; /* of a size for the heap, and needed once */
	uint32_t z = 0;
	int status;

	setup_plan_from_config(&resizing.blocks.plan, options->config);
	status = find_zone(&resizing.blocks.plan, options, &z);
	if (status)
		return status;
	resizing.blocks.plan.zones[z].nr_blocks =
		(uint32_t)(options->size_bytes / resizing.blocks.plan.zones[z].block_bytes);
	return resize_to(&resizing, z, options, which);
}

int setup_grow(const struct setup_options *options)
{
	return run(options, RESIZE_GROW);
}

int setup_shrink(const struct setup_options *options)
{
	return run(options, RESIZE_SHRINK);
}
