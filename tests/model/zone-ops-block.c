/* SPDX-License-Identifier: Apache-2.0 */
/* The states of pageblocks: every change that is allowed, and every one that is not. */
#include "tests/model/zone-ops.h"

/* Takes over a change of a block's state, or a refusal of it. */
static void block_result(struct model *model, uint32_t block, int r, bool allowed,
			 struct hp_block_word after)
{
	if (allowed != (r == HP_OK))
		model_die(model, "block %u in state %d: gives %d", block,
			  (int)model_block(model, block).state, r);
	if (!allowed && r != HP_BUSY)
		model_die(model, "block %u refused with %d", block, r);
	if (allowed)
		model_set_block(model, block, after);
	model_end(model);
}

/* Nothing of what was known about its pages holds any more. */
static void forget_block(struct model *model, uint32_t block)
{
	hp_pfn_t first = block * model->words.block_pages;

	for (uint32_t i = 0; i < words_pages_of_block(&model->words, block); i++)
		model->dirty[first + i] = model->poisoned[first + i] = false;
}

void op_online(struct model *model)
{
	uint32_t block = roll_block(model, HP_BLOCK_OFFLINE);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_OFFLINE;

	word = (struct hp_block_word){.generation = word.generation + 1, .state = HP_BLOCK_CLEAN};
	model_begin(model);
	block_result(model, block, hp_zone_online(model->box.zone, block, word.generation), allowed,
		     word);
	if (allowed)
		forget_block(model, block);
}

void op_isolate(struct model *model)
{
	uint32_t block = roll_block(model, HP_BLOCK_LIVE);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_LIVE && model_block_empty(model, block);

	if (word.state == HP_BLOCK_QUARANTINED)
		allowed = true;
	word.state = HP_BLOCK_ISOLATED;
	word.exclusive = false;
	model_begin(model);
	block_result(model, block, hp_zone_isolate(model->box.zone, block), allowed, word);
}

void op_put_clean(struct model *model)
{
	uint32_t block =
		roll_block(model, one_in(model, 3) ? HP_BLOCK_QUARANTINED : HP_BLOCK_ISOLATED);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_ISOLATED || word.state == HP_BLOCK_QUARANTINED;

	word = (struct hp_block_word){.generation = word.generation + 1, .state = HP_BLOCK_CLEAN};
	model_begin(model);
	block_result(model, block, hp_zone_put_clean(model->box.zone, block, word.generation),
		     allowed, word);
	if (allowed)
		forget_block(model, block);
}

void op_quarantine(struct model *model)
{
	uint32_t block = roll_block(model, HP_BLOCK_ISOLATED);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_ISOLATED;

	word.state = HP_BLOCK_QUARANTINED;
	model_begin(model);
	block_result(model, block, hp_zone_quarantine(model->box.zone, block), allowed, word);
}

void op_offline(struct model *model)
{
	static const enum hp_block_state from[] = {HP_BLOCK_CLEAN, HP_BLOCK_ISOLATED,
						   HP_BLOCK_QUARANTINED, HP_BLOCK_FAILING};
	uint32_t block = roll_block(model, from[roll(model, 4)]);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_CLEAN || word.state == HP_BLOCK_ISOLATED ||
		       word.state == HP_BLOCK_QUARANTINED ||
		       (word.state == HP_BLOCK_FAILING && model_block_empty(model, block));

	word.state = HP_BLOCK_OFFLINE;
	word.owner = HP_OWNER_NONE;
	word.exclusive = false;
	model_begin(model);
	block_result(model, block, hp_zone_offline(model->box.zone, block), allowed, word);
	if (allowed)
		forget_block(model, block);
}

void op_poison(struct model *model)
{
	hp_pfn_t pfn = roll(model, model->words.nr_pages + 1);
	enum hp_block_state state;
	int r = hp_zone_poison(model->box.zone, pfn);

	if (pfn == model->words.nr_pages) {
		expect_code(model, "poison outside the zone", r, HP_OUT_OF_RANGE);
		return;
	}
	state = model_block(model, words_block_of(&model->words, pfn)).state;
	if (state != HP_BLOCK_LIVE && state != HP_BLOCK_FAILING) {
		expect_code(model, "poison", r, HP_BUSY);
		return;
	}
	expect_code(model, "poison", r, HP_OK);
	model->poisoned[pfn] = true;
}

void op_fail(struct model *model)
{
	uint32_t block = roll_block(model, HP_BLOCK_LIVE);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_LIVE;

	word.state = HP_BLOCK_FAILING;
	model_begin(model);
	block_result(model, block, hp_zone_fail(model->box.zone, block), allowed, word);
}

void op_lend(struct model *model)
{
	uint32_t owner = roll_owner(model);
	uint32_t claimable = model_claimable_blocks(model, model->account_of[owner]);
	uint32_t block = UINT32_MAX;
	struct hp_block_word word;
	int r;

	model_begin(model);
	r = hp_zone_lend(model->box.zone, owner, &block);
	if ((r == HP_OK) != (claimable > 0))
		model_die(model, "lend gives %d with %u claimable", r, claimable);
	if (r == HP_OK) {
		if (block >= model->words.nr_blocks ||
		    model_block(model, block).state != HP_BLOCK_CLEAN)
			model_die(model, "lent a block that is not clean");
		word = model_block(model, block);
		word.state = HP_BLOCK_LENT;
		word.owner = owner;
		model_set_block(model, block, word);
	}
	model_end(model);
}

void op_unlend(struct model *model)
{
	uint32_t block = roll_block(model, HP_BLOCK_LENT);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_LENT;

	word.state = HP_BLOCK_ISOLATED;
	word.exclusive = false;
	model_begin(model);
	block_result(model, block, hp_zone_unlend(model->box.zone, block), allowed, word);
}

#define HITS_MAX 4096u

struct hits {
	const struct model *model;
	struct hp_range ranges[HITS_MAX];
	uint32_t n;
};

static void hit(void *userdata, uint32_t slot, const struct hp_range *range,
		enum hp_lease_state state)
{
	struct hits *hits = userdata;
	struct hp_lease_word word = model_lease(hits->model, range->pfn);

	if (word.state == HP_LEASE_FREE || word.state != state || word.slot != slot ||
	    word.pages != range->pages || word.generation != range->generation ||
	    range->zone != hits->model->box.config.id)
		model_die(hits->model, "hit names a lease that is not there, page %u", range->pfn);
	for (uint32_t i = 0; i < hits->n; i++) {
		if (hits->ranges[i].pfn == range->pfn)
			model_die(hits->model, "hit names a lease twice, page %u", range->pfn);
	}
	if (hits->n < HITS_MAX)
		hits->ranges[hits->n++] = *range;
}

/* Cuts every lease that touches the block down to revoked words. Return: leases that were hit. */
static uint32_t revoke_leases(struct model *model, uint32_t block)
{
	hp_pfn_t first = block * model->words.block_pages;
	hp_pfn_t end = first + words_pages_of_block(&model->words, block);
	uint32_t cut = 0;

	for (hp_pfn_t pfn = first; pfn < end; pfn++) {
		hp_pfn_t head = model->head[pfn];
		struct model_part parts[2];
		struct hp_lease_word word;
		size_t n = 0;

		if (head == HP_PFN_NONE)
			continue;
		word = model_lease(model, head);
		cut += word.state == HP_LEASE_LEASED;
		if (head < first)
			parts[n++] = (struct model_part){.offset = 0, .pages = first - head};
		if (head + word.pages > end)
			parts[n++] = (struct model_part){.offset = end - head,
							 .pages = head + word.pages - end};
		model_lease_keep(model, head, parts, n, HP_LEASE_REVOKED);
	}
	return cut;
}

void op_revoke_block(struct model *model)
{
	static struct hits hits;
	uint32_t block = roll_block(model, HP_BLOCK_LIVE);
	struct hp_block_word word = model_block(model, block);
	bool allowed = word.state == HP_BLOCK_LIVE || word.state == HP_BLOCK_FAILING;
	bool quarantine = one_in(model, 2);
	uint32_t leased = 0;
	int r;

	hits.model = model;
	hits.n = 0;
	word.state = quarantine ? HP_BLOCK_QUARANTINED : HP_BLOCK_ISOLATED;
	word.exclusive = false;
	model_begin(model);
	r = hp_zone_revoke_block(model->box.zone, block, quarantine, hit, &hits);
	for (uint32_t i = 0; i < hits.n; i++)
		leased += model_lease(model, hits.ranges[i].pfn).state == HP_LEASE_LEASED;
	if (allowed && revoke_leases(model, block) != leased)
		model_die(model, "revoke_block called hit for %u leases, not for all", leased);
	block_result(model, block, r, allowed, word);
}

void op_no_such_block(struct model *model)
{
	uint32_t block = model->words.nr_blocks + roll(model, 3);
	struct hp_zone *zone = model->box.zone;
	struct hp_block_info info;
	struct box_copy copy;

	model_begin_nothing(model, &copy);
	if (hp_zone_online(zone, block, 1) != HP_OUT_OF_RANGE ||
	    hp_zone_isolate(zone, block) != HP_OUT_OF_RANGE ||
	    hp_zone_put_clean(zone, block, 1) != HP_OUT_OF_RANGE ||
	    hp_zone_quarantine(zone, block) != HP_OUT_OF_RANGE ||
	    hp_zone_offline(zone, block) != HP_OUT_OF_RANGE ||
	    hp_zone_fail(zone, block) != HP_OUT_OF_RANGE ||
	    hp_zone_revoke_block(zone, block, false, NULL, NULL) != HP_OUT_OF_RANGE ||
	    hp_zone_unlend(zone, block) != HP_OUT_OF_RANGE ||
	    hp_zone_block_info(zone, block, &info) != HP_OUT_OF_RANGE)
		model_die(model, "block %u is outside the zone and accepted", block);
	model_end_nothing(model, &copy);
}
