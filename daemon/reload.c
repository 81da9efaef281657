/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In the order of what may fail: the files, as at the start; the sockets of new tenants, which can be
 * closed again; the table of tenants, which takes all or nothing. What comes then cannot fail.
 */
#include "daemon/reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

struct plan {
	struct config *config;
	struct doors_plan doors;
	int zone_of[HP_ZONES_MAX]; /* per zone of the pool: index in config, or -1 */
};

static void note_mistake(void *userdata, const char *message)
{
	struct reload_outcome *outcome = userdata;

	log_error("configuration: %s", message);
	if (outcome->nr_mistakes++ == 0)
		snprintf(outcome->mistake, sizeof(outcome->mistake), "%s", message);
}

static void note_restart(void *userdata, const char *name)
{
	struct reload_outcome *outcome = userdata;

	log_warning("configuration: has changed, which needs a restart key=\"%s\"", name);
	if (outcome->nr_restart < RELOAD_RESTART_MAX)
		snprintf(outcome->restart[outcome->nr_restart], RELOAD_NAME_MAX, "%s", name);
	outcome->nr_restart++;
}

static void match_zones(struct plan *plan, struct pool *pool)
{
	for (size_t i = 0; i < pool_nr_zones(pool); i++) {
		const struct pool_zone *zone = pool_zone(pool, i);
		const struct config_zone *wanted = config_find_zone(plan->config, zone->name);

		plan->zone_of[i] = wanted && config_same_zone(zone->config, wanted)
					   ? (int)(wanted - plan->config->zones)
					   : -1;
	}
}

static int open_doors(struct plan *plan, struct doors *doors, struct reload_outcome *outcome)
{
	char message[HP_MESSAGE_MAX];
	size_t index;
	int rc = doors_prepare(doors, plan->config, &plan->doors, &index);

	if (!rc)
		return 0;
	snprintf(message, sizeof(message), "%s:%u: [tenant %s]: socket = %.200s cannot be made: %s",
		 plan->config->tenants[index].file, plan->config->tenants[index].line,
		 plan->config->tenants[index].name, plan->config->tenants[index].socket,
		 strerror(-rc));
	note_mistake(outcome, message);
	return rc;
}

static void tune(const struct plan *plan, struct pool *pool)
{
	const struct config_zone *zones[HP_ZONES_MAX] = {NULL};

	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		if (plan->zone_of[i] >= 0)
			zones[i] = &plan->config->zones[plan->zone_of[i]];
	pool_set_tuning(pool, plan->config, zones);
}

static int take(struct plan *plan, struct pool *pool, struct tenants *tenants, struct doors *doors,
		struct reload_outcome *outcome)
{
	int rc;

	match_zones(plan, pool);
	rc = open_doors(plan, doors, outcome);
	if (rc)
		return rc;
	rc = tenants_reload(tenants, plan->config, plan->zone_of, note_mistake, outcome);
	if (rc) {
		doors_abandon(doors, plan->config, &plan->doors);
		return rc;
	}
	doors_commit(doors, plan->config, &plan->doors, tenants);
	tune(plan, pool);
	outcome->nr_tenants = (uint32_t)plan->config->nr_tenants;
	return 0;
}

int reload(const struct config *running, struct pool *pool, struct tenants *tenants,
	   struct doors *doors, struct reload_outcome *ret)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	int rc = -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	if (plan)
		rc = config_load(&plan->config, running->files[0], note_mistake, ret);
	if (!rc)
		rc = take(plan, pool, tenants, doors, ret);
	if (!rc)
		config_compare(running, plan->config, note_restart, ret);
	if (rc && !ret->nr_mistakes)
		note_mistake(ret, strerror(-rc));
	if (rc)
		log_error("configuration not reloaded: nothing has changed mistakes=%u",
			  ret->nr_mistakes);
	else
		log_notice("configuration reloaded tenants=%u restart_needed=%u", ret->nr_tenants,
			   ret->nr_restart);
	if (plan)
		config_free(plan->config);
	free(plan);
	return rc;
}
