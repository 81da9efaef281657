/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: who holds what, since when. The truth are the zones' lease words; beside them there is
 * one number a page, when the lease that begins there was granted, and in each slot what it holds
 * in all. No record per lease.
 *
 * leases_* with a slot are called by the worker of that slot's session alone; leases_age_ms() from
 * any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/pool/pool.h"
#include "daemon/tenancy/cache.h"
#include "daemon/tenancy/notice.h"
#include "daemon/tenancy/share.h"
#include "daemon/tenancy/slot.h"
#include "daemon/tenancy/wait.h"

struct leases;

/* All are borrowed; those who wait are told what comes back. Return: 0 or -ENOMEM. */
int leases_new(struct leases **ret, struct pool *pool, struct slots *slots, struct waits *waits,
	       struct shares *shares);
struct leases *leases_free(struct leases *leases); /* NULL is fine; returns NULL */

/*
 * Grants n ranges (1 .. HP_RANGES_MAX) or none; owner and slot of the request are filled in here.
 * caches: the worker's. With HP_ALLOC_SHARED it is one range, and a share that the slot is attached
 * to. Return: as hp_zone_alloc_bulk(), or as shares_prepare().
 */
int leases_grant(struct leases *leases, struct caches *caches, struct slot *slot,
		 struct pool_zone *zone, struct hp_request *request, struct hp_grant *ret,
		 size_t n);

/*
 * What was granted while it waited, to a slot whose worker has fetched it: from now on its lease, by
 * the name it has afterwards.
 */
void leases_adopt(struct leases *leases, struct slot *slot, const struct pool_zone *zone,
		  struct hp_grant *grants, size_t n);

/*
 * Frees n leases of one zone or, if one of them is wrong, none; ret_bad tells which. Return: as
 * hp_zone_free_bulk(); HP_OUT_OF_RANGE also for a zone that does not exist.
 */
int leases_return(struct leases *leases, struct caches *caches, struct slot *slot,
		  const struct hp_range *ranges, size_t n, size_t *ret_bad);

/*
 * Is every one of them, each in its own zone, a lease of this slot, or one that was taken from it
 * and not acknowledged, and none named twice? A moment later any of them may have been taken, and
 * nothing else has changed. Return: 0 or, with ret_bad, as hp_zone_free().
 */
int leases_check(const struct leases *leases, const struct slot *slot,
		 const struct hp_range *ranges, size_t n, size_t *ret_bad);

/* As hp_zone_free_part(). */
int leases_return_part(struct leases *leases, struct caches *caches, struct slot *slot,
		       const struct hp_range *range, uint32_t offset, uint32_t pages,
		       struct hp_range *ret_kept, unsigned *ret_nr_kept);

/*
 * What each slot holds in all, after slots_restore(), from the words. Before anything is served; ages
 * begin anew.
 */
void leases_restore(struct leases *leases);

/* What a slot holds, in order of zone and page, for free(). Return: 0 or -ENOMEM. */
int leases_list(struct leases *leases, const struct slot *slot, struct hp_range **ret,
		size_t *ret_n);

/*
 * Frees whatever a slot holds that is not among these ranges: sorted by zone and page, not overlapping,
 * each a lease or a part of one. What is no part of any lease is passed over. One commit for each lease;
 * may be repeated. Return: 0 or -ENOMEM; then some may be freed, and none that is listed.
 */
int leases_keep(struct leases *leases, struct slot *slot, const struct hp_range *ranges, size_t n);

/*
 * What was posted to the slot: the sums are brought up to date, then fn (or nobody, if NULL) is
 * called, in the order of what happened. Those about leases that are over by now are left out.
 */
typedef void (*leases_notice_fn)(void *userdata, const struct notice *notice);
void leases_take_notices(struct leases *leases, struct slot *slot, leases_notice_fn fn,
			 void *userdata);

/* Was this lease taken, and not acknowledged? Of what leases_take_notices() has taken off. */
bool leases_is_revoked(const struct slot *slot, const struct hp_range *name);

/*
 * The holder has let go of a lease that was taken: what is left of it is free. fn is called for
 * each part of that. Return: 0; HP_NOT_LEASED if it was not taken, or acknowledged before; HP_BUSY:
 * one more part of it has been taken, take the notices off and say it again.
 */
typedef void (*leases_part_fn)(void *userdata, const struct hp_range *part);
int leases_ack(struct leases *leases, struct slot *slot, const struct hp_range *name,
	       leases_part_fn fn, void *userdata);

/* The holder has let go of all that was taken from it. */
void leases_ack_all(struct leases *leases, struct slot *slot);

/* The end of a holder: closing, every lease freed, every attachment ended, slot free. */
void leases_end(struct leases *leases, struct slot *slot);

/* How long ago the lease that begins at this page was granted, to the second. */
uint64_t leases_age_ms(const struct leases *leases, size_t zone_id, hp_pfn_t pfn);
