/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An owner number is the tenant: it stands in block words, so it must not go to somebody else while
 * a block, a holder or a connection still names it. Connections and holders are counted here;
 * blocks are counted by the zones, and the pool tells when an owner may have lost its last one. All
 * of them are looked at under one lock, so that the last one to go is the one who takes the number
 * back.
 *
 * The table is small (HP_TENANTS_MAX) and looked up once a connection: a scan is good enough.
 */
#include "daemon/tenancy/tenant-internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/pool/state.h"

static const uint8_t transitions[TENANT_STATES] = {
	[TENANT_LIVE] = 1 << TENANT_LEAVING,
	[TENANT_LEAVING] = 1 << TENANT_ENDING,
};

void tenant_set_state(struct tenant *tenant, enum tenant_state state)
{
	assert(transitions[tenant->state] & 1 << state);
	tenant->state = state;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* --- names ------------------------------------------------------------------------------------ */

/*
 * A name may be in use by anybody who looks at the tenant, without a lock. So names that were given
 * later are kept for good, each once: there are as many as the configuration ever had.
 */
struct kept_name {
	struct kept_name *next;
	char text[HP_NAME_MAX + 1];
};

const char *tenants_keep_name(struct tenants *tenants, const char *name)
{
	struct kept_name **at = &tenants->names;

	while (*at && strcmp((*at)->text, name) != 0)
		at = &(*at)->next;
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (!*at)
			return NULL;
		snprintf((*at)->text, sizeof((*at)->text), "%s", name);
	}
	return (*at)->text;
}

/* --- quotas ----------------------------------------------------------------------------------- */

struct tenant_quota tenant_quota(const struct tenant *tenant, const struct pool_zone *zone)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(zone->zone, tenant->owner, &stats);
	return (struct tenant_quota){stats.limit_blocks, stats.guarantee_blocks};
}

static bool holds_more(const struct tenant *tenant, const struct pool_zone *zone)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(zone->zone, tenant->owner, &stats);
	return stats.held_blocks > stats.limit_blocks;
}

int tenant_set_quota(struct tenant *tenant, const struct pool_zone *zone, struct tenant_quota quota)
{
	int rc = hp_zone_account_set_quota(zone->zone, tenant->owner, quota.limit_blocks,
					   quota.guarantee_blocks);

	if (!rc && holds_more(tenant, zone))
		atomic_fetch_or(&tenant->over_limit, UINT32_C(1) << zone->id);
	return rc;
}

bool tenant_look_over_limit(struct tenant *tenant, const struct pool_zone *zone)
{
	bool over;

	pthread_mutex_lock(&tenant->tenants->lock);
	over = holds_more(tenant, zone);
	if (!over)
		atomic_fetch_and(&tenant->over_limit, ~(UINT32_C(1) << zone->id));
	pthread_mutex_unlock(&tenant->tenants->lock);
	return over;
}

/* Return: 0 or -EINVAL; what is set was checked, so a refusal is worth an error line. */
static int set_quotas(struct tenant *tenant, const struct tenant_quota quota[HP_ZONES_MAX])
{
	for (size_t i = 0; i < pool_nr_zones(tenant->tenants->pool); i++) {
		const struct pool_zone *zone = pool_zone(tenant->tenants->pool, i);
		int rc = tenant_set_quota(tenant, zone, quota[i]);

		if (!rc)
			continue;
		log_error(
			"quota refused tenant=%s zone=%s limit=%u guarantee=%u blocks=%u reason=\"%s\"",
			tenant->name, zone->name, quota[i].limit_blocks, quota[i].guarantee_blocks,
			zone->nr_blocks,
			rc == HP_BUSY ? "the guarantees add up to more than the zone"
				      : "the limit is below the guarantee");
		return -EINVAL;
	}
	return 0;
}

static void reset_quotas(struct tenant *tenant)
{
	for (size_t i = 0; i < pool_nr_zones(tenant->tenants->pool); i++)
		if (hp_zone_account_set_quota(pool_zone(tenant->tenants->pool, i)->zone,
					      tenant->owner, HP_UNLIMITED, 0))
			log_error("quota not reset tenant=%s", tenant->name);
}

/* --- the table: under the lock ---------------------------------------------------------------- */

struct tenant *tenant_new(struct tenants *tenants, enum tenant_origin origin, const char *name)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));

	if (!tenant)
		return NULL;
	tenant->tenants = tenants;
	tenant->origin = origin;
	tenant->pinned = origin == TENANT_OF_CONFIG || origin == TENANT_MADE;
	tenant->uid = (uid_t)-1;
	tenant->sessions_max = tenants->default_sessions;
	snprintf(tenant->own_name, sizeof(tenant->own_name), "%s", name);
	tenant->name = tenant->own_name;
	return tenant;
}

int tenant_add(struct tenant *tenant, const struct tenant_quota quota[HP_ZONES_MAX])
{
	struct tenants *tenants = tenant->tenants;
	bool is_recorded = tenant->owner;
	uint32_t owner = is_recorded ? tenant->owner : 1;
	int rc;

	while (owner < HP_TENANTS_MAX && tenants->by_owner[owner])
		owner++;
	if (owner == HP_TENANTS_MAX)
		return TENANT_TOO_MANY_TENANTS;
	tenant->owner = owner;
	rc = set_quotas(tenant, quota);
	if (rc) {
		reset_quotas(tenant);
		return rc;
	}
	if (!is_recorded)
		tenant_record_begin(tenant);
	tenants->by_owner[owner] = tenant;
	tenants->count++;
	tenants->made += tenant->origin == TENANT_MADE;
	return 0;
}

struct tenant *tenants_find_name(struct tenants *tenants, const char *name, size_t name_bytes)
{
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		struct tenant *tenant = tenants->by_owner[owner];

		if (tenant && strlen(tenant->name) == name_bytes &&
		    memcmp(tenant->name, name, name_bytes) == 0)
			return tenant;
	}
	return NULL;
}

struct tenant *tenants_find_uid(struct tenants *tenants, uid_t uid, enum tenant_origin origin)
{
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		struct tenant *tenant = tenants->by_owner[owner];

		if (tenant && tenant->has_uid && tenant->uid == uid && tenant->origin == origin)
			return tenant;
	}
	return NULL;
}

/* Blocks come only by grants, and those need a holder: none can appear meanwhile. */
static bool is_named(const struct tenant *tenant)
{
	struct hp_account_stats stats;

	if (tenant->pinned || tenant->sessions || tenant->holders)
		return true;
	for (size_t i = 0; i < pool_nr_zones(tenant->tenants->pool); i++) {
		hp_zone_account_stats(pool_zone(tenant->tenants->pool, i)->zone, tenant->owner,
				      &stats);
		if (stats.held_blocks)
			return true;
	}
	return false;
}

void tenant_collect(struct tenant *tenant)
{
	struct tenants *tenants = tenant->tenants;

	if (!tenant_is_live(tenant) && !tenant->sessions && !tenant->holders && tenants->on_empty)
		tenants->on_empty(tenants->userdata);
	if (is_named(tenant))
		return;
	reset_quotas(tenant);
	tenant_record_end(tenant);
	tenants->by_owner[tenant->owner] = NULL;
	tenants->count--;
	tenants->made -= tenant->origin == TENANT_MADE;
	free(tenant);
}

/* --- connections ------------------------------------------------------------------------------ */

static uint32_t count_connections(const struct tenants *tenants, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		const struct tenant *tenant = tenants->by_owner[owner];

		if (tenant && tenant->origin == TENANT_OF_SESSION && tenant->uid == uid)
			n += tenant->sessions;
	}
	return n;
}

/* A tenant for whoever is not named. */
static int add_unnamed(struct tenants *tenants, uid_t uid, struct tenant **ret)
{
	bool by_session = tenants->policy == CONFIG_POLICY_SESSION;
	struct tenant *tenant;
	char name[HP_NAME_MAX + 1];
	int rc;

	if (by_session && count_connections(tenants, uid) >= tenants->default_sessions)
		return TENANT_TOO_MANY_SESSIONS;
	if (by_session)
		snprintf(name, sizeof(name), "session:%llu",
			 (unsigned long long)++tenants->last_session);
	else
		snprintf(name, sizeof(name), "uid:%u", (unsigned)uid);
	tenant = tenant_new(tenants, by_session ? TENANT_OF_SESSION : TENANT_OF_UID, name);
	if (!tenant)
		return -ENOMEM;
	tenant->uid = uid;
	tenant->has_uid = !by_session;
	if (by_session)
		tenant->sessions_max = 1;
	rc = tenant_add(tenant, tenants->defaults);
	if (rc) {
		free(tenant);
		return rc;
	}
	*ret = tenant;
	return 0;
}

static int enter(struct tenant *tenant)
{
	if (!tenant_is_live(tenant))
		return TENANT_LEAVES;
	if (tenant->sessions >= tenant->sessions_max) {
		tenant_collect(tenant);
		return TENANT_TOO_MANY_SESSIONS;
	}
	if (tenant->sessions++ == 0)
		pool_owner_idle(tenant->tenants->pool, tenant->owner, false);
	return 0;
}

static struct tenant *find_user(struct tenants *tenants, uid_t uid)
{
	struct tenant *tenant = tenants_find_uid(tenants, uid, TENANT_OF_CONFIG);

	if (!tenant && tenants->policy == CONFIG_POLICY_UID)
		tenant = tenants_find_uid(tenants, uid, TENANT_OF_UID);
	return tenant;
}

int tenants_enter(struct tenants *tenants, uid_t uid, struct tenant **ret)
{
	struct tenant *tenant;
	int rc = 0;

	pthread_mutex_lock(&tenants->lock);
	tenant = find_user(tenants, uid);
	if (!tenant)
		rc = add_unnamed(tenants, uid, &tenant);
	if (!rc)
		rc = enter(tenant);
	if (!rc)
		*ret = tenant;
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

int tenants_enter_own(struct tenants *tenants, struct tenant *tenant, uid_t uid)
{
	int rc;

	pthread_mutex_lock(&tenants->lock);
	if (!tenant->any_user && tenant->uid != uid)
		rc = TENANT_NOT_FOR_USER;
	else
		rc = enter(tenant);
	pthread_mutex_unlock(&tenants->lock);
	return rc;
}

void tenants_enter_again(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	if (tenant->sessions++ == 0)
		pool_owner_idle(tenants->pool, tenant->owner, false);
	pthread_mutex_unlock(&tenants->lock);
}

void tenants_leave(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	if (--tenant->sessions == 0) {
		/* nobody can come back to the tenant of a connection, or to one that is deleted */
		if (tenant->origin == TENANT_OF_SESSION || !tenant_is_live(tenant))
			pool_owner_gone(tenants->pool, tenant->owner);
		else
			pool_owner_idle(tenants->pool, tenant->owner, true);
	}
	tenant_collect(tenant);
	pthread_mutex_unlock(&tenants->lock);
}

/* --- holders and blocks ----------------------------------------------------------------------- */

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

struct tenant *tenants_hold_restored(struct tenants *tenants, uint32_t owner)
{
	struct tenant *tenant;

	pthread_mutex_lock(&tenants->lock);
	tenant = tenants->by_owner[owner];
	tenant->holders++;
	pthread_mutex_unlock(&tenants->lock);
	return tenant;
}

void tenants_unhold(struct tenants *tenants, struct tenant *tenant)
{
	pthread_mutex_lock(&tenants->lock);
	tenant->holders--;
	tenant_collect(tenant);
	pthread_mutex_unlock(&tenants->lock);
}

void tenants_collect(struct tenants *tenants, uint32_t owner)
{
	pthread_mutex_lock(&tenants->lock);
	if (owner && owner < HP_TENANTS_MAX && tenants->by_owner[owner])
		tenant_collect(tenants->by_owner[owner]);
	pthread_mutex_unlock(&tenants->lock);
}

/* --- looking ---------------------------------------------------------------------------------- */

uint32_t tenants_sessions_max(struct tenants *tenants, uid_t uid)
{
	const struct tenant *tenant;
	uint32_t max;

	pthread_mutex_lock(&tenants->lock);
	tenant = find_user(tenants, uid);
	max = tenant ? tenant->sessions_max : tenants->default_sessions;
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

void tenant_get_record(const struct tenant *tenant, struct tenant_record *ret)
{
	struct pool *pool = tenant->tenants->pool;

	*ret = (struct tenant_record){
		.owner = tenant->owner,
		.origin = tenant->origin,
		.state = tenant->state,
		.uid = tenant->uid,
		.has_uid = tenant->has_uid,
		.any_user = tenant->any_user,
		.sessions_max = tenant->sessions_max,
		.set_zones = tenant->set_zones,
	};
	snprintf(ret->name, sizeof(ret->name), "%s", tenant->name);
	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		ret->quota[i] = tenant_quota(tenant, pool_zone(pool, i));
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
	if (account.held_blocks <= account.limit_blocks && tenant_is_live(tenant)) {
		ret->leasable_pages = own.leasable_pages;
		ret->largest_pages = own.largest_pages;
	}
	ret->limit_blocks = min_u32(account.limit_blocks, zone->nr_blocks);
	ret->guarantee_blocks = account.guarantee_blocks;
	ret->held_blocks = account.held_blocks;
	ret->limit_pages = (uint64_t)ret->limit_blocks * zone->block_pages;
}

/* --- life ------------------------------------------------------------------------------------- */

static void take_defaults(struct tenants *tenants, const struct config *config)
{
	tenants->policy = config->policy;
	tenants->default_sessions = config->defaults.sessions;
	for (size_t i = 0; i < config->nr_zones; i++)
		tenants->defaults[i] =
			(struct tenant_quota){config->defaults.quota[i].limit_blocks, 0};
}

/* Where nothing was given for a zone, what is built in is in the defaults by now. */
int tenant_add_configured(struct tenants *tenants, const struct config *config,
			  const struct config_tenant *own, uint32_t owner)
{
	struct tenant *tenant = tenant_new(tenants, TENANT_OF_CONFIG, own->name);
	struct tenant_quota quota[HP_ZONES_MAX] = {{0, 0}};
	int rc;

	if (!tenant)
		return -ENOMEM;
	tenant->owner = owner;
	tenant->has_uid = own->has_uid;
	if (own->has_uid)
		tenant->uid = own->uid;
	tenant->any_user = true;
	tenant->sessions_max = own->sessions;
	for (size_t i = 0; i < config->nr_zones; i++)
		quota[i] = own->quota[i].given
				   ? (struct tenant_quota){own->quota[i].limit_blocks,
							   own->quota[i].guarantee_blocks}
				   : tenants->defaults[i];
	rc = tenant_add(tenant, quota);
	if (rc)
		free(tenant);
	return rc > 0 ? -ENOSPC : rc;
}

/* Restored already? */
static bool is_there(struct tenants *tenants, const struct config_tenant *own)
{
	struct tenant *tenant = tenants_find_name(tenants, own->name, strlen(own->name));

	return tenant && tenant->origin == TENANT_OF_CONFIG;
}

int tenants_new(struct tenants **ret, const struct config *config, struct pool *pool)
{
	struct tenants *tenants = calloc(1, sizeof(*tenants));
	int rc = 0;

	if (!tenants)
		return -ENOMEM;
	pthread_mutex_init(&tenants->lock, NULL);
	tenants->pool = pool;
	take_defaults(tenants, config);
	if (state_is_adopted(pool_state(pool)))
		rc = tenant_record_restore(tenants, config);
	for (size_t i = 0; i < config->nr_tenants && !rc; i++)
		if (!is_there(tenants, &config->tenants[i]))
			rc = tenant_add_configured(tenants, config, &config->tenants[i], 0);
	if (!rc && state_is_adopted(pool_state(pool)))
		tenant_record_restore_quotas(tenants);
	if (rc) {
		tenants_free(tenants);
		return rc;
	}
	*ret = tenants;
	return 0;
}

void tenants_on_empty(struct tenants *tenants, tenants_empty_fn fn, void *userdata)
{
	pthread_mutex_lock(&tenants->lock);
	tenants->on_empty = fn;
	tenants->userdata = userdata;
	pthread_mutex_unlock(&tenants->lock);
}

struct tenants *tenants_free(struct tenants *tenants)
{
	struct kept_name *next;

	if (!tenants)
		return NULL;
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++)
		free(tenants->by_owner[owner]);
	for (struct kept_name *name = tenants->names; name; name = next) {
		next = name->next;
		free(name);
	}
	pthread_mutex_destroy(&tenants->lock);
	free(tenants);
	return NULL;
}
