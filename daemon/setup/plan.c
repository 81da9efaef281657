/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the configuration to what the privileged part needs of it.
 */
#include "daemon/setup/plan.h"

#include <string.h>

void setup_plan_from_config(struct setup_plan *ret, const struct config *config)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < config->nr_zones; i++) {
		const struct config_zone *zone = &config->zones[i];
		struct setup_zone *planned = &ret->zones[ret->nr_zones];

		if (zone->backing != CONFIG_BACKING_HUGETLB)
			continue;
		memcpy(planned->name, zone->name, sizeof(planned->name));
		planned->name[CONFIG_NAME_MAX] = '\0';
		planned->grow = zone->grow;
		planned->node = zone->node;
		planned->page_bytes = zone->page_bytes;
		planned->block_bytes = zone->block_bytes;
		planned->nr_blocks = (uint32_t)(zone->size_bytes / zone->block_bytes);
		planned->max_blocks = (uint32_t)(zone->max_bytes / zone->block_bytes);
		ret->nr_zones++;
	}
}

bool setup_plan_is_valid(const struct setup_plan *plan)
{
	if (plan->nr_zones > HP_ZONES_MAX)
		return false;
	for (uint32_t i = 0; i < plan->nr_zones; i++) {
		const struct setup_zone *zone = &plan->zones[i];

		if (!memchr(zone->name, '\0', sizeof(zone->name)) || !*zone->name ||
		    strchr(zone->name, '/') || *zone->name == '.')
			return false;
		if (zone->page_bytes < 4096 || !zone->block_bytes ||
		    zone->block_bytes % zone->page_bytes || !zone->max_blocks ||
		    zone->nr_blocks > zone->max_blocks || zone->max_blocks > HP_ZONE_BLOCKS_MAX)
			return false;
	}
	return true;
}
