/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup up: the pinned namespace and its blocks.
 *
 * Every step looks at what is there and adds what is missing, so that "up" after a kill, or after a
 * change of the configuration that adds zones or blocks, goes on where things stand. What is there
 * with another geometry or for another user is not touched: that takes a "down" first.
 */
#include "daemon/setup/blocks.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/namespace.h"
#include "daemon/setup/resize.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct up {
	struct setup_blocks blocks;
	struct setup_namespace ns;
	struct setup_record record;
};

static int make_inside(struct up *up, struct make_outcome *ret)
{
	const struct make_place place = setup_blocks_place(&up->blocks);
	int r, back;

	r = namespace_enter(&up->ns);
	if (r < 0)
		return r;
	r = setup_blocks_look(&up->blocks);
	if (r == 0)
		r = resize_settle(&up->blocks, &up->record);
	if (r == 0)
		r = make_blocks(&up->blocks.plan, &up->record, &place, ret);
	back = namespace_leave(&up->ns);
	return r < 0 ? r : back;
}

static int bring_up(struct up *up, struct make_outcome *ret)
{
	int r;

	r = setup_record_recover(&up->record);
	if (r == 0)
		r = setup_record_save(&up->record); /* "fds" looks here for the user */
	if (r < 0)
		return r;
	r = namespace_is_pinned(&up->ns);
	if (r == 0)
		r = namespace_create(&up->ns);
	if (r < 0)
		return r;
	return make_inside(up, ret);
}

static int report(const struct up *up, const struct make_outcome *outcome)
{
	char size[CONFIG_SIZE_TEXT_MAX];

	for (uint32_t z = 0; z < up->blocks.plan.nr_zones; z++)
		(void)printf("zone %s: %u of %u blocks of %s\n", up->blocks.plan.zones[z].name,
			     outcome->blocks[z], up->blocks.plan.zones[z].nr_blocks,
			     config_format_size(up->blocks.plan.zones[z].block_bytes, size));
	if (*outcome->text)
		setup_warn("%s", outcome->text);
	return 0;
}

int setup_up(const struct setup_options *options)
{
	static struct up up; /* of a size for the heap, and needed once */
	struct make_outcome outcome = {0};
	int r;

	setup_plan_from_config(&up.blocks.plan, options->config);
	if (!up.blocks.plan.nr_zones) {
		setup_warn("no zone with backing = hugetlb: nothing to set up");
		return 0;
	}
	r = namespace_open(&up.ns, options->config->namespace_path, NAMESPACE_CREATE);
	if (r == -EBUSY)
		return setup_fail("another hugepool-setup is at work in %s", up.ns.directory);
	if (r < 0)
		return setup_fail("%s: %s", options->config->namespace_path, strerror(-r));
	setup_record_init(&up.record, up.ns.dirfd, options->uid);
	r = setup_record_load(&up.record);
	if (r == 1 && up.record.uid != options->uid && namespace_is_pinned(&up.ns) == 1) {
		namespace_close(&up.ns);
		return setup_fail("set up for uid %u already, not %u: run \"hugepool-setup down\" "
				  "first",
				  up.record.uid, options->uid);
	}
	up.record.uid = up.blocks.uid = options->uid;
	if (r >= 0)
		r = bring_up(&up, &outcome);
	namespace_close(&up.ns);
	if (r < 0)
		return r == -EEXIST ? 1 : setup_fail("cannot set up: %s", strerror(-r));
	return report(&up, &outcome);
}
