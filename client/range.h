/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges a handle holds, found by zone and first page. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

struct held_range {
	uint32_t page, pages; /* pages 0: the slot is empty */
	uint32_t generation;
	uint8_t zone;
	bool leaving; /* named in a FREE that is under way */
	bool shared;  /* others may hold it as well; only DETACH ends it */
	bool untold;  /* revoked, and the program has not been told: event.h */
	bool revoked; /* memory of it was taken; what is not stays until the program frees it */
	bool unasked; /* the program has not been told that it is wanted back: event.h */
	bool forced;  /* it will be taken then */
	bool lost;    /* the daemon came back without it: whose it is now nobody knows */
	uint32_t cut_offset, cut_pages; /* of the part that a FREE_PART under way names */
	uint64_t wanted_ns;		/* back until then, CLOCK_MONOTONIC; 0: it is not wanted */
	void *address;
};

struct range_table {
	struct held_range *slots;
	size_t capacity; /* 0, or a power of two */
	size_t nr;
	size_t promised; /* room that is kept for grants under way */
};

void range_table_deinit(struct range_table *table);

/*
 * Makes sure that n more can be added without failing, besides those promised. Return: 0 or -ENOMEM.
 */
int range_table_reserve(struct range_table *table, size_t n);

/* Keeps room that has been reserved for n more; n < 0: it is used, or not needed any more. */
static inline void range_table_promise(struct range_table *table, int n)
{
	table->promised += (size_t)n;
}

/* Return: 0, or -EEXIST if a range that begins there is held already. Room has been reserved. */
int range_table_add(struct range_table *table, const struct held_range *range);

/* NULL: no such range. Valid until the next call that changes the table. */
struct held_range *range_table_find(const struct range_table *table, uint8_t zone, uint32_t page);

void range_table_remove(struct range_table *table, struct held_range *range);
