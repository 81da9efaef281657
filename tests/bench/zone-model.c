/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel-like page allocator: a 64-byte struct for each page, free lists threaded through these
 * structs, buddies merged by their order, one lock for the zone, and in front of it a list of free
 * pages for each thread, taken by trylock.
 *
 * It is the strongest of its kind that we could write, not a copy of one: what a kernel does
 * besides (migrate types, watermarks, reference counts, debugging, statistics, preemption) is left
 * out, so it does less than any real one, and less than the product, which checks every free
 * against its lease and stores a durable word for each. Order-0 pages only pass through the pcp,
 * as in the comparison; the structure for more orders, over which a drain goes round robin, is
 * there, so the drain pays for it.
 *
 * The lock of a pcp is only ever tried, so nobody waits for it and letting go of it is one plain
 * store: cheaper than any lock that has to wake sleepers. How much of a difference comes from the
 * product's biased lock alone is shown by the second set of entry points, which takes the pcp by
 * that one.
 */
#include "tests/bench/zone-model.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/lock.h"
#include "tests/bench/harness.h"

#define MODEL_MAX_ORDER 10
#define MODEL_PCP_LISTS 4 /* orders 0 to 3 */

struct link {
	struct link *next, *prev;
};

/* Exactly one line: two pages never share one. */
struct page {
	_Alignas(64) struct link link; /* in a free list of the zone, in a pcp, or in nothing */
	uint8_t order;		       /* of the chunk it is the first page of */
	bool buddy;		       /* heads a free chunk of the zone's lists */
};

_Static_assert(sizeof(struct page) == 64, "one line a page");

struct pcp {
	_Alignas(BENCH_CACHELINE) atomic_bool taken; /* its lock, or else */
	struct hp_bias bias;
	uint32_t count;
	uint32_t next_list; /* where the round robin goes on */
	struct link lists[MODEL_PCP_LISTS];
};

struct model {
	_Alignas(BENCH_CACHELINE) struct hp_lock lock; /* of the free lists */
	struct link free[MODEL_MAX_ORDER + 1];
	uint32_t nr_free[MODEL_MAX_ORDER + 1];

	_Alignas(BENCH_CACHELINE) struct page *pages;
	uint32_t nr_pages;
	uint32_t high, batch;
	enum model_drain drain;
	unsigned threads;
	struct pcp pcps[BENCH_MAX_THREADS];
};

/* --- lists ------------------------------------------------------------------------------------ */

static inline void list_init(struct link *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct link *list)
{
	return list->next == list;
}

static inline void list_insert(struct link *link, struct link *prev, struct link *next)
{
	next->prev = link;
	link->next = next;
	link->prev = prev;
	prev->next = link;
}

static inline void list_push(struct link *list, struct link *link)
{
	list_insert(link, list, list->next);
}

static inline void list_append(struct link *list, struct link *link)
{
	list_insert(link, list->prev, list);
}

static inline void list_remove(struct link *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
}

static inline struct page *page_of(struct link *link)
{
	return (struct page *)link;
}

/* --- buddies: the zone's lock is held --------------------------------------------------------- */

static inline void free_list_add(struct model *model, struct page *page, unsigned order)
{
	page->order = (uint8_t)order;
	page->buddy = true;
	list_push(&model->free[order], &page->link);
	model->nr_free[order]++;
}

static inline void free_list_remove(struct model *model, struct page *page, unsigned order)
{
	page->buddy = false;
	list_remove(&page->link);
	model->nr_free[order]--;
}

static inline struct page *buddy_take(struct model *model, unsigned order)
{
	for (unsigned from = order; from <= MODEL_MAX_ORDER; from++) {
		struct page *page;

		if (list_empty(&model->free[from]))
			continue;
		page = page_of(model->free[from].next);
		free_list_remove(model, page, from);
		while (from > order) {
			from--;
			free_list_add(model, page + (1u << from), from);
		}
		return page;
	}
	return NULL;
}

static inline void buddy_give(struct model *model, struct page *page, unsigned order)
{
	uint32_t pfn = (uint32_t)(page - model->pages);

	while (order < MODEL_MAX_ORDER) {
		const uint32_t buddy_pfn = pfn ^ 1u << order;
		struct page *buddy = &model->pages[buddy_pfn];

		if (buddy_pfn >= model->nr_pages || !buddy->buddy || buddy->order != order)
			break;
		free_list_remove(model, buddy, order);
		pfn &= buddy_pfn;
		order++;
	}
	free_list_add(model, &model->pages[pfn], order);
}

/* --- pcp: its lock is held -------------------------------------------------------------------- */

/*
 * The list of which the next pages are to be drained, and how many. Every empty list that is met
 * raises the number, so that full lists give more; the last one that has any gives all the rest.
 */
static inline struct link *pick_list(struct pcp *pcp, uint32_t *ret_number)
{
	uint32_t number = 0;
	struct link *list;

	do {
		number++;
		pcp->next_list = (pcp->next_list + 1) % MODEL_PCP_LISTS;
		list = &pcp->lists[pcp->next_list];
	} while (list_empty(list));
	*ret_number = number == MODEL_PCP_LISTS ? UINT32_MAX : number;
	return list;
}

/* The coldest page of a list leaves it, and the count. */
static inline struct page *pick(struct pcp *pcp, struct link *list)
{
	struct page *page = page_of(list->prev);

	list_remove(&page->link);
	pcp->count--;
	return page;
}

static void drain_inside(struct model *model, struct pcp *pcp, uint32_t count)
{
	hp_lock_acquire(&model->lock);
	while (count > 0) {
		uint32_t number;
		struct link *list = pick_list(pcp, &number);

		do {
			struct page *page = pick(pcp, list);

			buddy_give(model, page, pcp->next_list);
		} while (--count > 0 && --number > 0 && !list_empty(list));
	}
	hp_lock_release(&model->lock);
}

static inline __attribute__((always_inline)) void
drain_outside(struct model *model, struct pcp *pcp, uint32_t count, bool prefetch)
{
	struct link head, *link, *next;

	list_init(&head);
	while (count > 0) {
		uint32_t number;
		struct link *list = pick_list(pcp, &number);

		do {
			struct page *page = pick(pcp, list);

			page->order = (uint8_t)pcp->next_list;
			list_append(&head, &page->link);
			if (prefetch) {
				const uint32_t pfn = (uint32_t)(page - model->pages);

				__builtin_prefetch(&model->pages[pfn ^ 1u << page->order], 1);
			}
		} while (--count > 0 && --number > 0 && !list_empty(list));
	}
	hp_lock_acquire(&model->lock);
	for (link = head.next; link != &head; link = next) {
		next = link->next;
		buddy_give(model, page_of(link), page_of(link)->order);
	}
	hp_lock_release(&model->lock);
}

static void drain(struct model *model, struct pcp *pcp, uint32_t count)
{
	switch (model->drain) {
	case MODEL_PICK_INSIDE:
		drain_inside(model, pcp, count);
		break;
	case MODEL_PICK_OUTSIDE:
		drain_outside(model, pcp, count, false);
		break;
	case MODEL_PICK_OUTSIDE_PREFETCH:
		drain_outside(model, pcp, count, true);
		break;
	}
}

static void refill(struct model *model, struct pcp *pcp)
{
	hp_lock_acquire(&model->lock);
	for (uint32_t i = 0; i < model->batch; i++) {
		struct page *page = buddy_take(model, 0);

		if (!page)
			break;
		list_append(&pcp->lists[0], &page->link);
		pcp->count++;
	}
	hp_lock_release(&model->lock);
}

/* --- pages ------------------------------------------------------------------------------------ */

static inline bool pcp_try(struct pcp *pcp, bool biased)
{
	bool taken = false;

	if (biased)
		return hp_bias_try(&pcp->bias);
	return atomic_compare_exchange_strong_explicit(&pcp->taken, &taken, true,
						       memory_order_acquire, memory_order_relaxed);
}

static inline void pcp_leave(struct pcp *pcp, bool biased)
{
	if (biased)
		hp_bias_leave(&pcp->bias);
	else
		atomic_store_explicit(&pcp->taken, false, memory_order_release);
}

static inline __attribute__((always_inline)) uint32_t take(struct model *model, unsigned thread,
							   bool biased)
{
	struct pcp *pcp = &model->pcps[thread];
	struct link *link;

	if (!pcp_try(pcp, biased))
		return model_zone_take(model, 0);
	if (list_empty(&pcp->lists[0]))
		refill(model, pcp);
	link = pcp->lists[0].next;
	if (link == &pcp->lists[0])
		bench_die("model: no page left");
	list_remove(link);
	pcp->count--;
	pcp_leave(pcp, biased);
	return (uint32_t)(page_of(link) - model->pages);
}

static inline __attribute__((always_inline)) void give(struct model *model, unsigned thread,
						       uint32_t page, bool biased)
{
	struct pcp *pcp = &model->pcps[thread];

	if (!pcp_try(pcp, biased)) {
		model_zone_give(model, page, 0);
		return;
	}
	list_push(&pcp->lists[0], &model->pages[page].link);
	if (++pcp->count >= model->high)
		drain(model, pcp, model->batch);
	pcp_leave(pcp, biased);
}

uint32_t model_take(struct model *model, unsigned thread)
{
	return take(model, thread, false);
}

void model_give(struct model *model, unsigned thread, uint32_t page)
{
	give(model, thread, page, false);
}

uint32_t model_take_biased(struct model *model, unsigned thread)
{
	return take(model, thread, true);
}

void model_give_biased(struct model *model, unsigned thread, uint32_t page)
{
	give(model, thread, page, true);
}

uint32_t model_zone_take(struct model *model, unsigned order)
{
	struct page *page;

	hp_lock_acquire(&model->lock);
	page = buddy_take(model, order);
	hp_lock_release(&model->lock);
	if (!page)
		bench_die("model: no chunk of order %u left", order);
	return (uint32_t)(page - model->pages);
}

void model_zone_give(struct model *model, uint32_t page, unsigned order)
{
	hp_lock_acquire(&model->lock);
	buddy_give(model, &model->pages[page], order);
	hp_lock_release(&model->lock);
}

void model_set_high(struct model *model, uint32_t high)
{
	model->high = high;
}

uint32_t model_drain_batch(struct model *model, unsigned thread)
{
	struct pcp *pcp = &model->pcps[thread];
	uint32_t count;

	if (!pcp_try(pcp, false))
		bench_die("model: a pcp is used by two threads");
	count = pcp->count < model->batch ? pcp->count : model->batch;
	if (count > 0)
		drain(model, pcp, count);
	pcp_leave(pcp, false);
	return count;
}

void model_drain_all(struct model *model, unsigned thread)
{
	while (model_drain_batch(model, thread) > 0)
		;
}

uint64_t model_lock_held_ns(const struct model *model)
{
#ifdef HP_LOCK_TIMES
	return model->lock.held_ns;
#else
	(void)model;
	return 0;
#endif
}

/* --- life ------------------------------------------------------------------------------------- */

struct model *model_new(uint32_t pages, enum model_drain drain, unsigned threads)
{
	struct model *model = bench_memory(sizeof(*model));

	model->pages = bench_memory(pages * sizeof(*model->pages));
	model->nr_pages = pages;
	model->high = MODEL_HIGH;
	model->batch = MODEL_BATCH;
	model->drain = drain;
	model->threads = threads;
	hp_lock_init(&model->lock);
	for (unsigned i = 0; i <= MODEL_MAX_ORDER; i++)
		list_init(&model->free[i]);
	for (unsigned i = 0; i < BENCH_MAX_THREADS; i++) {
		hp_bias_init(&model->pcps[i].bias);
		for (unsigned j = 0; j < MODEL_PCP_LISTS; j++)
			list_init(&model->pcps[i].lists[j]);
	}
	/* From the end, so that the lists begin with the first pages. */
	for (uint32_t pfn = pages; pfn-- > 0;)
		buddy_give(model, &model->pages[pfn], 0);
	return model;
}

struct model *model_free(struct model *model)
{
	bench_memory_free(model->pages);
	bench_memory_free(model);
	return NULL;
}

void model_self_check(uint32_t pages, enum model_drain drain)
{
	struct model *model = model_new(pages, drain, 1);
	uint32_t *held = bench_memory(pages * sizeof(*held));
	bool *taken = bench_memory(pages * sizeof(*taken));
	uint64_t random = 1;

	for (uint32_t i = 0; i < pages; i++) {
		held[i] = model_take(model, 0);
		if (held[i] >= pages || taken[held[i]])
			bench_die("model: page %u given out twice", held[i]);
		taken[held[i]] = true;
	}
	for (uint32_t left = pages; left > 0; left--) {
		const uint32_t i = bench_random_below(&random, left);

		model_give(model, 0, held[i]);
		held[i] = held[left - 1];
	}
	model_drain_all(model, 0);
	if (model->pcps[0].count != 0)
		bench_die("model: %u pages left in the pcp", model->pcps[0].count);
	for (unsigned order = 0; order < MODEL_MAX_ORDER; order++)
		if (model->nr_free[order] != (pages >> order & 1))
			bench_die("model: %u chunks of order %u were not merged",
				  model->nr_free[order], order);
	if (model->nr_free[MODEL_MAX_ORDER] != pages >> MODEL_MAX_ORDER)
		bench_die("model: %u chunks of the largest order of %u",
			  model->nr_free[MODEL_MAX_ORDER], pages >> MODEL_MAX_ORDER);
	bench_memory_free(taken);
	bench_memory_free(held);
	model_free(model);
}
