/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many requests under way: 64 connections, 16 requests each, sent as one piece; a connection's next
 * ones are sent when all of these have been answered. What counts is the server's CPU time a request,
 * with client and server on one processor. Half of hugepoold's requests free a page, half take one;
 * each of memcached's reads one small key ("mg" is its cheapest way to).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/rpc-cases.h"
#include "tests/bench/rpc-wire.h"

#define CONNECTIONS 64
#define DEPTH	    16
#define HELD	    (DEPTH / 2) /* ranges of a connection: each is freed and another taken */
#define TURNS	    200		/* of all connections, in a round */
#define TURNS_QUICK 50
#define WARM_UP	    5

#define SET    "set key 0 0 8\r\n12345678\r\n"
#define STORED "STORED\r\n"
#define GET    "mg key v\r\n"
#define VALUE  "VA 8\r\n12345678\r\n"

struct pipelined {
	unsigned turns;
	pid_t memcached;
	struct wire *wires; /* CONNECTIONS */
	int sockets[CONNECTIONS];
};

uint64_t rpc_cpu_ns(pid_t process)
{
	struct timespec t;
	clockid_t clock;
	const int r = clock_getcpuclockid(process, &clock);

	if (r || clock_gettime(clock, &t) < 0)
		bench_die("no CPU time of process %d: %s", process, strerror(r ? r : errno));
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* --- hugepoold --------------------------------------------------------------------------------- */

static void ask(struct wire *wire)
{
	uint8_t bytes[DEPTH * 64]; /* a request of one range is shorter than that */
	size_t n = 0;

	for (unsigned i = 0; i < HELD; i++) {
		n += wire_put_free(bytes + n, wire->ranges[i]);
		n += wire_put_alloc(bytes + n, 1);
	}
	wire->held = 0;
	wire_send(wire->socket, bytes, n);
}

static void turn_product(const struct pipelined *pipelined)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		ask(&pipelined->wires[i]);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		wire_receive(&pipelined->wires[i], DEPTH);
}

static void open_wires(struct pipelined *pipelined)
{
	uint8_t bytes[64];

	pipelined->wires = bench_memory(CONNECTIONS * sizeof(*pipelined->wires));
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		wire_open(&pipelined->wires[i]);
		wire_send(pipelined->wires[i].socket, bytes, wire_put_alloc(bytes, HELD));
		wire_receive(&pipelined->wires[i], 1);
	}
}

static void close_wires(struct pipelined *pipelined)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		wire_close(&pipelined->wires[i]);
	bench_memory_free(pipelined->wires);
}

/* --- memcached --------------------------------------------------------------------------------- */

static void expect(int socket, const char *reply, size_t bytes, unsigned times)
{
	char input[DEPTH * sizeof(VALUE)];

	if (recv(socket, input, bytes * times, MSG_WAITALL) != (ssize_t)(bytes * times) ||
	    memcmp(input + bytes * (times - 1), reply, bytes) != 0)
		bench_die("memcached answers something else than %s", reply);
}

static void turn_memcached(const struct pipelined *pipelined)
{
	char bytes[DEPTH * (sizeof(GET) - 1)];

	for (unsigned i = 0; i < DEPTH; i++)
		memcpy(bytes + i * (sizeof(GET) - 1), GET, sizeof(GET) - 1);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		wire_send(pipelined->sockets[i], bytes, sizeof(bytes));
	for (unsigned i = 0; i < CONNECTIONS; i++)
		expect(pipelined->sockets[i], VALUE, sizeof(VALUE) - 1, DEPTH);
}

static void open_memcached(struct pipelined *pipelined, const char *path)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		pipelined->sockets[i] = wire_connect(path);
	wire_send(pipelined->sockets[0], SET, sizeof(SET) - 1);
	expect(pipelined->sockets[0], STORED, sizeof(STORED) - 1, 1);
}

/* --- rounds ------------------------------------------------------------------------------------ */

static double measure(const struct pipelined *pipelined, int cpu, pid_t server,
		      void (*turn)(const struct pipelined *pipelined))
{
	uint64_t ns;

	stage_place(cpu);
	stage_place_process(server, cpu);
	for (unsigned i = 0; i < WARM_UP; i++)
		turn(pipelined);
	ns = rpc_cpu_ns(server);
	for (unsigned i = 0; i < pipelined->turns; i++)
		turn(pipelined);
	ns = rpc_cpu_ns(server) - ns;
	stage_place(ANYWHERE);
	return (double)ns / pipelined->turns / CONNECTIONS / DEPTH;
}

static double round_product(const void *context, int cpu)
{
	return measure(context, cpu, stage_daemon(), turn_product);
}

static double round_memcached(const void *context, int cpu)
{
	const struct pipelined *pipelined = context;

	return measure(pipelined, cpu, pipelined->memcached, turn_memcached);
}

static unsigned turns(const struct bench *bench)
{
	return bench_quick(bench) ? TURNS_QUICK : TURNS;
}

void case_pipelined(struct bench *bench)
{
	const struct stage_shape shape = RPC_SHAPE(16, 1);
	const int cpu = stage_first_cpu();
	struct pipelined pipelined = {.turns = turns(bench)};
	struct handout_subject subjects[] = {
		{.variant = "product", .round = round_product, .cpu = cpu},
		{.variant = "memcached", .round = round_memcached, .cpu = cpu},
	};
	struct bench_quality quality;
	char path[256];

	if (!stage_begin("pipelined", &shape))
		return;
	/* in the directory that goes with the stage */
	snprintf(path, sizeof(path), "%s.memcached", stage_socket());
	pipelined.memcached = rpc_memcached_start(path);
	if (!pipelined.memcached) {
		fputs("bench-rpc: left out: pipelined: memcached is not installed\n", stderr);
		stage_end();
		return;
	}
	open_memcached(&pipelined, path);
	open_wires(&pipelined);
	handout_measure(bench, subjects, 2, &pipelined, &quality);
	handout_report(bench, "pipelined", "ns", &shape, &subjects[0], &subjects[1], &quality);
	close_wires(&pipelined);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		close(pipelined.sockets[i]);
	rpc_memcached_end(pipelined.memcached);
	stage_end();
}

/* One daemon at a time, so the two are measured one after the other. Return: whether it was. */
static bool with_workers(struct bench *bench, const struct stage_shape *shape,
			 struct handout_subject *subject, struct bench_quality *quality)
{
	struct pipelined pipelined = {.turns = turns(bench)};

	if (!stage_begin("workers-2", shape))
		return false;
	open_wires(&pipelined);
	handout_measure(bench, subject, 1, &pipelined, quality);
	close_wires(&pipelined);
	stage_end();
	return true;
}

void case_workers_2(struct bench *bench)
{
	const struct stage_shape one = RPC_SHAPE(16, 1), two = RPC_SHAPE(16, 2);
	const int cpu = stage_first_cpu();
	struct handout_subject product = {.variant = "product", .round = round_product, .cpu = cpu};
	struct handout_subject baseline = {
		.variant = "one worker", .round = round_product, .cpu = cpu};
	struct bench_quality quality;

	if (with_workers(bench, &one, &baseline, &quality) &&
	    with_workers(bench, &two, &product, &quality))
		handout_report(bench, "workers-2", "ns", &two, &product, &baseline, &quality);
}
