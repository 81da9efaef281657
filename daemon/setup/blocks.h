/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks that are set up in the pinned namespace, against a plan: which are there, a place for
 * more, and taking away those that nobody uses. All of it from inside the namespace.
 */
#pragma once

#include "daemon/setup/make.h"

struct setup_blocks {
	struct setup_plan plan;
	uid_t uid; /* whose they are to be */
	bool present[HP_ZONES_MAX][HP_ZONE_BLOCKS_MAX];
};

/*
 * Looks what is there. Return: 0; -EEXIST for a block that the plan has otherwise, which is said; or
 * -errno.
 */
int setup_blocks_look(struct setup_blocks *blocks);

struct make_place setup_blocks_place(struct setup_blocks *blocks); /* borrows it */

uint32_t setup_blocks_count(const struct setup_blocks *blocks, uint32_t zone);
