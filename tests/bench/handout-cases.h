/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of bench-handout, and how they are measured: see handout-rounds.c. */
#pragma once

#include <stdint.h>

#include "tests/bench/handout-daemon.h"
#include "tests/bench/harness.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct handout_subject {
	const char *variant;
	/* Return: the value of one round; context is the measurement's. */
	double (*round)(const void *context, int cpu);
	int cpu; /* for client and daemon, or ANYWHERE */
	/* made by handout_measure() */
	double value; /* median of the rounds */
	double rounds[BENCH_MAX_ROUNDS];
};

/* Rounds of all subjects in turn. A first one that is slow is passed over by the median. */
void handout_measure(struct bench *bench, struct handout_subject *subjects, size_t n,
		     const void *context, struct bench_quality *ret);

/* The row of a subject; shape: NULL if no zone takes part. */
void handout_report(struct bench *bench, const char *name, const char *unit,
		    const struct stage_shape *shape, const struct handout_subject *subject,
		    const struct handout_subject *baseline, const struct bench_quality *quality);

/* A populated mapping of huge pages of the machine. */
void *handout_mmap(uint64_t bytes);
void handout_munmap(void *memory, uint64_t bytes);

void case_handout_2M(struct bench *bench);
void case_handout_64M(struct bench *bench);
void case_handout_1G(struct bench *bench);
void case_handout_64M_new(struct bench *bench);
void case_handout_2M_dirty(struct bench *bench);
void case_handout_64x2M(struct bench *bench);
void case_first_touch(struct bench *bench);
void case_steady(struct bench *bench);
void case_zeroing(struct bench *bench);
void case_zeroing_hot(struct bench *bench);
