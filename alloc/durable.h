/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable words: what survives a kill at any instruction.
 *
 * One 64-bit word per page (a lease, at its first page) and one per pageblock. Every change of
 * either is one release store of one word through hp_durable_store(); the order of the stores of an
 * operation is its commit protocol, and rebuild.c is its reader. No pointers: the words may lie in
 * a file mapped at any address. Layout in memory: nr_blocks block words, then nr_pages lease words.
 *
 *   lease word   [63:40] generation  [39:22] holder slot  [21:2] length in pages  [1:0] state
 *   block word   [63:24] generation  [23:8] owner  [7:5] 0  [4] exclusive           [3:0] state
 *
 * A freed lease word keeps its generation and clears the rest; a new lease has the generation of
 * its head word plus one.
 *
 * Built with HP_DURABLE_HOOK, hp_durable_store() first calls hp_durable_hook(): a test can stop
 * there, as if the process had been killed before that store.
 */
#pragma once

#include "alloc/types.h"

enum hp_lease_state { HP_LEASE_FREE = 0, HP_LEASE_LEASED = 1, HP_LEASE_REVOKED = 2 };

/* Numbers are part of the state file's format. */
enum hp_block_state {
	HP_BLOCK_OFFLINE = 0,	  /* no memory behind it: not brought up, or taken away */
	HP_BLOCK_CLEAN = 1,	  /* zeroed, nobody's */
	HP_BLOCK_LIVE = 2,	  /* its owner's; idle when all its pages are free */
	HP_BLOCK_FAILING = 3,	  /* live, but no new grants (memory failure) */
	HP_BLOCK_ISOLATED = 4,	  /* free, on no list: being recycled; charged to its owner */
	HP_BLOCK_QUARANTINED = 5, /* its pages did not all come back; charged to its owner */
	HP_BLOCK_LENT = 6,	  /* its file system is in somebody else's hands; charged */
	HP_BLOCK_STATES
};

typedef _Atomic uint64_t hp_word_t;

struct hp_lease_word {
	uint32_t generation; /* 24 bits */
	uint32_t slot;	     /* 18 bits */
	uint32_t pages;	     /* 20 bits */
	enum hp_lease_state state;
};

struct hp_block_word {
	uint64_t generation; /* 40 bits */
	uint32_t owner;	     /* 16 bits */
	bool exclusive;	     /* of one lease that has the block to itself, for this life */
	enum hp_block_state state;
};

static inline uint64_t hp_lease_encode(struct hp_lease_word w)
{
	return (uint64_t)(w.generation & HP_GENERATION_MAX) << 40 |
	       (uint64_t)(w.slot & HP_SLOT_MAX) << 22 |
	       (uint64_t)(w.pages & HP_RANGE_MAX_PAGES) << 2 | (uint64_t)w.state;
}

static inline struct hp_lease_word hp_lease_decode(uint64_t word)
{
	return (struct hp_lease_word){
		.generation = (uint32_t)(word >> 40),
		.slot = (uint32_t)(word >> 22) & HP_SLOT_MAX,
		.pages = (uint32_t)(word >> 2) & HP_RANGE_MAX_PAGES,
		.state = (enum hp_lease_state)(word & 3),
	};
}

static inline uint64_t hp_block_encode(struct hp_block_word w)
{
	return (w.generation & HP_BLOCK_GENERATION_MAX) << 24 |
	       (uint64_t)(w.owner & HP_OWNER_MAX) << 8 | (uint64_t)w.exclusive << 4 |
	       (uint64_t)w.state;
}

static inline struct hp_block_word hp_block_decode(uint64_t word)
{
	return (struct hp_block_word){
		.generation = word >> 24,
		.owner = (uint32_t)(word >> 8) & HP_OWNER_MAX,
		.exclusive = word >> 4 & 1,
		.state = (enum hp_block_state)(word & 15),
	};
}

#ifdef HP_DURABLE_HOOK
/* Given by the test; called before every store. May longjmp() away or fork a copy of the memory. */
void hp_durable_hook(hp_word_t *word, uint64_t value);
#endif

/* One store to durable memory: atomic, after everything stored before it. */
static inline void hp_durable_store(hp_word_t *word, uint64_t value)
{
#ifdef HP_DURABLE_HOOK
	hp_durable_hook(word, value);
#endif
	__atomic_store_n((uint64_t *)word, value, __ATOMIC_RELEASE);
}

static inline uint64_t hp_durable_load(const hp_word_t *word)
{
	return __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE);
}

/* The same for a run of words: are these n words all equal to want in the bits of mask? */
bool hp_durable_all(const hp_word_t *words, uint32_t n, uint64_t want, uint64_t mask);

/* Keeps of each of n words the bits of mask: n stores, each a commit of its own, in any order. */
void hp_durable_keep(hp_word_t *words, uint32_t n, uint64_t mask);
