/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares over restarts. The records tell whom a share is charged to, on which terms it is published
 * and who is attached; its range is what the lease word tells that names its slot. References of pages
 * are counted again, one for each attachment.
 *
 * An owner number whose record cannot be read, and that blocks still name, is not used until they are
 * clean.
 */
#include "daemon/tenancy/share-internal.h"

#include <string.h>

#include "daemon/log.h"
#include "daemon/tenancy/clock.h"

#define IS_READ_ONLY 1u /* of an attachment */
#define IS_PUBLISHER 2u

#define TERMS_READ_ONLY	 (UINT64_C(1) << 63)
#define TERMS_UIDS_SHIFT 32 /* how many; below: bytes of the name */

static struct state *state_of(struct shares *shares)
{
	return pool_state(shares->pool);
}

/* --- writing ---------------------------------------------------------------------------------- */

void share_record_begin(struct shares *shares, const struct share *share)
{
	struct state_share record = {
		.account = share->tenant->owner,
		.zone = share->zone,
		.publisher = share->publisher,
	};

	state_put(state_of(shares), STATE_SHARES, share_index(shares, share), &record,
		  share->state);
}

void share_record_set_state(struct shares *shares, const struct share *share)
{
	state_set(state_of(shares), STATE_SHARES, share_index(shares, share), share->state);
}

void share_record_set_terms(struct shares *shares, const struct share *share)
{
	struct state_share *record =
		state_record(state_of(shares), STATE_SHARES, share_index(shares, share));
	uint64_t name[STATE_NAME_WORDS] = {0};

	hp_durable_store(&record->published, 0);
	memcpy(name, share->name, share->name_bytes);
	for (size_t i = 0; i < STATE_NAME_WORDS; i++)
		hp_durable_store(&record->name[i], name[i]);
	for (uint32_t i = 0; i < share->nr_uids; i += 2)
		hp_durable_store(
			&record->uids[i / 2],
			share->uids[i] |
				(i + 1 < share->nr_uids ? (uint64_t)share->uids[i + 1] << 32 : 0));
	hp_durable_store(&record->terms, share->name_bytes |
						 (uint64_t)share->nr_uids << TERMS_UIDS_SHIFT |
						 (share->read_only ? TERMS_READ_ONLY : 0));
	hp_durable_store(&record->published, 1);
}

static uint32_t attachment_index(const struct shares *shares, const struct attachment *attachment)
{
	return (uint32_t)(attachment - shares->attachment);
}

void share_record_attach(struct shares *shares, const struct attachment *attachment)
{
	struct state_attachment record = {
		.share = attachment->share,
		.slot = attachment->slot->number,
		.access = (attachment->read_only ? IS_READ_ONLY : 0) |
			  (attachment->publisher ? IS_PUBLISHER : 0),
	};

	state_put(state_of(shares), STATE_ATTACHMENTS, attachment_index(shares, attachment),
		  &record, STATE_IN_USE);
}

void share_record_detach(struct shares *shares, const struct attachment *attachment)
{
	state_set(state_of(shares), STATE_ATTACHMENTS, attachment_index(shares, attachment),
		  STATE_FREE);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* What does not make sense is as if it had never been published: its holders keep it. */
static void read_terms(struct share *share, struct state_share *record)
{
	uint64_t terms = hp_durable_load(&record->terms);
	uint64_t name[STATE_NAME_WORDS];

	share->name_bytes = (uint32_t)terms;
	share->nr_uids = (uint32_t)(terms >> TERMS_UIDS_SHIFT) & 0xffff;
	share->read_only = terms & TERMS_READ_ONLY;
	share->published = hp_durable_load(&record->published) == 1 && share->name_bytes > 0 &&
			   share->name_bytes <= HP_NAME_MAX && share->nr_uids <= HP_SHARE_UIDS_MAX;
	if (!share->published)
		return;
	for (size_t i = 0; i < STATE_NAME_WORDS; i++)
		name[i] = hp_durable_load(&record->name[i]);
	memcpy(share->name, name, share->name_bytes);
	for (uint32_t i = 0; i < share->nr_uids; i++)
		share->uids[i] =
			(uint32_t)(hp_durable_load(&record->uids[i / 2]) >> (i % 2 ? 32 : 0));
}

/* The record of this number is lost; blocks may name it all the same. */
static void lose(struct shares *shares, struct share *share)
{
	for (size_t i = 0; i < pool_nr_zones(shares->pool); i++) {
		share->zone = (uint32_t)i;
		if (!hp_zone_owner_blocks(share_zone(shares, share), share_owner(shares, share)))
			continue;
		share->state = SHARE_RECYCLING;
		return;
	}
}

static void restore_share(struct shares *shares, uint32_t index)
{
	struct state *state = state_of(shares);
	struct state_share *record = state_record(state, STATE_SHARES, index);
	struct share *share = &shares->share[index];
	uint32_t account = state_owner_of_slot(state, SHARE_SLOT_FIRST + index);
	uint32_t found = SHARE_FREE;

	if (state_get(state, STATE_SHARES, index, &found) == 0 && found < SHARE_STATES &&
	    found != SHARE_FREE && account != HP_OWNER_NONE &&
	    record->zone < pool_nr_zones(shares->pool)) {
		share->state = (enum share_state)found;
		share->tenant = tenants_hold_restored(shares->tenants, (uint32_t)record->account);
		share->zone = (uint32_t)record->zone;
		share->publisher = (uid_t)record->publisher;
		read_terms(share, record);
		hp_zone_owner_set_account(share_zone(shares, share), share_owner(shares, share),
					  share->tenant->owner);
		shares->count[share->tenant->owner]++;
	} else {
		if (found != SHARE_FREE)
			log_warning("taking over: record of a share is damaged share=%u", index);
		state_set(state, STATE_SHARES, index, STATE_FREE);
		lose(shares, share);
	}
	if (share->state != SHARE_FREE)
		shares->used_shares = index + 1;
}

/* hp_lease_fn. What was revoked in part is nobody's to keep. */
static int restore_range(void *userdata, uint32_t slot, const struct hp_range *range,
			 enum hp_lease_state state)
{
	struct shares *shares = userdata;
	struct share *share;

	if (slot < SHARE_SLOT_FIRST || slot - SHARE_SLOT_FIRST >= HP_SHARES_MAX ||
	    state != HP_LEASE_LEASED)
		return 0;
	share = &shares->share[slot - SHARE_SLOT_FIRST];
	share->range = *range;
	share->granted_ms = clock_now_ms();
	return 0;
}

/* Return: whether somebody has it. */
static bool restore_attachment(struct shares *shares, struct slots *slots, uint32_t index)
{
	struct state *state = state_of(shares);
	const struct state_attachment *record = state_record(state, STATE_ATTACHMENTS, index);
	struct attachment *attachment = &shares->attachment[index];
	struct share *share;
	struct slot *slot;
	uint32_t found = STATE_FREE;

	if (state_get(state, STATE_ATTACHMENTS, index, &found) || found != STATE_IN_USE ||
	    record->share >= HP_SHARES_MAX || record->slot > HP_SLOTS_MAX)
		return false;
	share = &shares->share[record->share];
	slot = slots_find(slots, (uint32_t)record->slot);
	if (!slot || share->state != SHARE_OPEN || !share->range.pages ||
	    share_find_attached(shares, slot, share->range.zone, share->range.pfn) ||
	    hp_zone_share_get(share_zone(shares, share), share_slot(shares, share), &share->range))
		return false;
	attachment->share = (uint32_t)record->share;
	attachment->slot = slot;
	attachment->read_only = record->access & IS_READ_ONLY;
	attachment->publisher = record->access & IS_PUBLISHER;
	attachment->held = true;
	share_link_attachment(shares, attachment);
	share_note_in_slot(shares, slot, &share->range, true);
	return true;
}

static void restore_attachments(struct shares *shares, struct slots *slots)
{
	for (uint32_t i = 0; i < HP_ATTACHMENTS_MAX; i++) {
		if (restore_attachment(shares, slots, i))
			shares->used_attachments = i + 1;
		else
			state_set(state_of(shares), STATE_ATTACHMENTS, i, STATE_FREE);
	}
	for (uint32_t i = 0; i < shares->used_attachments; i++)
		if (!shares->attachment[i].held)
			LIST_INSERT_HEAD(&shares->free, &shares->attachment[i], of_slot);
}

static void drop(struct shares *shares, struct share *share)
{
	struct tenant *tenant = share_end(shares, share);

	if (tenant)
		tenants_unhold(shares->tenants, tenant);
}

/* Nobody else is there yet: no lock is needed. */
void shares_restore(struct shares *shares, struct slots *slots)
{
	uint32_t kept = 0, ended = 0;

	for (uint32_t i = 0; i < HP_SHARES_MAX; i++)
		restore_share(shares, i);
	for (size_t i = 0; i < pool_nr_zones(shares->pool); i++)
		hp_zone_for_each_lease(pool_zone(shares->pool, i)->zone, restore_range, shares);
	restore_attachments(shares, slots);
	for (uint32_t i = 0; i < shares->used_shares; i++) {
		struct share *share = &shares->share[i];

		if (share->state == SHARE_RECYCLING)
			shares_collect(shares, share_owner(shares, share));
		if (share->state != SHARE_OPEN)
			continue;
		kept += share->nr_attachments != 0;
		ended += share->nr_attachments == 0;
		if (!share->nr_attachments)
			drop(shares, share);
	}
	if (kept || ended)
		log_notice("shares taken over kept=%u ended=%u", kept, ended);
}
