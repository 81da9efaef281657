/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request at a time, by the library, with client and daemon on one processor: how long a program
 * waits for its ranges. The baseline is what two processes cannot do without: 64 bytes there and 64
 * back over a blocking UNIX stream socket, on the same processor.
 *
 * Each request is timed by itself, and a round's value is their median. Giving back is not timed, but
 * is an exchange like any other in "daemon-cpu": CPU time of the daemon an exchange.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/rpc-cases.h"

#define SAMPLES	      4000
#define SAMPLES_QUICK 1000
#define WARM_UP	      100
#define BULK_MAX      256
#define PING_BYTES    64

struct pingpong {
	struct hugepool *pool;
	size_t count;	/* ranges of a request */
	size_t divisor; /* of what a request takes: 1, or count */
	unsigned samples;
	int echo;
	pid_t echo_pid;
	double *cpu; /* of each round so far */
	unsigned *rounds;
};

static int compare_samples(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of more than bench_median() can take; they get sorted. */
static double median_of(double *samples, unsigned n)
{
	qsort(samples, n, sizeof(*samples), compare_samples);
	return samples[n / 2];
}

/* --- the baseline ------------------------------------------------------------------------------ */

static void transfer(int socket, char bytes[PING_BYTES])
{
	if (write(socket, bytes, PING_BYTES) != PING_BYTES)
		bench_die("write: %s", strerror(errno));
	if (recv(socket, bytes, PING_BYTES, MSG_WAITALL) != PING_BYTES)
		bench_die("the echo has ended");
}

static _Noreturn void echo(int socket)
{
	char bytes[PING_BYTES];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recv(socket, bytes, sizeof(bytes), MSG_WAITALL) == PING_BYTES)
		if (write(socket, bytes, sizeof(bytes)) != PING_BYTES)
			break;
	_exit(0);
}

static void echo_start(struct pingpong *pingpong)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		bench_die("socketpair: %s", strerror(errno));
	pingpong->echo_pid = fork();
	if (pingpong->echo_pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pingpong->echo_pid == 0) {
		close(ends[0]);
		echo(ends[1]);
	}
	close(ends[1]);
	pingpong->echo = ends[0];
}

static void echo_end(struct pingpong *pingpong)
{
	close(pingpong->echo);
	waitpid(pingpong->echo_pid, NULL, 0);
}

static double round_echo(const void *context, int cpu)
{
	const struct pingpong *pingpong = context;
	double samples[SAMPLES];
	char bytes[PING_BYTES] = {0};

	stage_place(cpu);
	stage_place_process(pingpong->echo_pid, cpu);
	for (unsigned i = 0; i < WARM_UP; i++)
		transfer(pingpong->echo, bytes);
	for (unsigned i = 0; i < pingpong->samples; i++) {
		const uint64_t began = bench_now_ns();

		transfer(pingpong->echo, bytes);
		samples[i] = (double)(bench_now_ns() - began);
	}
	stage_place(ANYWHERE);
	return median_of(samples, pingpong->samples);
}

/* --- the product ------------------------------------------------------------------------------- */

static uint64_t exchange(const struct pingpong *pingpong)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range ranges[BULK_MAX];
	uint64_t began, took;
	int r;

	request.bytes = RPC_PAGE;
	began = bench_now_ns();
	r = hugepool_alloc_bulk(pingpong->pool, &request, ranges, pingpong->count);
	took = bench_now_ns() - began;
	if (r < 0)
		bench_die("hugepool_alloc_bulk: %s", strerror(-r));
	r = hugepool_free_bulk(pingpong->pool, ranges, pingpong->count);
	if (r < 0)
		bench_die("hugepool_free_bulk: %s", strerror(-r));
	return took;
}

static double round_product(const void *context, int cpu)
{
	const struct pingpong *pingpong = context;
	double samples[SAMPLES];
	uint64_t cpu_ns;

	stage_place(cpu);
	for (unsigned i = 0; i < WARM_UP; i++)
		(void)exchange(pingpong);
	cpu_ns = rpc_cpu_ns(stage_daemon());
	for (unsigned i = 0; i < pingpong->samples; i++)
		samples[i] = (double)exchange(pingpong);
	cpu_ns = rpc_cpu_ns(stage_daemon()) - cpu_ns;
	pingpong->cpu[(*pingpong->rounds)++] = (double)cpu_ns / pingpong->samples / 2;
	stage_place(ANYWHERE);
	return median_of(samples, pingpong->samples) / (double)pingpong->divisor;
}

/* --- the cases --------------------------------------------------------------------------------- */

static struct hugepool *open_pool(void)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool;
	int r;

	options.socket = stage_socket();
	options.flags = HUGEPOOL_KEEP_BLOCKS;
	r = hugepool_open(&pool, &options);
	if (r < 0)
		bench_die("hugepool_open: %s", strerror(-r));
	return pool;
}

static void compare(struct bench *bench, const char *name, size_t count, size_t divisor)
{
	const struct stage_shape shape = RPC_SHAPE(16, 1);
	const int cpu = stage_first_cpu();
	double cpu_ns[BENCH_MAX_ROUNDS];
	unsigned rounds = 0;
	struct pingpong pingpong = {
		.count = count,
		.divisor = divisor,
		.samples = bench_quick(bench) ? SAMPLES_QUICK : SAMPLES,
		.cpu = cpu_ns,
		.rounds = &rounds,
	};
	struct handout_subject subjects[] = {
		{.variant = "product", .round = round_product, .cpu = cpu},
		{.variant = "ping-pong", .round = round_echo, .cpu = cpu},
	};
	struct handout_subject daemon = {.variant = "daemon-cpu"};
	struct bench_quality quality;

	if (!stage_begin(name, &shape))
		return;
	pingpong.pool = open_pool();
	echo_start(&pingpong);
	handout_measure(bench, subjects, 2, &pingpong, &quality);
	handout_report(bench, name, "ns", &shape, &subjects[0], &subjects[1], &quality);
	daemon.value = bench_median(cpu_ns, rounds);
	handout_report(bench, name, "ns", &shape, &daemon, NULL, &quality);
	echo_end(&pingpong);
	hugepool_close(pingpong.pool);
	stage_end();
}

void case_alloc_1(struct bench *bench)
{
	compare(bench, "alloc-1", 1, 1);
}

void case_alloc_32(struct bench *bench)
{
	compare(bench, "alloc-32", 32, 1);
}

void case_batch_64(struct bench *bench)
{
	compare(bench, "batch-64", 64, 64);
}

void case_batch_256(struct bench *bench)
{
	compare(bench, "batch-256", 256, 256);
}
