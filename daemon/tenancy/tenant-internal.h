/* SPDX-License-Identifier: Apache-2.0 */
/* What tenant.c and tenant-change.c share. All under the lock of the table. */
#pragma once

#include <pthread.h>

#include "daemon/tenancy/tenant.h"

struct kept_name;

struct tenants {
	pthread_mutex_t lock;
	struct pool *pool;
	enum config_policy policy;
	uint32_t default_sessions;
	struct tenant_quota defaults[HP_ZONES_MAX]; /* per zone of the pool */
	uint32_t count, made;			    /* made: of that origin */
	uint64_t last_session;			 /* number in the name of a connection's tenant */
	struct tenant *by_owner[HP_TENANTS_MAX]; /* [0] is nobody */
	struct kept_name *names;		 /* that tenants were given later */
	tenants_empty_fn on_empty;
	void *userdata;
};

/* Not in the table yet, without a number. Return: NULL: no memory. */
struct tenant *tenant_new(struct tenants *tenants, enum tenant_origin origin, const char *name);

/*
 * Gives it a number, unless it has one of which there is a record, and this quota, and puts it into the
 * table. Return: 0; TENANT_TOO_MANY_TENANTS; -EINVAL: logged.
 */
int tenant_add(struct tenant *tenant, const struct tenant_quota quota[HP_ZONES_MAX]);

/* Forgets it if nothing names it. */
void tenant_collect(struct tenant *tenant);

/* Of this name, whatever its state; NULL: none. */
struct tenant *tenants_find_name(struct tenants *tenants, const char *name, size_t name_bytes);

/* Of whoever is not named; NULL: none. */
struct tenant *tenants_find_uid(struct tenants *tenants, uid_t uid, enum tenant_origin origin);

void tenant_set_state(struct tenant *tenant, enum tenant_state state);

/* The quota that the zone knows. */
struct tenant_quota tenant_quota(const struct tenant *tenant, const struct pool_zone *zone);

/* Sets it, and notes whether it holds more than that. Return: as hp_zone_account_set_quota(). */
int tenant_set_quota(struct tenant *tenant, const struct pool_zone *zone,
		     struct tenant_quota quota);

/* A name that stays as long as the table. Return: NULL: no memory. */
const char *tenants_keep_name(struct tenants *tenants, const char *name);

/* --- what outlives the daemon (tenant-record.c) ------------------------------------------------ */

/* Before anything names the number. */
void tenant_record_begin(const struct tenant *tenant);

/* When nothing names it any more. */
void tenant_record_end(const struct tenant *tenant);

/* What an admin has changed: state, quota, sessions. */
void tenant_record_update(const struct tenant *tenant);

/* Takes back the tenants of another daemon, as the configuration has them now. Return: 0 or -errno. */
int tenant_record_restore(struct tenants *tenants, const struct config *config);

/* When all tenants are there: what an admin has set, where it still fits, otherwise it is logged. */
void tenant_record_restore_quotas(struct tenants *tenants);

/* One of the configuration, with this number (0: a free one). Return: as tenant_add(), or -ENOMEM. */
int tenant_add_configured(struct tenants *tenants, const struct config *config,
			  const struct config_tenant *own, uint32_t owner);
