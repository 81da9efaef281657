/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lease words.
 *
 * The word at the first page is the truth about a lease; nothing else says who holds a page. To
 * find the lease of a page in the middle, each area remembers which lease reaches in from before:
 * a look back ends at the area's first page, however long the lease is. A kill may leave words
 * inside a longer lease that has not been cut yet; rebuild wipes them, so here they never occur.
 */
#include "alloc/lease.h"

static void set_cover(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages, hp_pfn_t head)
{
	uint32_t last = hp_area_of(zone, pfn + pages - 1);

	if (hp_lease_is_chunk(zone, pfn, pages))
		return;
	for (uint32_t a = hp_area_of(zone, pfn) + 1; a <= last; a++)
		zone->areas[a].cover = head;
}

uint32_t hp_lease_grant(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages, uint32_t slot)
{
	set_cover(zone, pfn, pages, pfn);
	return hp_lease_store(zone, pfn, pages, slot);
}

int hp_lease_check(const struct hp_zone *zone, uint32_t slot, const struct hp_range *range,
		   uint64_t *ret_word)
{
	if (range->zone != zone->config.id)
		return HP_WRONG_ZONE;
	if (range->pages == 0 || range->pfn >= zone->config.nr_pages ||
	    range->pages > zone->config.nr_pages - range->pfn)
		return HP_OUT_OF_RANGE;

	uint64_t raw = hp_durable_load(&zone->leases[range->pfn]);
	struct hp_lease_word word = hp_lease_decode(raw);

	if (word.state == HP_LEASE_FREE)
		return HP_NOT_LEASED;
	if (word.state == HP_LEASE_REVOKED)
		return HP_REVOKED;
	if (word.slot != slot)
		return HP_WRONG_HOLDER;
	if (word.generation != range->generation)
		return HP_STALE;
	if (word.pages != range->pages)
		return HP_WRONG_LENGTH;
	*ret_word = raw;
	return 0;
}

static bool covers(const struct hp_zone *zone, hp_pfn_t head, hp_pfn_t pfn)
{
	struct hp_lease_word word = hp_lease_get(zone, head);

	return word.state != HP_LEASE_FREE && pfn - head < word.pages;
}

hp_pfn_t hp_lease_find(const struct hp_zone *zone, hp_pfn_t pfn)
{
	uint32_t a = hp_area_of(zone, pfn);

	for (hp_pfn_t head = pfn + 1; head-- > hp_area_pfn(zone, a);)
		if (hp_lease_get(zone, head).state != HP_LEASE_FREE)
			return covers(zone, head, pfn) ? head : HP_PFN_NONE;

	hp_pfn_t cover = zone->areas[a].cover;
	hp_pfn_t block = hp_block_pfn(zone, hp_block_of(zone, pfn));

	if (cover == HP_PFN_NONE)
		cover = block; /* a lease of exactly the block leaves no covers */
	/* Scratch may be damaged when hp_zone_check() looks. */
	return cover <= pfn && covers(zone, cover, pfn) ? cover : HP_PFN_NONE;
}

uint32_t hp_lease_pages_in_block(const struct hp_zone *zone, uint32_t block)
{
	hp_pfn_t pfn = hp_block_pfn(zone, block), end = hp_block_end(zone, block);
	hp_pfn_t head = hp_lease_find(zone, pfn);
	uint32_t n = 0;

	for (pfn = head == HP_PFN_NONE ? pfn : head; pfn < end;) {
		struct hp_lease_word word = hp_lease_get(zone, pfn);

		if (word.state == HP_LEASE_FREE) {
			pfn++;
			continue;
		}
		hp_pfn_t from = pfn > hp_block_pfn(zone, block) ? pfn : hp_block_pfn(zone, block);

		pfn += word.pages;
		n += (pfn < end ? pfn : end) - from;
	}
	return n;
}

void hp_cut_begin(struct hp_cut *cut, struct hp_zone *zone, hp_pfn_t head,
		  enum hp_lease_state parts)
{
	*cut = (struct hp_cut){.zone = zone, .head = head, .word = hp_lease_get(zone, head)};
	set_cover(zone, head, cut->word.pages, HP_PFN_NONE);
	cut->word.state = parts;
}

void hp_cut_keep(struct hp_cut *cut, hp_pfn_t pfn, uint32_t pages)
{
	struct hp_lease_word word = cut->word;

	set_cover(cut->zone, pfn, pages, pfn);
	if (pfn == cut->head) {
		cut->head_pages = pages;
		return;
	}
	word.pages = pages;
	hp_durable_store(&cut->zone->leases[pfn], hp_lease_encode(word));
}

void hp_cut_commit(struct hp_cut *cut)
{
	struct hp_lease_word word = cut->word;

	word.pages = cut->head_pages;
	hp_durable_store(&cut->zone->leases[cut->head],
			 cut->head_pages ? hp_lease_encode(word)
					 : hp_lease_freed(hp_lease_encode(word)));
}
