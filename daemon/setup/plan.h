/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hugepool-setup is to make: the zones of huge pages of a configuration, and nothing else of
 * it. Plain data of fixed size: hugepoold sends it to its guard in one message.
 */
#pragma once

#include "daemon/config.h"

struct setup_zone {
	char name[CONFIG_NAME_MAX + 1];
	bool grow;
	int node;	     /* -1: any */
	uint32_t nr_blocks;  /* that it is to have */
	uint32_t max_blocks; /* they are numbered below this, perhaps with gaps */
	uint64_t page_bytes, block_bytes;
};

struct setup_plan {
	uint32_t nr_zones;
	struct setup_zone zones[HP_ZONES_MAX];
};

void setup_plan_from_config(struct setup_plan *ret, const struct config *config);

/* False for a plan that no checked configuration can give. */
bool setup_plan_is_valid(const struct setup_plan *plan);

static inline uint32_t setup_zone_block_pages(const struct setup_zone *zone)
{
	return (uint32_t)(zone->block_bytes / zone->page_bytes);
}
