/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of shares have in common: the table, and what is written down of it. */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "daemon/pool/state.h"
#include "daemon/tenancy/share.h"

/* Numbers are part of the state file's format. */
enum share_state { SHARE_FREE = 0, SHARE_OPEN = 1, SHARE_RECYCLING = 2, SHARE_STATES };

struct attachment {
	uint32_t share; /* index */
	bool held;	/* it is one */
	bool read_only;
	bool publisher; /* the first one of its share */
	struct slot *slot;
	LIST_ENTRY(attachment) of_share; /* share->attachments */
	LIST_ENTRY(attachment) of_slot;	 /* shares->of_slot[], or shares->free */
};
LIST_HEAD(attachment_list, attachment);

struct share {
	enum share_state state;
	struct tenant *tenant; /* held; NULL: free, or of a number whose record was lost */
	uint32_t zone;
	uid_t publisher; /* of its process: is always permitted */

	bool published;
	bool read_only;	  /* nobody may attach to write */
	uint32_t nr_uids; /* permitted; 0: everybody */
	uint32_t uids[HP_SHARE_UIDS_MAX];
	uint32_t name_bytes;
	uint8_t name[HP_NAME_MAX];

	struct hp_range range; /* no pages: not granted yet */
	uint64_t granted_ms;   /* or taken over */
	struct attachment_list attachments;
	uint32_t nr_attachments, nr_readers;
};

struct shares {
	pthread_mutex_t lock;
	struct pool *pool;
	struct tenants *tenants;
	uint32_t used_shares, used_attachments; /* those behind were never in use */
	_Atomic uint32_t count[HP_TENANTS_MAX]; /* shares charged to a tenant */
	uint32_t attached[HP_TENANTS_MAX];	/* attachments of a tenant's sessions */
	struct attachment_list free;
	struct attachment_list of_slot[HP_SLOTS_MAX + 1];
	struct share share[HP_SHARES_MAX];
	struct attachment attachment[HP_ATTACHMENTS_MAX];
};

static inline uint32_t share_index(const struct shares *shares, const struct share *share)
{
	return (uint32_t)(share - shares->share);
}

static inline uint32_t share_slot(const struct shares *shares, const struct share *share)
{
	return SHARE_SLOT_FIRST + share_index(shares, share);
}

static inline uint32_t share_owner(const struct shares *shares, const struct share *share)
{
	return SHARE_OWNER_FIRST + share_index(shares, share);
}

static inline struct hp_zone *share_zone(struct shares *shares, const struct share *share)
{
	return pool_zone(shares->pool, share->zone)->zone;
}

/* --- share.c: under the lock ------------------------------------------------------------------ */

/* The attachment of this slot that begins there, or NULL. */
struct attachment *share_find_attached(struct shares *shares, const struct slot *slot,
				       uint8_t zone_id, hp_pfn_t pfn);

/* One that is held, by its fields. */
void share_link_attachment(struct shares *shares, struct attachment *attachment);

/* The slot has more to lose now, or less. */
void share_note_in_slot(struct shares *shares, struct slot *slot, const struct hp_range *range,
			bool more);

/* Nobody is attached any more. Return: the tenant to let go of outside of the lock, or NULL. */
struct tenant *share_end(struct shares *shares, struct share *share);

/* --- share-record.c: what is written down ------------------------------------------------------ */

/* The fields, then the state that it has. */
void share_record_begin(struct shares *shares, const struct share *share);
void share_record_set_state(struct shares *shares, const struct share *share);

/* Not published, while the words of its terms are written; then published. */
void share_record_set_terms(struct shares *shares, const struct share *share);

void share_record_attach(struct shares *shares, const struct attachment *attachment);
void share_record_detach(struct shares *shares, const struct attachment *attachment);
