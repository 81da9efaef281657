/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making what a plan asks for: raising the kernel's numbers where that is wanted, then one file
 * system a block as far as the pages reach. The same for the pinned namespace and for a guard.
 */
#pragma once

#include "daemon/setup/plan.h"
#include "daemon/setup/record.h"

/* Where blocks go, and which are there already. Of the numbers that are free the lowest are taken. */
struct make_place {
	bool (*has)(void *userdata, uint32_t zone, uint32_t block);
	/* Takes the mount, in any case. Return: 0 or -errno, which ends the making. */
	int (*put_consume_fd)(void *userdata, uint32_t zone, uint32_t block, int mount_fd);
	/*
	 * Takes a block away if no daemon works with it, no file is in it and nobody holds it.
	 * Return: 1: taken; 0: it is used; -errno.
	 */
	int (*take)(void *userdata, uint32_t zone, uint32_t block);
	void *userdata;
};

struct make_outcome {
	uint32_t blocks[HP_ZONES_MAX]; /* of each zone that are there now */
	bool complete;		       /* all that the plan asks for */
	char text[512];		       /* what fell short, with both numbers; or "" */
};

/*
 * Return: 0, also if pages fell short; -errno for what is wrong with the machine or our rights. What
 * was made until then stays.
 */
int make_blocks(const struct setup_plan *plan, struct setup_record *record,
		const struct make_place *place, struct make_outcome *ret);
