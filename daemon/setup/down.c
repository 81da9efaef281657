/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup down: empties every file first, so that the pages come back whatever still holds
 * the file systems; then lets go of the namespace; then takes off the machine's numbers what "up"
 * added. The record goes last: killed anywhere, a second "down" does the rest.
 */
#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/descriptors.h"
#include "daemon/setup/hugepages.h"
#include "daemon/setup/lock.h"
#include "daemon/setup/namespace.h"
#include "daemon/setup/record.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* From the look whether daemons use the blocks until there are none, no daemon may begin to. */
struct kept {
	int fds[HP_ZONES_MAX * HP_ZONE_BLOCKS_MAX];
	unsigned nr;
};

static int keep_unless_used(void *userdata, const char *zone, unsigned block, int fd)
{
	struct kept *kept = userdata;
	const char *who = "a daemon: stop it";
	int r = kept->nr < sizeof(kept->fds) / sizeof(kept->fds[0]) ? blockfs_keep(fd) : -E2BIG;

	if (r == 0) {
		who = "a process that has leased it: end it";
		r = blockfs_held(fd);
	}
	if (r == 0) {
		kept->fds[kept->nr++] = fd;
		return 0;
	}
	close(fd);
	if (r == 1)
		setup_fail("block %u of zone %s is in use by %s, or use --force", block, zone, who);
	return r == 1 ? -EBUSY : r;
}

static void let_go(struct kept *kept)
{
	while (kept->nr)
		close(kept->fds[--kept->nr]);
}

static int wipe(void *userdata, const char *zone, unsigned block, int fd)
{
	int r = blockfs_wipe(fd);

	(void)userdata;
	close(fd);
	if (r < 0)
		setup_warn("block %u of zone %s could not be emptied: %s", block, zone,
			   strerror(-r));
	return 0; /* the others must be */
}

static int empty_blocks(struct setup_namespace *ns, struct kept *kept, bool force)
{
	int r, back;

	r = namespace_enter(ns);
	if (r < 0)
		return r;
	if (!force)
		r = namespace_for_each_block(keep_unless_used, kept);
	if (r == 0)
		r = namespace_for_each_block(wipe, NULL);
	back = namespace_leave(ns);
	return r < 0 ? r : back;
}

/* Pages that processes still hold are surplus now: not ours any more, and gone when let go. */
static void tell_surplus(const struct setup_record *record)
{
	for (uint32_t i = 0; i < record->nr; i++) {
		struct hugepages_counts counts;
		char size[CONFIG_SIZE_TEXT_MAX];

		if (hugepages_read(record->changes[i].page_bytes, record->changes[i].node,
				   &counts) == 0 &&
		    counts.surplus)
			setup_warn("%" PRIu64 " huge pages of %s are still held by processes; the "
				   "kernel takes each off when it is let go",
				   counts.surplus,
				   config_format_size(record->changes[i].page_bytes, size));
	}
}

static int take_down(struct setup_namespace *ns, struct setup_record *record, bool force)
{
	static struct kept kept; /* once, and large */
	int r;

	r = namespace_is_pinned(ns);
	if (r == 1)
		r = empty_blocks(ns, &kept, force);
	if (r == 0)
		r = namespace_unpin(ns);
	let_go(&kept); /* which also held the file systems */
	if (r == 0)
		r = setup_record_recover(record);
	if (r == 0)
		r = setup_record_take_off(record);
	if (r < 0)
		return r;
	tell_surplus(record);
	r = setup_record_remove(record);
	return r < 0 ? r : lock_setup_remove(record->dirfd);
}

int setup_down(const struct setup_options *options)
{
	struct setup_namespace ns;
	struct setup_record record;
	int r;

	descriptors_raise_limit(); /* one for each block */
	r = namespace_open(&ns, options->config->namespace_path, NAMESPACE_CHANGE);
	if (r == -ENOENT)
		return 0;
	if (r == -EBUSY)
		return setup_fail("another hugepool-setup is at work in %s", ns.directory);
	if (r < 0)
		return setup_fail("%s: %s", options->config->namespace_path, strerror(-r));
	setup_record_init(&record, ns.dirfd, options->uid);
	r = setup_record_load(&record);
	if (r >= 0)
		r = take_down(&ns, &record, options->force);
	namespace_close(&ns);
	if (r == -EBUSY)
		return 1; /* said already */
	return r < 0 ? setup_fail("cannot take down: %s", strerror(-r)) : 0;
}
