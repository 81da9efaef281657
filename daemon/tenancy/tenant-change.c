/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an admin changes while tenants are at work. Everything that could be refused is found out
 * first, under the lock of the table, through which every quota goes; then nothing can fail any
 * more. So a change happens as a whole or not at all, and no request sees half of it.
 *
 * Guarantees that move from one tenant to another are first taken, then given: their sum is never
 * more than the zone, at no step. Limits are the zone's business from the moment it knows them.
 */
#include "daemon/tenancy/tenant-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"

/* Return: error. */
static int say(char why[TENANT_WHY_MAX], int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int say(char why[TENANT_WHY_MAX], int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(why, TENANT_WHY_MAX, format, args);
	va_end(args);
	return error;
}

static const char *cut(char buffer[CONFIG_NAME_MAX + 4], const char *name, size_t name_bytes)
{
	snprintf(buffer, CONFIG_NAME_MAX + 4, "%.*s%s",
		 name_bytes < CONFIG_NAME_MAX ? (int)name_bytes : CONFIG_NAME_MAX,
		 name_bytes ? name : "", name_bytes > CONFIG_NAME_MAX ? "..." : "");
	return buffer;
}

struct tenant *tenants_find(struct tenants *tenants, const char *name, size_t name_bytes)
{
	struct tenant *tenant;

	pthread_mutex_lock(&tenants->lock);
	tenant = tenants_find_name(tenants, name, name_bytes);
	if (tenant && (!tenant->pinned || !tenant_is_live(tenant)))
		tenant = NULL;
	pthread_mutex_unlock(&tenants->lock);
	return tenant;
}

/* Under the lock. Return: 0, -ENOENT or -EBUSY. */
static int find_live(struct tenants *tenants, const char *name, size_t name_bytes,
		     struct tenant **ret, char why[TENANT_WHY_MAX])
{
	struct tenant *tenant = tenants_find_name(tenants, name, name_bytes);
	char text[CONFIG_NAME_MAX + 4];

	if (!tenant)
		return say(why, -ENOENT,
			   "there is no tenant \"%s\" now; hugepoolctl --admin tenants lists them",
			   cut(text, name, name_bytes));
	if (!tenant_is_live(tenant))
		return say(why, -EBUSY, "tenant %s is being deleted: %u sessions, %u holders left",
			   tenant->name, tenant->sessions, tenant->holders);
	*ret = tenant;
	return 0;
}

/* --- quotas ----------------------------------------------------------------------------------- */

/* What all tenants but this one (NULL: all) are guaranteed. Under the lock. */
static uint64_t guaranteed_to_others(const struct tenants *tenants, const struct tenant *but,
				     const struct pool_zone *zone)
{
	uint64_t blocks = 0;

	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		if (tenants->by_owner[owner] && tenants->by_owner[owner] != but)
			blocks += tenant_quota(tenants->by_owner[owner], zone).guarantee_blocks;
	return blocks;
}

/* What guarantees may add up to: a zone may have room for more blocks than it has. */
static uint32_t size_of(const struct pool_zone *zone)
{
	struct hp_zone_stats stats;

	hp_zone_stats(zone->zone, &stats);
	return stats.size_blocks;
}

/* May it be that? Under the lock. Return: 0, -EINVAL or -EDQUOT. */
static int check_quota(const struct tenants *tenants, const struct tenant *tenant, const char *name,
		       const struct pool_zone *zone, struct tenant_quota quota,
		       char why[TENANT_WHY_MAX])
{
	uint64_t others = guaranteed_to_others(tenants, tenant, zone);
	uint32_t size = size_of(zone);

	if (quota.limit_blocks > zone->nr_blocks)
		return say(why, -EINVAL, "limit of %s: %u blocks were asked for, zone %s has %u",
			   name, quota.limit_blocks, zone->name, zone->nr_blocks);
	if (quota.limit_blocks < quota.guarantee_blocks)
		return say(
			why, -EINVAL,
			"tenant %s, zone %s: a limit of %u blocks is below the guarantee of %u; give both, or lower the guarantee first",
			name, zone->name, quota.limit_blocks, quota.guarantee_blocks);
	if (others + quota.guarantee_blocks > size)
		return say(why, -EDQUOT,
			   "zone %s: %u blocks guaranteed to %s and %" PRIu64
			   " to others add up to %" PRIu64 ", and it has %u",
			   zone->name, quota.guarantee_blocks, name, others,
			   others + quota.guarantee_blocks, size);
	return 0;
}

static struct tenant_quota changed(struct tenant_quota quota, const struct tenant_change *change)
{
	if (change->set_limit)
		quota.limit_blocks = change->quota.limit_blocks;
	if (change->set_guarantee)
		quota.guarantee_blocks = change->quota.guarantee_blocks;
	return quota;
}

int tenants_set_quota(struct tenants *tenants, const char *name, size_t name_bytes,
		      const struct pool_zone *zone, const struct tenant_change *change,
		      char why[TENANT_WHY_MAX])
{
	struct tenant_quota quota;
	struct tenant *tenant;
	int rc;

	pthread_mutex_lock(&tenants->lock);
	rc = find_live(tenants, name, name_bytes, &tenant, why);
	if (!rc) {
		quota = changed(tenant_quota(tenant, zone), change);
		rc = check_quota(tenants, tenant, tenant->name, zone, quota, why);
	}
	if (!rc && tenant_set_quota(tenant, zone, quota))
		rc = say(why, -EINVAL, "zone %s does not take the quota of tenant %s", zone->name,
			 tenant->name);
	if (!rc) {
		tenant->set_zones |= UINT32_C(1) << zone->id;
		tenant_record_update(tenant);
	}
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

/* --- made and deleted ------------------------------------------------------------------------- */

/* Under the lock. Return: 0 and the quota of each zone, or a refusal. */
static int check_new(const struct tenants *tenants, const char *name,
		     const struct tenant_change *change, struct tenant_quota quota[HP_ZONES_MAX],
		     char why[TENANT_WHY_MAX])
{
	int rc = 0;

	if (tenants->made >= HP_TENANTS_MADE_MAX)
		return say(why, -ENOSPC, "%u tenants were made already, at most %u may be",
			   tenants->made, HP_TENANTS_MADE_MAX);
	for (size_t i = 0; i < pool_nr_zones(tenants->pool) && !rc; i++) {
		quota[i] = changed(tenants->defaults[i], &change[i]);
		rc = check_quota(tenants, NULL, name, pool_zone(tenants->pool, i), quota[i], why);
	}
	return rc;
}

/* Under the lock. */
static int make(struct tenants *tenants, const char *name, uid_t uid, bool any_user,
		const struct tenant_quota quota[HP_ZONES_MAX], struct tenant **ret,
		char why[TENANT_WHY_MAX])
{
	struct tenant *tenant = tenant_new(tenants, TENANT_MADE, name);
	int rc;

	if (!tenant)
		return say(why, -ENOMEM, "the daemon is out of memory");
	tenant->uid = uid;
	tenant->any_user = any_user;
	rc = tenant_add(tenant, quota);
	if (rc) {
		free(tenant);
		return say(why, rc > 0 ? -ENOSPC : rc, "%u tenants are known already, at most %u",
			   tenants->count, HP_TENANTS_MAX - 1);
	}
	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++)
		tenant->set_zones |= UINT32_C(1) << i;
	tenant_record_update(tenant);
	*ret = tenant;
	return 0;
}

int tenants_make(struct tenants *tenants, const char *name, uid_t uid, bool any_user,
		 const struct tenant_change *change, struct tenant **ret, char why[TENANT_WHY_MAX])
{
	struct tenant_quota quota[HP_ZONES_MAX] = {{0, 0}};
	const struct tenant *there;
	int rc = 0;

	if (!config_is_name(name))
		return say(
			why, -EINVAL,
			"name: expected 1 to %d letters, digits, '_', '.' and '-', not beginning with '.'",
			CONFIG_NAME_MAX);
	pthread_mutex_lock(&tenants->lock);
	there = tenants_find_name(tenants, name, strlen(name));
	if (there)
		rc = say(why, tenant_is_live(there) ? -EEXIST : -EBUSY,
			 "there is a tenant %s already%s: %u sessions, %u holders", name,
			 tenant_is_live(there) ? "" : ", which is being deleted", there->sessions,
			 there->holders);
	if (!rc)
		rc = check_new(tenants, name, change, quota, why);
	if (!rc)
		rc = make(tenants, name, uid, any_user, quota, ret, why);
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

int tenants_delete(struct tenants *tenants, const char *name, size_t name_bytes,
		   struct tenant **ret, char why[TENANT_WHY_MAX])
{
	struct tenant *tenant;
	int rc;

	pthread_mutex_lock(&tenants->lock);
	rc = find_live(tenants, name, name_bytes, &tenant, why);
	if (!rc && tenant->origin != TENANT_MADE)
		rc = say(why, -EPERM, "tenant %s was not made at run time; %s", tenant->name,
			 tenant->origin == TENANT_OF_CONFIG
				 ? "take its section out of the configuration and reload"
				 : "it goes by itself when nothing is left of it");
	if (!rc) {
		tenant_set_state(tenant, TENANT_LEAVING);
		for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++) {
			const struct pool_zone *zone = pool_zone(tenants->pool, i);
			struct tenant_quota quota = tenant_quota(tenant, zone);

			quota.guarantee_blocks = 0;
			(void)tenant_set_quota(tenant, zone, quota); /* less is never refused */
		}
		tenant_record_update(tenant);
		tenant_collect(tenant); /* pinned; but perhaps it is empty already */
		*ret = tenant;
	}
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

void tenants_end(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	tenant_set_state(tenant, TENANT_ENDING);
	tenant_record_update(tenant);
	pool_owner_gone(tenants->pool, tenant->owner);
	tenant_collect(tenant);
	pthread_mutex_unlock(&tenants->lock);
}

void tenants_forget(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	tenant->pinned = false;
	tenant_collect(tenant);
	pthread_mutex_unlock(&tenants->lock);
}

/* --- a new configuration ---------------------------------------------------------------------- */

struct reload {
	struct tenants *tenants;
	const struct config *config;
	const int *zone_of;
	config_report_fn report;
	void *userdata;
	unsigned mistakes;

	/* per tenant of the configuration */
	struct tenant *tenant[CONFIG_TENANTS_MAX];
	const char *name[CONFIG_TENANTS_MAX];
	bool fresh[CONFIG_TENANTS_MAX]; /* not in the table yet */
	uint32_t nr_fresh;

	/* per owner: of the configuration, its index + 1 */
	uint32_t configured[HP_TENANTS_MAX];
};

static void mistake(struct reload *reload, const char *file, unsigned line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void mistake(struct reload *reload, const char *file, unsigned line, const char *format, ...)
{
	char message[TENANT_WHY_MAX];
	va_list args;
	int n = snprintf(message, sizeof(message), "%s:%u: ", file, line);

	va_start(args, format);
	if (n >= 0 && (size_t)n < sizeof(message))
		(void)vsnprintf(message + n, sizeof(message) - (size_t)n, format, args);
	va_end(args);
	reload->mistakes++;
	reload->report(reload->userdata, message);
}

/* The tenant of a section: of its name, or whoever has its uid so far, or a fresh one. */
static int match(struct reload *reload, size_t index)
{
	struct tenants *tenants = reload->tenants;
	const struct config_tenant *own = &reload->config->tenants[index];
	struct tenant *tenant = tenants_find_name(tenants, own->name, strlen(own->name));

	if (tenant && !tenant_is_live(tenant))
		mistake(reload, own->file, own->line,
			"[tenant %s]: a tenant of that name is being deleted, %u sessions and %u holders are left; reload again when it is gone",
			own->name, tenant->sessions, tenant->holders);
	if (!tenant && own->has_uid) {
		tenant = tenants_find_uid(tenants, own->uid, TENANT_OF_UID);
		if (tenant && reload->configured[tenant->owner])
			tenant = NULL;
	}
	if (!tenant) {
		tenant = tenant_new(tenants, TENANT_OF_CONFIG, own->name);
		reload->fresh[index] = tenant;
		reload->nr_fresh++;
	}
	reload->tenant[index] = tenant;
	reload->name[index] = tenants_keep_name(tenants, own->name);
	if (!tenant || !reload->name[index])
		return -ENOMEM;
	if (!reload->fresh[index])
		reload->configured[tenant->owner] = (uint32_t)index + 1;
	return 0;
}

/* Those that were made keep what they have: with the configuration's, it has to fit. */
static void check_guarantees(struct reload *reload, const struct pool_zone *zone)
{
	const struct tenants *tenants = reload->tenants;
	const struct config_zone *own = &reload->config->zones[reload->zone_of[zone->id]];
	uint64_t configured = 0, made = 0;
	uint32_t size = size_of(zone);

	for (size_t i = 0; i < reload->config->nr_tenants; i++)
		configured += reload->config->tenants[i]
				      .quota[reload->zone_of[zone->id]]
				      .guarantee_blocks;
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		if (tenants->by_owner[owner] && !reload->configured[owner] &&
		    tenants->by_owner[owner]->origin == TENANT_MADE)
			made += tenant_quota(tenants->by_owner[owner], zone).guarantee_blocks;
	if (configured + made > size)
		mistake(reload, own->file, own->line,
			"[zone %s]: %" PRIu64 " blocks guaranteed by the configuration and %" PRIu64
			" to tenants made at run time add up to %" PRIu64
			"; expected at most the zone's %u",
			zone->name, configured, made, configured + made, size);
}

static int check(struct reload *reload)
{
	struct pool *pool = reload->tenants->pool;
	int rc = 0;

	for (size_t i = 0; i < reload->config->nr_tenants && !rc; i++)
		rc = match(reload, i);
	if (rc)
		return rc;
	if (reload->tenants->count + reload->nr_fresh > HP_TENANTS_MAX - 1)
		mistake(reload, reload->config->files[0], 0,
			"%u tenants are known and %u come with this configuration; at most %u can be",
			reload->tenants->count, reload->nr_fresh, HP_TENANTS_MAX - 1);
	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		if (reload->zone_of[i] >= 0)
			check_guarantees(reload, pool_zone(pool, i));
	return reload->mistakes ? -EINVAL : 0;
}

/* What a tenant that is there will have in this zone. */
static struct tenant_quota target(const struct reload *reload, const struct tenant *tenant,
				  const struct pool_zone *zone)
{
	uint32_t index = reload->configured[tenant->owner];
	int z = reload->zone_of[zone->id];
	const struct config_quota *quota;

	if (!tenant_is_live(tenant) || (!index && tenant->origin == TENANT_MADE))
		return tenant_quota(tenant, zone);
	if (!index)
		return reload->tenants->defaults[zone->id];
	if (z < 0)
		return tenant_quota(tenant, zone);
	quota = &reload->config->tenants[index - 1].quota[z];
	if (!quota->given)
		return reload->tenants->defaults[zone->id];
	return (struct tenant_quota){quota->limit_blocks, quota->guarantee_blocks};
}

/* raise: guarantees are given; before that, they are taken. */
static void set_quotas(const struct reload *reload, bool raise)
{
	struct tenants *tenants = reload->tenants;

	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		for (size_t i = 0; tenants->by_owner[owner] && i < pool_nr_zones(tenants->pool);
		     i++) {
			const struct pool_zone *zone = pool_zone(tenants->pool, i);
			struct tenant *tenant = tenants->by_owner[owner];
			struct tenant_quota now = tenant_quota(tenant, zone),
					    then = target(reload, tenant, zone);

			if (!raise && then.guarantee_blocks > now.guarantee_blocks)
				then.guarantee_blocks = now.guarantee_blocks;
			/* It was checked, so a refusal is worth an error line. */
			if (tenant_set_quota(tenant, zone, then))
				log_error("quota refused tenant=%s zone=%s limit=%u guarantee=%u",
					  tenant->name, zone->name, then.limit_blocks,
					  then.guarantee_blocks);
		}
	}
}

static void take_defaults(const struct reload *reload)
{
	struct tenants *tenants = reload->tenants;

	tenants->policy = reload->config->policy;
	tenants->default_sessions = reload->config->defaults.sessions;
	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++)
		if (reload->zone_of[i] >= 0)
			tenants->defaults[i].limit_blocks =
				reload->config->defaults.quota[reload->zone_of[i]].limit_blocks;
}

/* What is in the configuration. There is room for those that are fresh. */
static void take_configured(struct reload *reload, size_t index)
{
	struct tenants *tenants = reload->tenants;
	const struct config_tenant *own = &reload->config->tenants[index];
	struct tenant *tenant = reload->tenant[index];

	if (reload->fresh[index] && tenant_add(tenant, tenants->defaults) == 0) {
		reload->configured[tenant->owner] = (uint32_t)index + 1;
		reload->fresh[index] = false;
	}
	tenants->made -= tenant->origin == TENANT_MADE;
	tenant->origin = TENANT_OF_CONFIG;
	tenant->name = reload->name[index];
	tenant->has_uid = own->has_uid;
	tenant->uid = own->has_uid ? own->uid : (uid_t)-1;
	tenant->any_user = true;
	tenant->sessions_max = own->sessions;
	tenant->pinned = true;
	tenant->set_zones = 0;
}

/* What is not, or not any more. */
static void take_others(struct reload *reload)
{
	struct tenants *tenants = reload->tenants;

	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		struct tenant *tenant = tenants->by_owner[owner];

		if (!tenant || reload->configured[owner] || tenant->origin == TENANT_MADE ||
		    tenant->origin == TENANT_OF_SESSION)
			continue;
		tenant->origin = TENANT_OF_UID;
		tenant->sessions_max = tenants->default_sessions;
		tenant->set_zones = 0;
		tenant->pinned = false;
		tenant_collect(tenant);
	}
}

int tenants_reload(struct tenants *tenants, const struct config *config,
		   const int zone_of[HP_ZONES_MAX], config_report_fn report, void *userdata)
{
	struct reload *reload = calloc(1, sizeof(*reload));
	int rc;

	if (!reload)
		return -ENOMEM;
	reload->tenants = tenants;
	reload->config = config;
	reload->zone_of = zone_of;
	reload->report = report;
	reload->userdata = userdata;
	pthread_mutex_lock(&tenants->lock);
	rc = check(reload);
	if (!rc) {
		take_defaults(reload);
		for (size_t i = 0; i < config->nr_tenants; i++)
			take_configured(reload, i);
		set_quotas(reload, false);
		set_quotas(reload, true);
		take_others(reload);
		for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
			if (tenants->by_owner[owner])
				tenant_record_update(tenants->by_owner[owner]);
	}
	pthread_mutex_unlock(&tenants->lock);
	for (size_t i = 0; i < config->nr_tenants; i++)
		if (reload->fresh[i])
			free(reload->tenant[i]);
	free(reload);
	return rc;
}
