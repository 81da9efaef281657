/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block is a directory with a mount on it: zone/number. It is there if it is mounted; a directory
 * without a mount is what a kill left, and is used again.
 */
#include "daemon/setup/blocks.h"

#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES (CONFIG_NAME_MAX + 16)

static bool has_block(void *userdata, uint32_t zone, uint32_t block)
{
	const struct setup_blocks *blocks = userdata;

	return blocks->present[zone][block];
}

static void path_of(const struct setup_blocks *blocks, uint32_t zone, uint32_t block,
		    char path[static PATH_BYTES])
{
	(void)snprintf(path, PATH_BYTES, "%s/%u", blocks->plan.zones[zone].name, block);
}

static int put_block_consume_fd(void *userdata, uint32_t zone, uint32_t block, int mount_fd)
{
	struct setup_blocks *blocks = userdata;
	const char *name = blocks->plan.zones[zone].name;
	char path[PATH_BYTES];
	int r;

	path_of(blocks, zone, block, path);
	r = mkdir(name, 0700) < 0 && errno != EEXIST ? -errno : 0;
	if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0)
		r = blockfs_attach(mount_fd, AT_FDCWD, path);
	close(mount_fd);
	if (r == 0)
		blocks->present[zone][block] = true;
	return r;
}

/* Not lazily: what somebody still holds would stay reserved without a place to be seen at. */
static int take_block(void *userdata, uint32_t zone, uint32_t block)
{
	struct setup_blocks *blocks = userdata;
	char path[PATH_BYTES];
	int fd, r;

	path_of(blocks, zone, block, path);
	fd = blockfs_open(AT_FDCWD, path);
	if (fd < 0)
		return fd;
	r = blockfs_is_spare(fd);
	close(fd); /* nobody is handed it meanwhile: we hold the lock of the set-up */
	if (r <= 0)
		return r;
	if (umount2(path, UMOUNT_NOFOLLOW) < 0)
		return errno == EBUSY ? 0 : -errno;
	blocks->present[zone][block] = false;
	(void)rmdir(path);
	return 1;
}

struct make_place setup_blocks_place(struct setup_blocks *blocks)
{
	return (struct make_place){has_block, put_block_consume_fd, take_block, blocks};
}

static int note_present(void *userdata, const char *name, unsigned block, int fd)
{
	struct setup_blocks *blocks = userdata;
	const struct setup_plan *plan = &blocks->plan;
	struct blockfs_info info;
	uint32_t z = 0;
	int r;

	r = blockfs_info(fd, &info);
	close(fd);
	if (r < 0)
		return r;
	while (z < plan->nr_zones && strcmp(plan->zones[z].name, name) != 0)
		z++;
	if (z < plan->nr_zones && info.page_bytes == plan->zones[z].page_bytes &&
	    info.pages == setup_zone_block_pages(&plan->zones[z]) && info.uid == blocks->uid) {
		if (block < plan->zones[z].max_blocks)
			blocks->present[z][block] = true;
		return 0;
	}
	setup_fail("zone %s is set up already with %" PRIu64 " pages of %" PRIu64 " kB in a block, "
		   "for uid %u, which is not what the configuration says: run \"hugepool-setup "
		   "down\" first",
		   name, info.pages, info.page_bytes / 1024, info.uid);
	return -EEXIST;
}

int setup_blocks_look(struct setup_blocks *blocks)
{
	memset(blocks->present, 0, sizeof(blocks->present));
	return namespace_for_each_block(note_present, blocks);
}

uint32_t setup_blocks_count(const struct setup_blocks *blocks, uint32_t zone)
{
	uint32_t n = 0;

	for (uint32_t block = 0; block < blocks->plan.zones[zone].max_blocks; block++)
		n += blocks->present[zone][block];
	return n;
}
