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
#include "daemon/tenancy/share-internal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/tenancy/clock.h"

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

static void set_share_state(struct shares *shares, struct share *share, enum share_state state)
{
	assert(transitions[share->state] & 1 << state);
	share->state = state;
	if (state == SHARE_OPEN)
		share_record_begin(shares, share);
	else
		share_record_set_state(shares, share);
}

static void set_terms(struct shares *shares, struct share *share, const struct share_terms *terms)
{
	share->published = true;
	share->read_only = terms->read_only;
	share->nr_uids = (uint32_t)terms->nr_uids;
	if (terms->nr_uids)
		memcpy(share->uids, terms->uids, terms->nr_uids * sizeof(share->uids[0]));
	share->name_bytes = (uint32_t)terms->name_bytes;
	memcpy(share->name, terms->name, terms->name_bytes);
	share_record_set_terms(shares, share);
}

static struct share *share_of_slot(struct shares *shares, uint32_t slot)
{
	assert(slot >= SHARE_SLOT_FIRST && slot - SHARE_SLOT_FIRST < HP_SHARES_MAX);
	return &shares->share[slot - SHARE_SLOT_FIRST];
}

static struct share *share_of(struct shares *shares, const struct attachment *attachment)
{
	return &shares->share[attachment->share];
}

static struct share *find_free_share(struct shares *shares)
{
	for (uint32_t i = 0; i < shares->used_shares; i++)
		if (shares->share[i].state == SHARE_FREE)
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

void share_link_attachment(struct shares *shares, struct attachment *attachment)
{
	struct share *share = share_of(shares, attachment);

	LIST_INSERT_HEAD(&share->attachments, attachment, of_share);
	LIST_INSERT_HEAD(&shares->of_slot[attachment->slot->number], attachment, of_slot);
	shares->attached[attachment->slot->tenant->owner]++;
	share->nr_attachments++;
	share->nr_readers += attachment->read_only;
}

static void attach(struct shares *shares, struct share *share, struct slot *slot, bool read_only,
		   bool publisher)
{
	struct attachment *attachment = LIST_FIRST(&shares->free);

	if (attachment)
		LIST_REMOVE(attachment, of_slot);
	else
		attachment = &shares->attachment[shares->used_attachments++];
	attachment->share = share_index(shares, share);
	attachment->slot = slot;
	attachment->read_only = read_only;
	attachment->publisher = publisher;
	attachment->held = true;
	share_record_attach(shares, attachment);
	share_link_attachment(shares, attachment);
}

/* The other way round; the references of pages are the caller's business. */
static void unlink_attachment(struct shares *shares, struct attachment *attachment)
{
	struct share *share = share_of(shares, attachment);

	attachment->held = false;
	share_record_detach(shares, attachment);
	LIST_REMOVE(attachment, of_share);
	LIST_REMOVE(attachment, of_slot);
	LIST_INSERT_HEAD(&shares->free, attachment, of_slot);
	shares->attached[attachment->slot->tenant->owner]--;
	share->nr_attachments--;
	share->nr_readers -= attachment->read_only;
}

/* The publisher's one, of a share that was not granted yet. */
static struct attachment *only_attachment(struct share *share)
{
	assert(share->nr_attachments == 1);
	return LIST_FIRST(&share->attachments);
}

void share_note_in_slot(struct shares *shares, struct slot *slot, const struct hp_range *range,
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

	if (share->state != SHARE_RECYCLING ||
	    hp_zone_owner_blocks(share_zone(shares, share), share_owner(shares, share)))
		return NULL;
	share->tenant = NULL;
	share->range.pages = 0;
	if (tenant)
		shares->count[tenant->owner]--;
	set_share_state(shares, share, SHARE_FREE);
	return tenant;
}

/* Nobody has a page in its blocks any more: they are taken out of use. */
static void isolate_blocks(struct shares *shares, const struct share *share)
{
	struct pool_zone *zone = pool_zone(shares->pool, share->zone);
	uint32_t owner = share_owner(shares, share);

	for (uint32_t b = 0; b < hp_zone_nr_blocks(zone->zone); b++) {
		struct hp_block_word word = hp_zone_block_word(zone->zone, b);
		int rc = 0;

		/*
		 * Sessions that have it mapped from a break in between are told. Where the pool has
		 * the block in hand it sees by its word that it is out of use.
		 */
		if (word.owner != owner || word.state != HP_BLOCK_LIVE)
			continue;
		rc = pool_take_block(zone, b, NULL, NULL);
		if (rc)
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
	int rc = HP_NOT_LEASED;
	uint64_t pages;

	if (share->range.pages)
		rc = hp_zone_free_contig(zone, NULL, slot, share->range.pfn, share->range.pages);
	if (rc && rc != HP_BAD_PAGE) /* blocks of it were revoked: whatever is left */
		rc = hp_zone_free_slot(zone, NULL, slot, &pages);
	if (rc)
		log_error("bad pages kept out zone=%s share=%u",
			  pool_zone(shares->pool, share->zone)->name, slot);
}

struct tenant *share_end(struct shares *shares, struct share *share)
{
	free_lease(shares, share);
	isolate_blocks(shares, share);
	set_share_state(shares, share, SHARE_RECYCLING);
	pool_poke(shares->pool);
	return try_free(shares, share);
}

/* Return: the tenant to let go of, or NULL. */
static struct tenant *detach(struct shares *shares, struct attachment *attachment)
{
	struct share *share = share_of(shares, attachment);
	const struct hp_range *range = &share->range;

	unlink_attachment(shares, attachment);
	if (!share->nr_attachments)
		return share_end(shares, share);
	/* A revocation may have taken the references with the pages. */
	(void)hp_zone_free_contig(share_zone(shares, share), NULL, share_slot(shares, share),
				  range->pfn, range->pages);
	return NULL;
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
	share->zone = zone->id;
	share->publisher = slot->process.uid;
	share->published = false;
	set_share_state(shares, share, SHARE_OPEN);
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
	share_note_in_slot(shares, slot, range, true);
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
	set_share_state(shares, share, SHARE_RECYCLING);
	tenant = try_free(shares, share);
	pthread_mutex_unlock(&shares->lock);
	let_go(shares, tenant);
}

/* --- publishing and attaching: under the lock ------------------------------------------------- */

static bool is_named(const struct share *share, const uint8_t *name, size_t name_bytes)
{
	return share->state == SHARE_OPEN && share->published && share->name_bytes == name_bytes &&
	       memcmp(share->name, name, name_bytes) == 0;
}

static bool permits(const struct share *share, uid_t uid)
{
	if (share->nr_uids == 0 || share->publisher == uid)
		return true;
	for (uint32_t i = 0; i < share->nr_uids; i++)
		if (share->uids[i] == uid)
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

struct attachment *share_find_attached(struct shares *shares, const struct slot *slot,
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

	*ret = share_find_attached(shares, slot, range->zone, range->pfn);
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
	if (!rc && !attachment->publisher)
		rc = SHARE_NOT_PUBLISHER;
	if (!rc && is_taken(shares, share_of(shares, attachment), terms))
		rc = SHARE_NAME_TAKEN;
	if (!rc)
		set_terms(shares, share_of(shares, attachment), terms);
	pthread_mutex_unlock(&shares->lock);
	return rc;
}

/* Under the lock. */
static int attach_found(struct shares *shares, struct share *share, struct slot *slot,
			bool read_only)
{
	int rc;

	if (share->read_only && !read_only)
		return SHARE_READ_ONLY;
	if (share_find_attached(shares, slot, share->range.zone, share->range.pfn))
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
		share_note_in_slot(shares, slot, ret, true);
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
	attachment = share_find_attached(shares, slot, range->zone, range->pfn);
	assert(attachment);
	share_note_in_slot(shares, slot, &share_of(shares, attachment)->range, false);
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
			share_note_in_slot(shares, slot, &share_of(shares, attachment)->range,
					   false);
			tenant = detach(shares, attachment);
		}
		pthread_mutex_unlock(&shares->lock);
		let_go(shares, tenant);
	} while (attachment);
}

static bool is_listed(const struct hp_range *range, const struct hp_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ranges[i].zone == range->zone && ranges[i].pfn == range->pfn &&
		    ranges[i].pages == range->pages && ranges[i].generation == range->generation)
			return true;
	return false;
}

void shares_keep(struct shares *shares, struct slot *slot, const struct hp_range *ranges, size_t n)
{
	struct attachment *attachment;
	struct tenant *tenant;

	do {
		tenant = NULL;
		pthread_mutex_lock(&shares->lock);
		LIST_FOREACH (attachment, &shares->of_slot[slot->number], of_slot)
			if (!is_listed(&share_of(shares, attachment)->range, ranges, n))
				break;
		if (attachment) {
			share_note_in_slot(shares, slot, &share_of(shares, attachment)->range,
					   false);
			tenant = detach(shares, attachment);
		}
		pthread_mutex_unlock(&shares->lock);
		let_go(shares, tenant);
	} while (attachment);
}

bool shares_is_read_only(struct shares *shares, const struct slot *slot,
			 const struct hp_range *range)
{
	bool read_only;

	pthread_mutex_lock(&shares->lock);
	read_only = share_find_attached(shares, slot, range->zone, range->pfn)->read_only;
	pthread_mutex_unlock(&shares->lock);
	return read_only;
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
	number = share->tenant ? share->tenant->owner : HP_OWNER_NONE;
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

	if (share->tenant->owner == viewer)
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
	in_use = share->state == SHARE_OPEN;
	if (in_use) {
		ret->tenant = share->tenant->owner;
		ret->attachments = share->nr_attachments;
		ret->readers = share->nr_readers;
		ret->age_ms = share->range.pages ? clock_now_ms() - share->granted_ms : 0;
		ret->visible = is_visible(share, viewer);
		ret->name_bytes = share->published ? share->name_bytes : 0;
		memcpy(ret->name, share->name, ret->name_bytes);
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

		if (share->state == SHARE_OPEN && share->tenant->owner == tenant &&
		    share->zone == zone_id)
			pages += share->range.pages;
	}
	pthread_mutex_unlock(&shares->lock);
	return pages;
}
