/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that gives back under the zone lock: begin; for each lease, release (or end_lease) what is
 * let go of, after all of the call's checks have passed; end. Pages are handed on as runs, joined
 * across leases.
 */
#pragma once

#include "alloc/pcp.h"

struct hp_giving {
	struct hp_zone *zone;
	struct hp_pcp *pcp; /* NULL: none, or it is busy */
	bool locked;	    /* the cache is ours: when the first chunk came that it may take */
	hp_pfn_t pfn;	    /* the run that has been let go of and not yet been handed on */
	uint32_t pages;
	uint64_t bad_before; /* bad pages of the zone when it began */
};

/* Takes the zone lock. pcp: of the caller, or NULL; used if it is of this zone and not busy. */
struct hp_giving hp_giving_begin(struct hp_zone *zone, struct hp_pcp *pcp);

/* Lets go of pages [from, to) of the lease at head: the words of the rest, then the head. */
void hp_giving_release(struct hp_giving *g, hp_pfn_t head, hp_pfn_t from, hp_pfn_t to);

/* Ends a lease or a revoked word, references or not. */
void hp_giving_end_lease(struct hp_giving *g, hp_pfn_t head);

/* A run of pages of one owner is free, by the words. */
void hp_giving_add(struct hp_giving *g, hp_pfn_t pfn, uint32_t pages);

/* Hands on the run so far, so that what comes is not joined with it. */
void hp_giving_flush(struct hp_giving *g);

/* Hands on the last run, lets go of everything; r is passed on unless a page was bad. */
int hp_giving_end(struct hp_giving *g, int r);
