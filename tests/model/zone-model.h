/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone and a naive model of it, driven by random operations.
 *
 * The model is arrays with one entry for each page and the durable words as they must be: every
 * operation says beforehand what may come of it and afterwards what the words have to look like,
 * which is then compared with the zone's, together with its statistics and hp_zone_check(). It
 * does not know how the zone places ranges or caches pages: a grant is taken as it comes and judged
 * (free, the owner's, aligned, within the quota, no more blocks claimed than needed), a refusal is
 * judged by looking for a hole.
 *
 * Whatever does not fit ends the program by abort(), after printing the operation and its number.
 */
#pragma once

#include <inttypes.h>

#include "tests/alloc/box.h"
#include "tests/model/dice.h"
#include "tests/model/zone-words.h"

#define MODEL_OWNERS 5u /* owners 1 .. 4; the last one shares, where the zone counts references */
#define MODEL_SLOTS  4u /* of each owner */
#define MODEL_PCPS   4u
#define MODEL_REFS   20u /* references that the model takes on one page at most */

struct model_account {
	uint32_t limit, guarantee;
};

/* Sees the durable words around each call that may change them. */
struct model_watch {
	void (*begin)(void *userdata, const struct words *before);
	void (*end)(void *userdata, const struct words *after);
	void *userdata;
};

struct model {
	struct dice *dice; /* borrowed */
	struct box box;
	struct words words; /* as they must be */
	hp_pfn_t *head;	    /* of each page: first page of its lease, HP_PFN_NONE if free */
	uint32_t *refs;	    /* of each page of a shared lease */
	bool *dirty;	    /* of each page: granted since its block was clean */
	bool *poisoned;	    /* of each page: known to be broken */
	hp_pfn_t *heads;    /* of all leases and revoked words, in no order */
	uint32_t *head_at;  /* of each page that is a head: its place in heads */
	uint32_t nr_heads;
	struct model_account accounts[MODEL_OWNERS];
	uint32_t account_of[MODEL_OWNERS];
	struct hp_pcp *pcps[MODEL_PCPS];
	uint32_t pcp_owner[MODEL_PCPS];
	struct model_watch watch;
	uint32_t check_every; /* steps */
	bool compare_memory;  /* both memories around every call that must change nothing */
	uint64_t steps;
	const char *op; /* running now */
};

/* --- life --------------------------------------------------------------------------------------*/

/* A new zone, all blocks online. */
void model_init(struct model *model, struct dice *dice, const struct hp_zone_config *config);
/* A zone rebuilt from these durable words, whatever they are. */
void model_init_words(struct model *model, struct dice *dice, const struct hp_zone_config *config,
		      const uint64_t *words);
void model_deinit(struct model *model);

/* One random operation and, when it is time, model_check(). */
void model_step(struct model *model);
/* Compares everything that can be compared. */
void model_check(struct model *model);

/* Compares the durable words alone. */
void model_compare_words(const struct model *model);

/* The last word: prints where the model stands and aborts. */
__attribute__((format(printf, 2, 3), noreturn)) void model_die(const struct model *model,
							       const char *format, ...);

#define SAME(is, should)                                                                    \
	do {                                                                                \
		uint64_t is_ = (is), should_ = (should);                                    \
		if (is_ != should_)                                                         \
			model_die(model, "%s is %" PRIu64 ", should be %" PRIu64, #is, is_, \
				  should_);                                                 \
	} while (0)

/* --- state, for the operations -----------------------------------------------------------------*/

uint32_t model_slot(uint32_t owner, uint32_t i);
uint32_t model_owner_of_slot(uint32_t slot);
bool model_shares(const struct model *model, uint32_t owner);

struct hp_lease_word model_lease(const struct model *model, hp_pfn_t pfn);
struct hp_block_word model_block(const struct model *model, uint32_t block);
void model_set_block(struct model *model, uint32_t block, struct hp_block_word word);

void model_lease_add(struct model *model, hp_pfn_t pfn, struct hp_lease_word word);
/*
 * Keeps n parts of the lease at pfn, in this state; frees the rest of it. Return: HP_BAD_PAGE if a
 * page freed is known to be broken, else HP_OK: what the call that does it has to give.
 */
struct model_part {
	uint32_t offset, pages;
};
int model_lease_keep(struct model *model, hp_pfn_t pfn, const struct model_part *parts, size_t n,
		     enum hp_lease_state state);

struct hp_range model_range(const struct model *model, hp_pfn_t pfn);
bool model_block_empty(const struct model *model, uint32_t block);

uint32_t model_clean_blocks(const struct model *model);
uint32_t model_held_blocks(const struct model *model, uint32_t account);
uint32_t model_unmet_guarantee(const struct model *model, uint32_t account);
uint32_t model_claimable_blocks(const struct model *model, uint32_t account);

/*
 * Looks for a place for this request where at most claims clean blocks are touched. Return: the
 * fewest clean blocks of any such place, or UINT32_MAX if there is none.
 */
uint32_t model_find_hole(const struct model *model, const struct hp_request *request,
			 uint32_t claims);

/* Around each call that may store durable words; end compares them. */
void model_begin(struct model *model);
void model_end(struct model *model);
/* Around a call that must change not one byte. */
void model_begin_nothing(struct model *model, struct box_copy *copy);
void model_end_nothing(struct model *model, struct box_copy *copy);

/* Every slot of the model's in use, every block whole. */
extern const struct hp_rebuild_ops model_rebuild_ops;
/* Throws the zone away and rebuilds it from its words. */
void model_rebuild(struct model *model);

void model_run_operation(struct model *model); /* zone-ops.c */
