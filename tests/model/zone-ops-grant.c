/* SPDX-License-Identifier: Apache-2.0 */
/* Granting: a grant is taken as it comes and judged, a refusal is judged by looking for a hole. */
#include "tests/model/zone-ops.h"

static void expect_free_and_owned(const struct model *model, const struct hp_request *request,
				  hp_pfn_t pfn)
{
	uint32_t b = words_block_of(&model->words, pfn);
	struct hp_block_word block = model_block(model, b);

	if (model->head[pfn] != HP_PFN_NONE)
		model_die(model, "page %u granted to two holders", pfn);
	if (block.state == HP_BLOCK_CLEAN)
		return;
	if (block.state != HP_BLOCK_LIVE || block.owner != request->owner)
		model_die(model, "page %u granted in a block of state %d, owner %u", pfn,
			  (int)block.state, block.owner);
	if (block.exclusive)
		model_die(model, "page %u granted in a block that is exclusive", pfn);
	if (model->poisoned[pfn])
		model_die(model, "page %u granted, which is broken", pfn);
	if (request->flags & HP_ALLOC_EXCLUSIVE && !model_block_empty(model, b))
		model_die(model, "exclusive grant in a block in use, page %u", pfn);
}

/* Judges one grant and takes it over. Return: how many blocks it claimed. */
static uint32_t take_grant(struct model *model, const struct hp_request *request,
			   const struct hp_grant *grant)
{
	const struct hp_range *range = &grant->range;
	uint32_t claimed = 0;

	if (range->zone != model->box.config.id || range->pages != request->pages)
		model_die(model, "granted %u pages of zone %u, asked for %u", range->pages,
			  range->zone, request->pages);
	if (range->pfn >= model->words.nr_pages ||
	    range->pages > model->words.nr_pages - range->pfn)
		model_die(model, "granted pages from %u on, out of the zone", range->pfn);
	if (request->align > 1 && range->pfn % request->align != 0)
		model_die(model, "granted page %u, alignment %u", range->pfn, request->align);
	if (range->generation !=
	    ((model_lease(model, range->pfn).generation + 1) & HP_GENERATION_MAX))
		model_die(model, "granted generation %u at page %u, head word had %u",
			  range->generation, range->pfn, model_lease(model, range->pfn).generation);
	for (uint32_t i = 0; i < range->pages; i++) {
		hp_pfn_t pfn = range->pfn + i;

		expect_free_and_owned(model, request, pfn);
		if (grant->zeroed && model->dirty[pfn])
			model_die(model, "page %u said to be zero was granted before", pfn);
		model->dirty[pfn] = true;
		model->refs[pfn] = 1;
	}
	if (request->flags & HP_ALLOC_EXCLUSIVE && range->pfn % model->words.block_pages != 0)
		model_die(model, "exclusive grant begins inside a block, page %u", range->pfn);
	for (uint32_t b = words_block_of(&model->words, range->pfn);
	     b <= words_block_of(&model->words, range->pfn + range->pages - 1); b++) {
		struct hp_block_word word = model_block(model, b);

		claimed += word.state == HP_BLOCK_CLEAN;
		word.state = HP_BLOCK_LIVE;
		word.owner = request->owner;
		word.exclusive = request->flags & HP_ALLOC_EXCLUSIVE;
		model_set_block(model, b, word);
	}
	model_lease_add(model, range->pfn,
			(struct hp_lease_word){.generation = range->generation,
					       .slot = request->slot,
					       .pages = range->pages,
					       .state = HP_LEASE_LEASED});
	return claimed;
}

static uint32_t claims_allowed(const struct model *model, const struct hp_request *request)
{
	if (request->flags & HP_ALLOC_NO_CLAIM)
		return 0;
	return model_claimable_blocks(model, model->account_of[request->owner]);
}

static void judge_claims(struct model *model, const struct hp_request *request, uint32_t claimed,
			 uint32_t allowed, uint32_t fewest)
{
	if (claimed > allowed)
		model_die(model, "claimed %u blocks, %u were claimable", claimed, allowed);
	if (claimed > fewest)
		model_die(model, "claimed %u blocks for %u pages where %u would do", claimed,
			  request->pages, fewest);
}

/* Was this refusal right? Everything of the owner's is in the buddy lists now. */
static void judge_refusal(struct model *model, const struct hp_request *request, int result)
{
	uint32_t allowed = claims_allowed(model, request);
	uint32_t account = model->account_of[request->owner];

	if (model_find_hole(model, request, allowed) != UINT32_MAX)
		model_die(model,
			  "refused (%d) %u pages, align %u, flags %x, owner %u: there is room",
			  result, request->pages, request->align, request->flags, request->owner);
	if (result == HP_OVER_LIMIT && model->accounts[account].limit == HP_UNLIMITED)
		model_die(model, "over the limit of an account without limit");
	if (result != HP_OVER_LIMIT && result != HP_NO_ROOM &&
	    request->pages <= model->words.nr_pages)
		model_die(model, "refused with %d", result);
}

/* Figures before the call, for judge_claims(). */
struct outlook {
	uint32_t allowed, fewest;
};

static struct outlook look_out(struct model *model, const struct hp_request *request)
{
	struct outlook outlook = {.allowed = claims_allowed(model, request), .fewest = UINT32_MAX};
	struct hp_owner_stats stats;

	/* Zeroed pages may be worth a claim; pages in a pcp are not seen from here. */
	if (request->flags & HP_ALLOC_ZEROED || model->check_every > 1)
		return outlook;
	hp_zone_owner_stats(model->box.zone, request->owner, &stats);
	if (stats.pcp_pages == 0)
		outlook.fewest = model_find_hole(model, request, outlook.allowed);
	return outlook;
}

static int try_alloc(struct model *model, struct hp_pcp *pcp, const struct hp_request *request)
{
	struct outlook outlook = look_out(model, request);
	struct hp_grant grant;
	int r;

	model_begin(model);
	r = hp_zone_alloc(model->box.zone, pcp, request, &grant);
	if (r == HP_OK)
		judge_claims(model, request, take_grant(model, request, &grant), outlook.allowed,
			     outlook.fewest);
	model_end(model);
	return r;
}

void op_alloc(struct model *model)
{
	struct hp_request request = roll_request(model);
	int r = try_alloc(model, roll_pcp(model, request.owner), &request);

	if (r == HP_OK)
		return;
	hp_zone_drain(model->box.zone, request.owner);
	r = try_alloc(model, NULL, &request);
	if (r != HP_OK)
		judge_refusal(model, &request, r);
}

void op_alloc_impossible(struct model *model)
{
	struct hp_request request = roll_request(model);
	struct hp_grant grant;
	struct box_copy copy;

	switch (roll(model, 6)) {
	case 0:
		request.owner = HP_OWNER_NONE;
		break;
	case 1:
		request.owner = MODEL_OWNERS + roll(model, 3);
		break;
	case 2:
		request.slot = one_in(model, 2) ? HP_SLOT_NONE : HP_SLOT_MAX + 1;
		break;
	case 3:
		request.pages = 0;
		break;
	case 4:
		request.pages = HP_RANGE_MAX_PAGES + 1;
		break;
	default:
		request.align = 3;
	}
	model_begin_nothing(model, &copy);
	if (hp_zone_alloc(model->box.zone, NULL, &request, &grant) == HP_OK)
		model_die(model, "an impossible request was granted");
	model_end_nothing(model, &copy);
}

void free_whole(struct model *model, struct hp_pcp *pcp, hp_pfn_t pfn)
{
	struct hp_range range = model_range(model, pfn);
	int r;

	model_begin(model);
	r = hp_zone_free(model->box.zone, pcp, model_lease(model, pfn).slot, &range);
	expect_code(model, "free", r, model_lease_keep(model, pfn, NULL, 0, HP_LEASE_LEASED));
	model_end(model);
}

/*
 * All or none was refused. Single pages, and single ranges, can then not be had one by one either.
 * Of longer ones a planner that goes from left to right may miss a packing that another order of
 * holes finds, but never by half.
 */
static void judge_bulk_refusal(struct model *model, const struct hp_request *request, uint32_t n)
{
	struct hp_grant grants[2 * BULK_MAX];
	uint32_t got = 0, enough = request->pages == 1 || n == 1 ? n : 2 * n;

	while (got < enough) {
		int r;

		model_begin(model);
		r = hp_zone_alloc(model->box.zone, NULL, request, &grants[got]);
		if (r == HP_OK)
			take_grant(model, request, &grants[got]);
		model_end(model);
		if (r != HP_OK)
			break;
		got++;
	}
	if (got == enough)
		model_die(model,
			  "refused %u ranges of %u pages, align %u, flags %x, owner %u, but %u can "
			  "be had one by one",
			  n, request->pages, request->align, request->flags, request->owner, got);
	while (got > 0)
		free_whole(model, NULL, grants[--got].range.pfn);
}

static int try_alloc_bulk(struct model *model, struct hp_pcp *pcp, const struct hp_request *request,
			  uint32_t n)
{
	uint32_t allowed = claims_allowed(model, request);
	struct hp_grant grants[BULK_MAX];
	uint32_t claimed = 0;
	int r;

	model_begin(model);
	r = hp_zone_alloc_bulk(model->box.zone, pcp, request, grants, n);
	for (uint32_t i = 0; r == HP_OK && i < n; i++)
		claimed += take_grant(model, request, &grants[i]);
	model_end(model);
	judge_claims(model, request, claimed, allowed, UINT32_MAX);
	return r;
}

void op_alloc_bulk(struct model *model)
{
	struct hp_request request = roll_request(model);
	uint32_t n = 1 + roll(model, BULK_MAX);

	if (one_in(model, 2))
		request.pages = 1 + roll(model, 4);
	if (try_alloc_bulk(model, roll_pcp(model, request.owner), &request, n) == HP_OK)
		return;
	hp_zone_drain(model->box.zone, request.owner);
	if (try_alloc_bulk(model, NULL, &request, n) != HP_OK)
		judge_bulk_refusal(model, &request, n);
}
