/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone with more or fewer blocks than it was set up with: the same for the pinned namespace and for a
 * guard. Blocks that a daemon works with, or that have a file in them, are never taken away.
 */
#pragma once

#include "daemon/setup/blocks.h"

/* What may be done; a zone that is beyond its size on the other side stays as it is. */
enum resize_which { RESIZE_GROW, RESIZE_SHRINK, RESIZE_BOTH };

/*
 * Brings one zone of the plan to its nr_blocks, from the blocks it has, as far as pages reach or blocks
 * can be taken away; what was added to the kernel's number and is not needed any more goes back.
 * The record is that of the set-up, with nothing pending. Return: 0, also if it fell short, which is
 * in ret->text; -errno.
 */
int resize_zone(const struct setup_plan *plan, uint32_t zone, enum resize_which which,
		struct setup_record *record, const struct make_place *place,
		struct make_outcome *ret);

/*
 * Puts right what a resize that was killed has left, given what is there now. Return: 0 or -errno, and
 * then it is still to be done.
 */
int resize_settle(const struct setup_blocks *blocks, struct setup_record *record);
