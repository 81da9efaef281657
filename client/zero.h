/* SPDX-License-Identifier: Apache-2.0 */
/* Zeroing memory that was used before, in the way that suits where it is now. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECENT_MAX 16u /* frees that are remembered */

/* What was given back of late, the newest last: it is probably still in a cache. */
struct recency {
	struct {
		uint32_t page, pages;
		uint8_t zone;
		uint64_t bytes;
	} freed[RECENT_MAX];
	unsigned next; /* a ring */
};

void recency_note(struct recency *recency, uint8_t zone, uint32_t page, uint32_t pages,
		  uint64_t bytes);
bool recency_is_hot(const struct recency *recency, uint8_t zone, uint32_t page, uint32_t pages);

/* hot: the memory is likely to be in a cache. Pointer and size are multiples of 64. */
void zero_memory(void *p, size_t bytes, bool hot);
