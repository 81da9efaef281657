/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: bytes choose a geometry, what the zone begins with, and operations, which run
 * against the model with every check after every step.
 *
 * A zone begins empty, or it is rebuilt from durable words that are rubbish: plausible words in
 * wrong places, or plain bytes. Whatever a state file holds, the rebuild has to come to a zone that
 * is consistent and works.
 */
#include "tests/model/zone-model.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 600u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const struct hp_zone_config configs[] = {
#define ZONE(pages, block, max, refs)                                                            \
	{                                                                                        \
		.nr_pages = pages, .nr_owners = MODEL_OWNERS, .id = 9, .pageblock_order = block, \
		.max_order = max, .refcounts = refs                                              \
	}
	ZONE(16, 2, 4, true), ZONE(61, 3, 5, true),   ZONE(3, 1, 1, false), ZONE(12, 0, 2, true),
	ZONE(1, 0, 0, true),  ZONE(128, 5, 10, true), ZONE(5, 4, 8, true),  ZONE(32, 4, 4, false),
};

#define NR_CONFIGS (sizeof(configs) / sizeof(configs[0]))

/* A block word that might stand there, or nearly. */
static uint64_t roll_block_word(struct dice *dice)
{
	return hp_block_encode(
		(struct hp_block_word){.generation = dice_roll(dice, 4),
				       .owner = dice_roll(dice, MODEL_OWNERS + 2),
				       .state = (enum hp_block_state)dice_roll(dice, 9)});
}

static uint64_t roll_lease_word(struct dice *dice)
{
	struct hp_lease_word word = {0};

	if (!dice_one_in(dice, 3))
		return 0;
	word.state = (enum hp_lease_state)dice_roll(dice, 4);
	word.pages = dice_one_in(dice, 32) ? HP_RANGE_MAX_PAGES : dice_roll(dice, 20);
	word.slot = model_slot(1 + dice_roll(dice, MODEL_OWNERS), dice_roll(dice, MODEL_SLOTS));
	word.generation = dice_one_in(dice, 16) ? HP_GENERATION_MAX : dice_roll(dice, 4);
	return hp_lease_encode(word);
}

static uint64_t roll_raw(struct dice *dice)
{
	uint64_t word = 0;

	for (unsigned i = 0; i < 8; i++)
		word = word << 8 | dice_roll(dice, 256);
	return word;
}

/* Generations near the end of their 40 bits are not for a model that counts on. */
static uint64_t roll_raw_block(struct dice *dice)
{
	return roll_raw(dice) & UINT64_C(0x00ffffffffffffff);
}

static void init_from_rubbish(struct model *model, struct dice *dice,
			      const struct hp_zone_config *config, bool raw)
{
	struct words words;

	words_init(&words, config);
	for (uint32_t i = 0; i < words.nr_blocks; i++)
		words.blocks[i] = raw ? roll_raw_block(dice) : roll_block_word(dice);
	for (uint32_t i = 0; i < words.nr_pages; i++)
		words.leases[i] = raw ? roll_raw(dice) : roll_lease_word(dice);
	model_init_words(model, dice, config, words.all);
	words_deinit(&words);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct dice dice = dice_bytes(bytes, size);
	const struct hp_zone_config *config = &configs[dice_roll(&dice, NR_CONFIGS)];
	struct model model;

	switch (dice_roll(&dice, 4)) {
	case 1:
		init_from_rubbish(&model, &dice, config, false);
		break;
	case 2:
		init_from_rubbish(&model, &dice, config, true);
		break;
	default:
		model_init(&model, &dice, config);
	}
	model.compare_memory = true;
	for (unsigned i = 0; i < STEPS_MAX && !dice_spent(&dice); i++)
		model_step(&model);
	model_deinit(&model);
	return 0;
}
