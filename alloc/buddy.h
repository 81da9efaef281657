/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Free pages: lists per owner and order, taking and giving back. Everything here is called under
 * the zone lock and changes scratch memory only.
 */
#pragma once

#include "alloc/page.h"

/*
 * Takes a chunk of this order from the owner's lists, from the smallest that holds one. want_zero:
 * one that is zero throughout, if a few looks find it. HP_PFN_NONE: there is none. *ret_zero: is
 * every page of it zero.
 */
hp_pfn_t hp_buddy_take(struct hp_zone *zone, uint32_t owner, unsigned order, bool want_zero,
		       bool *ret_zero);

/*
 * Takes up to n pages, of the smallest chunks, in up to max rows. Returns how many rows;
 * *ret_pages: of so many pages.
 */
uint32_t hp_buddy_take_pages(struct hp_zone *zone, uint32_t owner, uint32_t n, struct hp_row *ret,
			     uint32_t max, uint32_t *ret_pages);

/* Takes exactly these pages, all of them free. Returns whether all of them are zero. */
bool hp_buddy_take_range(struct hp_zone *zone, hp_pfn_t pfn, uint32_t pages);

/*
 * Gives a chunk back to the block (or blocks) it is in and merges it as far as it goes. Every page
 * is checked: one that is free already, or broken, is kept out and its neighbours are freed.
 */
void hp_buddy_free(struct hp_zone *zone, hp_pfn_t pfn, unsigned order, bool zero);

/* The same for rows of pages, and chunks, of one owner. */
void hp_buddy_free_rows(struct hp_zone *zone, uint32_t owner, const struct hp_row *rows,
			uint32_t n);

/* How many chunks of this order the owner's lists hold; stops counting at enough. */
uint32_t hp_buddy_count(struct hp_zone *zone, uint32_t owner, unsigned order, uint32_t enough);

/* An area of the smallest chunk on the owner's lists that holds this order; HP_AREA_NONE. */
uint32_t hp_buddy_peek(struct hp_zone *zone, uint32_t owner, unsigned order);

/* Takes all areas of a block off their lists, and puts them on those of their owner, if open. */
void hp_buddy_unlink_block(struct hp_zone *zone, uint32_t block);
void hp_buddy_link_block(struct hp_zone *zone, uint32_t block);
