/* SPDX-License-Identifier: Apache-2.0 */
/* What hp_zone_init() and hp_zone_rebuild() have in common. */
#pragma once

#include "alloc/internal.h"

/* Checks the configuration and makes everything but the areas and what follows from block words. */
int hp_zone_setup(struct hp_zone *zone, const struct hp_zone_config *config, void *durable,
		  void *scratch);
