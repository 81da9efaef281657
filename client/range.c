/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing, because room can be made before the daemon is asked: once a grant is there,
 * writing it down cannot fail. Removal moves later entries up instead of leaving marks, so that
 * years of taking and giving do not fill the table with them.
 */
#include "client/range.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define CAPACITY_MIN 16u

static size_t home_of(const struct range_table *table, uint8_t zone, uint32_t page)
{
	uint64_t key = (uint64_t)zone << 32 | page;

	/* Multiplication spreads upwards: the upper half is the well mixed one. */
	return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (table->capacity - 1);
}

void range_table_deinit(struct range_table *table)
{
	free(table->slots);
	*table = (struct range_table){.slots = NULL};
}

static void insert(struct range_table *table, const struct held_range *range)
{
	size_t i = home_of(table, range->zone, range->page);

	while (table->slots[i].pages)
		i = (i + 1) & (table->capacity - 1);
	table->slots[i] = *range;
	table->nr++;
}

int range_table_reserve(struct range_table *table, size_t n)
{
	struct range_table larger = {.capacity = table->capacity ? table->capacity : CAPACITY_MIN};

	/* At most three quarters full: look-ups stay short, and an empty slot ends each. */
	larger.promised = table->promised;
	while (table->nr + table->promised + n > larger.capacity / 4 * 3)
		larger.capacity *= 2;
	if (larger.capacity == table->capacity)
		return 0;
	larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < table->capacity; i++)
		if (table->slots[i].pages)
			insert(&larger, &table->slots[i]);
	free(table->slots);
	*table = larger;
	return 0;
}

struct held_range *range_table_find(const struct range_table *table, uint8_t zone, uint32_t page)
{
	if (table->capacity == 0)
		return NULL;
	for (size_t i = home_of(table, zone, page); table->slots[i].pages;
	     i = (i + 1) & (table->capacity - 1))
		if (table->slots[i].zone == zone && table->slots[i].page == page)
			return &table->slots[i];
	return NULL;
}

int range_table_add(struct range_table *table, const struct held_range *range)
{
	assert(range->pages > 0);
	assert(table->nr < table->capacity);

	if (range_table_find(table, range->zone, range->page))
		return -EEXIST;
	insert(table, range);
	return 0;
}

void range_table_remove(struct range_table *table, struct held_range *range)
{
	size_t mask = table->capacity - 1, hole = (size_t)(range - table->slots), i = hole;

	/* An entry moves up into the hole unless its home lies behind it. */
	for (;;) {
		size_t home;

		i = (i + 1) & mask;
		if (table->slots[i].pages == 0)
			break;
		home = home_of(table, table->slots[i].zone, table->slots[i].page);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			table->slots[hole] = table->slots[i];
			hole = i;
		}
	}
	table->slots[hole] = (struct held_range){.pages = 0};
	table->nr--;
}
