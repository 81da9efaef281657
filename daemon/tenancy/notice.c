/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of one word: pushed by compare and swap, taken as a whole, so that nothing is popped. */
#include "daemon/tenancy/notice.h"

#include <stdatomic.h>
#include <stdlib.h>

void notice_post(struct slot *slot, struct notice *notice)
{
	notice->next = atomic_load_explicit(&slot->notices, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&slot->notices, &notice->next, notice,
						      memory_order_release, memory_order_relaxed))
		;
}

struct notice *notice_take_all(struct slot *slot)
{
	struct notice *notice, *next, *list = NULL;

	if (!atomic_load_explicit(&slot->notices, memory_order_acquire))
		return NULL;
	notice = atomic_exchange_explicit(&slot->notices, NULL, memory_order_acquire);
	for (; notice; notice = next) {
		next = notice->next;
		notice->next = list;
		list = notice;
	}
	return list;
}

struct notice *notice_free_all(struct notice *notice)
{
	struct notice *next;

	for (; notice; notice = next) {
		next = notice->next;
		free(notice);
	}
	return NULL;
}

bool range_equal(const struct hp_range *a, const struct hp_range *b)
{
	return a->zone == b->zone && a->pfn == b->pfn && a->pages == b->pages &&
	       a->generation == b->generation;
}
