/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's zeroing, by itself. Both sides work on huge pages, on one processor, and no daemon
 * takes part. Memory is made cold by reading so much of other memory that no cache has it any more,
 * and hot by having just been written.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/zero.h"
#include "tests/bench/handout-cases.h"

#define COLD_BYTES   (64 * MIB)
#define OTHER_BYTES  (512 * MIB) /* more than a cache holds */
#define HOT_BYTES    HUGE_BYTES
#define COLD_SAMPLES 3
#define HOT_SAMPLES  63
#define LINE_BYTES   64

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

struct memory {
	char *used, *other;
};

/* --- cold ------------------------------------------------------------------------------------- */

static void forget(const struct memory *memory)
{
	for (uint64_t at = 0; at < OTHER_BYTES; at += LINE_BYTES)
		(void)*(volatile char *)(memory->other + at);
}

static double zero_cold(const void *context, int cpu)
{
	const struct memory *memory = context;
	double samples[COLD_SAMPLES];

	stage_place(cpu);
	for (unsigned i = 0; i < COLD_SAMPLES; i++) {
		uint64_t began;

		forget(memory);
		began = bench_now_ns();
		zero_memory(memory->used, COLD_BYTES, false);
		samples[i] = (double)(bench_now_ns() - began) / 1e3;
	}
	stage_place(ANYWHERE);
	return bench_median(samples, COLD_SAMPLES);
}

static double kernel_cold(const void *context, int cpu)
{
	double samples[COLD_SAMPLES];

	stage_place(cpu);
	for (unsigned i = 0; i < COLD_SAMPLES; i++) {
		const int fd = memfd_create("bench", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
		uint64_t began;

		forget(context);
		began = bench_now_ns();
		if (fd < 0 || fallocate(fd, 0, 0, (off_t)COLD_BYTES) < 0)
			bench_die("memfd: %s", strerror(errno));
		samples[i] = (double)(bench_now_ns() - began) / 1e3;
		close(fd);
	}
	stage_place(ANYWHERE);
	return bench_median(samples, COLD_SAMPLES);
}

/* --- hot -------------------------------------------------------------------------------------- */

static void memset_zero(void *p, size_t bytes)
{
	memset(p, 0, bytes);
}

static void library_zero(void *p, size_t bytes)
{
	zero_memory(p, bytes, true);
}

static double hot(const struct memory *memory, int cpu, void (*zero)(void *, size_t))
{
	double samples[HOT_SAMPLES];

	stage_place(cpu);
	for (unsigned i = 0; i < HOT_SAMPLES; i++) {
		uint64_t began;

		memset(memory->used, 0x5a, HOT_BYTES);
		began = bench_now_ns();
		zero(memory->used, HOT_BYTES);
		samples[i] = (double)(bench_now_ns() - began) / 1e3;
	}
	stage_place(ANYWHERE);
	return bench_median(samples, HOT_SAMPLES);
}

static double zero_hot(const void *context, int cpu)
{
	return hot(context, cpu, library_zero);
}

static double memset_hot(const void *context, int cpu)
{
	return hot(context, cpu, memset_zero);
}

/* --- cases ------------------------------------------------------------------------------------ */

void case_zeroing(struct bench *bench)
{
	const int cpu = stage_first_cpu();
	struct handout_subject subjects[] = {
		{.variant = "product", .round = zero_cold, .cpu = cpu},
		{.variant = "fallocate", .round = kernel_cold, .cpu = cpu},
	};
	struct bench_quality quality;
	struct memory memory;

	if (!stage_begin("zeroing",
			 &(struct stage_shape){.baseline_bytes = 2 * COLD_BYTES + OTHER_BYTES}))
		return;
	memory.used = handout_mmap(COLD_BYTES);
	memory.other = handout_mmap(OTHER_BYTES);
	handout_measure(bench, subjects, 2, &memory, &quality);
	handout_report(bench, "zeroing", "us", NULL, &subjects[0], &subjects[1], &quality);
	handout_munmap(memory.used, COLD_BYTES);
	handout_munmap(memory.other, OTHER_BYTES);
	stage_end();
}

void case_zeroing_hot(struct bench *bench)
{
	const int cpu = stage_first_cpu();
	struct handout_subject subjects[] = {
		{.variant = "product", .round = zero_hot, .cpu = cpu},
		{.variant = "memset", .round = memset_hot, .cpu = cpu},
	};
	struct bench_quality quality;
	struct memory memory = {.other = NULL};

	if (!stage_begin("zeroing-hot", &(struct stage_shape){.baseline_bytes = HOT_BYTES}))
		return;
	memory.used = handout_mmap(HOT_BYTES);
	handout_measure(bench, subjects, 2, &memory, &quality);
	handout_report(bench, "zeroing-hot", "us", NULL, &subjects[0], &subjects[1], &quality);
	handout_munmap(memory.used, HOT_BYTES);
	stage_end();
}
