/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds for things that take from microseconds to a second, with a daemon at work beside them. The
 * harness's sections are not for that: they are of 2 ms, and are made again when a thread had to
 * stand back, which a client on its daemon's processor does in every exchange. Here a round makes
 * what it needs, takes the median of as many samples as that yields, and clears away; a sample into
 * which somebody else fell is one that the median passes over.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bench/handout-cases.h"

#define ROUNDS	     15
#define ROUNDS_QUICK 7

#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

void handout_measure(struct bench *bench, struct handout_subject *subjects, size_t n,
		     const void *context, struct bench_quality *ret)
{
	const unsigned rounds = bench_quick(bench) ? ROUNDS_QUICK : ROUNDS;

	*ret = (struct bench_quality){.rounds = rounds};
	for (unsigned round = 0; round < rounds; round++)
		for (size_t i = 0; i < n; i++) {
			struct handout_subject *subject = &subjects[(i + round) % n];

			subject->rounds[round] = subject->round(context, subject->cpu);
		}
	for (size_t i = 0; i < n; i++)
		subjects[i].value = bench_median(subjects[i].rounds, rounds);
}

static uint64_t page_of(const struct stage_shape *shape)
{
	return shape->shmem_page ?: HUGE_BYTES;
}

static int order_of(const struct stage_shape *shape)
{
	int order = 0;

	while (page_of(shape) << order < shape->block_bytes)
		order++;
	return order;
}

void handout_report(struct bench *bench, const char *name, const char *unit,
		    const struct stage_shape *shape, const struct handout_subject *subject,
		    const struct handout_subject *baseline, const struct bench_quality *quality)
{
	bench_report(bench,
		     &(struct bench_row){
			     .name = name,
			     .variant = subject->variant,
			     .pages = shape ? (uint32_t)(shape->zone_bytes / page_of(shape)) : 0,
			     .block_order = shape ? order_of(shape) : 0,
			     .unit = unit,
			     .value = subject->value,
			     .baseline = baseline ? baseline->variant : NULL,
			     .baseline_value = baseline ? baseline->value : 0,
			     .kind = BENCH_COST,
			     .quality = quality,
		     });
}

void *handout_mmap(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB | MAP_POPULATE,
			    -1, 0);

	if (memory == MAP_FAILED)
		bench_die("mmap of %llu MiB of huge pages: %s", (unsigned long long)(bytes / MIB),
			  strerror(errno));
	return memory;
}

void handout_munmap(void *memory, uint64_t bytes)
{
	if (munmap(memory, bytes) < 0)
		bench_die("munmap: %s", strerror(errno));
}
