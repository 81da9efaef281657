/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring on a machine that others use too.
 *
 * Ratios are what counts, so the subjects of a case run in turn, in short sections of about 2 ms:
 * whatever slows the machine down for longer than that slows all of them. Sections are short for a
 * second reason: a section in which a thread was preempted, or the hypervisor took time away, is
 * thrown away and made again at once, and a short one has a fair chance to pass between two
 * preemptions. The number of attempts is bounded; what stays disturbed is kept and counted. Where
 * nothing but these threads is measured they take real-time priority for their milliseconds, if they
 * may: then hardly any sample is lost.
 *
 * The threads live as long as the program, each pinned to a processor of its own. They sleep
 * between sections and meet at a spinning barrier before one begins, since a wake-up takes longer
 * than many sections' passes. The two processors of a small virtual machine are often two threads of
 * one core: while a section of one thread runs, the second one is held still, or whoever computes
 * there would make that section slower than its share of a section of two.
 */
#include "tests/bench/harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "tests/bench/harness-internal.h"

#define SECTION_NS     UINT64_C(2000000)
#define MAX_RETRIES    20 /* of one sample */
#define HELD_WORKERS   2  /* of these, the ones that have nothing to do in a section */
#define ROUNDS	       21
#define ROUNDS_QUICK   7
#define PAIRS	       51
#define PAIRS_QUICK    31
#define RETRY_NS       UINT64_C(240000000000) /* after so much time nothing is made again */
#define RETRY_NS_QUICK UINT64_C(10000000000)

_Noreturn void bench_die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("bench: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/*
 * Mappings of this size all begin at the same place of a huge page, and so of the cache: things
 * that are used together would get into each other's way as they never do in a program. So each
 * begins some lines further on than the last one, and in the same way whenever a case is run.
 */
static atomic_uint colour, colour_step = 1;
#define HUGE_PAGE (2u << 20)
#define COLOURS	  16u /* times 256 bytes: the loads and stores of 4 KiB that are confused */

struct memory {
	_Alignas(BENCH_CACHELINE) size_t size; /* of the mapping */
	size_t offset;			       /* of this in it */
};

void *bench_memory(size_t bytes)
{
	const size_t offset = atomic_fetch_add(&colour, atomic_load(&colour_step)) % COLOURS * 2 *
			      BENCH_CACHELINE;
	const size_t size =
		(offset + sizeof(struct memory) + bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1ul);
	char *mapping =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct memory *memory;

	if (mapping == MAP_FAILED)
		bench_die("mmap of %zu bytes: %s", size, strerror(errno));
	(void)madvise(mapping, size, MADV_HUGEPAGE);
	memset(mapping, 0, size);
	memory = (struct memory *)(void *)(mapping + offset);
	*memory = (struct memory){.size = size, .offset = offset};
	return memory + 1;
}

void bench_memory_place(unsigned placement)
{
	atomic_store(&colour, 0);
	atomic_store(&colour_step, 2 * placement + 1); /* odd: no colour twice in a row of 16 */
}

void bench_memory_free(void *memory)
{
	const struct memory *m = (struct memory *)memory - 1;

	munmap((char *)memory - sizeof(*m) - m->offset, m->size);
}

/* --- the gate of a section -------------------------------------------------------------------- */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	sched_yield();
#endif
}

/*
 * Waits until all threads of the section are here. The last one to come decides for all of them
 * whether the time is up; at the start of the section he sets how long it is.
 */
static bool gate_meet(struct bench_gate *gate, unsigned threads, bool start)
{
	const unsigned turn = atomic_load_explicit(&gate->turn, memory_order_acquire);

	if (atomic_fetch_add_explicit(&gate->arrived, 1, memory_order_acq_rel) + 1 == threads) {
		const uint64_t now = bench_now_ns();

		if (start)
			gate->deadline = now + SECTION_NS;
		gate->go = now < gate->deadline;
		atomic_store_explicit(&gate->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&gate->turn, turn + 1, memory_order_release);
		return gate->go;
	}
	while (atomic_load_explicit(&gate->turn, memory_order_acquire) == turn)
		relax();
	return gate->go;
}

bool bench_more(struct bench_section *section)
{
	struct bench_gate *gate = section->gate;

	if (section->passes++ == 0)
		return true;
	if (atomic_load_explicit(&gate->over, memory_order_relaxed))
		return false;
	if (bench_now_ns() < gate->deadline)
		return true;
	atomic_store_explicit(&gate->over, true, memory_order_relaxed);
	return false;
}

bool bench_more_together(struct bench_section *section)
{
	const bool go = gate_meet(section->gate, section->threads, false);

	return section->passes++ == 0 || go;
}

void bench_meet(struct bench_section *section)
{
	(void)gate_meet(section->gate, section->threads, false);
}

/* --- threads ---------------------------------------------------------------------------------- */

struct worker {
	_Alignas(BENCH_CACHELINE) struct bench *bench;
	unsigned number;
	int cpu;
	pthread_t thread;
	long preempted; /* in the last section */
	struct bench_section section;
};

static long involuntary_switches(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_THREAD, &usage) < 0)
		bench_die("getrusage: %s", strerror(errno));
	return usage.ru_nivcsw;
}

static void worker_section(struct worker *worker, bench_run_fn run)
{
	struct bench_section *section = &worker->section;
	long before;

	/* Met twice: a thread that loses its processor while the others begin is noticed. */
	(void)gate_meet(section->gate, section->threads, false);
	before = involuntary_switches();
	(void)gate_meet(section->gate, section->threads, true);
	run(section);
	worker->preempted = involuntary_switches() - before;
}

/* Without the right to, never mind: it is the same measurement with more samples thrown away. */
static void push_others_aside(void)
{
	const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest) != 0)
		(void)setpriority(PRIO_PROCESS, 0, -20); /* of this thread */
}

/* Keeps others off this processor, and does as little on it as can be done, until the section ends. */
static void hold_still(struct bench *bench, unsigned job)
{
	atomic_fetch_add(&bench->holding, 1);
	while (atomic_load_explicit(&bench->hold, memory_order_acquire) == job)
		relax();
	atomic_fetch_sub(&bench->holding, 1);
}

/* Waits until they do, and until those of the section before have stopped. */
static void wait_for_holders(struct bench *bench, unsigned holders)
{
	while (atomic_load_explicit(&bench->holding, memory_order_acquire) != holders)
		relax();
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct bench *bench = worker->bench;
	unsigned seen = 0;

	if (bench->alone)
		push_others_aside();
	for (;;) {
		bench_run_fn run;
		unsigned holders;

		pthread_mutex_lock(&bench->mutex);
		while (bench->job == seen && !bench->quit)
			pthread_cond_wait(&bench->work, &bench->mutex);
		seen = bench->job;
		run = worker->number < bench->job_threads ? bench->job_run : NULL;
		holders = bench->job_holders;
		if (bench->quit) {
			pthread_mutex_unlock(&bench->mutex);
			return NULL;
		}
		pthread_mutex_unlock(&bench->mutex);
		if (!run) {
			if (worker->number < bench->job_threads + holders)
				hold_still(bench, seen);
			continue;
		}
		wait_for_holders(bench, holders);
		worker_section(worker, run);
		pthread_mutex_lock(&bench->mutex);
		if (--bench->job_running == 0) {
			atomic_store(&bench->hold, 0);
			pthread_cond_signal(&bench->done);
		}
		pthread_mutex_unlock(&bench->mutex);
	}
}

/* Runs run on the first threads workers and leaves the outcome in their sections. */
static void job(struct bench *bench, unsigned threads, bench_run_fn run, void *state, bool timed)
{
	const unsigned pair = bench->nr_workers < HELD_WORKERS ? bench->nr_workers : HELD_WORKERS;

	if (threads == 0 || threads > bench->nr_workers)
		bench_die("%u threads asked for, %u processors", threads, bench->nr_workers);
	memset(&bench->gate, 0, sizeof(bench->gate));
	for (unsigned i = 0; i < threads; i++)
		bench->workers[i].section = (struct bench_section){
			.state = state,
			.thread = i,
			.threads = threads,
			.gate = &bench->gate,
		};
	pthread_mutex_lock(&bench->mutex);
	bench->job++;
	bench->job_run = run;
	bench->job_threads = bench->job_running = threads;
	bench->job_holders = timed && bench->alone && threads < pair ? pair - threads : 0;
	atomic_store(&bench->hold, bench->job);
	pthread_cond_broadcast(&bench->work);
	while (bench->job_running)
		pthread_cond_wait(&bench->done, &bench->mutex);
	pthread_mutex_unlock(&bench->mutex);
}

void bench_on_threads(struct bench *bench, unsigned threads, bench_run_fn fn, void *state)
{
	job(bench, threads, fn, state, false);
}

unsigned bench_threads(const struct bench *bench)
{
	return bench->nr_workers;
}

static void start_worker(struct bench *bench, int cpu)
{
	struct worker *worker = &bench->workers[bench->nr_workers];
	pthread_attr_t attr;
	cpu_set_t set;
	int r;

	*worker = (struct worker){.bench = bench, .number = bench->nr_workers, .cpu = cpu};
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	pthread_attr_init(&attr);
	r = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	if (r == 0)
		r = pthread_create(&worker->thread, &attr, worker_main, worker);
	if (r)
		bench_die("thread on processor %d: %s", cpu, strerror(r));
	pthread_attr_destroy(&attr);
	bench->nr_workers++;
}

struct bench *bench_new(bool quick, bool alone)
{
	struct bench *bench = aligned_alloc(_Alignof(struct bench), sizeof(*bench));
	cpu_set_t set;

	if (!bench)
		bench_die("no memory");
	memset(bench, 0, sizeof(*bench));
	bench->workers = bench_memory(BENCH_MAX_THREADS * sizeof(*bench->workers));
	bench->quick = quick;
	bench->alone = alone;
	bench->retry_until = bench_now_ns() + (quick ? RETRY_NS_QUICK : RETRY_NS);
	pthread_mutex_init(&bench->mutex, NULL);
	pthread_cond_init(&bench->work, NULL);
	pthread_cond_init(&bench->done, NULL);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		bench_die("sched_getaffinity: %s", strerror(errno));
	for (int cpu = 0; cpu < CPU_SETSIZE && bench->nr_workers < BENCH_MAX_THREADS; cpu++)
		if (CPU_ISSET(cpu, &set))
			start_worker(bench, cpu);
	return bench;
}

struct bench *bench_free(struct bench *bench)
{
	if (!bench)
		return NULL;
	pthread_mutex_lock(&bench->mutex);
	bench->quit = true;
	pthread_cond_broadcast(&bench->work);
	pthread_mutex_unlock(&bench->mutex);
	for (unsigned i = 0; i < bench->nr_workers; i++)
		pthread_join(bench->workers[i].thread, NULL);
	pthread_mutex_destroy(&bench->mutex);
	pthread_cond_destroy(&bench->work);
	pthread_cond_destroy(&bench->done);
	bench_memory_free(bench->workers);
	free(bench);
	return NULL;
}

bool bench_quick(const struct bench *bench)
{
	return bench->quick;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* Time that the hypervisor took from the processors of the first threads, in ticks. */
static uint64_t stolen(const struct bench *bench, unsigned threads)
{
	FILE *file = fopen("/proc/stat", "re");
	char line[512];
	uint64_t sum = 0;

	if (!file)
		return 0; /* not Linux as we know it: the switches alone must do */
	while (fgets(line, sizeof(line), file)) {
		unsigned long long steal;
		int cpu;

		if (sscanf(line, "cpu%d %*u %*u %*u %*u %*u %*u %*u %llu", &cpu, &steal) != 2)
			continue;
		for (unsigned i = 0; i < threads; i++)
			if (bench->workers[i].cpu == cpu)
				sum += steal;
	}
	fclose(file);
	return sum;
}

/* Return: how often the sample was disturbed. */
static uint64_t sample(struct bench *bench, const struct bench_subject *subject, double *ret_value)
{
	const uint64_t steal = stolen(bench, subject->threads);
	uint64_t disturbed;
	double cost = 0, rate = 0;

	job(bench, subject->threads, subject->run, subject->state, true);
	disturbed = stolen(bench, subject->threads) - steal;
	for (unsigned i = 0; i < subject->threads; i++) {
		const struct worker *worker = &bench->workers[i];
		const struct bench_section *section = &worker->section;

		if (section->ops == 0 || section->ns == 0)
			bench_die("%s: a section without work", subject->variant);
		cost += (double)section->ns / (double)section->ops / subject->threads;
		rate += (double)section->ops / (double)section->ns * 1e9;
		disturbed += (uint64_t)worker->preempted;
	}
	*ret_value = subject->kind == BENCH_COST ? cost : rate;
	return disturbed;
}

/* One sample that nothing disturbed, or else the least disturbed one. */
static double clean_sample(struct bench *bench, const struct bench_subject *subject,
			   struct bench_quality *quality)
{
	uint64_t least = UINT64_MAX;
	double best = 0;

	for (unsigned i = 0;; i++) {
		double value;
		const uint64_t disturbed = sample(bench, subject, &value);

		if (disturbed < least) {
			least = disturbed;
			best = value;
		}
		if (least == 0)
			return best;
		if (i == MAX_RETRIES || bench_now_ns() > bench->retry_until)
			break;
		quality->discarded++;
	}
	quality->disturbed++;
	return best;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(const double *values, unsigned n)
{
	double sorted[BENCH_MAX_ROUNDS];

	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static void measure(struct bench *bench, struct bench_subject *subjects, size_t n, unsigned rounds,
		    struct bench_quality *ret)
{
	double warm_up;

	*ret = (struct bench_quality){.rounds = rounds};
	for (size_t i = 0; i < n; i++)
		(void)sample(bench, &subjects[i], &warm_up);
	for (unsigned round = 0; round < rounds; round++)
		for (size_t i = 0; i < n; i++) {
			struct bench_subject *subject = &subjects[(i + round) % n];

			subject->rounds[round] = clean_sample(bench, subject, ret);
		}
	for (size_t i = 0; i < n; i++)
		subjects[i].value = bench_median(subjects[i].rounds, rounds);
	bench->discarded += ret->discarded;
	bench->disturbed += ret->disturbed;
}

void bench_measure(struct bench *bench, struct bench_subject *subjects, size_t n,
		   struct bench_quality *ret)
{
	measure(bench, subjects, n, bench->quick ? ROUNDS_QUICK : ROUNDS, ret);
}

void bench_measure_pairs(struct bench *bench, struct bench_subject *subjects, size_t n,
			 struct bench_quality *ret)
{
	measure(bench, subjects, n, bench->quick ? PAIRS_QUICK : PAIRS, ret);
}

double bench_sign_test(const struct bench_subject *a, const struct bench_subject *b,
		       unsigned rounds, unsigned *ret_below)
{
	unsigned below = 0, pairs = 0;
	double p = 0, term = 1;

	for (unsigned i = 0; i < rounds; i++) {
		below += a->rounds[i] < b->rounds[i];
		pairs += a->rounds[i] != b->rounds[i]; /* ties say nothing */
	}
	/* P(at least below of pairs), each with probability 1/2: the sum of C(pairs, k) / 2^pairs
	 */
	for (unsigned i = 0; i < pairs; i++)
		term /= 2;
	for (unsigned k = pairs + 1; k-- > below;) {
		p += term;
		term = term * k / (pairs - k + 1);
	}
	*ret_below = below;
	return p;
}
