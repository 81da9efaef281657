/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the zone allocator is measured against: small models of how page allocators are built, as
 * fast as they can be made, with the product's own lock. See zone-model.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MODEL_BATCH 63	/* pages moved between a pcp and the zone at once */
#define MODEL_HIGH  378 /* pages in a pcp from which on a free drains one batch */

/* How a drain chooses its pages. */
enum model_drain {
	MODEL_PICK_INSIDE,	     /* under the zone lock, one by one as they are freed */
	MODEL_PICK_OUTSIDE,	     /* before the lock, onto a private list */
	MODEL_PICK_OUTSIDE_PREFETCH, /* and their buddies' structs are fetched meanwhile */
};

struct model;

struct model *model_new(uint32_t pages, enum model_drain drain, unsigned threads);
struct model *model_free(struct model *model);

/* With pcp: one page, by the pcp of this thread. Return: its number. */
uint32_t model_take(struct model *model, unsigned thread);
void model_give(struct model *model, unsigned thread, uint32_t page);

/* The same with the product's biased lock for the pcp. Not to be mixed with the above. */
uint32_t model_take_biased(struct model *model, unsigned thread);
void model_give_biased(struct model *model, unsigned thread, uint32_t page);

/* Without: a chunk of any order, from the zone, behind its lock alone. */
uint32_t model_zone_take(struct model *model, unsigned order);
void model_zone_give(struct model *model, uint32_t page, unsigned order);

/* Lets a pcp grow: for the benchmark of the drain itself. */
void model_set_high(struct model *model, uint32_t high);

/* Drains at most one batch. Return: pages drained. */
uint32_t model_drain_batch(struct model *model, unsigned thread);

/* The whole pcp. */
void model_drain_all(struct model *model, unsigned thread);

/* For how long the zone's lock has been held in all; 0 unless locks keep the time. */
uint64_t model_lock_held_ns(const struct model *model);

/*
 * Ends the program if the model does not do its work: every page given out exactly once, and all
 * merged into chunks of the largest order once everything is given back.
 */
void model_self_check(uint32_t pages, enum model_drain drain);
