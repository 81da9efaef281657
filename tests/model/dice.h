/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a random operation takes its choices from: a seeded generator, or the bytes of a fuzzer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dice {
	uint64_t state;	      /* of the generator */
	const uint8_t *bytes; /* NULL: the generator */
	size_t size, at;
};

static inline struct dice dice_bytes(const uint8_t *bytes, size_t size)
{
	return (struct dice){.bytes = bytes, .size = size};
}

/* No bytes left: every further roll gives 0. */
static inline bool dice_spent(const struct dice *dice)
{
	return dice->bytes && dice->at >= dice->size;
}

/* splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t dice_next(struct dice *dice)
{
	uint64_t z = (dice->state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Mixed once, so that neighbouring seeds are not the same sequence a step apart. */
static inline struct dice dice_seeded(uint64_t seed)
{
	struct dice dice = {.state = seed};

	dice.state = dice_next(&dice);
	return dice;
}

/* A number below n; n at least 1. */
static inline uint32_t dice_roll(struct dice *dice, uint32_t n)
{
	uint64_t value = 0;

	if (n <= 1)
		return 0;
	if (!dice->bytes)
		return (uint32_t)(dice_next(dice) % n);
	for (uint64_t reach = 1; reach < n && dice->at < dice->size; reach <<= 8)
		value = value << 8 | dice->bytes[dice->at++];
	return (uint32_t)(value % n);
}

/* True in one of n cases. */
static inline bool dice_one_in(struct dice *dice, uint32_t n)
{
	return dice_roll(dice, n) == n - 1;
}
