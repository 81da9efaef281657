/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zone as it is against the model: words, statistics, leases, caches. Everything is counted anew
 * each time.
 */
#include "tests/model/zone-model.h"

#include <inttypes.h>

void model_compare_words(const struct model *model)
{
	const hp_word_t *words = model->box.blocks;

	for (uint32_t i = 0; i < model->words.nr_blocks + model->words.nr_pages; i++) {
		uint64_t is = hp_durable_load(&words[i]);
		bool block = i < model->words.nr_blocks;

		if (is == model->words.all[i])
			continue;
		model_die(model, "%s word %u is %016" PRIx64 ", should be %016" PRIx64,
			  block ? "block" : "lease", block ? i : i - model->words.nr_blocks, is,
			  model->words.all[i]);
	}
}

static void compare_zone_stats(struct model *model)
{
	struct hp_zone_stats stats;
	uint64_t by_block[HP_BLOCK_STATES] = {0};
	uint64_t leased = 0, revoked = 0, bad = 0, at_hand = 0;
	uint32_t idle = 0, unmet = 0;

	for (hp_pfn_t pfn = 0; pfn < model->words.nr_pages; pfn++) {
		enum hp_block_state state =
			model_block(model, words_block_of(&model->words, pfn)).state;

		if (model->head[pfn] == HP_PFN_NONE && model->poisoned[pfn] &&
		    (state == HP_BLOCK_LIVE || state == HP_BLOCK_FAILING))
			bad++;
		else if (model->head[pfn] == HP_PFN_NONE)
			by_block[state]++;
		else if (model_lease(model, model->head[pfn]).state == HP_LEASE_LEASED)
			leased++;
		else
			revoked++;
	}
	for (uint32_t b = 0; b < model->words.nr_blocks; b++)
		idle += model_block(model, b).state == HP_BLOCK_LIVE && model_block_empty(model, b);
	for (uint32_t a = 1; a < MODEL_OWNERS; a++)
		unmet += model_unmet_guarantee(model, a);

	hp_zone_stats(model->box.zone, &stats);
	SAME(stats.nr_pages, model->words.nr_pages);
	SAME(stats.clean, by_block[HP_BLOCK_CLEAN]);
	SAME(stats.leased, leased);
	SAME(stats.revoked, revoked);
	SAME(stats.quarantined, by_block[HP_BLOCK_QUARANTINED]);
	SAME(stats.lent, by_block[HP_BLOCK_LENT]);
	SAME(stats.offline, by_block[HP_BLOCK_OFFLINE]);
	SAME(stats.draining, 0);
	SAME(stats.bad, bad);
	at_hand = stats.free + stats.pcp;
	if (at_hand < by_block[HP_BLOCK_LIVE])
		model_die(model, "%" PRIu64 " pages free or in pcps, should be at least %" PRIu64,
			  at_hand, by_block[HP_BLOCK_LIVE]);
	SAME(at_hand + stats.isolated,
	     by_block[HP_BLOCK_LIVE] + by_block[HP_BLOCK_FAILING] + by_block[HP_BLOCK_ISOLATED]);
	SAME(stats.nr_blocks, model->words.nr_blocks);
	SAME(stats.clean_blocks, model_clean_blocks(model));
	SAME(stats.idle_blocks, idle);
	SAME(stats.unmet_guarantee_blocks, unmet);
}

static void compare_owner_stats(struct model *model, uint32_t owner)
{
	struct hp_owner_stats stats;
	uint32_t account = model->account_of[owner];
	uint32_t claimable = model_claimable_blocks(model, account);
	uint32_t blocks = 0, idle = 0, leased = 0, revoked = 0, free = 0, at_hand = 0, chunks = 0;
	struct hp_request largest = {.owner = owner};

	for (uint32_t b = 0; b < model->words.nr_blocks; b++) {
		struct hp_block_word word = model_block(model, b);
		hp_pfn_t first = b * model->words.block_pages;

		if (word.owner != owner ||
		    (word.state != HP_BLOCK_LIVE && word.state != HP_BLOCK_FAILING))
			continue;
		blocks++;
		idle += word.state == HP_BLOCK_LIVE && model_block_empty(model, b);
		for (uint32_t i = 0; i < words_pages_of_block(&model->words, b); i++) {
			hp_pfn_t head = model->head[first + i];

			if (head == HP_PFN_NONE && model->poisoned[first + i])
				continue;
			if (head == HP_PFN_NONE) {
				free++;
				/* The rest is free, but of no use to anybody. */
				at_hand += word.state == HP_BLOCK_LIVE && !word.exclusive;
			} else if (model_lease(model, head).state == HP_LEASE_LEASED)
				leased++;
			else
				revoked++;
		}
	}
	hp_zone_owner_stats(model->box.zone, owner, &stats);
	SAME(stats.blocks, blocks);
	SAME(stats.idle_blocks, idle);
	SAME(stats.leased_pages, leased);
	SAME(stats.revoked_pages, revoked);
	SAME(stats.free_pages + stats.pcp_pages, free);
	for (uint32_t order = 0; order <= HP_MAX_ORDER; order++)
		chunks += stats.free_chunks[order] << order;
	SAME(chunks + stats.pcp_pages, at_hand);

	/* What is in a pcp cannot be judged from here. */
	if (stats.pcp_pages > 0)
		return;
	largest.pages = stats.largest_pages;
	if (largest.pages > 0 && model_find_hole(model, &largest, claimable) == UINT32_MAX)
		model_die(model, "owner %u: no hole of largest_pages %u", owner, largest.pages);
	largest.pages++;
	if (model_find_hole(model, &largest, claimable) != UINT32_MAX)
		model_die(model, "owner %u: a hole larger than largest_pages %u", owner,
			  stats.largest_pages);
	if (stats.leasable_pages < at_hand ||
	    stats.leasable_pages > at_hand + claimable * model->words.block_pages)
		model_die(model, "owner %u: leasable_pages %u, but %u at hand, %u claimable", owner,
			  stats.leasable_pages, at_hand, claimable);
}

static void compare_account(struct model *model, uint32_t account)
{
	struct hp_account_stats stats;

	hp_zone_account_stats(model->box.zone, account, &stats);
	SAME(stats.held_blocks, model_held_blocks(model, account));
	SAME(stats.limit_blocks, model->accounts[account].limit);
	SAME(stats.guarantee_blocks, model->accounts[account].guarantee);
	SAME(stats.claimable_blocks, model_claimable_blocks(model, account));
}

static void compare_block(struct model *model, uint32_t block)
{
	struct hp_block_info info;
	struct hp_block_word word = model_block(model, block);

	SAME(hp_zone_block_info(model->box.zone, block, &info), HP_OK);
	SAME(hp_block_encode(info.word), hp_block_encode(word));
	SAME(info.pages, words_pages_of_block(&model->words, block));
	SAME(info.idle, word.state == HP_BLOCK_LIVE && model_block_empty(model, block));
	if (word.state == HP_BLOCK_CLEAN)
		SAME(info.free_pages, info.pages);
}

struct lease_walk {
	const struct model *model;
	uint32_t seen;
	hp_pfn_t next; /* no lease may begin before */
};

static int visit_lease(void *userdata, uint32_t slot, const struct hp_range *range,
		       enum hp_lease_state state)
{
	struct lease_walk *walk = userdata;
	const struct model *model = walk->model;
	struct hp_lease_word word = {.generation = range->generation,
				     .slot = slot,
				     .pages = range->pages,
				     .state = state};

	if (range->pfn < walk->next)
		model_die(model, "for_each_lease: out of order at %u", range->pfn);
	SAME(hp_lease_encode(word), model->words.leases[range->pfn]);
	SAME(range->zone, model->box.config.id);
	walk->next = range->pfn + range->pages;
	walk->seen++;
	return 0;
}

static void compare_leases(struct model *model)
{
	struct lease_walk walk = {.model = model};

	SAME(hp_zone_for_each_lease(model->box.zone, visit_lease, &walk), 0);
	SAME(walk.seen, model->nr_heads);
}

static void compare_pcps(struct model *model)
{
	static const unsigned small_orders = 4;

	for (unsigned i = 0; i < MODEL_PCPS; i++) {
		struct hp_pcp_stats stats;
		uint32_t pages = 0;

		hp_pcp_get_stats(model->pcps[i], &stats);
		SAME(stats.owner, model->pcp_owner[i]);
		for (unsigned order = 0; order < small_orders; order++)
			pages += stats.per_order[order] << order;
		pages += stats.per_order[small_orders] << model->box.config.pageblock_order;
		SAME(stats.count, pages);
	}
}

void model_check(struct model *model)
{
	uint32_t owner = 1 + (uint32_t)(model->steps % (MODEL_OWNERS - 1));

	if (box_check(&model->box) != 0)
		model_die(model, "hp_zone_check() found something");
	model_compare_words(model);
	compare_zone_stats(model);
	compare_owner_stats(model, owner);
	compare_account(model, owner);
	compare_block(model, (uint32_t)(model->steps % model->words.nr_blocks));
	compare_leases(model);
	compare_pcps(model);
}
