/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operation comes next, with which arguments; and the operations on accounts and caches, and
 * on the zone as a whole.
 */
#include "tests/model/zone-ops.h"

#include <assert.h>

/* --- arguments --------------------------------------------------------------------------------*/

uint32_t roll_owner(struct model *model)
{
	return 1 + roll(model, MODEL_OWNERS - 1);
}

uint32_t roll_slot(struct model *model, uint32_t owner)
{
	return model_slot(owner, roll(model, MODEL_SLOTS));
}

/* Mostly small, now and then as large as the zone and a little beyond. */
uint32_t roll_pages(struct model *model)
{
	uint32_t block = model->words.block_pages;

	switch (roll(model, 8)) {
	case 0:
	case 1:
		return 1;
	case 2:
		return 1 + roll(model, 3);
	case 3:
		return UINT32_C(1) << roll(model, 4);
	case 4:
		return 1 + roll(model, block);
	case 5:
		return block;
	case 6:
		return 1 + roll(model, block * 3);
	default:
		return 1 + roll(model,
				(model->words.nr_pages < 4096 ? model->words.nr_pages : 4096) + 1);
	}
}

struct hp_request roll_request(struct model *model)
{
	struct hp_request request = {.owner = roll_owner(model)};

	request.slot = roll_slot(model, request.owner);
	request.pages = roll_pages(model);
	if (one_in(model, 4))
		request.align = UINT32_C(1) << roll(model, model->box.config.max_order + 2u);
	if (one_in(model, 4))
		request.flags |= HP_ALLOC_ZEROED;
	if (one_in(model, 8))
		request.flags |= HP_ALLOC_NO_CLAIM;
	else if (one_in(model, 12))
		request.flags |= HP_ALLOC_EXCLUSIVE;
	if (model_shares(model, request.owner))
		request.flags |= HP_ALLOC_SHARED;
	return request;
}

struct hp_pcp *roll_pcp(struct model *model, uint32_t owner)
{
	uint32_t first = roll(model, MODEL_PCPS + 2);

	for (uint32_t i = 0; first < MODEL_PCPS && i < MODEL_PCPS; i++) {
		uint32_t n = (first + i) % MODEL_PCPS;

		if (model->pcp_owner[n] == owner)
			return model->pcps[n];
	}
	return NULL;
}

struct hp_pcp *roll_free_pcp(struct model *model, uint32_t slot)
{
	if (one_in(model, 16))
		return model->pcps[roll(model, MODEL_PCPS)];
	return roll_pcp(model, model_owner_of_slot(slot));
}

hp_pfn_t roll_head(struct model *model)
{
	return model->nr_heads > 0 ? model->heads[roll(model, model->nr_heads)] : HP_PFN_NONE;
}

hp_pfn_t roll_head_in(struct model *model, enum hp_lease_state state)
{
	for (unsigned i = 0; i < 8 && model->nr_heads > 0; i++) {
		hp_pfn_t pfn = roll_head(model);

		if (model_lease(model, pfn).state == state)
			return pfn;
	}
	return HP_PFN_NONE;
}

bool has_many_refs(const struct model *model, hp_pfn_t pfn)
{
	for (uint32_t i = 0; i < model_lease(model, pfn).pages; i++) {
		if (model->refs[pfn + i] > 1)
			return true;
	}
	return false;
}

hp_pfn_t roll_single(struct model *model)
{
	hp_pfn_t pfn = roll_head_in(model, HP_LEASE_LEASED);

	return pfn == HP_PFN_NONE || has_many_refs(model, pfn) ? HP_PFN_NONE : pfn;
}

uint32_t roll_block(struct model *model, enum hp_block_state state)
{
	uint32_t block = roll(model, model->words.nr_blocks);

	if (one_in(model, 10))
		return block;
	for (uint32_t i = 0; i < model->words.nr_blocks; i++) {
		uint32_t b = (block + i) % model->words.nr_blocks;

		if (model_block(model, b).state == state)
			return b;
	}
	return block;
}

void expect_code(const struct model *model, const char *what, int is, int should)
{
	if (is != should)
		model_die(model, "%s gives %d, should be %d", what, is, should);
}

/* --- accounts, caches, life -------------------------------------------------------------------*/

static void op_set_quota(struct model *model)
{
	uint32_t account = roll_owner(model);
	uint32_t limit = one_in(model, 3) ? HP_UNLIMITED : roll(model, model->words.nr_blocks + 2);
	uint32_t guarantee = one_in(model, 2) ? 0 : roll(model, model->words.nr_blocks + 2);
	uint64_t sum = guarantee;
	int r;

	for (uint32_t a = 1; a < MODEL_OWNERS; a++)
		sum += a == account ? 0 : model->accounts[a].guarantee;
	model_begin(model);
	r = hp_zone_account_set_quota(model->box.zone, account, limit, guarantee);
	model_end(model);
	if (guarantee > limit) {
		if (r >= 0)
			model_die(model, "guarantee %u over limit %u gives %d", guarantee, limit,
				  r);
		return;
	}
	if (r != (sum > model->words.nr_blocks ? HP_BUSY : HP_OK))
		model_die(model, "quota with guarantees of %llu in all gives %d",
			  (unsigned long long)sum, r);
	if (r == HP_OK)
		model->accounts[account] =
			(struct model_account){.limit = limit, .guarantee = guarantee};
}

static void op_set_account(struct model *model)
{
	uint32_t owner = roll_owner(model);
	uint32_t account = one_in(model, 2) ? owner : roll_owner(model);

	hp_zone_owner_set_account(model->box.zone, owner, account);
	model->account_of[owner] = account;
}

/* Pages of one owner in pcps. */
static uint32_t pcp_pages(struct model *model, uint32_t owner)
{
	struct hp_owner_stats stats;

	hp_zone_owner_stats(model->box.zone, owner, &stats);
	return stats.pcp_pages;
}

static void op_drain(struct model *model)
{
	uint32_t i = roll(model, MODEL_PCPS);
	uint32_t owner = model->pcp_owner[i];
	uint32_t before = pcp_pages(model, owner);
	struct hp_pcp_stats stats;
	uint32_t drained;

	switch (roll(model, 4)) {
	case 0:
		drained = hp_pcp_drain(model->pcps[i]);
		hp_pcp_get_stats(model->pcps[i], &stats);
		if (stats.count != 0)
			model_die(model, "%u pages left in a pcp after a full drain", stats.count);
		break;
	case 1:
		hp_zone_drain(model->box.zone, HP_OWNER_NONE);
		drained = before;
		if (pcp_pages(model, owner) != 0)
			model_die(model, "pages left in a pcp after draining all");
		break;
	case 2:
		drained = hp_zone_drain(model->box.zone, owner);
		if (pcp_pages(model, owner) != 0)
			model_die(model, "pages left in a pcp after draining its owner");
		break;
	default:
		drained = hp_pcp_drain_batch(model->pcps[i]);
	}
	if (before - pcp_pages(model, owner) != drained)
		model_die(model, "a drain says %u pages, %u are missing", drained,
			  before - pcp_pages(model, owner));
}

static void op_pcp_sizes(struct model *model)
{
	hp_pcp_set_sizes(model->pcps[roll(model, MODEL_PCPS)], roll(model, 20), roll(model, 100));
}

static void op_pcp_renew(struct model *model)
{
	uint32_t i = roll(model, MODEL_PCPS);

	box_pcp_free(model->pcps[i]);
	model->pcp_owner[i] = roll_owner(model);
	model->pcps[i] = box_pcp_new(&model->box, model->pcp_owner[i]);
}

static void op_rebuild(struct model *model)
{
	if (one_in(model, 4))
		model_rebuild(model);
}

/* --- choosing ---------------------------------------------------------------------------------*/

static const struct operation {
	const char *name;
	void (*run)(struct model *);
	unsigned weight;
} operations[] = {
	{"alloc", op_alloc, 55},
	{"alloc_bulk", op_alloc_bulk, 10},
	{"alloc impossible", op_alloc_impossible, 1},
	{"free", op_free, 40},
	{"free wrong", op_free_wrong, 6},
	{"free_bulk", op_free_bulk, 10},
	{"free_bulk wrong", op_free_bulk_wrong, 3},
	{"free_part", op_free_part, 12},
	{"free_part outside", op_free_part_outside, 2},
	{"keep_parts", op_keep_parts, 8},
	{"keep_parts wrong", op_keep_parts_wrong, 2},
	{"split", op_split, 6},
	{"free_contig", op_free_contig, 14},
	{"free_contig any", op_free_contig_any, 4},
	{"share_get", op_share_get, 8},
	{"free_slot", op_free_slot, 3},
	{"ack", op_ack, 8},
	{"online", op_online, 6},
	{"isolate", op_isolate, 10},
	{"put_clean", op_put_clean, 16},
	{"quarantine", op_quarantine, 3},
	{"offline", op_offline, 3},
	{"fail", op_fail, 1},
	{"poison", op_poison, 1},
	{"revoke_block", op_revoke_block, 4},
	{"lend", op_lend, 2},
	{"unlend", op_unlend, 3},
	{"no such block", op_no_such_block, 1},
	{"set_quota", op_set_quota, 3},
	{"set_account", op_set_account, 1},
	{"drain", op_drain, 6},
	{"pcp sizes", op_pcp_sizes, 2},
	{"pcp renew", op_pcp_renew, 1},
	{"rebuild", op_rebuild, 1},
};

#define NR_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

/* One byte of a fuzzer is to choose an operation: the weights add up to no more. */
#define WEIGHTS_MAX 256u

void model_run_operation(struct model *model)
{
	unsigned total = 0, at;

	for (size_t i = 0; i < NR_OPERATIONS; i++)
		total += operations[i].weight;
	assert(total <= WEIGHTS_MAX);
	at = roll(model, total);
	for (size_t i = 0; i < NR_OPERATIONS; i++) {
		if (at < operations[i].weight) {
			model->op = operations[i].name;
			operations[i].run(model);
			return;
		}
		at -= operations[i].weight;
	}
}
