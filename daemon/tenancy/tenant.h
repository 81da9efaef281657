/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: who may have what. A tenant is known to the zones as an owner number.
 *
 * There are those of the configuration, [tenant NAME], known by a uid, by a socket of their own, or
 * by both; those an admin made at run time, with a socket of their own; and whoever is not named:
 * each uid is a tenant "uid:N", or, by policy, each connection a tenant "session:N", with the quota
 * of [default]. The first two stay until the configuration or the admin takes them back; the others
 * are there while anything names them: a connection, a holder, a block in any zone. Then their
 * number is used again.
 *
 *   live      as it should be
 *   leaving   deleted, with a grace: nobody connects any more, nothing more is granted
 *   ending    its sessions are being ended; gone when nothing names it
 *
 * What an admin does is at the end, in tenant-change.c. All functions may be called from any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/pool/pool.h"
#include "proto/limits.h"

struct tenants;

enum tenant_origin {
	TENANT_OF_CONFIG,
	TENANT_MADE,	   /* by the admin */
	TENANT_OF_UID,	   /* one that is not named */
	TENANT_OF_SESSION, /* one connection of a uid that is not named */
};

enum tenant_state { TENANT_LIVE, TENANT_LEAVING, TENANT_ENDING, TENANT_STATES };

struct tenant {
	struct tenants *tenants;
	uint32_t owner;		     /* its number in every zone, 1 .. HP_TENANTS_MAX - 1 */
	const char *_Atomic name;    /* a name that was once seen stays readable */
	_Atomic uint32_t state;	     /* enum tenant_state */
	_Atomic uint32_t sessions;   /* connections */
	_Atomic uint32_t holders;    /* slots that name it */
	_Atomic uint32_t over_limit; /* zones, as bits: see tenant_is_over_limit() */
	_Atomic uint32_t sessions_max;
	_Atomic uint32_t origin; /* enum tenant_origin */

	/* of tenant.c, under its lock */
	bool has_uid;	    /* whoever connects to the daemon's socket as uid belongs to it */
	bool any_user;	    /* whoever can connect to its own socket may, otherwise only uid */
	bool pinned;	    /* by configuration or admin */
	uint32_t set_zones; /* bits: an admin has set the quota since the configuration was read */
	uid_t uid;	    /* also of one connection; (uid_t)-1: of nobody in particular */
	char own_name[HP_NAME_MAX + 1];
};

enum tenant_condition {
	TENANT_TOO_MANY_TENANTS = 1, /* HP_TENANTS_MAX */
	TENANT_TOO_MANY_SESSIONS,    /* the tenant's `sessions` */
	TENANT_TOO_MANY_HOLDERS,     /* HP_SLOTS_PER_TENANT_MAX */
	TENANT_NOT_FOR_USER,	     /* its socket is another user's */
	TENANT_LEAVES,		     /* it is not live */
};

/*
 * config is read, not kept; pool is borrowed for the life of the table. Return: 0 or -errno, the
 * reason logged.
 */
int tenants_new(struct tenants **ret, const struct config *config, struct pool *pool);
struct tenants *tenants_free(struct tenants *tenants); /* NULL is fine; returns NULL */

/* One that is leaving or ending has no session and no holder any more. With the table locked. */
typedef void (*tenants_empty_fn)(void *userdata);
void tenants_on_empty(struct tenants *tenants, tenants_empty_fn fn, void *userdata);

/*
 * One connection more: of this uid over the daemon's socket, or over the tenant's own.
 * tenants_leave() takes it off, and until then the tenant stays. Return: 0; a condition; -ENOMEM;
 * -EINVAL (its quota was refused).
 */
int tenants_enter(struct tenants *tenants, uid_t uid, struct tenant **ret);
int tenants_enter_own(struct tenants *tenants, struct tenant *tenant, uid_t uid);
void tenants_leave(struct tenants *tenants, struct tenant *tenant);

/* One connection more, of a session that it had before, which has a holder. */
void tenants_enter_again(struct tenants *tenants, struct tenant *tenant);

/* One holder (slot) more, or one less: a tenant that has any keeps its number. */
int tenants_hold(struct tenants *tenants, struct tenant *tenant);
void tenants_unhold(struct tenants *tenants, struct tenant *tenant);

/*
 * For the slots of another daemon: the same as tenants_hold(), by number and without a limit; a record
 * of it is there.
 */
struct tenant *tenants_hold_restored(struct tenants *tenants, uint32_t owner);

/* The owner's blocks have changed: forgets the tenant if nothing names it any more. */
void tenants_collect(struct tenants *tenants, uint32_t owner);

/* How many connections this uid may have over the daemon's socket. */
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

bool tenant_look_over_limit(struct tenant *tenant, const struct pool_zone *zone);

/*
 * Does it hold more than its limit, which was lowered? Then nothing more is granted, not even in
 * blocks that it has. Costs nothing while no limit is below what is held.
 */
static inline bool tenant_is_over_limit(struct tenant *tenant, const struct pool_zone *zone)
{
	return atomic_load_explicit(&tenant->over_limit, memory_order_relaxed) >> zone->id & 1 &&
	       tenant_look_over_limit(tenant, zone);
}

static inline bool tenant_is_live(const struct tenant *tenant)
{
	return tenant->state == TENANT_LIVE;
}

/* --- what has to be known again after a restart ----------------------------------------------- */

struct tenant_quota {
	uint32_t limit_blocks, guarantee_blocks;
};

/* Plain bytes. Of a tenant that was made all of it counts, of others what the admin has set. */
struct tenant_record {
	char name[HP_NAME_MAX + 1];
	uint32_t owner, origin, state; /* enum tenant_origin, enum tenant_state */
	uint32_t uid, has_uid, any_user, sessions_max;
	uint32_t set_zones;
	struct tenant_quota quota[HP_ZONES_MAX];
};

/* For a tenants_look_fn, or by whoever keeps the tenant there. */
void tenant_get_record(const struct tenant *tenant, struct tenant_record *ret);

/* --- what an admin changes (tenant-change.c) -------------------------------------------------- */

/*
 * These say no with an errno and a sentence: what was asked, what there is. -ENOENT: no such tenant;
 * -EEXIST: there is one of that name; -EINVAL; -EDQUOT: the guarantees would add up to more than the
 * zone; -EPERM: not of the kind that can be deleted; -EBUSY: it is leaving; -ENOSPC: HP_TENANTS_MAX,
 * HP_TENANTS_MADE_MAX; -ENOMEM.
 */
#define TENANT_WHY_MAX HP_MESSAGE_MAX

struct tenant_change {
	bool set_limit, set_guarantee;
	struct tenant_quota quota;
};

/* The live tenant of this name that configuration or admin have pinned. Return: NULL: none. */
struct tenant *tenants_find(struct tenants *tenants, const char *name, size_t name_bytes);

/*
 * Makes a tenant, pinned until tenants_forget(); its socket, which this user may use or anybody who
 * can connect to it, is the caller's business. change: one for each zone; what is not set is as in
 * [default].
 */
int tenants_make(struct tenants *tenants, const char *name, uid_t uid, bool any_user,
		 const struct tenant_change *change, struct tenant **ret, char why[TENANT_WHY_MAX]);

/*
 * From live to leaving: what it was guaranteed is free for others at once. Only of a tenant that was
 * made. ret: stays where it is until tenants_forget().
 */
int tenants_delete(struct tenants *tenants, const char *name, size_t name_bytes,
		   struct tenant **ret, char why[TENANT_WHY_MAX]);

/* From leaving to ending: the workers are to end its sessions. */
void tenants_end(struct tenants *tenants, struct tenant *tenant);

/* No longer pinned: it is gone once nothing else names it. Also of one just made. */
void tenants_forget(struct tenants *tenants, struct tenant *tenant);

/* Changes limit, guarantee or both in one zone. */
int tenants_set_quota(struct tenants *tenants, const char *name, size_t name_bytes,
		      const struct pool_zone *zone, const struct tenant_change *change,
		      char why[TENANT_WHY_MAX]);

/*
 * A new configuration, all of it or, with a message for each mistake, nothing. zone_of: for each
 * zone of the pool its index in config, or -1: nothing changes there. Tenants that were made stay.
 * Those that are no longer in the configuration are like any other user, until nothing names them.
 * Return: 0; -EINVAL, reported; -ENOMEM.
 */
int tenants_reload(struct tenants *tenants, const struct config *config,
		   const int zone_of[HP_ZONES_MAX], config_report_fn report, void *userdata);
