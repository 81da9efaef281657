/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A naive reader of durable words: what any reader must make of them, page by page.
 */
#pragma once

#include "alloc/zone.h"

/* The durable words of a zone, as a plain array: block words, then lease words. */
struct words {
	uint32_t nr_pages, nr_blocks, block_pages;
	uint64_t *all;		   /* nr_blocks + nr_pages words, owned */
	uint64_t *blocks, *leases; /* in all */
};

void words_init(struct words *words, const struct hp_zone_config *config);
void words_deinit(struct words *words);
void words_copy(struct words *to, const struct words *from);
size_t words_bytes(const struct words *words);

static inline uint32_t words_block_of(const struct words *words, hp_pfn_t pfn)
{
	return pfn / words->block_pages;
}
uint32_t words_pages_of_block(const struct words *words, uint32_t block);

/* What a page is part of. */
struct page_fact {
	hp_pfn_t head; /* first page of the lease or revoked word, HP_PFN_NONE if free */
	struct hp_lease_word word;
};

/* Fills facts[nr_pages]. Return: how many words lie inside other leases or reach out of the zone.
 */
unsigned words_facts(const struct words *words, struct page_fact *facts);

bool page_fact_same(const struct page_fact *a, const struct page_fact *b);

/*
 * What a rebuild must make of words that are consistent: live blocks without a page in use are
 * isolated, failing ones are taken offline.
 */
void words_settle(struct words *words, const struct page_fact *facts);
