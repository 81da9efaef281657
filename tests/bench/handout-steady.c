/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole cost of memory that goes round: CPU time of everybody who takes part, while all of a
 * zone is taken and given back by two tenants in turn. Every byte is zeroed between them, as the
 * kernel does between munmap() and mmap(): what one hand-out saves has been paid ahead of it, and
 * this says how much that was.
 *
 * The tenants are processes with uids of their own, led through pipes. Looking whether the zone is
 * clean costs the daemon something too, which is counted with the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/handout-cases.h"

#define TENANTS	      2
#define FIRST_UID     60001
#define RANGE_BYTES   (64 * MIB)
#define RANGES	      8
#define CYCLE_BYTES   (RANGES * RANGE_BYTES)
#define CYCLED_GIB    ((double)(TENANTS * CYCLE_BYTES) / (double)GIB) /* in a round */
#define TENANT_FAILED 1

struct tenant {
	pid_t pid;
	int order, answer; /* pipes, a byte for each cycle */
	clockid_t cpu;
};

struct steady {
	clockid_t daemon;
	struct tenant tenants[TENANTS];
};

/* --- a tenant's process ----------------------------------------------------------------------- */

static int cycle(struct hugepool *pool)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range ranges[RANGES];
	int r;

	request.bytes = RANGE_BYTES;
	request.flags = HUGEPOOL_ZERO;
	r = hugepool_alloc_bulk(pool, &request, ranges, RANGES);
	if (r == 0)
		r = hugepool_free_bulk(pool, ranges, RANGES);
	return r;
}

static _Noreturn void be_tenant(uid_t uid, int order, int answer)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool;
	char byte = 0;
	int r;

	if (setgroups(0, NULL) < 0 || setgid((gid_t)uid) < 0 || setuid(uid) < 0)
		_exit(TENANT_FAILED);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* after setuid(), which resets it */
	options.socket = stage_socket();
	r = hugepool_open(&pool, &options);
	if (r < 0)
		_exit(TENANT_FAILED);
	while (r == 0 && read(order, &byte, 1) == 1) {
		r = cycle(pool);
		if (r == 0 && write(answer, &byte, 1) != 1)
			r = -errno;
	}
	hugepool_close(pool);
	_exit(r == 0 ? 0 : TENANT_FAILED);
}

/* --- the two of them -------------------------------------------------------------------------- */

static void tenant_begin(struct tenant *tenant, uid_t uid)
{
	int order[2], answer[2], r;

	if (pipe2(order, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
		bench_die("pipe: %s", strerror(errno));
	tenant->pid = fork();
	if (tenant->pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (tenant->pid == 0) {
		close(order[1]);
		close(answer[0]);
		be_tenant(uid, order[0], answer[1]);
	}
	close(order[0]);
	close(answer[1]);
	tenant->order = order[1];
	tenant->answer = answer[0];
	r = clock_getcpuclockid(tenant->pid, &tenant->cpu);
	if (r)
		bench_die("the CPU time of a tenant: %s", strerror(r));
}

static void tenant_cycle(struct tenant *tenant)
{
	char byte = 0;

	if (write(tenant->order, &byte, 1) != 1 || read(tenant->answer, &byte, 1) != 1)
		bench_die("a tenant has failed");
}

static void tenant_end(struct tenant *tenant)
{
	int status;

	close(tenant->order);
	close(tenant->answer);
	if (waitpid(tenant->pid, &status, 0) != tenant->pid || status != 0)
		bench_die("a tenant has failed");
}

/* --- the case --------------------------------------------------------------------------------- */

static double cpu_seconds(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time) < 0)
		bench_die("clock_gettime: %s", strerror(errno));
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double cpu_of_all(const struct steady *steady)
{
	double sum = cpu_seconds(steady->daemon);

	for (size_t i = 0; i < TENANTS; i++)
		sum += cpu_seconds(steady->tenants[i].cpu);
	return sum;
}

static double round_product(const void *context, int cpu)
{
	struct steady steady = *(const struct steady *)context;
	const double before = cpu_of_all(&steady);

	(void)cpu;
	for (size_t i = 0; i < TENANTS; i++) {
		tenant_cycle(&steady.tenants[i]);
		stage_wait_clean();
	}
	return (cpu_of_all(&steady) - before) / CYCLED_GIB;
}

static double round_mmap(const void *context, int cpu)
{
	const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);

	(void)context;
	(void)cpu;
	for (size_t i = 0; i < TENANTS * RANGES; i++)
		handout_munmap(handout_mmap(RANGE_BYTES), RANGE_BYTES);
	return (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / CYCLED_GIB;
}

void case_steady(struct bench *bench)
{
	const struct stage_shape shape = {.zone_bytes = CYCLE_BYTES,
					  .block_bytes = RANGE_BYTES,
					  .baseline_bytes = RANGE_BYTES};
	struct handout_subject subjects[] = {
		{.variant = "product", .round = round_product, .cpu = ANYWHERE},
		{.variant = "mmap", .round = round_mmap, .cpu = ANYWHERE},
	};
	struct bench_quality quality;
	struct steady steady;
	int r;

	if (!stage_begin("steady", &shape))
		return;
	r = clock_getcpuclockid(stage_daemon(), &steady.daemon);
	if (r)
		bench_die("the CPU time of the daemon: %s", strerror(r));
	for (unsigned i = 0; i < TENANTS; i++)
		tenant_begin(&steady.tenants[i], FIRST_UID + i);
	handout_measure(bench, subjects, 2, &steady, &quality);
	/* The later ones have inherited the pipes of the earlier. */
	for (unsigned i = TENANTS; i-- > 0;)
		tenant_end(&steady.tenants[i]);
	handout_report(bench, "steady", "s/GiB", &shape, &subjects[0], &subjects[1], &quality);
	stage_end();
}
