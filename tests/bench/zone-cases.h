/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of bench-zone, by the file they are in, and what these files share. */
#pragma once

#include "tests/bench/harness.h"

/* zone-pages.c: single pages */
void case_pcp_hit(struct bench *bench);
void case_pcp_hit_order9(struct bench *bench);
void case_bulk(struct bench *bench);
void case_random(struct bench *bench);
void case_churn(struct bench *bench);
void case_scale_pcp_hit(struct bench *bench);
void case_scale_bulk(struct bench *bench);
void case_size_pcp_hit(struct bench *bench);
void case_size_bulk(struct bench *bench);
void case_page_fault1(struct bench *bench);

/* zone-drain.c: from a pcp back to the zone */
void case_drain(struct bench *bench);
void case_lock_hold_timed(struct bench *bench); /* with locks that keep the time they are held */

/* zone-timed.c: the same, by the program that has such locks */
void case_lock_hold(struct bench *bench);

/* zone-contig.c: ranges */
void case_contig_512(struct bench *bench);
void case_contig_510(struct bench *bench);
void case_contig_16(struct bench *bench);
void case_contig_shared(struct bench *bench);
void case_contig_loop(struct bench *bench);
void case_locks_per_range(struct bench *bench);
void case_metadata(struct bench *bench);

/* zone-lock.c: the lock alone */
void case_lock(struct bench *bench);

/* zone-mempool.c, where there is DPDK: rte_mempool, get and put of one object. */
struct mempool;
struct mempool *mempool_new(void);
void mempool_pair(struct bench_section *section); /* state: the mempool */
struct mempool *mempool_free(struct mempool *mempool);

/*
 * zone-callgrind.c: instructions per page of page_fault1, one thread, counted by valgrind in a
 * child. Return: 0 where there is no valgrind.
 */
double callgrind_instructions(const char *variant);

/* The child: what the option --callgrind-child does. Return: its exit status. */
int callgrind_child(const char *variant);

/* Counted is what this function calls. */
void callgrind_watched(void (*fn)(void *state, unsigned passes), void *state, unsigned passes);

/* zone-pages.c: page_fault1 on one thread, warmed up, then watched. Return: pages of all passes. */
unsigned page_fault1_alone(const char *variant, unsigned passes);
