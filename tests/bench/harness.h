/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmarks share: pinned threads, interleaved rounds, medians, and rows.
 *
 * A benchmark is a list of cases. A case makes its subjects (the product and its alternatives), has
 * bench_measure() run them in turn, and reports one row for each. Everything here ends the program
 * on an error: a benchmark has nobody to report to.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define BENCH_MAX_THREADS 8
#define BENCH_MAX_ROUNDS  99
#define BENCH_CACHELINE	  128 /* two lines: a neighbour is fetched along */

struct bench;

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline uint64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* xorshift64*: the same sequence for the same seed on every side. The state must not be 0. */
static inline uint32_t bench_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)(*state * UINT64_C(0x2545F4914F6CDD1D) >> 32);
}

/* 0 .. n - 1. */
static inline uint32_t bench_random_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)((uint64_t)bench_random(state) * n >> 32);
}

/* Zeroed, touched, cache line aligned memory, in huge pages where the kernel has some at hand. */
void *bench_memory(size_t bytes);
void bench_memory_free(void *memory);

/*
 * How pieces of memory taken from now on lie to each other in the cache: in one of several ways,
 * and for a case always begun with the first. A few nanoseconds can hang on that alone.
 */
void bench_memory_place(unsigned placement);

/* --- sections --------------------------------------------------------------------------------- */

struct bench_gate;

/* One thread's part of one timed section. */
struct bench_section {
	void *state;	  /* of the subject */
	unsigned thread;  /* 0 .. threads - 1 */
	unsigned threads; /* working at the same time */
	uint64_t ops;	  /* done: added to by the subject */
	uint64_t ns;	  /* that they took: added to by bench_end() */
	uint64_t began;
	uint64_t passes;
	struct bench_gate *gate;
};

/* The timed part of a section; may be entered several times. */
static inline void bench_begin(struct bench_section *section)
{
	section->began = bench_now_ns();
}

static inline void bench_end(struct bench_section *section)
{
	section->ns += bench_now_ns() - section->began;
}

/*
 * Is there time for one more pass? At least one is made. All threads of a section stop with the
 * first: each is timed only while the others are at work too.
 */
bool bench_more(struct bench_section *section);

/*
 * The same, for passes that begin on all threads at once: waits for the others, and all of them get
 * the same answer.
 */
bool bench_more_together(struct bench_section *section);

/* Waits for the other threads of the section. */
void bench_meet(struct bench_section *section);

typedef void (*bench_run_fn)(struct bench_section *section);

/* Runs fn once on each of the first threads, at the same time; for making and unmaking things. */
void bench_on_threads(struct bench *bench, unsigned threads, bench_run_fn fn, void *state);

/* How many threads this machine can pin. */
unsigned bench_threads(const struct bench *bench);

/* --- measuring -------------------------------------------------------------------------------- */

enum bench_kind {
	BENCH_COST,	  /* ns per operation, mean of the threads: less is better */
	BENCH_THROUGHPUT, /* operations a second, all threads: more is better */
};

struct bench_subject {
	const char *variant;
	enum bench_kind kind;
	unsigned threads;
	bench_run_fn run;
	void *state;
	/* made by bench_measure() */
	double value; /* median of the rounds */
	double rounds[BENCH_MAX_ROUNDS];
};

/* How a measurement went. */
struct bench_quality {
	unsigned rounds;
	unsigned discarded; /* samples thrown away: stolen time, or a thread was preempted */
	unsigned disturbed; /* samples kept all the same, after too many attempts */
};

/* At least 7 rounds; in each one every subject once, in rotating order. */
void bench_measure(struct bench *bench, struct bench_subject *subjects, size_t n,
		   struct bench_quality *ret);

/* The same with an odd number of rounds, at least 31, whose values may be compared in pairs. */
void bench_measure_pairs(struct bench *bench, struct bench_subject *subjects, size_t n,
			 struct bench_quality *ret);

double bench_median(const double *values, unsigned n);

/* Sign test. Return: p, one-sided, that a is below b as often as it is by chance. */
double bench_sign_test(const struct bench_subject *a, const struct bench_subject *b,
		       unsigned rounds, unsigned *ret_below);

/* --- rows ------------------------------------------------------------------------------------- */

enum bench_target_kind {
	BENCH_TARGET_RATIO, /* ratio at least */
	BENCH_TARGET_VALUE, /* value at most */
	BENCH_TARGET_SIGN,  /* must: p at most, and ratio above 1; aim: ratio at least */
};

/* What a row has to show. 0 as threads or pages: any; as must or aim: none. */
struct bench_target {
	const char *name;    /* of the case */
	const char *variant; /* NULL: "product" */
	unsigned threads;
	uint32_t pages;
	enum bench_target_kind kind;
	double must, aim;
};

struct bench_row {
	const char *name; /* of the case */
	const char *variant;
	uint32_t pages;	  /* with block_order, for cases that have a zone; 0: none */
	unsigned threads; /* 0: does not apply */
	const char *unit;
	double value;
	const char *baseline; /* NULL: none */
	double baseline_value;
	int block_order;
	enum bench_kind kind;
	const struct bench_quality *quality; /* NULL: was not timed */
	/* a sign test, if pairs is not 0 */
	unsigned pairs, pairs_better;
	double p;
	double instructions, baseline_instructions; /* per operation; 0: not counted */
};

void bench_report(struct bench *bench, const struct bench_row *row);

/* A remark between the rows; not in JSON. */
void bench_note(struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- the program ------------------------------------------------------------------------------ */

struct bench_case {
	const char *name;
	void (*run)(struct bench *bench);
	unsigned threads; /* left out, with a remark, where there are fewer processors */
	const char *what; /* one line of --help */
};

struct bench_program {
	const char *name; /* "zone" */
	const char *what; /* for --help */
	const struct bench_case *cases;
	size_t nr_cases;
	const struct bench_target *targets;
	size_t nr_targets;
	/* No other process takes part in what is measured: the threads may push others aside. */
	bool alone;
};

/* Options, then every case that was asked for. Return: the program's exit status. */
int bench_main(const struct bench_program *program, int argc, char **argv);

/* For a measurement outside a program's own cases: no rows. */
struct bench *bench_new(bool quick, bool alone);
struct bench *bench_free(struct bench *bench);

bool bench_quick(const struct bench *bench);
