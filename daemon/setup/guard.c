/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup guard: the set-up of a daemon that runs as root without one. Its parent, the
 * daemon, holds the other end of the socket on descriptor 0, sends the plan and gets the directories
 * of the blocks, just as from "fds". Each plan that it sends later is the first one with other
 * sizes; what it gets then are the directories of blocks that came. The guard holds the file systems, attached nowhere, and outlives
 * the daemon: when the socket ends, however the daemon ended, it empties them, lets go and takes off
 * the pages it added.
 */
#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/descriptors.h"
#include "daemon/setup/directories.h"
#include "daemon/setup/resize.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DAEMON_FD 0

struct guard {
	struct setup_plan plan;
	struct setup_record record;
	int mounts[HP_ZONES_MAX][HP_ZONE_BLOCKS_MAX]; /* descriptor + 1; 0: none */
	bool sent[HP_ZONES_MAX][HP_ZONE_BLOCKS_MAX];  /* the daemon has been handed it */
};

static bool has_block(void *userdata, uint32_t zone, uint32_t block)
{
	const struct guard *guard = userdata;

	return guard->mounts[zone][block];
}

static int put_block_consume_fd(void *userdata, uint32_t zone, uint32_t block, int mount_fd)
{
	struct guard *guard = userdata;
	struct pollfd daemon = {.fd = DAEMON_FD, .events = POLLRDHUP};

	guard->mounts[zone][block] = mount_fd + 1;
	guard->sent[zone][block] = false;
	/* It has ended, or wants no more: what was made so far is given back. */
	return poll(&daemon, 1, 0) == 1 ? -ECANCELED : 0;
}

static int take_block(void *userdata, uint32_t zone, uint32_t block)
{
	struct guard *guard = userdata;
	int mount = guard->mounts[zone][block] - 1, fd, r;

	fd = blockfs_open(mount, ".");
	if (fd < 0)
		return fd;
	r = blockfs_is_spare(fd);
	close(fd);
	if (r != 1)
		return r;
	close(mount);
	guard->mounts[zone][block] = 0;
	return 1;
}

static struct make_place place_of(struct guard *guard)
{
	return (struct make_place){has_block, put_block_consume_fd, take_block, guard};
}

/* The daemon ends us by ending; a terminal or service manager that signals all must not. */
static void outlive(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		(void)signal(ignored[i], SIG_IGN);
	descriptors_raise_limit();
}

static int hand_out(struct guard *guard, struct directories_sender *sender)
{
	for (uint32_t z = 0; z < guard->plan.nr_zones; z++) {
		const struct setup_zone *zone = &guard->plan.zones[z];

		for (uint32_t block = 0; block < zone->max_blocks; block++) {
			int fd, r;

			if (!guard->mounts[z][block] || guard->sent[z][block])
				continue;
			guard->sent[z][block] = true;
			fd = blockfs_open(guard->mounts[z][block] - 1, ".");
			r = fd < 0 ? fd
				   : directories_send_consume_fd(sender, zone->name, block, fd);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

/* How it went, with the directories of blocks that are new. Return: 0 or -errno: the daemon is gone. */
static int answer(struct guard *guard, int error, const char *text)
{
	struct directories_sender sender;
	int r = error;

	directories_sender_init(&sender, DAEMON_FD);
	if (r == 0)
		r = hand_out(guard, &sender);
	if (r == 0)
		r = directories_send_end(&sender, 0, text);
	else
		r = directories_send_end(&sender, -r, "the guard cannot make the blocks");
	directories_sender_deinit(&sender);
	return r;
}

/* May the running set-up become that? Only by its sizes. */
static bool is_resize(const struct setup_plan *now, const struct setup_plan *wanted)
{
	if (wanted->nr_zones != now->nr_zones)
		return false;
	for (uint32_t z = 0; z < now->nr_zones; z++) {
		const struct setup_zone *a = &now->zones[z], *b = &wanted->zones[z];

		if (strcmp(a->name, b->name) != 0 || a->page_bytes != b->page_bytes ||
		    a->block_bytes != b->block_bytes || a->node != b->node ||
		    a->max_blocks != b->max_blocks || a->grow != b->grow)
			return false;
	}
	return true;
}

static int resize(struct guard *guard, const struct setup_plan *wanted)
{
	const struct make_place place = place_of(guard);
	struct make_outcome outcome = {.complete = true};
	int r = 0;

	if (!is_resize(&guard->plan, wanted))
		return answer(guard, -EINVAL, "");
	guard->plan = *wanted;
	for (uint32_t z = 0; r == 0 && !*outcome.text && z < wanted->nr_zones; z++)
		r = resize_zone(&guard->plan, z, RESIZE_BOTH, &guard->record, &place, &outcome);
	return answer(guard, r, outcome.text);
}

static void serve(struct guard *guard)
{
	const struct make_place place = place_of(guard);
	struct make_outcome outcome = {.complete = true};
	struct setup_plan wanted;
	int r;

	r = make_blocks(&guard->plan, &guard->record, &place, &outcome);
	r = answer(guard, r, outcome.text);
	while (r == 0 && directories_receive_plan(DAEMON_FD, &wanted) == 0)
		r = resize(guard, &wanted);
}

static void release(struct guard *guard)
{
	for (uint32_t z = 0; z < HP_ZONES_MAX; z++) {
		for (uint32_t block = 0; block < HP_ZONE_BLOCKS_MAX; block++) {
			int mount = guard->mounts[z][block] - 1, fd;

			if (mount < 0)
				continue;
			fd = blockfs_open(mount, ".");
			if (fd < 0 || blockfs_wipe(fd) < 0)
				setup_warn("block %u of zone %s could not be emptied", block,
					   guard->plan.zones[z].name);
			if (fd >= 0)
				close(fd);
			close(mount);
		}
	}
}

int setup_guard(void)
{
	struct guard *guard = calloc(1, sizeof(*guard));
	int r;

	if (!guard)
		return setup_fail("out of memory");
	outlive();
	setup_record_init(&guard->record, -1, geteuid());
	r = directories_receive_plan(DAEMON_FD, &guard->plan);
	if (r < 0) {
		free(guard);
		return setup_fail("guard: no plan on descriptor 0: %s", strerror(-r));
	}
	serve(guard);
	release(guard);
	r = setup_record_take_off(&guard->record);
	free(guard);
	return r < 0 ? setup_fail("guard: huge pages could not be taken off: %s", strerror(-r)) : 0;
}
