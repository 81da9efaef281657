/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup guard: the set-up of a daemon that runs as root without one. Its parent, the
 * daemon, holds the other end of the socket on descriptor 0, sends the plan and gets the directories
 * of the blocks, just as from "fds". The guard holds the file systems, attached nowhere, and outlives
 * the daemon: when the socket ends, however the daemon ended, it empties them, lets go and takes off
 * the pages it added.
 */
#include "daemon/setup/blockfs.h"
#include "daemon/setup/commands.h"
#include "daemon/setup/descriptors.h"
#include "daemon/setup/directories.h"
#include "daemon/setup/make.h"

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
	/* It has ended, or wants no more: what was made so far is given back. */
	return poll(&daemon, 1, 0) == 1 ? -ECANCELED : 0;
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

		for (uint32_t block = 0; block < zone->nr_blocks; block++) {
			int fd, r;

			if (!guard->mounts[z][block])
				continue;
			fd = blockfs_open(guard->mounts[z][block] - 1, ".");
			r = fd < 0 ? fd
				   : directories_send_consume_fd(sender, zone->name, block, fd);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void serve(struct guard *guard)
{
	const struct make_place place = {has_block, put_block_consume_fd, guard};
	struct directories_sender sender;
	struct make_outcome outcome;
	char byte;
	int r;

	r = make_blocks(&guard->plan, &guard->record, &place, &outcome);
	directories_sender_init(&sender, DAEMON_FD);
	if (r == 0)
		r = hand_out(guard, &sender);
	if (r == 0)
		r = directories_send_end(&sender, 0, outcome.text);
	else
		r = directories_send_end(&sender, -r, "the guard cannot make the blocks");
	directories_sender_deinit(&sender);
	if (r < 0)
		return;
	do
		r = (int)recv(DAEMON_FD, &byte, sizeof(byte), 0);
	while (r > 0 || (r < 0 && errno == EINTR));
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
