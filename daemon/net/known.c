/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While a session holds pages in a block the block keeps its life, so the generation it was sent
 * stays right and nobody has to be asked; only when a grant is the first in a block is the present
 * generation looked up and compared.
 */
#include "daemon/net/known.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PAGES_BITS 24
#define PAGES_MASK ((UINT64_C(1) << PAGES_BITS) - 1)

_Static_assert(HP_MAX_ORDER < PAGES_BITS, "the pages of a block have to fit");

void known_deinit(struct known *known)
{
	for (size_t i = 0; i < HP_ZONES_MAX; i++) {
		free(known->zone[i]);
		known->zone[i] = NULL;
	}
}

int known_reserve(struct known *known, const struct pool_zone *zone)
{
	if (!known->zone[zone->id])
		known->zone[zone->id] = calloc(zone->nr_blocks, sizeof(uint64_t));
	return known->zone[zone->id] ? 0 : -ENOMEM;
}

/* Pages of [pfn, pfn + pages) that lie in the block that pfn lies in. */
static uint32_t part_in_block(const struct pool_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	uint32_t room = zone->block_pages - (pfn & (zone->block_pages - 1));

	return pages < room ? pages : room;
}

static unsigned block_shift(const struct pool_zone *zone)
{
	return (unsigned)__builtin_ctz(zone->block_pages);
}

void known_take(struct known *known, const struct pool_zone *zone, hp_pfn_t pfn, uint32_t pages,
		uint32_t *fresh, size_t *nr_fresh)
{
	while (pages) {
		uint32_t part = part_in_block(zone, pfn, pages), block = pfn >> block_shift(zone);
		uint64_t *word = &known->zone[zone->id][block];

		if (!(*word & PAGES_MASK) &&
		    (!*word ||
		     *word >> PAGES_BITS != hp_zone_block_word(zone->zone, block).generation)) {
			fresh[(*nr_fresh)++] = block;
			*word = 0;
		}
		*word += part;
		pfn += part;
		pages -= part;
	}
}

uint32_t known_give(struct known *known, const struct pool_zone *zone, hp_pfn_t pfn, uint32_t pages)
{
	uint32_t emptied = 0;

	while (pages) {
		uint32_t part = part_in_block(zone, pfn, pages), block = pfn >> block_shift(zone);
		uint64_t *word = &known->zone[zone->id][block];

		assert((*word & PAGES_MASK) >= part);
		*word -= part;
		emptied += !(*word & PAGES_MASK);
		pfn += part;
		pages -= part;
	}
	return emptied;
}

void known_set(struct known *known, const struct pool_zone *zone, uint32_t block,
	       uint64_t generation)
{
	uint64_t *word = &known->zone[zone->id][block];

	*word = generation << PAGES_BITS | (*word & PAGES_MASK);
}

bool known_any(const struct known *known, const struct pool_zone *zone)
{
	const uint64_t *words = known->zone[zone->id];

	for (uint32_t i = 0; words && i < zone->nr_blocks; i++)
		if (words[i])
			return true;
	return false;
}

uint64_t known_generation(const struct known *known, const struct pool_zone *zone, uint32_t block,
			  uint32_t *ret_pages)
{
	uint64_t word = known->zone[zone->id] ? known->zone[zone->id][block] : 0;

	*ret_pages = (uint32_t)(word & PAGES_MASK);
	return word >> PAGES_BITS;
}
