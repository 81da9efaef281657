/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written from the description of the words alone, without an eye on speed, so that its mistakes
 * are not those of alloc/.
 */
#include "tests/model/zone-words.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void words_init(struct words *words, const struct hp_zone_config *config)
{
	words->nr_pages = config->nr_pages;
	words->block_pages = UINT32_C(1) << config->pageblock_order;
	words->nr_blocks = (config->nr_pages + words->block_pages - 1) / words->block_pages;
	words->all = calloc(words->nr_blocks + words->nr_pages, sizeof(uint64_t));
	assert(words->all);
	words->blocks = words->all;
	words->leases = words->all + words->nr_blocks;
}

void words_deinit(struct words *words)
{
	free(words->all);
	*words = (struct words){0};
}

size_t words_bytes(const struct words *words)
{
	return (words->nr_blocks + words->nr_pages) * sizeof(uint64_t);
}

void words_copy(struct words *to, const struct words *from)
{
	assert(to->nr_pages == from->nr_pages && to->nr_blocks == from->nr_blocks);
	memcpy(to->all, from->all, words_bytes(from));
}

uint32_t words_pages_of_block(const struct words *words, uint32_t block)
{
	uint32_t first = block * words->block_pages;
	uint32_t rest = words->nr_pages - first;

	return rest < words->block_pages ? rest : words->block_pages;
}

unsigned words_facts(const struct words *words, struct page_fact *facts)
{
	unsigned misfits = 0;

	for (hp_pfn_t pfn = 0; pfn < words->nr_pages; pfn++)
		facts[pfn] = (struct page_fact){.head = HP_PFN_NONE};

	for (hp_pfn_t pfn = 0; pfn < words->nr_pages; pfn++) {
		struct hp_lease_word word = hp_lease_decode(words->leases[pfn]);

		if (word.state == HP_LEASE_FREE)
			continue;
		if (facts[pfn].head != HP_PFN_NONE || word.pages == 0 ||
		    word.pages > words->nr_pages - pfn) {
			misfits++;
			continue;
		}
		for (uint32_t i = 0; i < word.pages; i++)
			facts[pfn + i] = (struct page_fact){.head = pfn, .word = word};
	}
	return misfits;
}

bool page_fact_same(const struct page_fact *a, const struct page_fact *b)
{
	if (a->head != b->head)
		return false;
	return a->head == HP_PFN_NONE || hp_lease_encode(a->word) == hp_lease_encode(b->word);
}

void words_settle(struct words *words, const struct page_fact *facts)
{
	for (uint32_t block = 0; block < words->nr_blocks; block++) {
		struct hp_block_word word = hp_block_decode(words->blocks[block]);
		hp_pfn_t first = block * words->block_pages;
		bool empty = true;

		if (word.state != HP_BLOCK_LIVE && word.state != HP_BLOCK_FAILING)
			continue;
		for (uint32_t i = 0; i < words_pages_of_block(words, block); i++)
			empty = empty && facts[first + i].head == HP_PFN_NONE;
		if (!empty)
			continue;
		word.exclusive = false;
		if (word.state == HP_BLOCK_LIVE) {
			word.state = HP_BLOCK_ISOLATED;
		} else {
			word.state = HP_BLOCK_OFFLINE;
			word.owner = HP_OWNER_NONE;
		}
		words->blocks[block] = hp_block_encode(word);
	}
}
