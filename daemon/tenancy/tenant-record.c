/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants over restarts. What is written down is who stands behind an owner number, since block words
 * name that, and what an admin has said since; the rest the configuration tells each time. Whoever is
 * named there is found by uid, or by name where he has a socket only; whoever is not any more is like
 * any other user.
 *
 * A number whose record cannot be read but whose blocks are there stays with a tenant of nobody until
 * they are not.
 */
#include "daemon/tenancy/tenant-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/pool/state.h"

#define HAS_UID	 (UINT64_C(1) << 32)
#define ANY_USER (UINT64_C(1) << 33)

static struct state_owner *record_of(const struct tenant *tenant)
{
	return state_record(pool_state(tenant->tenants->pool), STATE_OWNERS, tenant->owner);
}

static uint64_t quota_word(struct tenant_quota quota)
{
	return (uint64_t)quota.limit_blocks << 32 | quota.guarantee_blocks;
}

static uint64_t uid_word(const struct tenant_record *record)
{
	return record->uid | (record->has_uid ? HAS_UID : 0) | (record->any_user ? ANY_USER : 0);
}

/*
 * The origin may change with the configuration, and the fixed fields may not: so it stands beside the
 * state as well, which is a word of its own.
 */
static uint64_t state_word(const struct tenant_record *record)
{
	return record->state | (uint64_t)record->origin << 32;
}

static enum tenant_state state_of(const struct state_owner *record)
{
	return (enum tenant_state)(uint32_t)hp_durable_load(&record->tenant_state);
}

static enum tenant_origin origin_of(const struct state_owner *record)
{
	return (enum tenant_origin)(hp_durable_load(&record->tenant_state) >> 32);
}

/* --- writing ---------------------------------------------------------------------------------- */

void tenant_record_begin(const struct tenant *tenant)
{
	struct tenant_record now;
	struct state_owner record = {0};

	tenant_get_record(tenant, &now);
	record.origin = now.origin;
	record.uid = uid_word(&now);
	state_put_text(record.name, STATE_NAME_WORDS, now.name);
	record.tenant_state = state_word(&now);
	record.sessions_max = now.sessions_max;
	record.set_zones = now.set_zones;
	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		record.quota[i] = quota_word(now.quota[i]);
	state_put(pool_state(tenant->tenants->pool), STATE_OWNERS, tenant->owner, &record,
		  STATE_IN_USE);
}

void tenant_record_end(const struct tenant *tenant)
{
	state_set(pool_state(tenant->tenants->pool), STATE_OWNERS, tenant->owner, STATE_FREE);
}

static void update(hp_word_t *word, uint64_t value)
{
	if (hp_durable_load(word) != value)
		hp_durable_store(word, value);
}

void tenant_record_update(const struct tenant *tenant)
{
	struct state_owner *record = record_of(tenant);
	struct tenant_record now;

	tenant_get_record(tenant, &now);
	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		update(&record->quota[i], quota_word(now.quota[i]));
	update(&record->set_zones, now.set_zones);
	update(&record->sessions_max, now.sessions_max);
	update(&record->tenant_state, state_word(&now));
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool holds_blocks(struct tenants *tenants, uint32_t owner)
{
	struct hp_account_stats stats;

	for (size_t i = 0; i < pool_nr_zones(tenants->pool); i++) {
		hp_zone_account_stats(pool_zone(tenants->pool, i)->zone, owner, &stats);
		if (stats.held_blocks)
			return true;
	}
	return false;
}

/*
 * What an admin has set since the configuration was read, as far as it goes with what the configuration
 * says by now, which wins.
 */
static void restore_quotas(struct tenant *tenant, const struct state_owner *record)
{
	tenant->set_zones = (uint32_t)hp_durable_load(&record->set_zones);
	for (size_t i = 0; i < pool_nr_zones(tenant->tenants->pool); i++) {
		const struct pool_zone *zone = pool_zone(tenant->tenants->pool, i);
		uint64_t word = hp_durable_load(&record->quota[i]);
		struct tenant_quota quota = {(uint32_t)(word >> 32), (uint32_t)word};

		if (tenant->set_zones >> i & 1 && tenant_set_quota(tenant, zone, quota))
			log_warning(
				"taking over: quota refused tenant=%s zone=%s limit=%u guarantee=%u",
				tenant->name, zone->name, quota.limit_blocks,
				quota.guarantee_blocks);
	}
}

static int add(struct tenant *tenant, uint32_t owner, const struct tenant_quota *quota)
{
	int rc;

	if (!tenant)
		return -ENOMEM;
	tenant->owner = owner;
	rc = tenant_add(tenant, quota);
	if (rc)
		free(tenant);
	return rc > 0 ? -ENOSPC : rc;
}

/* One that the admin made; what was being deleted goes on to its end. */
static int restore_made(struct tenants *tenants, uint32_t owner, const char *name,
			const struct state_owner *record)
{
	struct tenant *tenant = tenant_new(tenants, TENANT_MADE, name);
	struct tenant_quota quota[HP_ZONES_MAX];
	int rc;

	/* What was guaranteed comes last: see tenant_record_restore_quotas(). */
	for (size_t i = 0; i < HP_ZONES_MAX; i++)
		quota[i] = (struct tenant_quota){
			(uint32_t)(hp_durable_load(&record->quota[i]) >> 32), 0};
	if (tenant) {
		tenant->uid = (uid_t)record->uid;
		tenant->any_user = record->uid & ANY_USER;
		tenant->sessions_max = (uint32_t)hp_durable_load(&record->sessions_max);
		tenant->set_zones = (uint32_t)hp_durable_load(&record->set_zones);
	}
	rc = add(tenant, owner, quota);
	if (!rc && state_of(record) != TENANT_LIVE) {
		tenant_set_state(tenant, TENANT_LEAVING);
		tenant_set_state(tenant, TENANT_ENDING);
		tenant->pinned = false;
	}
	return rc;
}

static int restore_unnamed(struct tenants *tenants, uint32_t owner, enum tenant_origin origin,
			   const char *name, uid_t uid)
{
	struct tenant *tenant = tenant_new(tenants, origin, name);
	unsigned long long number;

	if (tenant) {
		tenant->uid = uid;
		tenant->has_uid = origin == TENANT_OF_UID;
		if (origin == TENANT_OF_SESSION)
			tenant->sessions_max = 1;
	}
	if (sscanf(name, "session:%llu", &number) == 1 && number > tenants->last_session)
		tenants->last_session = number;
	return add(tenant, owner, tenants->defaults);
}

static const struct config_tenant *find_own(const struct config *config, const char *name,
					    const struct state_owner *record)
{
	for (size_t i = 0; i < config->nr_tenants; i++) {
		const struct config_tenant *own = &config->tenants[i];

		if ((own->has_uid && record->uid & HAS_UID && own->uid == (uid_t)record->uid) ||
		    ((origin_of(record) == TENANT_OF_CONFIG || origin_of(record) == TENANT_MADE) &&
		     strcmp(own->name, name) == 0))
			return own;
	}
	return NULL;
}

static int restore_record(struct tenants *tenants, const struct config *config, uint32_t owner,
			  const struct state_owner *record)
{
	uid_t uid = (uid_t)record->uid;
	char name[8 * STATE_NAME_WORDS], by_uid[HP_NAME_MAX + 1];
	const struct config_tenant *own;

	state_get_text(name, record->name, STATE_NAME_WORDS);
	name[HP_NAME_MAX] = '\0';
	if (origin_of(record) == TENANT_OF_SESSION)
		return restore_unnamed(tenants, owner, TENANT_OF_SESSION, name, uid);
	own = find_own(config, name, record);
	if (own)
		return tenant_add_configured(tenants, config, own, owner);
	if (origin_of(record) == TENANT_MADE)
		return restore_made(tenants, owner, name, record);
	if (!(record->uid & HAS_UID))
		return restore_unnamed(tenants, owner, TENANT_OF_SESSION, name, uid);
	snprintf(by_uid, sizeof(by_uid), "uid:%u", (unsigned)uid);
	return restore_unnamed(tenants, owner, TENANT_OF_UID, by_uid, uid);
}

/* Return: 0, also if there is none; -errno. */
static int restore(struct tenants *tenants, const struct config *config, uint32_t owner)
{
	struct state *state = pool_state(tenants->pool);
	const struct state_owner *record = state_record(state, STATE_OWNERS, owner);
	uint32_t found = STATE_FREE;
	char name[HP_NAME_MAX + 1];
	int rc = state_get(state, STATE_OWNERS, owner, &found);

	if (rc == 0 && found == STATE_IN_USE) {
		return restore_record(tenants, config, owner, record);
	}
	if (rc == 0 && found == STATE_FREE && !holds_blocks(tenants, owner))
		return 0;
	log_warning("taking over: record of a tenant is damaged owner=%u", owner);
	state_set(state, STATE_OWNERS, owner, STATE_FREE);
	if (!holds_blocks(tenants, owner))
		return 0;
	state_put(state, STATE_OWNERS, owner,
		  &(struct state_owner){.origin = TENANT_OF_SESSION,
					.uid = (uid_t)-1,
					.tenant_state = (uint64_t)TENANT_OF_SESSION << 32},
		  STATE_IN_USE);
	snprintf(name, sizeof(name), "lost:%u", owner);
	return restore_unnamed(tenants, owner, TENANT_OF_SESSION, name, (uid_t)-1);
}

int tenant_record_restore(struct tenants *tenants, const struct config *config)
{
	int rc = 0;

	for (uint32_t owner = 1; owner < HP_TENANTS_MAX && !rc; owner++) {
		const struct tenant *tenant;

		rc = restore(tenants, config, owner);
		tenant = tenants->by_owner[owner];
		if (rc || !tenant)
			continue;
		if (tenant_is_live(tenant))
			pool_owner_idle(tenants->pool, owner, true);
		else
			pool_owner_gone(tenants->pool, owner);
	}
	return rc;
}

void tenant_record_restore_quotas(struct tenants *tenants)
{
	for (uint32_t owner = 1; owner < HP_TENANTS_MAX; owner++) {
		struct tenant *tenant = tenants->by_owner[owner];

		if (!tenant || !tenant_is_live(tenant))
			continue;
		restore_quotas(tenant, record_of(tenant));
		tenant_record_update(tenant);
	}
}
