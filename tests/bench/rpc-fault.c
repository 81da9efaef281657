/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_fault1 of the whole system: as many processes as processors, each takes 128 MiB, touches every
 * page and gives it back, again and again. The baseline does it with mmap(MAP_HUGETLB). Both are given
 * zeroed memory. Pages a second, of all processes; nobody is pinned.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/rpc-cases.h"

#define BYTES	       (128 * MIB)
#define PROCESSES_MAX  4
#define ROUND_NS       UINT64_C(1000000000)
#define ROUND_NS_QUICK UINT64_C(300000000)

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

struct fault {
	unsigned processes;
	uint64_t round_ns;
};

static void touch(void *memory)
{
	for (uint64_t at = 0; at < BYTES; at += HUGE_BYTES)
		*(volatile char *)((char *)memory + at) = 1;
}

static void one_product(struct hugepool *pool)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;
	int r;

	request.bytes = BYTES;
	request.flags = HUGEPOOL_ZERO;
	request.deadline_ms = 10000;
	r = hugepool_alloc(pool, &request, &range);
	if (r < 0)
		bench_die("hugepool_alloc: %s", strerror(-r));
	touch(range.address);
	r = hugepool_free(pool, &range);
	if (r < 0)
		bench_die("hugepool_free: %s", strerror(-r));
}

static void one_mmap(struct hugepool *pool)
{
	void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);

	(void)pool;
	if (memory == MAP_FAILED)
		bench_die("mmap of huge pages: %s", strerror(errno));
	touch(memory);
	handout_munmap(memory, BYTES);
}

static struct hugepool *open_pool(void)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool;
	int r;

	options.socket = stage_socket();
	r = hugepool_open(&pool, &options);
	if (r < 0)
		bench_die("hugepool_open: %s", strerror(-r));
	return pool;
}

/* Return: to its parent, pages a second by way of the pipe. */
static _Noreturn void work(const struct fault *fault, int answer,
			   void (*one)(struct hugepool *pool))
{
	struct hugepool *pool;
	uint64_t began, now;
	double times = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pool = open_pool();
	began = bench_now_ns();
	do {
		one(pool);
		times++;
		now = bench_now_ns();
	} while (now - began < fault->round_ns);
	times = times * (double)(BYTES / HUGE_BYTES) * 1e9 / (double)(now - began);
	_exit(write(answer, &times, sizeof(times)) != sizeof(times));
}

static double all(const struct fault *fault, void (*one)(struct hugepool *pool))
{
	pid_t pids[PROCESSES_MAX];
	double sum = 0, part;
	int ends[2], status;

	if (pipe(ends) < 0)
		bench_die("pipe: %s", strerror(errno));
	for (unsigned i = 0; i < fault->processes; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			bench_die("fork: %s", strerror(errno));
		if (pids[i] == 0)
			work(fault, ends[1], one);
	}
	close(ends[1]);
	while (read(ends[0], &part, sizeof(part)) == sizeof(part))
		sum += part;
	close(ends[0]);
	for (unsigned i = 0; i < fault->processes; i++)
		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			bench_die("a process of page_fault1 has failed");
	return sum;
}

static double round_product(const void *context, int cpu)
{
	(void)cpu;
	return all(context, one_product);
}

static double round_mmap(const void *context, int cpu)
{
	(void)cpu;
	return all(context, one_mmap);
}

void case_page_fault1(struct bench *bench)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const unsigned processes = cpus < PROCESSES_MAX ? (unsigned)cpus : PROCESSES_MAX;
	const struct fault fault = {
		.processes = processes,
		.round_ns = bench_quick(bench) ? ROUND_NS_QUICK : ROUND_NS,
	};
	const struct stage_shape shape = {
		.zone_bytes = 2 * processes * BYTES,
		.block_bytes = 64 * MIB,
		.baseline_bytes = processes * BYTES,
	};
	struct handout_subject subjects[] = {
		{.variant = "product", .round = round_product},
		{.variant = "mmap", .round = round_mmap},
	};
	struct bench_quality quality;

	if (!stage_begin("page_fault1", &shape))
		return;
	handout_measure(bench, subjects, 2, &fault, &quality);
	bench_report(bench, &(struct bench_row){
				    .name = "page_fault1",
				    .variant = "product",
				    .pages = (uint32_t)(shape.zone_bytes / HUGE_BYTES),
				    .block_order = 5,
				    .threads = processes,
				    .unit = "page/s",
				    .value = subjects[0].value,
				    .baseline = subjects[1].variant,
				    .baseline_value = subjects[1].value,
				    .kind = BENCH_THROUGHPUT,
				    .quality = &quality,
			    });
	stage_end();
}
