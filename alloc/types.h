/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of the zone allocator.
 *
 * A zone is an array of pages of one size, numbered by pfn from 0. Nothing in alloc/ knows how big
 * a page is or where it lies: the allocator hands out numbers, its caller binds them to memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Index of a page in its zone. */
typedef uint32_t hp_pfn_t;

#define HP_PFN_NONE UINT32_MAX

#define HP_ZONE_MAX_PAGES (UINT32_C(1) << 24) /* pages of one zone */
#define HP_RANGE_MAX_PAGES \
	((UINT32_C(1) << 20) - 1) /* pages of one lease: 20 bits of the lease word */
#define HP_GENERATION_MAX ((UINT32_C(1) << 24) - 1) /* lease generation: 24 bits, wraps */
#define HP_BLOCK_GENERATION_MAX \
	((UINT64_C(1) << 40) - 1)	       /* block generation: 40 bits, never wraps */
#define HP_SLOT_MAX  ((UINT32_C(1) << 18) - 1) /* holder slot: 18 bits of the lease word */
#define HP_OWNER_MAX ((UINT32_C(1) << 16) - 1) /* owner: 16 bits of the block word */
#define HP_MAX_ORDER 20u		       /* largest order a zone may be configured with */
#define HP_BULK_MAX  256u		       /* ranges of one bulk call */

#define HP_OWNER_NONE 0u /* owner of a clean block: nobody */
#define HP_SLOT_NONE  0u /* no holder */

/*
 * Conditions. Functions of alloc/ return 0 on success, a negative errno for what the caller got
 * wrong about the zone itself (-EINVAL, -ENOSPC of a table), or one of these: a named condition
 * that the direct caller handles. Whenever one is returned, durable and scratch memory are byte for
 * byte as they were before the call.
 */
enum hp_condition {
	HP_OK = 0,
	HP_NO_ROOM = 1,	 /* no hole for this request within what the owner may have */
	HP_OVER_LIMIT,	 /* it would take the account over its limit of blocks */
	HP_OUT_OF_RANGE, /* pages outside the zone, or none at all */
	HP_WRONG_ZONE,	 /* the range names another zone */
	HP_NOT_LEASED,	 /* no lease begins at that page: freed twice, or never granted */
	HP_WRONG_HOLDER, /* the lease is somebody else's */
	HP_WRONG_LENGTH, /* the lease has another length */
	HP_STALE,	 /* the lease is of another generation */
	HP_REVOKED,	 /* the lease has been revoked: only hp_zone_ack() ends it */
	HP_BUSY,	 /* the block is not in the state or not as free as the call needs */
	HP_BAD_PAGE,	 /* a page failed its check; see hp_zone_set_bad_page_fn() */
};

/* A lease as its holder names it. */
struct hp_range {
	hp_pfn_t pfn;	     /* first page */
	uint32_t pages;	     /* length, 1 .. HP_RANGE_MAX_PAGES */
	uint32_t generation; /* of the lease, 24 bits */
	uint8_t zone;	     /* hp_zone_config.id */
};
