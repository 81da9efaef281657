/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon costs that nobody asks anything: wake-ups with sessions that are idle, and memory
 * for each session and each leased range. Memory is what is resident of the process's own; buffers
 * of the kernel's sockets are not in it.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/bench/rpc-cases.h"
#include "tests/bench/rpc-wire.h"

#define IDLE_SESSIONS 100
#define IDLE_MS	      10000
#define SETTLE_MS     1000 /* its last words to those that have come */
#define SESSIONS      1000
#define RANGES	      15360 /* of the zone's 16384 pages */
#define FILES	      4096

/* --- what /proc says of the daemon ------------------------------------------------------------- */

/* The sum of the numbers behind these names in a file of "name: number" lines. */
static uint64_t sum_in(const char *path, const char *const *names, size_t n)
{
	FILE *file = fopen(path, "re");
	char line[256];
	uint64_t sum = 0;

	if (!file)
		bench_die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), file))
		for (size_t i = 0; i < n; i++)
			if (strncmp(line, names[i], strlen(names[i])) == 0)
				sum += strtoull(line + strlen(names[i]), NULL, 10);
	fclose(file);
	return sum;
}

/* Each time that a thread has slept, whatever for. */
static uint64_t wakeups(void)
{
	static const char *const name = "voluntary_ctxt_switches:";
	char path[64];
	struct dirent *entry;
	uint64_t sum = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", stage_daemon());
	tasks = opendir(path);
	if (!tasks)
		bench_die("%s: %s", path, strerror(errno));
	while ((entry = readdir(tasks))) {
		if (*entry->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", stage_daemon(),
			 entry->d_name);
		sum += sum_in(path, &name, 1);
	}
	closedir(tasks);
	return sum;
}

static uint64_t resident_bytes(void)
{
	static const char *const names[] = {"RssAnon:", "RssShmem:"};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", stage_daemon());
	return sum_in(path, names, 2) << 10;
}

/* --- the cases --------------------------------------------------------------------------------- */

static struct wire *open_sessions(unsigned n)
{
	struct rlimit files;
	struct wire *wires = bench_memory(n * sizeof(*wires));

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES) {
		files.rlim_cur = FILES < files.rlim_max ? FILES : files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	for (unsigned i = 0; i < n; i++)
		wire_open(&wires[i]);
	return wires;
}

static void close_sessions(struct wire *wires, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		wire_close(&wires[i]);
	bench_memory_free(wires);
}

static void report(struct bench *bench, const char *name, const struct stage_shape *shape,
		   const char *unit, double value)
{
	const struct handout_subject subject = {.variant = "product", .value = value};

	handout_report(bench, name, unit, shape, &subject, NULL, NULL);
}

void case_idle(struct bench *bench)
{
	const struct stage_shape shape = RPC_SHAPE(16, 1);
	struct wire *wires;
	uint64_t before;

	if (!stage_begin("idle", &shape))
		return;
	wires = open_sessions(IDLE_SESSIONS);
	poll(NULL, 0, SETTLE_MS);
	before = wakeups();
	poll(NULL, 0, IDLE_MS);
	report(bench, "idle", &shape, "wake", (double)(wakeups() - before));
	close_sessions(wires, IDLE_SESSIONS);
	stage_end();
}

void case_mem_session(struct bench *bench)
{
	const struct stage_shape shape = RPC_SHAPE(16, 1);
	struct wire *wires;
	uint64_t before;

	if (!stage_begin("mem-session", &shape))
		return;
	before = resident_bytes();
	wires = open_sessions(SESSIONS);
	report(bench, "mem-session", &shape, "byte",
	       (double)(resident_bytes() - before) / SESSIONS);
	close_sessions(wires, SESSIONS);
	stage_end();
}

/* Of a daemon that has a zone of this size, with so many ranges leased. 0: it could not be made. */
static uint64_t bytes_with_ranges(const struct stage_shape *shape, unsigned n)
{
	uint8_t bytes[64];
	struct wire *wire;
	uint64_t resident;

	if (!stage_begin("mem-range", shape))
		return 0;
	wire = open_sessions(1);
	for (unsigned i = 0; i < n; i += HP_RANGES_MAX) {
		wire_send(wire->socket, bytes, wire_put_alloc(bytes, HP_RANGES_MAX));
		wire_receive(wire, 1);
	}
	resident = resident_bytes();
	close_sessions(wire, 1);
	stage_end();
	return resident;
}

/* The tables of the zone's pages are there before any is leased, and are counted too. */
void case_mem_range(struct bench *bench)
{
	const struct stage_shape small = RPC_SHAPE(1, 1), large = RPC_SHAPE(64, 1);
	const uint64_t without = bytes_with_ranges(&small, 0);
	const uint64_t with = bytes_with_ranges(&large, RANGES);

	if (with > without)
		report(bench, "mem-range", &large, "byte", (double)(with - without) / RANGES);
}
