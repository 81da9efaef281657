/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket, in bytes. Whoever finds it not empty may take as much as he needs and leaves it in
 * debt: so a block larger than the bucket gets through, and the rate holds all the same.
 */
#pragma once

#include <stdint.h>

struct budget {
	uint64_t rate_bytes;  /* a second; 0: no limit */
	uint64_t burst_bytes; /* what it holds when full */
	int64_t tokens;
	uint64_t filled_ns; /* up to when it has been filled */
};

void budget_init(struct budget *budget, uint64_t rate_bytes, uint64_t burst_bytes, uint64_t now_ns);

/* Return: 0 if something may be taken now, or in how many nanoseconds. */
uint64_t budget_wait_ns(struct budget *budget, uint64_t now_ns);

void budget_take(struct budget *budget, uint64_t bytes);
