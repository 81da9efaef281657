/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State and judgement; the operations are in zone-ops.c. Everything is a plain array and a loop
 * over it: slow where it may be slow, so that it can be believed.
 */
#include "tests/model/zone-model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots in use are spread over the 18 bits that there are. */
#define SLOT_STRIDE 4099u

#define PRINT_PAGES_MAX 128u

/* The model's state on a few lines, for zones that fit there. */
static void print_state(const struct model *model)
{
	static const char *const names[] = {"offline",	"clean",       "live", "failing",
					    "isolated", "quarantined", "lent"};

	if (model->words.nr_pages > PRINT_PAGES_MAX)
		return;
	for (uint32_t b = 0; b < model->words.nr_blocks; b++) {
		struct hp_block_word word = model_block(model, b);
		hp_pfn_t first = b * model->words.block_pages;

		fprintf(stderr, "  block %2u from %2u: %s%s, owner %u:", b, first,
			word.state < HP_BLOCK_STATES ? names[word.state] : "?",
			word.exclusive ? " exclusive" : "", word.owner);
		for (uint32_t i = 0; i < words_pages_of_block(&model->words, b); i++) {
			hp_pfn_t head = model->head[first + i];

			if (head == HP_PFN_NONE)
				fprintf(stderr, model->poisoned[first + i] ? " bad" : " .");
			else
				fprintf(stderr, " %u%s", head,
					model_lease(model, head).state == HP_LEASE_REVOKED ? "r"
											   : "");
		}
		fprintf(stderr, "\n");
	}
	for (uint32_t a = 1; a < MODEL_OWNERS; a++)
		fprintf(stderr,
			"  owner %u: account %u; account %u: limit %u, guarantee %u, held %u\n", a,
			model->account_of[a], a, model->accounts[a].limit,
			model->accounts[a].guarantee, model_held_blocks(model, a));
}

void model_die(const struct model *model, const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr,
		"\nmodel: step %" PRIu64 ", %s, zone of %u pages, blocks of %u: ", model->steps,
		model->op, model->words.nr_pages, model->words.block_pages);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	print_state(model);
	abort();
}

uint32_t model_slot(uint32_t owner, uint32_t i)
{
	return i == 0 ? HP_SLOT_MAX - owner : owner + i * SLOT_STRIDE;
}

uint32_t model_owner_of_slot(uint32_t slot)
{
	for (uint32_t owner = 1; owner < MODEL_OWNERS; owner++) {
		for (uint32_t i = 0; i < MODEL_SLOTS; i++) {
			if (slot == model_slot(owner, i))
				return owner;
		}
	}
	return HP_OWNER_NONE;
}

bool model_shares(const struct model *model, uint32_t owner)
{
	return model->box.config.refcounts && owner == MODEL_OWNERS - 1;
}

struct hp_lease_word model_lease(const struct model *model, hp_pfn_t pfn)
{
	return hp_lease_decode(model->words.leases[pfn]);
}

struct hp_block_word model_block(const struct model *model, uint32_t block)
{
	return hp_block_decode(model->words.blocks[block]);
}

void model_set_block(struct model *model, uint32_t block, struct hp_block_word word)
{
	model->words.blocks[block] = hp_block_encode(word);
}

struct hp_range model_range(const struct model *model, hp_pfn_t pfn)
{
	struct hp_lease_word word = model_lease(model, pfn);

	return (struct hp_range){.pfn = pfn,
				 .pages = word.pages,
				 .generation = word.generation,
				 .zone = model->box.config.id};
}

bool model_block_empty(const struct model *model, uint32_t block)
{
	hp_pfn_t first = block * model->words.block_pages;

	for (uint32_t i = 0; i < words_pages_of_block(&model->words, block); i++) {
		if (model->head[first + i] != HP_PFN_NONE)
			return false;
	}
	return true;
}

/* --- leases ------------------------------------------------------------------------------------*/

void model_lease_add(struct model *model, hp_pfn_t pfn, struct hp_lease_word word)
{
	model->words.leases[pfn] = hp_lease_encode(word);
	for (uint32_t i = 0; i < word.pages; i++)
		model->head[pfn + i] = pfn;
	model->head_at[pfn] = model->nr_heads;
	model->heads[model->nr_heads++] = pfn;
}

static void lease_remove(struct model *model, hp_pfn_t pfn)
{
	struct hp_lease_word word = model_lease(model, pfn);
	hp_pfn_t last = model->heads[--model->nr_heads];

	model->heads[model->head_at[pfn]] = last;
	model->head_at[last] = model->head_at[pfn];
	for (uint32_t i = 0; i < word.pages; i++)
		model->head[pfn + i] = HP_PFN_NONE;
	model->words.leases[pfn] =
		hp_lease_encode((struct hp_lease_word){.generation = word.generation});
}

int model_lease_keep(struct model *model, hp_pfn_t pfn, const struct model_part *parts, size_t n,
		     enum hp_lease_state state)
{
	struct hp_lease_word word = model_lease(model, pfn);
	struct hp_lease_word kept = word;
	int result = HP_OK;

	lease_remove(model, pfn);
	kept.state = state;
	for (size_t i = 0; i < n; i++) {
		kept.pages = parts[i].pages;
		model_lease_add(model, pfn + parts[i].offset, kept);
	}
	for (uint32_t i = 0; i < word.pages; i++) {
		if (model->head[pfn + i] != HP_PFN_NONE)
			continue;
		model->refs[pfn + i] = 0;
		if (model->poisoned[pfn + i])
			result = HP_BAD_PAGE;
	}
	/* An exclusive block that holds nothing any more is as any other. */
	for (uint32_t b = words_block_of(&model->words, pfn);
	     b <= words_block_of(&model->words, pfn + word.pages - 1); b++) {
		struct hp_block_word block = model_block(model, b);

		if (!block.exclusive || !model_block_empty(model, b))
			continue;
		block.exclusive = false;
		model_set_block(model, b, block);
	}
	return result;
}

/* --- accounts ----------------------------------------------------------------------------------*/

static bool is_charged(enum hp_block_state state)
{
	return state != HP_BLOCK_CLEAN && state != HP_BLOCK_OFFLINE;
}

uint32_t model_clean_blocks(const struct model *model)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b < model->words.nr_blocks; b++)
		n += model_block(model, b).state == HP_BLOCK_CLEAN;
	return n;
}

uint32_t model_held_blocks(const struct model *model, uint32_t account)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b < model->words.nr_blocks; b++) {
		struct hp_block_word word = model_block(model, b);

		n += is_charged(word.state) && word.owner < MODEL_OWNERS &&
		     model->account_of[word.owner] == account;
	}
	return n;
}

uint32_t model_unmet_guarantee(const struct model *model, uint32_t account)
{
	uint32_t held = model_held_blocks(model, account);
	uint32_t guarantee = model->accounts[account].guarantee;

	return guarantee > held ? guarantee - held : 0;
}

/* Clean blocks that the account may have, its limit not considered. */
static uint32_t obtainable_blocks(const struct model *model, uint32_t account)
{
	uint32_t clean = model_clean_blocks(model);
	uint32_t others = 0;

	for (uint32_t a = 1; a < MODEL_OWNERS; a++)
		others += a == account ? 0 : model_unmet_guarantee(model, a);
	return clean > others ? clean - others : 0;
}

uint32_t model_claimable_blocks(const struct model *model, uint32_t account)
{
	uint32_t held = model_held_blocks(model, account);
	uint32_t limit = model->accounts[account].limit;
	uint32_t room = limit > held ? limit - held : 0;
	uint32_t obtainable = obtainable_blocks(model, account);

	return room < obtainable ? room : obtainable;
}

/* --- holes -------------------------------------------------------------------------------------*/

/* May this page be part of a grant to the owner? */
static bool page_usable(const struct model *model, const struct hp_request *request, hp_pfn_t pfn,
			bool claim)
{
	uint32_t block = words_block_of(&model->words, pfn);
	struct hp_block_word word = model_block(model, block);

	if (word.state == HP_BLOCK_CLEAN)
		return claim;
	return !(request->flags & HP_ALLOC_EXCLUSIVE) && word.state == HP_BLOCK_LIVE &&
	       word.owner == request->owner && model->head[pfn] == HP_PFN_NONE && !word.exclusive &&
	       !model->poisoned[pfn];
}

static uint32_t clean_blocks_in(const struct model *model, hp_pfn_t pfn, uint32_t pages)
{
	uint32_t n = 0;

	for (uint32_t b = words_block_of(&model->words, pfn);
	     b <= words_block_of(&model->words, pfn + pages - 1); b++)
		n += model_block(model, b).state == HP_BLOCK_CLEAN;
	return n;
}

uint32_t model_find_hole(const struct model *model, const struct hp_request *request,
			 uint32_t claims)
{
	uint32_t align = request->align > 1 ? request->align : 1;
	uint32_t fewest = UINT32_MAX;
	hp_pfn_t run = 0; /* first page of the run of usable pages that pfn ends */

	if (request->flags & HP_ALLOC_EXCLUSIVE && align < model->words.block_pages)
		align = model->words.block_pages;
	for (hp_pfn_t pfn = 0; pfn < model->words.nr_pages; pfn++) {
		hp_pfn_t start;

		if (!page_usable(model, request, pfn, claims > 0)) {
			run = pfn + 1;
			continue;
		}
		if (pfn + 1 - run < request->pages)
			continue;
		start = pfn + 1 - request->pages;
		if (start % align == 0) {
			uint32_t n = clean_blocks_in(model, start, request->pages);

			if (n <= claims && n < fewest)
				fewest = n;
			if (fewest == 0)
				break;
		}
	}
	return fewest;
}

/* --- around calls ------------------------------------------------------------------------------*/

void model_begin(struct model *model)
{
	if (model->watch.begin)
		model->watch.begin(model->watch.userdata, &model->words);
}

void model_end(struct model *model)
{
	if (model->check_every == 1)
		model_compare_words(model);
	if (model->watch.end)
		model->watch.end(model->watch.userdata, &model->words);
}

void model_begin_nothing(struct model *model, struct box_copy *copy)
{
	if (model->compare_memory)
		box_copy_take(copy, &model->box);
}

void model_end_nothing(struct model *model, struct box_copy *copy)
{
	if (!model->compare_memory)
		return;
	if (!box_copy_same(copy, &model->box))
		model_die(model, "a refused call changed the zone's memory");
	box_copy_drop(copy);
}

/* --- life --------------------------------------------------------------------------------------*/

static void make_pcps(struct model *model)
{
	for (uint32_t i = 0; i < MODEL_PCPS; i++) {
		model->pcp_owner[i] = 1 + i % (MODEL_OWNERS - 1);
		model->pcps[i] = box_pcp_new(&model->box, model->pcp_owner[i]);
	}
}

static void model_init_arrays(struct model *model, struct dice *dice,
			      const struct hp_zone_config *config)
{
	uint32_t pages = config->nr_pages;

	*model = (struct model){.dice = dice, .check_every = 1, .op = "init"};
	words_init(&model->words, config);
	model->head = calloc(pages, sizeof(*model->head));
	model->refs = calloc(pages, sizeof(*model->refs));
	model->dirty = calloc(pages, sizeof(*model->dirty));
	model->poisoned = calloc(pages, sizeof(*model->poisoned));
	model->heads = calloc(pages, sizeof(*model->heads));
	model->head_at = calloc(pages, sizeof(*model->head_at));
	if (!model->head || !model->refs || !model->dirty || !model->poisoned || !model->heads ||
	    !model->head_at)
		model_die(model, "out of memory");
	for (hp_pfn_t pfn = 0; pfn < pages; pfn++)
		model->head[pfn] = HP_PFN_NONE;
	for (uint32_t a = 0; a < MODEL_OWNERS; a++) {
		model->accounts[a] = (struct model_account){.limit = HP_UNLIMITED};
		model->account_of[a] = a;
	}
}

void model_init(struct model *model, struct dice *dice, const struct hp_zone_config *config)
{
	model_init_arrays(model, dice, config);
	box_init_online(&model->box, config);
	for (uint32_t b = 0; b < model->words.nr_blocks; b++)
		model_set_block(model, b,
				(struct hp_block_word){.generation = 1, .state = HP_BLOCK_CLEAN});
	make_pcps(model);
	model_check(model);
}

void model_deinit(struct model *model)
{
	for (unsigned i = 0; i < MODEL_PCPS; i++)
		box_pcp_free(model->pcps[i]);
	box_deinit(&model->box);
	words_deinit(&model->words);
	free(model->head);
	free(model->refs);
	free(model->dirty);
	free(model->poisoned);
	free(model->heads);
	free(model->head_at);
}

static uint32_t owner_of_slot(void *userdata, uint32_t slot)
{
	(void)userdata;
	return model_owner_of_slot(slot);
}

static bool block_whole(void *userdata, uint32_t block, struct hp_block_word word)
{
	(void)userdata, (void)block, (void)word;
	return true;
}

const struct hp_rebuild_ops model_rebuild_ops = {
	.owner_of_slot = owner_of_slot,
	.block_whole = block_whole,
};

/* Believes the zone's words, after looking whether they can be true. */
static void adopt_words(struct model *model)
{
	struct page_fact *facts = calloc(model->words.nr_pages, sizeof(*facts));

	for (uint32_t i = 0; i < model->words.nr_blocks + model->words.nr_pages; i++)
		model->words.all[i] = hp_durable_load(&model->box.blocks[i]);
	if (!facts || words_facts(&model->words, facts) != 0)
		model_die(model, "a rebuilt zone has words inside other leases");
	for (hp_pfn_t pfn = 0; pfn < model->words.nr_pages; pfn++) {
		struct hp_block_word block = model_block(model, words_block_of(&model->words, pfn));

		if (block.state >= HP_BLOCK_STATES)
			model_die(model, "a rebuilt zone has a block of state %d",
				  (int)block.state);
		model->dirty[pfn] = block.state != HP_BLOCK_CLEAN;
		if (facts[pfn].head == HP_PFN_NONE)
			continue;
		if (facts[pfn].head == pfn)
			model_lease_add(model, pfn, facts[pfn].word);
		if (block.state != HP_BLOCK_LIVE && block.state != HP_BLOCK_FAILING)
			model_die(model, "a rebuilt zone has page %u leased in a block of state %d",
				  pfn, (int)block.state);
		if (model_owner_of_slot(facts[pfn].word.slot) != block.owner)
			model_die(model, "a rebuilt zone has page %u leased by a stranger", pfn);
	}
	free(facts);
}

void model_init_words(struct model *model, struct dice *dice, const struct hp_zone_config *config,
		      const uint64_t *words)
{
	struct hp_rebuild_stats stats;

	model_init_arrays(model, dice, config);
	box_init_bare(&model->box, config);
	memcpy(model->box.durable, words, words_bytes(&model->words));
	if (box_rebuild(&model->box, &model_rebuild_ops, &stats) != 0)
		model_die(model, "rebuild refused the configuration");
	adopt_words(model);
	make_pcps(model);
	model_check(model);
}

static void compare_rebuild_stats(struct model *model, const struct hp_rebuild_stats *stats,
				  uint32_t isolated)
{
	uint32_t leases = 0, revoked = 0;

	for (uint32_t i = 0; i < model->nr_heads; i++) {
		if (model_lease(model, model->heads[i]).state == HP_LEASE_LEASED)
			leases++;
		else
			revoked++;
	}
	SAME(stats->leases, leases);
	SAME(stats->revoked, revoked);
	SAME(stats->wiped_words, 0);
	SAME(stats->quarantined_blocks, 0);
	SAME(stats->isolated_blocks, isolated);
}

void model_rebuild(struct model *model)
{
	struct hp_rebuild_stats stats;
	struct page_fact *facts = calloc(model->words.nr_pages, sizeof(*facts));
	uint32_t isolated = 0;

	for (unsigned i = 0; i < MODEL_PCPS; i++)
		box_pcp_forget(model->pcps[i]);
	model_begin(model);
	if (box_rebuild(&model->box, &model_rebuild_ops, &stats) != 0)
		model_die(model, "rebuild refused the configuration");
	if (!facts || words_facts(&model->words, facts) != 0)
		model_die(model, "the model itself has words inside leases");
	for (uint32_t b = 0; b < model->words.nr_blocks; b++) {
		if (model_block(model, b).state == HP_BLOCK_LIVE && model_block_empty(model, b))
			isolated++;
	}
	words_settle(&model->words, facts);
	memset(model->poisoned, 0, model->words.nr_pages * sizeof(*model->poisoned));
	model_end(model);
	free(facts);
	compare_rebuild_stats(model, &stats, isolated);

	for (uint32_t o = 1; o < MODEL_OWNERS; o++)
		hp_zone_owner_set_account(model->box.zone, o, model->account_of[o]);
	for (uint32_t a = 1; a < MODEL_OWNERS; a++)
		SAME(hp_zone_account_set_quota(model->box.zone, a, model->accounts[a].limit,
					       model->accounts[a].guarantee),
		     HP_OK);
	for (uint32_t i = 0; i < model->nr_heads; i++) {
		hp_pfn_t pfn = model->heads[i];
		struct hp_range page = model_range(model, pfn);

		if (!model_shares(model, model_owner_of_slot(model_lease(model, pfn).slot)) ||
		    model_lease(model, pfn).state != HP_LEASE_LEASED)
			continue;
		/* As if every holder had attached again, each to the whole lease. */
		for (uint32_t p = 1; p < page.pages; p++)
			model->refs[pfn + p] = model->refs[pfn];
		for (uint32_t n = 0; n < model->refs[pfn]; n++)
			SAME(hp_zone_share_get(model->box.zone, model_lease(model, pfn).slot,
					       &page),
			     HP_OK);
	}
	make_pcps(model);
}

void model_step(struct model *model)
{
	model->steps++;
	model_run_operation(model);
	if (model->steps % model->check_every == 0)
		model_check(model);
}
