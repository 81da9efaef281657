/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks a session knows: those whose descriptor it was sent, by generation, and how many pages
 * it holds in each. One word a block, in an array for each zone it has taken from.
 *
 * Only the session's worker calls these.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/pool/pool.h"
#include "proto/limits.h"

struct known {
	uint64_t *zone[HP_ZONES_MAX]; /* [index]: generation << 24 | pages; generation 0: unknown */
};

void known_deinit(struct known *known);

/* Room for the blocks of a zone. Return: 0 or -ENOMEM. */
int known_reserve(struct known *known, const struct pool_zone *zone);

/*
 * Pages were granted: for each block of them that the session does not know, by its present
 * generation, the index is put into fresh[*nr_fresh], and nr_fresh counted on; the caller sends
 * it and says known_set(). Needs known_reserve().
 */
void known_take(struct known *known, const struct pool_zone *zone, hp_pfn_t pfn, uint32_t pages,
		uint32_t *fresh, size_t *nr_fresh);

/* Pages that were taken are given back. Return: how many blocks have none left now. */
uint32_t known_give(struct known *known, const struct pool_zone *zone, hp_pfn_t pfn,
		    uint32_t pages);

void known_set(struct known *known, const struct pool_zone *zone, uint32_t block,
	       uint64_t generation);

/* Does it know any block of this zone? */
bool known_any(const struct known *known, const struct pool_zone *zone);

/* 0: not known. ret_pages: that the session holds in it. */
uint64_t known_generation(const struct known *known, const struct pool_zone *zone, uint32_t block,
			  uint32_t *ret_pages);
