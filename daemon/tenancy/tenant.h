/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: who may have what. A tenant is known to the zones as an owner number.
 *
 * The tenants of the configuration have their numbers for good. Any other uid becomes a tenant
 * "uid:N" with the quota of [default] when it first connects, and its number is used again once it
 * has no connection, no holder and no block in any zone.
 *
 * All functions may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/pool/pool.h"
#include "proto/limits.h"

struct tenants;

struct tenant {
	uint32_t owner; /* its number in every zone, 1 .. HP_TENANTS_MAX - 1 */
	uid_t uid;
	char name[HP_NAME_MAX + 1];
	bool configured;
	uint32_t sessions_max;

	/* of tenants.c, under its lock; others may look */
	_Atomic uint32_t sessions; /* connections */
	_Atomic uint32_t holders;  /* slots that name it */
};

enum tenant_condition {
	TENANT_TOO_MANY_TENANTS = 1, /* HP_TENANTS_MAX */
	TENANT_TOO_MANY_SESSIONS,    /* the tenant's `sessions` */
	TENANT_TOO_MANY_HOLDERS,     /* HP_SLOTS_PER_TENANT_MAX */
};

/* config and pool are borrowed for the life of the table. Return: 0 or -errno, the reason logged.
 */
int tenants_new(struct tenants **ret, const struct config *config, struct pool *pool);
struct tenants *tenants_free(struct tenants *tenants); /* NULL is fine; returns NULL */

/*
 * One connection more of this uid; tenants_leave() takes it off, and until then the tenant stays.
 * Return: 0; TENANT_TOO_MANY_TENANTS or TENANT_TOO_MANY_SESSIONS; -ENOMEM; -EINVAL (its quota was
 * refused).
 */
int tenants_enter(struct tenants *tenants, uid_t uid, struct tenant **ret);
void tenants_leave(struct tenants *tenants, struct tenant *tenant);

/* One holder (slot) more, or one less: a tenant that has any keeps its number. */
int tenants_hold(struct tenants *tenants, struct tenant *tenant);
void tenants_unhold(struct tenants *tenants, struct tenant *tenant);

/* The owner's blocks have changed: forgets the tenant if nothing names it any more. */
void tenants_collect(struct tenants *tenants, uint32_t owner);

/* How many connections this uid may have. */
uint32_t tenants_sessions_max(struct tenants *tenants, uid_t uid);

uint32_t tenants_count(struct tenants *tenants);

/*
 * Looks at the tenants with owner numbers from `owner` on, in order, until fn returns nonzero,
 * which is passed on. The table is locked meanwhile: fn must not call back into it.
 */
typedef int (*tenant_look_fn)(void *userdata, const struct tenant *tenant);
int tenants_look(struct tenants *tenants, uint32_t owner, tenant_look_fn fn, void *userdata);

/* What a zone has for a tenant (NULL: for nobody in particular), in pages. */
struct tenant_figures {
	uint64_t free_pages;	 /* leased by nobody */
	uint64_t leasable_pages; /* that it can get now */
	uint64_t largest_pages;	 /* longest range it can get now */
	uint64_t limit_pages;	 /* at most those of the zone */
	uint32_t limit_blocks, guarantee_blocks, held_blocks;
};
void tenant_get_figures(const struct tenant *tenant, const struct pool_zone *zone,
			struct tenant_figures *ret);
