/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filled by looking at the clock when it is asked, never by a timer. It is counted in floating point,
 * so that nothing overflows after a long sleep.
 */
#include "daemon/pool/budget.h"

#define SECOND_NS UINT64_C(1000000000)

void budget_init(struct budget *budget, uint64_t rate_bytes, uint64_t burst_bytes, uint64_t now_ns)
{
	budget->rate_bytes = rate_bytes;
	budget->burst_bytes = burst_bytes;
	budget->tokens = (int64_t)burst_bytes;
	budget->filled_ns = now_ns;
}

static void fill(struct budget *budget, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - budget->filled_ns;
	double tokens = (double)budget->tokens +
			(double)budget->rate_bytes * (double)elapsed_ns / (double)SECOND_NS;

	budget->tokens = tokens > (double)budget->burst_bytes ? (int64_t)budget->burst_bytes
							      : (int64_t)tokens;
	budget->filled_ns = now_ns;
}

uint64_t budget_wait_ns(struct budget *budget, uint64_t now_ns)
{
	if (!budget->rate_bytes)
		return 0;
	fill(budget, now_ns);
	if (budget->tokens > 0)
		return 0;
	return (uint64_t)((double)(1 - budget->tokens) * (double)SECOND_NS /
			  (double)budget->rate_bytes) +
	       1;
}

void budget_take(struct budget *budget, uint64_t bytes)
{
	if (budget->rate_bytes)
		budget->tokens -= (int64_t)bytes;
}
