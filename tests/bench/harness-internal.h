/* SPDX-License-Identifier: Apache-2.0 */
/* What harness.c and report.c share; nothing that a benchmark looks at. */
#pragma once

#include <pthread.h>

#include "tests/bench/harness.h"

struct bench_gate {
	_Alignas(BENCH_CACHELINE) atomic_uint arrived;
	_Alignas(BENCH_CACHELINE) atomic_uint turn;
	uint64_t deadline;
	bool go;
	_Alignas(BENCH_CACHELINE) atomic_bool over;
};

struct bench {
	const struct bench_program *program; /* NULL: no rows */
	bool quick, json, alone;
	uint64_t retry_until;
	unsigned rows, musts, musts_met, aims, aims_met;
	unsigned discarded, disturbed;

	struct worker *workers;
	unsigned nr_workers;

	pthread_mutex_t mutex; /* of all below */
	pthread_cond_t work, done;
	unsigned job; /* number of the present one */
	bench_run_fn job_run;
	unsigned job_threads, job_running, job_holders;
	bool quit;

	atomic_uint holding;	/* workers that hold still */
	atomic_uint hold;	/* the job for which they do, 0: none */
	struct bench_gate gate; /* of the present section */
};
