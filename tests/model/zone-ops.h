/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The random operations: each rolls its arguments, calls the zone once (or, where a refusal has to
 * be judged, once more after a drain) and brings the model to where the zone has to be.
 *
 * About a tenth of all arguments are wrong on purpose; the code that must come back is worked out
 * from the words, and both memories are compared byte for byte around the call.
 */
#pragma once

#include "tests/model/zone-model.h"

#define BULK_MAX 12u /* ranges of one bulk call here */

/* --- arguments, zone-ops.c ---------------------------------------------------------------------*/

static inline uint32_t roll(struct model *model, uint32_t n)
{
	return dice_roll(model->dice, n);
}

static inline bool one_in(struct model *model, uint32_t n)
{
	return dice_one_in(model->dice, n);
}

uint32_t roll_owner(struct model *model);
uint32_t roll_slot(struct model *model, uint32_t owner);
uint32_t roll_pages(struct model *model);
struct hp_request roll_request(struct model *model);
/* A pcp of this owner, or none. */
struct hp_pcp *roll_pcp(struct model *model, uint32_t owner);
/* Now and then somebody else's, which the zone must not use. */
struct hp_pcp *roll_free_pcp(struct model *model, uint32_t slot);
/* A lease or revoked word, HP_PFN_NONE if there is none. */
hp_pfn_t roll_head(struct model *model);
/* One in this state, if a few attempts find one. */
hp_pfn_t roll_head_in(struct model *model, enum hp_lease_state state);
/* Is a page of this lease referenced more than once? */
bool has_many_refs(const struct model *model, hp_pfn_t pfn);
/* A leased range all of whose pages one call can free. */
hp_pfn_t roll_single(struct model *model);
/* A block in this state where there is one, else any. */
uint32_t roll_block(struct model *model, enum hp_block_state state);

/* The one and only code that a call has to give. */
void expect_code(const struct model *model, const char *what, int is, int should);
/* Frees one whole lease, which has to work. */
void free_whole(struct model *model, struct hp_pcp *pcp, hp_pfn_t pfn);

/* --- zone-ops-grant.c -------------------------------------------------------------------------*/

void op_alloc(struct model *model);
void op_alloc_impossible(struct model *model);
void op_alloc_bulk(struct model *model);

/* --- zone-ops-free.c --------------------------------------------------------------------------*/

void op_free(struct model *model);
void op_free_wrong(struct model *model);
void op_free_bulk(struct model *model);
void op_free_bulk_wrong(struct model *model);
void op_free_part(struct model *model);
void op_free_part_outside(struct model *model);
void op_keep_parts(struct model *model);
void op_keep_parts_wrong(struct model *model);
void op_split(struct model *model);
void op_free_contig(struct model *model);
void op_free_contig_any(struct model *model);
void op_share_get(struct model *model);
void op_free_slot(struct model *model);
void op_ack(struct model *model);

/* --- zone-ops-block.c -------------------------------------------------------------------------*/

void op_online(struct model *model);
void op_isolate(struct model *model);
void op_put_clean(struct model *model);
void op_quarantine(struct model *model);
void op_offline(struct model *model);
void op_poison(struct model *model);
void op_fail(struct model *model);
void op_lend(struct model *model);
void op_unlend(struct model *model);
void op_revoke_block(struct model *model);
void op_no_such_block(struct model *model);
