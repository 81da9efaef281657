/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup up: the pinned namespace and its blocks.
 *
 * Every step looks at what is there and adds what is missing, so that "up" after a kill, or after a
 * change of the configuration that adds zones or blocks, goes on where things stand. What is there
 * with another geometry or for another user is not touched: that takes a "down" first.
 */
#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/make.h"
#include "daemon/setup/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct up {
	struct setup_plan plan;
	struct setup_namespace ns;
	struct setup_record record;
	bool present[HP_ZONES_MAX][HP_ZONE_BLOCKS_MAX];
};

static bool has_block(void *userdata, uint32_t zone, uint32_t block)
{
	const struct up *up = userdata;

	return up->present[zone][block];
}

static int put_block_consume_fd(void *userdata, uint32_t zone, uint32_t block, int mount_fd)
{
	struct up *up = userdata;
	char path[NAME_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%s", up->plan.zones[zone].name);
	r = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
	(void)snprintf(path, sizeof(path), "%s/%u", up->plan.zones[zone].name, block);
	if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0)
		r = blockfs_attach(mount_fd, AT_FDCWD, path);
	close(mount_fd);
	return r;
}

/* Return: 0, -EEXIST for a block that the plan has otherwise (and says so), or -errno. */
static int note_present(void *userdata, const char *name, unsigned block, int fd)
{
	struct up *up = userdata;
	struct blockfs_info info;
	uint32_t z = 0;
	int r;

	r = blockfs_info(fd, &info);
	close(fd);
	if (r < 0)
		return r;
	while (z < up->plan.nr_zones && strcmp(up->plan.zones[z].name, name) != 0)
		z++;
	if (z < up->plan.nr_zones && info.page_bytes == up->plan.zones[z].page_bytes &&
	    info.pages == setup_zone_block_pages(&up->plan.zones[z]) &&
	    info.uid == up->record.uid) {
		if (block < up->plan.zones[z].nr_blocks)
			up->present[z][block] = true;
		return 0;
	}
	setup_fail("zone %s is set up already with %" PRIu64 " pages of %" PRIu64 " kB in a block, "
		   "for uid %u, which is not what the configuration says: run \"hugepool-setup "
		   "down\" first",
		   name, info.pages, info.page_bytes / 1024, info.uid);
	return -EEXIST;
}

static int make_inside(struct up *up, struct make_outcome *ret)
{
	const struct make_place place = {has_block, put_block_consume_fd, up};
	int r, back;

	r = namespace_enter(&up->ns);
	if (r < 0)
		return r;
	r = namespace_for_each_block(note_present, up);
	if (r == 0)
		r = make_blocks(&up->plan, &up->record, &place, ret);
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

	for (uint32_t z = 0; z < up->plan.nr_zones; z++)
		(void)printf("zone %s: %u of %u blocks of %s\n", up->plan.zones[z].name,
			     outcome->blocks[z], up->plan.zones[z].nr_blocks,
			     config_format_size(up->plan.zones[z].block_bytes, size));
	if (*outcome->text)
		setup_warn("%s", outcome->text);
	return 0;
}

int setup_up(const struct setup_options *options)
{
	static struct up up; /* of a size for the heap, and needed once */
	struct make_outcome outcome = {0};
	int r;

	setup_plan_from_config(&up.plan, options->config);
	if (!up.plan.nr_zones) {
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
	up.record.uid = options->uid;
	if (r >= 0)
		r = bring_up(&up, &outcome);
	namespace_close(&up.ns);
	if (r < 0)
		return r == -EEXIST ? 1 : setup_fail("cannot set up: %s", strerror(-r));
	return report(&up, &outcome);
}
