/* SPDX-License-Identifier: Apache-2.0 */
/* Giving ranges back, in steps. The caller has the handle's mutex. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/handle.h"

/* The range as we hold it. NULL, with the reason noted: not ours, not any more, or lost. */
struct held_range *free_find(struct hugepool *pool, const struct hugepool_range *range);

/*
 * Looks up n ranges, marks them as leaving and writes their names to words (two each), all or none.
 * Return: 0, or -EINVAL with the reason noted.
 */
int free_begin(struct hugepool *pool, const struct hugepool_range *ranges, size_t n,
	       uint64_t *words);

/* They stay after all. */
void free_undo(struct hugepool *pool, const struct hugepool_range *ranges, size_t n);

/* They are gone: unmaps and forgets them, and lets go of blocks that hold nothing now. */
void free_finish(struct hugepool *pool, const struct hugepool_range *ranges, size_t n);
