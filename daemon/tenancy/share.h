/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares: ranges that several sessions may hold at one time, each by an attachment.
 *
 * A share is made when its range is asked for. It is an owner of its own, so its blocks hold nothing
 * else, and a holder of its own: its lease word names the share's slot, not a session's. Its blocks
 * are charged to the tenant of the session that asked for it, its publisher, for as long as it lives,
 * whoever holds it by then: the limit of that tenant was asked when they were claimed, and moving
 * the charge to others could take those over theirs.
 *
 *   open        its range is being granted, or somebody is attached to it
 *   recycling   the last attachment is gone; its owner number stands in blocks that are not clean yet
 *
 * The first attachment is the publisher's. Names are unique among the shares of a tenant; whoever is
 * not permitted cannot tell a share from one that does not exist. Read-write attachments can do
 * everything to the range, also truncate it.
 *
 * Order of stores in the state file (fields of a record first, its state last): the owner's account, the share, the
 * attachment, the block words, the lease word; and back: the attachment, and with the last one the
 * lease word, the block words, the share, and its owner number once the blocks are clean.
 *
 * May be called from any thread; those with a slot by the worker of that slot's session alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/pool/pool.h"
#include "daemon/tenancy/slot.h"
#include "proto/limits.h"

/* Share i of the table is holder SHARE_SLOT_FIRST + i and owner SHARE_OWNER_FIRST + i. */
#define SHARE_SLOT_FIRST  (HP_SLOTS_MAX + 1)
#define SHARE_OWNER_FIRST HP_TENANTS_MAX
_Static_assert(HP_SLOTS_MAX + HP_SHARES_MAX <= HP_SLOT_MAX, "shares are holders");
_Static_assert(HP_OWNERS_MAX <= HP_OWNER_MAX, "shares are owners");

struct shares;

/* All are borrowed. Return: 0 or -ENOMEM. */
int shares_new(struct shares **ret, struct pool *pool, struct tenants *tenants);
struct shares *shares_free(struct shares *shares); /* NULL is fine; returns NULL */

/*
 * Before anything is served, behind slots_restore(): takes back the shares of another daemon, whom
 * they are charged to, and who is attached. What has no lease or no attachment is dropped.
 */
void shares_restore(struct shares *shares, struct slots *slots);

enum share_condition {					  /* behind those of alloc/ */
		       SHARE_TOO_MANY = HP_BAD_PAGE + 1,  /* HP_SHARES_MAX */
		       SHARE_TOO_MANY_OF_TENANT,	  /* HP_SHARES_PER_TENANT_MAX */
		       SHARE_TOO_MANY_ATTACHED,		  /* HP_ATTACHMENTS_MAX */
		       SHARE_TOO_MANY_ATTACHED_OF_TENANT, /* HP_ATTACHMENTS_PER_TENANT_MAX */
		       SHARE_UNKNOWN,	       /* nothing of that name for this session */
		       SHARE_AMBIGUOUS,	       /* several tenants have published that name for it */
		       SHARE_READ_ONLY,	       /* it may read only */
		       SHARE_ATTACHED_ALREADY, /* this session has it */
		       SHARE_NAME_TAKEN,       /* another share of the tenant has it */
		       SHARE_NOT_PUBLISHER,    /* it is attached, but has not allocated it */
};

/*
 * A share for a range that is to be granted: fills in owner, slot and flags of the request. It ends
 * by shares_granted() or shares_abandon(). Return: 0 or one of the first four.
 */
int shares_prepare(struct shares *shares, struct slot *slot, const struct pool_zone *zone,
		   struct hp_request *request);

/* The request of shares_prepare() was granted this: it is attached to the slot. */
void shares_granted(struct shares *shares, struct slot *slot, const struct hp_request *request,
		    const struct hp_range *range);

/* It was not, and will not be. */
void shares_abandon(struct shares *shares, struct slot *slot, const struct hp_request *request);

/* How the share is found, and by whom. uids: see share_record. */
struct share_terms {
	const uint8_t *name;
	size_t name_bytes; /* 1 .. HP_NAME_MAX */
	const uint32_t *uids;
	size_t nr_uids; /* at most HP_SHARE_UIDS_MAX */
	bool read_only;
};

/*
 * Publishes a range that this session allocated, or replaces its terms. Return: 0; as
 * shares_check(); SHARE_NAME_TAKEN or SHARE_NOT_PUBLISHER.
 */
int shares_publish(struct shares *shares, const struct slot *slot, const struct hp_range *range,
		   const struct share_terms *terms);

/*
 * Attaches by name. tenant: name of the publisher's, or of no bytes. Return: 0, with the range; a
 * condition from SHARE_TOO_MANY_ATTACHED to SHARE_ATTACHED_ALREADY.
 */
int shares_attach(struct shares *shares, struct slot *slot, const uint8_t *name, size_t name_bytes,
		  const uint8_t *tenant, size_t tenant_bytes, bool read_only, struct hp_range *ret);

/*
 * Is this, exactly, attached to the slot? Return: 0 or what hp_zone_free() would say of a range that
 * is not: HP_NOT_LEASED, HP_STALE, HP_WRONG_LENGTH.
 */
int shares_check(struct shares *shares, const struct slot *slot, const struct hp_range *range);

/* Ends an attachment for which shares_check() says 0; with the last one, the share. */
void shares_detach(struct shares *shares, struct slot *slot, const struct hp_range *range);

/* Ends all of them. */
void shares_end_slot(struct shares *shares, struct slot *slot);

/* Ends those that are not among these. */
void shares_keep(struct shares *shares, struct slot *slot, const struct hp_range *ranges, size_t n);

/* Of an attachment for which shares_check() says 0: may it only read? */
bool shares_is_read_only(struct shares *shares, const struct slot *slot,
			 const struct hp_range *range);

/* An owner may have lost its last block. Return: the tenant whom it concerns. */
uint32_t shares_collect(struct shares *shares, uint32_t owner);

/* --- looking ---------------------------------------------------------------------------------- */

struct share_info {
	uint32_t tenant; /* owner number */
	char name[HP_NAME_MAX + 1];
	size_t name_bytes; /* 0: not published */
	uint32_t attachments, readers;
	uint64_t age_ms; /* since it was granted */
	bool visible;	 /* to the viewer: published by it, or attached by one of its sessions */
};

/* The share of this holder's number; viewer: owner number of a tenant. False: none is in use. */
bool shares_look(struct shares *shares, uint32_t slot, uint32_t viewer, struct share_info *ret);

/* How many are charged to this tenant, and how many pages of a zone they have. */
uint32_t shares_count(struct shares *shares, uint32_t tenant);
uint64_t shares_pages(struct shares *shares, uint32_t tenant, size_t zone_id);
