/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner number is the tenant: it stands in block words, so it must not go to somebody else while
 * a block, a holder or a connection still names it. Connections and holders are counted here;
 * blocks are counted by the zones, and the pool tells when an owner may have lost its last one. All
 * three are looked at under one lock, so that the last one to go is the one who takes the number
 * back.
 *
 * The table is small (HP_TENANTS_MAX) and looked up once a connection: a scan is good enough.
 */
#include "daemon/tenancy/tenant.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

struct tenants {
	pthread_mutex_t lock;
	const struct config *config;
	struct pool *pool;
	uint32_t count;
	struct tenant *by_owner[HP_TENANTS_MAX]; /* [0] is nobody */
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* What is built in is in the defaults by now. */
static struct config_quota quota_of(const struct config *config, const struct config_tenant *own,
				    const struct pool_zone *zone)
{
	if (own && own->quota[zone->id].given)
		return own->quota[zone->id];
	return config->defaults.quota[zone->id];
}

/* Return: 0 or -EINVAL; the configuration was checked, so a refusal is worth an error line. */
static int set_quotas(struct tenants *tenants, const struct tenant *tenant,
		      const struct config_tenant *own)
{
	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++) {
		struct pool_zone *zone = pool_zone(tenants->pool, i);
		struct config_quota quota = quota_of(tenants->config, own, zone);
		int rc = hp_zone_account_set_quota(zone->zone, tenant->owner, quota.limit_blocks,
						   quota.guarantee_blocks);

		if (!rc)
			continue;
		log_error(
			"quota refused tenant=%s zone=%s limit=%u guarantee=%u blocks=%u reason=\"%s\"",
			tenant->name, zone->name, quota.limit_blocks, quota.guarantee_blocks,
			zone->nr_blocks,
			rc == HP_BUSY ? "the guarantees add up to more than the zone"
				      : "the limit is below the guarantee");
		return -EINVAL;
	}
	return 0;
}

/* Under the lock. own: NULL for a uid that the configuration does not name. */
static int add_tenant(struct tenants *tenants, uid_t uid, const struct config_tenant *own,
		      struct tenant **ret)
{
	struct tenant *tenant;
	uint32_t owner = 1;
	int rc;

	while (owner < HP_TENANTS_MAX && tenants->by_owner[owner])
		owner++;
	if (owner == HP_TENANTS_MAX)
		return TENANT_TOO_MANY_TENANTS;
	tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return -ENOMEM;

	tenant->owner = owner;
	tenant->uid = uid;
	tenant->configured = own;
	tenant->sessions_max = own ? own->sessions : tenants->config->defaults.sessions;
	if (own)
		memcpy(tenant->name, own->name, sizeof(tenant->name));
	else
		snprintf(tenant->name, sizeof(tenant->name), "uid:%u", (unsigned)uid);

	rc = set_quotas(tenants, tenant, own);
	if (rc) {
		free(tenant);
		return rc;
	}
	tenants->by_owner[owner] = tenant;
	tenants->count++;
	*ret = tenant;
	return 0;
}

int tenants_new(struct tenants **ret, const struct config *config, struct pool *pool)
{
	struct tenants *tenants = calloc(1, sizeof(*tenants));
	struct tenant *tenant;
	int rc = 0;

	if (!tenants)
		return -ENOMEM;
	pthread_mutex_init(&tenants->lock, NULL);
	tenants->config = config;
	tenants->pool = pool;
	for (size_t i = 0; i < config->nr_tenants && !rc; i++)
		rc = add_tenant(tenants, config->tenants[i].uid, &config->tenants[i], &tenant);
	if (rc) {
		tenants_free(tenants);
		return rc < 0 ? rc : -ENOSPC;
	}
	*ret = tenants;
	return 0;
}

struct tenants *tenants_free(struct tenants *tenants)
{
	if (!tenants)
		return NULL;
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		free(tenants->by_owner[owner]);
	pthread_mutex_destroy(&tenants->lock);
	free(tenants);
	return NULL;
}

static struct tenant *find_uid(struct tenants *tenants, uid_t uid)
{
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		if (tenants->by_owner[owner] && tenants->by_owner[owner]->uid == uid)
			return tenants->by_owner[owner];
	return NULL;
}

/* Under the lock. Blocks come only by grants, and those need a holder: none can appear meanwhile.
 */
static bool is_named(struct tenants *tenants, const struct tenant *tenant)
{
	struct hp_account_stats stats;

	if (tenant->configured || tenant->sessions || tenant->holders)
		return true;
	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++) {
		hp_zone_account_stats(pool_zone(tenants->pool, i)->zone, tenant->owner, &stats);
		if (stats.held_blocks)
			return true;
	}
	return false;
}

/* Under the lock. */
static void collect(struct tenants *tenants, struct tenant *tenant)
{
	if (is_named(tenants, tenant))
		return;
	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++)
		if (hp_zone_account_set_quota(pool_zone(tenants->pool, i)->zone, tenant->owner,
					      HP_UNLIMITED, 0))
			log_error("quota not reset tenant=%s", tenant->name);
	tenants->by_owner[tenant->owner] = NULL;
	tenants->count--;
	free(tenant);
}

int tenants_enter(struct tenants *tenants, uid_t uid, struct tenant **ret)
{
	struct tenant *tenant;
	int rc = 0;

	pthread_mutex_lock(&tenants->lock);
	tenant = find_uid(tenants, uid);
	if (!tenant)
		rc = add_tenant(tenants, uid, NULL, &tenant);
	if (!rc && tenant->sessions >= tenant->sessions_max)
		rc = TENANT_TOO_MANY_SESSIONS;
	if (!rc) {
		if (tenant->sessions++ == 0)
			pool_owner_idle(tenants->pool, tenant->owner, false);
		*ret = tenant;
	} else if (rc == TENANT_TOO_MANY_SESSIONS) {
		collect(tenants, tenant);
	}
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

void tenants_leave(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	if (--tenant->sessions == 0)
		pool_owner_idle(tenants->pool, tenant->owner, true);
	collect(tenants, tenant);
	pthread_mutex_unlock(&tenants->lock);
}

int tenants_hold(struct tenants *tenants, struct tenant *tenant)
{
	int rc = 0;

	pthread_mutex_lock(&tenants->lock);
	if (tenant->holders >= HP_SLOTS_PER_TENANT_MAX)
		rc = TENANT_TOO_MANY_HOLDERS;
	else
		tenant->holders++;
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

void tenants_unhold(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	tenant->holders--;
	collect(tenants, tenant);
	pthread_mutex_unlock(&tenants->lock);
}

void tenants_collect(struct tenants *tenants, uint32_t owner)
{
	pthread_mutex_lock(&tenants->lock);
	if (owner && owner < HP_TENANTS_MAX && tenants->by_owner[owner])
		collect(tenants, tenants->by_owner[owner]);
	pthread_mutex_unlock(&tenants->lock);
}

uint32_t tenants_sessions_max(struct tenants *tenants, uid_t uid)
{
	const struct tenant *tenant;
	uint32_t max = tenants->config->defaults.sessions;

	pthread_mutex_lock(&tenants->lock);
	tenant = find_uid(tenants, uid);
	if (tenant)
		max = tenant->sessions_max;
	pthread_mutex_unlock(&tenants->lock);
	return max;
}

uint32_t tenants_count(struct tenants *tenants)
{
	uint32_t count;

	pthread_mutex_lock(&tenants->lock);
	count = tenants->count;
	pthread_mutex_unlock(&tenants->lock);
	return count;
}

int tenants_look(struct tenants *tenants, uint32_t owner, tenant_look_fn fn, void *userdata)
{
	int rc = 0;

	pthread_mutex_lock(&tenants->lock);
	for (; owner < HP_TENANTS_MAX && !rc; owner++)
		if (tenants->by_owner[owner])
			rc = fn(userdata, tenants->by_owner[owner]);
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

void tenant_get_figures(const struct tenant *tenant, const struct pool_zone *zone,
			struct tenant_figures *ret)
{
	struct hp_zone_stats all;
	struct hp_owner_stats own;
	struct hp_account_stats account;

	*ret = (struct tenant_figures){0};
	hp_zone_stats(zone->zone, &all);
	ret->free_pages = all.clean + all.free + all.pcp + all.draining;
	if (!tenant)
		return;
	hp_zone_owner_stats(zone->zone, tenant->owner, &own);
	hp_zone_account_stats(zone->zone, tenant->owner, &account);
	ret->leasable_pages = own.leasable_pages;
	ret->largest_pages = own.largest_pages;
	ret->limit_blocks = min_u32(account.limit_blocks, zone->nr_blocks);
	ret->guarantee_blocks = account.guarantee_blocks;
	ret->held_blocks = account.held_blocks;
	ret->limit_pages = (uint64_t)ret->limit_blocks * zone->block_pages;
}
