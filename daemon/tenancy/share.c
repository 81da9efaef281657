/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of shares and one of attachments, under one lock: sharing is set up and taken down, it
 * is not done per request. Every change of a record's state goes through a function of its own, after
 * its fields. Links and ranges beside the records can be made anew from them and the lease words.
 *
 * The zone counts references of pages as attachments come and go; whether one was the last is decided
 * here, by counting attachments, because a revocation takes the pages' counts with it.
 *
 * Tenants are held and let go of outside of the lock: whoever lists tenants looks in here under
 * theirs.
 */
#include "daemon/tenancy/share.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/log.h"
#include "daemon/tenancy/clock.h"

struct attachment {
	struct attachment_record record;
	struct slot *slot;
	LIST_ENTRY(attachment) of_share; /* share->attachments */
	LIST_ENTRY(attachment) of_slot;	 /* shares->of_slot[], or shares->free */
};
LIST_HEAD(attachment_list, attachment);

struct share {
	struct share_record record;
	struct tenant *tenant; /* held, unless free */
	struct hp_range range; /* no pages: not granted yet */
	uint64_t granted_ms;
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

int shares_new(struct shares **ret, struct pool *pool, struct tenants *tenants)
{
	struct shares *shares = calloc(1, sizeof(*shares));

	if (!shares)
		return -ENOMEM;
	pthread_mutex_init(&shares->lock, NULL);
	shares->pool = pool;
	shares->tenants = tenants;
	*ret = shares;
	return 0;
}

struct shares *shares_free(struct shares *shares)
{
	if (!shares)
		return NULL;
	pthread_mutex_destroy(&shares->lock);
	free(shares);
	return NULL;
}

/* --- records: under the lock ------------------------------------------------------------------ */

static const uint8_t transitions[SHARE_STATES] = {
	[SHARE_FREE] = 1 << SHARE_OPEN,
	[SHARE_OPEN] = 1 << SHARE_RECYCLING,
	[SHARE_RECYCLING] = 1 << SHARE_FREE,
};

static void set_share_state(struct share *share, enum share_state state)
{
	assert(transitions[share->record.state] & 1 << state);
	atomic_store_explicit(&share->record.state, state, memory_order_release);
}

static void set_attachment_state(struct attachment *attachment, enum attachment_state state)
{
	assert(attachment->record.state != state);
	atomic_store_explicit(&attachment->record.state, state, memory_order_release);
}

/* Terms of a share that is open. While they are written, it is not published. */
static void set_terms(struct share *share, const struct share_terms *terms)
{
	struct share_record *record = &share->record;

	__atomic_store_n(&record->published, 0, __ATOMIC_RELEASE);
	record->read_only = terms->read_only;
	record->nr_uids = (uint32_t)terms->nr_uids;
	if (terms->nr_uids)
		memcpy(record->uids, terms->uids, terms->nr_uids * sizeof(record->uids[0]));
	record->name_bytes = (uint32_t)terms->name_bytes;
	memcpy(record->name, terms->name, terms->name_bytes);
	__atomic_store_n(&record->published, 1, __ATOMIC_RELEASE);
}

static uint32_t share_index(const struct shares *shares, const struct share *share)
{
	return (uint32_t)(share - shares->share);
}

static uint32_t share_slot(const struct shares *shares, const struct share *share)
{
	return SHARE_SLOT_FIRST + share_index(shares, share);
}

static uint32_t share_owner(const struct shares *shares, const struct share *share)
{
	return SHARE_OWNER_FIRST + share_index(shares, share);
}

static struct hp_zone *share_zone(struct shares *shares, const struct share *share)
{
	return pool_zone(shares->pool, share->record.zone)->zone;
}

static struct share *share_of_slot(struct shares *shares, uint32_t slot)
{
	assert(slot >= SHARE_SLOT_FIRST && slot - SHARE_SLOT_FIRST < HP_SHARES_MAX);
	return &shares->share[slot - SHARE_SLOT_FIRST];
}

static struct share *share_of(struct shares *shares, const struct attachment *attachment)
{
	return &shares->share[attachment->record.share];
}

static struct share *find_free_share(struct shares *shares)
{
	for (uint32_t i = 0; i < shares->used_shares; i++)
		if (shares->share[i].record.state == SHARE_FREE)
			return &shares->share[i];
	return shares->used_shares < HP_SHARES_MAX ? &shares->share[shares->used_shares++] : NULL;
}

/* Return: 0 or a condition; there is room for one more then. */
static int check_room(const struct shares *shares, const struct slot *slot)
{
	if (shares->attached[slot->tenant->owner] >= HP_ATTACHMENTS_PER_TENANT_MAX)
		return SHARE_TOO_MANY_ATTACHED_OF_TENANT;
	if (LIST_EMPTY(&shares->free) && shares->used_attachments == HP_ATTACHMENTS_MAX)
		return SHARE_TOO_MANY_ATTACHED;
	return 0;
}

static void attach(struct shares *shares, struct share *share, struct slot *slot, bool read_only,
		   bool publisher)
{
	struct attachment *attachment = LIST_FIRST(&shares->free);

	if (attachment)
		LIST_REMOVE(attachment, of_slot);
	else
		attachment = &shares->attachment[shares->used_attachments++];
	attachment->slot = slot;
	attachment->record.share = share_index(shares, share);
	attachment->record.slot = slot->number;
	attachment->record.read_only = read_only;
	attachment->record.publisher = publisher;
	set_attachment_state(attachment, ATTACHMENT_HELD);
	LIST_INSERT_HEAD(&share->attachments, attachment, of_share);
	LIST_INSERT_HEAD(&shares->of_slot[slot->number], attachment, of_slot);
	shares->attached[slot->tenant->owner]++;
	share->nr_attachments++;
	share->nr_readers += read_only;
}

/* The other way round; the references of pages are the caller's business. */
static void unlink_attachment(struct shares *shares, struct attachment *attachment)
{
	struct share *share = share_of(shares, attachment);

	set_attachment_state(attachment, ATTACHMENT_FREE);
	LIST_REMOVE(attachment, of_share);
	LIST_REMOVE(attachment, of_slot);
	LIST_INSERT_HEAD(&shares->free, attachment, of_slot);
	shares->attached[attachment->slot->tenant->owner]--;
	share->nr_attachments--;
	share->nr_readers -= attachment->record.read_only;
}

/* The publisher's one, of a share that was not granted yet. */
static struct attachment *only_attachment(struct share *share)
{
	assert(share->nr_attachments == 1);
	return LIST_FIRST(&share->attachments);
}

static void note_in_slot(struct shares *shares, struct slot *slot, const struct hp_range *range,
			 bool more)
{
	uint64_t bytes = range->pages * pool_zone(shares->pool, range->zone)->page_bytes;

	/* Written by the slot's worker alone, as its sums of leases are. */
	slot->leases = slot->leases + (more ? 1 : -UINT64_C(1));
	slot->attached_bytes = slot->attached_bytes + (more ? bytes : -bytes);
}

/* --- the end of a share: under the lock ------------------------------------------------------- */

/* Its number is free once no block names it. Return: the tenant to let go of, or NULL. */
static struct tenant *try_free(struct shares *shares, struct share *share)
{
	struct tenant *tenant = share->tenant;

	if (share->record.state != SHARE_RECYCLING ||
	    hp_zone_owner_blocks(share_zone(shares, share), share_owner(shares, share)))
		return NULL;
	share->tenant = NULL;
	share->range.pages = 0;
	shares->count[tenant->owner]--;
	set_share_state(share, SHARE_FREE);
	return tenant;
}

/* Nobody else has a page in these blocks: they are taken out of use now. */
static void isolate_blocks(struct shares *shares, const struct share *share)
{
	const struct pool_zone *zone = pool_zone(shares->pool, share->record.zone);
	uint32_t last = (share->range.pfn + share->range.pages - 1) / zone->block_pages;

	for (uint32_t b = share->range.pfn / zone->block_pages; b <= last; b++) {
		int rc = 0;

		/* Whoever was faster (the keeper, a revocation) has done it already. */
		if (hp_zone_block_word(zone->zone, b).owner == share_owner(shares, share))
			rc = hp_zone_isolate(zone->zone, b);
		if (rc && hp_zone_block_word(zone->zone, b).state == HP_BLOCK_LIVE)
			log_error(
				"block of a share cannot be isolated zone=%s block=%u condition=%d",
				zone->name, b, rc);
	}
}

static void free_lease(struct shares *shares, struct share *share)
{
	struct hp_zone *zone = share_zone(shares, share);
	uint32_t slot = share_slot(shares, share);
	uint64_t pages;
	int rc = hp_zone_free_contig(zone, NULL, slot, share->range.pfn, share->range.pages);

	if (rc && rc != HP_BAD_PAGE) /* blocks of it were revoked: whatever is left */
		rc = hp_zone_free_slot(zone, NULL, slot, &pages);
	if (rc)
		log_error("bad pages kept out tenant=%s share=%u", share->tenant->name, slot);
}

/* Return: the tenant to let go of, or NULL. */
static struct tenant *detach(struct shares *shares, struct attachment *attachment)
{
	struct share *share = share_of(shares, attachment);
	const struct hp_range *range = &share->range;

	unlink_attachment(shares, attachment);
	if (share->nr_attachments) {
		/* A revocation may have taken the references with the pages. */
		(void)hp_zone_free_contig(share_zone(shares, share), NULL,
					  share_slot(shares, share), range->pfn, range->pages);
		return NULL;
	}
	free_lease(shares, share);
	isolate_blocks(shares, share);
	set_share_state(share, SHARE_RECYCLING);
	pool_poke(shares->pool);
	return try_free(shares, share);
}

static void let_go(struct shares *shares, struct tenant *tenant)
{
	if (tenant)
		tenants_unhold(shares->tenants, tenant);
}

/* --- making one ------------------------------------------------------------------------------- */

/* Under the lock; the tenant is held. */
static int open_share(struct shares *shares, struct slot *slot, const struct pool_zone *zone,
		      struct hp_request *request)
{
	struct tenant *tenant = slot->tenant;
	struct share *share;
	int rc = check_room(shares, slot);

	if (rc)
		return rc;
	if (shares->count[tenant->owner] >= HP_SHARES_PER_TENANT_MAX)
		return SHARE_TOO_MANY_OF_TENANT;
	share = find_free_share(shares);
	if (!share)
		return SHARE_TOO_MANY;
	request->owner = share_owner(shares, share);
	request->slot = share_slot(shares, share);
	request->flags |= HP_ALLOC_EXCLUSIVE | HP_ALLOC_SHARED;
	hp_zone_owner_set_account(zone->zone, request->owner, tenant->owner);
	share->tenant = tenant;
	share->range.pages = 0;
	share->record.tenant = tenant->owner;
	share->record.zone = zone->id;
	share->record.publisher = slot->process.uid;
	share->record.published = 0;
	share->record.name_bytes = 0;
	set_share_state(share, SHARE_OPEN);
	shares->count[tenant->owner]++;
	attach(shares, share, slot, false, true);
	return 0;
}

int shares_prepare(struct shares *shares, struct slot *slot, const struct pool_zone *zone,
		   struct hp_request *request)
{
	int rc;

	if (tenants_hold(shares->tenants, slot->tenant))
		return SHARE_TOO_MANY_OF_TENANT;
	pthread_mutex_lock(&shares->lock);
	rc = open_share(shares, slot, zone, request);
	pthread_mutex_unlock(&shares->lock);
	if (rc)
		tenants_unhold(shares->tenants, slot->tenant);
	return rc;
}

void shares_granted(struct shares *shares, struct slot *slot, const struct hp_request *request,
		    const struct hp_range *range)
{
	struct share *share;

	pthread_mutex_lock(&shares->lock);
	share = share_of_slot(shares, request->slot);
	share->range = *range;
	share->granted_ms = clock_now_ms();
	pthread_mutex_unlock(&shares->lock);
	note_in_slot(shares, slot, range, true);
}

void shares_abandon(struct shares *shares, struct slot *slot, const struct hp_request *request)
{
	struct tenant *tenant;
	struct share *share;

	pthread_mutex_lock(&shares->lock);
	share = share_of_slot(shares, request->slot);
	assert(only_attachment(share)->slot == slot);
	(void)slot;
	unlink_attachment(shares, only_attachment(share));
	set_share_state(share, SHARE_RECYCLING);
	tenant = try_free(shares, share);
	pthread_mutex_unlock(&shares->lock);
	let_go(shares, tenant);
}

/* --- publishing and attaching: under the lock ------------------------------------------------- */

static bool is_named(const struct share *share, const uint8_t *name, size_t name_bytes)
{
	return share->record.state == SHARE_OPEN && share->record.published &&
	       share->record.name_bytes == name_bytes &&
	       memcmp(share->record.name, name, name_bytes) == 0;
}

static bool permits(const struct share *share, uid_t uid)
{
	if (share->record.nr_uids == 0 || share->record.publisher == uid)
		return true;
	for (uint32_t i = 0; i < share->record.nr_uids; i++)
		if (share->record.uids[i] == uid)
			return true;
	return false;
}

static bool is_of_tenant(const struct share *share, const uint8_t *name, size_t name_bytes)
{
	const char *own = share->tenant->name;

	return strlen(own) == name_bytes && memcmp(own, name, name_bytes) == 0;
}

/* Its own tenant's if there is one, else the only one that is there for it. */
static int find_named(struct shares *shares, const struct slot *slot, const uint8_t *name,
		      size_t name_bytes, const uint8_t *tenant, size_t tenant_bytes,
		      struct share **ret)
{
	struct share *found = NULL;
	unsigned n = 0;

	for (uint32_t i = 0; i < shares->used_shares; i++) {
		struct share *share = &shares->share[i];

		if (!is_named(share, name, name_bytes) || !permits(share, slot->process.uid) ||
		    (tenant_bytes && !is_of_tenant(share, tenant, tenant_bytes)))
			continue;
		found = share;
		n++;
		if (share->tenant == slot->tenant) {
			n = 1;
			break;
		}
	}
	if (n != 1)
		return n ? SHARE_AMBIGUOUS : SHARE_UNKNOWN;
	*ret = found;
	return 0;
}

static struct attachment *find_attached(struct shares *shares, const struct slot *slot,
					uint8_t zone_id, hp_pfn_t pfn)
{
	struct attachment *attachment;

	LIST_FOREACH (attachment, &shares->of_slot[slot->number], of_slot) {
		const struct hp_range *range = &share_of(shares, attachment)->range;

		if (range->pages && range->zone == zone_id && range->pfn == pfn)
			return attachment;
	}
	return NULL;
}

static int check(struct shares *shares, const struct slot *slot, const struct hp_range *range,
		 struct attachment **ret)
{
	const struct hp_range *have;

	*ret = find_attached(shares, slot, range->zone, range->pfn);
	if (!*ret)
		return HP_NOT_LEASED;
	have = &share_of(shares, *ret)->range;
	if (have->generation != range->generation)
		return HP_STALE;
	return have->pages == range->pages ? 0 : HP_WRONG_LENGTH;
}

static bool is_taken(const struct shares *shares, const struct share *share,
		     const struct share_terms *terms)
{
	for (uint32_t i = 0; i < shares->used_shares; i++) {
		const struct share *other = &shares->share[i];

		if (other != share && is_named(other, terms->name, terms->name_bytes) &&
		    other->tenant == share->tenant)
			return true;
	}
	return false;
}

/* --- from outside ----------------------------------------------------------------------------- */

int shares_publish(struct shares *shares, const struct slot *slot, const struct hp_range *range,
		   const struct share_terms *terms)
{
	struct attachment *attachment;
	int rc;

	pthread_mutex_lock(&shares->lock);
	rc = check(shares, slot, range, &attachment);
	if (!rc && !attachment->record.publisher)
		rc = SHARE_NOT_PUBLISHER;
	if (!rc && is_taken(shares, share_of(shares, attachment), terms))
		rc = SHARE_NAME_TAKEN;
	if (!rc)
		set_terms(share_of(shares, attachment), terms);
	pthread_mutex_unlock(&shares->lock);
	return rc;
}

/* Under the lock. */
static int attach_found(struct shares *shares, struct share *share, struct slot *slot,
			bool read_only)
{
	int rc;

	if (share->record.read_only && !read_only)
		return SHARE_READ_ONLY;
	if (find_attached(shares, slot, share->range.zone, share->range.pfn))
		return SHARE_ATTACHED_ALREADY;
	rc = check_room(shares, slot);
	if (rc)
		return rc;
	/* What was revoked in part is on its way out. */
	if (hp_zone_share_get(share_zone(shares, share), share_slot(shares, share), &share->range))
		return SHARE_UNKNOWN;
	attach(shares, share, slot, read_only, false);
	return 0;
}

int shares_attach(struct shares *shares, struct slot *slot, const uint8_t *name, size_t name_bytes,
		  const uint8_t *tenant, size_t tenant_bytes, bool read_only, struct hp_range *ret)
{
	struct share *share = NULL;
	int rc;

	pthread_mutex_lock(&shares->lock);
	rc = find_named(shares, slot, name, name_bytes, tenant, tenant_bytes, &share);
	if (!rc)
		rc = attach_found(shares, share, slot, read_only);
	if (!rc)
		*ret = share->range;
	pthread_mutex_unlock(&shares->lock);
	if (!rc)
		note_in_slot(shares, slot, ret, true);
	return rc;
}

int shares_check(struct shares *shares, const struct slot *slot, const struct hp_range *range)
{
	struct attachment *attachment;
	int rc;

	pthread_mutex_lock(&shares->lock);
	rc = check(shares, slot, range, &attachment);
	pthread_mutex_unlock(&shares->lock);
	return rc;
}

void shares_detach(struct shares *shares, struct slot *slot, const struct hp_range *range)
{
	struct tenant *tenant = NULL;
	struct attachment *attachment;

	pthread_mutex_lock(&shares->lock);
	attachment = find_attached(shares, slot, range->zone, range->pfn);
	assert(attachment);
	note_in_slot(shares, slot, &share_of(shares, attachment)->range, false);
	tenant = detach(shares, attachment);
	pthread_mutex_unlock(&shares->lock);
	let_go(shares, tenant);
}

void shares_end_slot(struct shares *shares, struct slot *slot)
{
	struct attachment *attachment;
	struct tenant *tenant;

	do {
		tenant = NULL;
		pthread_mutex_lock(&shares->lock);
		attachment = LIST_FIRST(&shares->of_slot[slot->number]);
		if (attachment) {
			note_in_slot(shares, slot, &share_of(shares, attachment)->range, false);
			tenant = detach(shares, attachment);
		}
		pthread_mutex_unlock(&shares->lock);
		let_go(shares, tenant);
	} while (attachment);
}

uint32_t shares_collect(struct shares *shares, uint32_t owner)
{
	struct tenant *tenant;
	struct share *share;
	uint32_t number;

	if (owner < SHARE_OWNER_FIRST || owner >= HP_OWNERS_MAX)
		return owner;
	pthread_mutex_lock(&shares->lock);
	share = &shares->share[owner - SHARE_OWNER_FIRST];
	number = share->record.tenant;
	tenant = try_free(shares, share);
	pthread_mutex_unlock(&shares->lock);
	let_go(shares, tenant);
	return number;
}

/* --- looking ---------------------------------------------------------------------------------- */

/* Under the lock. */
static bool is_visible(const struct share *share, uint32_t viewer)
{
	const struct attachment *attachment;

	if (share->record.tenant == viewer)
		return true;
	LIST_FOREACH (attachment, &share->attachments, of_share)
		if (attachment->slot->tenant->owner == viewer)
			return true;
	return false;
}

bool shares_look(struct shares *shares, uint32_t slot, uint32_t viewer, struct share_info *ret)
{
	struct share *share;
	bool in_use;

	*ret = (struct share_info){0};
	if (slot < SHARE_SLOT_FIRST || slot - SHARE_SLOT_FIRST >= HP_SHARES_MAX)
		return false;
	pthread_mutex_lock(&shares->lock);
	share = share_of_slot(shares, slot);
	in_use = share->record.state == SHARE_OPEN;
	if (in_use) {
		ret->tenant = share->record.tenant;
		ret->attachments = share->nr_attachments;
		ret->readers = share->nr_readers;
		ret->age_ms = share->range.pages ? clock_now_ms() - share->granted_ms : 0;
		ret->visible = is_visible(share, viewer);
		ret->name_bytes = share->record.published ? share->record.name_bytes : 0;
		memcpy(ret->name, share->record.name, ret->name_bytes);
	}
	pthread_mutex_unlock(&shares->lock);
	return in_use;
}

uint32_t shares_count(struct shares *shares, uint32_t tenant)
{
	return shares->count[tenant];
}

uint64_t shares_pages(struct shares *shares, uint32_t tenant, size_t zone_id)
{
	uint64_t pages = 0;

	if (!shares->count[tenant])
		return 0;
	pthread_mutex_lock(&shares->lock);
	for (uint32_t i = 0; i < shares->used_shares; i++) {
		const struct share *share = &shares->share[i];

		if (share->record.state == SHARE_OPEN && share->record.tenant == tenant &&
		    share->record.zone == zone_id)
			pages += share->range.pages;
	}
	pthread_mutex_unlock(&shares->lock);
	return pages;
}
