/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hand-outs: how long until memory is ready to use, that is mapped, populated and zero.
 *
 * A round of the product is a session. It begins with all of the zone clean, takes a few pages that
 * do not count, so that a block is known, and then takes clean ranges until it has enough samples
 * or the zone has no more: none of them has been granted since it was zeroed. Ending the session
 * gives everything back; the next round begins when all has been zeroed again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h> /* for the next one, which leaves it out */
#include <hugetlbfs.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/bench/handout-cases.h"

#define WARM_UP	      4	 /* pages of 2 MiB */
#define SAMPLES_MAX   63 /* of a round */
#define BULK_MAX      64
#define BASELINES_MAX 2

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

/* What is handed out, and from what. */
struct handout {
	struct stage_shape shape;
	uint64_t bytes; /* of a range */
	size_t count;	/* ranges in one call */
	unsigned baseline_samples;
};

/* --- the product ------------------------------------------------------------------------------ */

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

static void close_pool(struct hugepool *pool)
{
	stage_place(ANYWHERE);
	hugepool_close(pool);
	stage_wait_clean();
}

/* Return: whether there was still room. */
static bool try_take(struct hugepool *pool, uint64_t bytes, struct hugepool_range *ret, size_t n)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	int r;

	request.bytes = bytes;
	request.flags = HUGEPOOL_ZERO;
	r = hugepool_alloc_bulk(pool, &request, ret, n);
	if (r < 0 && r != -ENOMEM && r != -EDQUOT)
		bench_die("hugepool_alloc_bulk: %s", strerror(-r));
	return r == 0;
}

static void take(struct hugepool *pool, uint64_t bytes, struct hugepool_range *ret, size_t n)
{
	if (!try_take(pool, bytes, ret, n))
		bench_die("no room for %zu times %llu MiB", n, (unsigned long long)(bytes / MIB));
}

static void give(struct hugepool *pool, const struct hugepool_range *range)
{
	const int r = hugepool_free(pool, range);

	if (r < 0)
		bench_die("hugepool_free: %s", strerror(-r));
}

/* A session that knows a block, on its place. */
static struct hugepool *open_warm(int cpu)
{
	struct hugepool *pool = open_pool();
	struct hugepool_range range;

	stage_place(cpu);
	for (unsigned i = 0; i < WARM_UP; i++)
		take(pool, HUGE_BYTES, &range, 1);
	return pool;
}

/* A word of each page; that it is there without a fault is the case first-touch. */
static void expect_zero(const struct hugepool_range *range)
{
	for (uint64_t at = 0; at < range->bytes; at += HUGE_BYTES)
		if (*(const uint64_t *)((const char *)range->address + at) != 0)
			bench_die("a range was granted that is not zero");
}

static double take_clean(const void *context, int cpu)
{
	const struct handout *handout = context;
	struct hugepool *pool = open_warm(cpu);
	struct hugepool_range ranges[BULK_MAX];
	double samples[SAMPLES_MAX];
	unsigned n = 0;

	while (n < SAMPLES_MAX) {
		const uint64_t began = bench_now_ns();

		if (!try_take(pool, handout->bytes, ranges, handout->count))
			break;
		samples[n++] = (double)(bench_now_ns() - began) / 1e3;
		for (size_t i = 0; i < handout->count; i++)
			expect_zero(&ranges[i]);
	}
	close_pool(pool);
	if (n == 0)
		bench_die("no room for one sample");
	return bench_median(samples, n);
}

/* All pages of the block are written and given back first, so that there is no clean one to get. */
static double take_dirty(const void *context, int cpu)
{
	const struct handout *handout = context;
	struct hugepool *pool = open_warm(cpu);
	struct hugepool_range ranges[SAMPLES_MAX], range;
	double samples[SAMPLES_MAX];
	unsigned n = 0;

	while (n < SAMPLES_MAX && try_take(pool, handout->bytes, &ranges[n], 1))
		n++;
	for (unsigned i = 0; i < n; i++) {
		memset(ranges[i].address, 0x5a, ranges[i].bytes);
		give(pool, &ranges[i]);
	}
	for (unsigned i = 0; i < SAMPLES_MAX; i++) {
		const uint64_t began = bench_now_ns();

		take(pool, handout->bytes, &range, 1);
		samples[i] = (double)(bench_now_ns() - began) / 1e3;
		expect_zero(&range);
		memset(range.address, 0x5a, range.bytes);
		give(pool, &range);
	}
	close_pool(pool);
	return bench_median(samples, SAMPLES_MAX);
}

/* --- the baselines ---------------------------------------------------------------------------- */

/* Return: how long one took, ns; what was made is gone again. */
typedef uint64_t (*baseline_fn)(uint64_t bytes);

static double baseline_round(const struct handout *handout, int cpu, baseline_fn one)
{
	double samples[SAMPLES_MAX];

	stage_place(cpu);
	for (unsigned i = 0; i < handout->baseline_samples; i++)
		samples[i] = (double)one(handout->bytes * handout->count) / 1e3;
	stage_place(ANYWHERE);
	return bench_median(samples, handout->baseline_samples);
}

static uint64_t one_mmap(uint64_t bytes)
{
	const uint64_t began = bench_now_ns();
	void *memory = handout_mmap(bytes);
	const uint64_t took = bench_now_ns() - began;

	handout_munmap(memory, bytes);
	return took;
}

/* In one piece, which costs less than ranges that can be given back one by one. */
static uint64_t one_libhugetlbfs(uint64_t bytes)
{
	const uint64_t began = bench_now_ns();
	char *memory = get_huge_pages(bytes, GHP_DEFAULT);
	uint64_t took;

	if (!memory)
		bench_die("get_huge_pages: %s", strerror(errno));
	for (uint64_t at = 0; at < bytes; at += HUGE_BYTES)
		*(volatile char *)(memory + at) = 0;
	took = bench_now_ns() - began;
	free_huge_pages(memory);
	return took;
}

static uint64_t one_memfd(uint64_t bytes)
{
	const uint64_t began = bench_now_ns();
	const int fd = memfd_create("bench", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	void *memory;
	uint64_t took;

	if (fd < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0)
		bench_die("memfd: %s", strerror(errno));
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED)
		bench_die("mmap of a memfd: %s", strerror(errno));
	took = bench_now_ns() - began;
	handout_munmap(memory, bytes);
	close(fd);
	return took;
}

static double round_mmap(const void *context, int cpu)
{
	return baseline_round(context, cpu, one_mmap);
}

static double round_libhugetlbfs(const void *context, int cpu)
{
	return baseline_round(context, cpu, one_libhugetlbfs);
}

static double round_memfd(const void *context, int cpu)
{
	return baseline_round(context, cpu, one_memfd);
}

/* --- cases ------------------------------------------------------------------------------------ */

#define BASELINE(name, fn)                             \
	{                                              \
		.variant = name, .round = fn, .cpu = 0 \
	}

static const struct handout_subject against_mmap[] = {BASELINE("mmap", round_mmap)};
static const struct handout_subject against_others[] = {
	BASELINE("libhugetlbfs", round_libhugetlbfs),
	BASELINE("memfd", round_memfd),
};

/* The product with its daemon on one processor, and wherever the kernel puts them; baselines. */
static void compare(struct bench *bench, const char *name, const struct handout *handout,
		    double (*product)(const void *context, int cpu),
		    const struct handout_subject *baselines, size_t nr_baselines)
{
	const int cpu = stage_first_cpu();
	struct handout_subject subjects[2 + BASELINES_MAX] = {
		{.variant = "product", .round = product, .cpu = cpu},
		{.variant = "product-unpinned", .round = product, .cpu = ANYWHERE},
	};
	struct bench_quality quality;

	if (!stage_begin(name, &handout->shape))
		return;
	for (size_t i = 0; i < nr_baselines; i++) {
		subjects[2 + i] = baselines[i];
		subjects[2 + i].cpu = cpu;
	}
	handout_measure(bench, subjects, 2 + nr_baselines, handout, &quality);
	for (size_t i = 0; i < 2; i++)
		for (size_t j = 0; j < nr_baselines; j++)
			handout_report(bench, name, "us", &handout->shape, &subjects[i],
				       &subjects[2 + j], &quality);
	stage_end();
}

static void compare_with_mmap(struct bench *bench, const char *name, const struct handout *handout)
{
	compare(bench, name, handout, take_clean, against_mmap, 1);
}

void case_handout_2M(struct bench *bench)
{
	compare_with_mmap(bench, "handout-2M",
			  &(struct handout){
				  .shape = {.zone_bytes = 256 * MIB,
					    .block_bytes = 256 * MIB,
					    .baseline_bytes = 2 * MIB},
				  .bytes = 2 * MIB,
				  .count = 1,
				  .baseline_samples = 21,
			  });
}

void case_handout_64M(struct bench *bench)
{
	compare_with_mmap(bench, "handout-64M",
			  &(struct handout){
				  .shape = {.zone_bytes = 512 * MIB,
					    .block_bytes = 512 * MIB,
					    .baseline_bytes = 64 * MIB},
				  .bytes = 64 * MIB,
				  .count = 1,
				  .baseline_samples = 7,
			  });
}

void case_handout_1G(struct bench *bench)
{
	compare_with_mmap(bench, "handout-1G",
			  &(struct handout){
				  .shape = {.zone_bytes = 2 * GIB,
					    .block_bytes = 2 * GIB,
					    .baseline_bytes = GIB},
				  .bytes = GIB,
				  .count = 1,
				  .baseline_samples = 1,
			  });
}

/* The first block has the warm-up's pages; each of the others is new when it is taken. */
void case_handout_64M_new(struct bench *bench)
{
	compare_with_mmap(bench, "handout-64M-new",
			  &(struct handout){
				  .shape = {.zone_bytes = 512 * MIB,
					    .block_bytes = 64 * MIB,
					    .baseline_bytes = 64 * MIB},
				  .bytes = 64 * MIB,
				  .count = 1,
				  .baseline_samples = 7,
			  });
}

void case_handout_2M_dirty(struct bench *bench)
{
	const struct handout handout = {
		.shape = {.zone_bytes = 64 * MIB,
			  .block_bytes = 64 * MIB,
			  .baseline_bytes = 2 * MIB},
		.bytes = 2 * MIB,
		.count = 1,
		.baseline_samples = 21,
	};

	compare(bench, "handout-2M-dirty", &handout, take_dirty, against_mmap, 1);
}

void case_handout_64x2M(struct bench *bench)
{
	const struct handout handout = {
		.shape = {.zone_bytes = 512 * MIB,
			  .block_bytes = 512 * MIB,
			  .baseline_bytes = 128 * MIB},
		.bytes = 2 * MIB,
		.count = 64,
		.baseline_samples = 3,
	};

	compare(bench, "handout-64x2M", &handout, take_clean, against_others, 2);
}

/* --- first touch ------------------------------------------------------------------------------ */

static long page_faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_THREAD, &usage) < 0)
		bench_die("getrusage: %s", strerror(errno));
	return usage.ru_minflt + usage.ru_majflt;
}

/* Return: the page faults of writing every byte of every range of a session, known and new blocks. */
static double touch_all(const void *context, int cpu)
{
	const struct handout *handout = context;
	struct hugepool *pool = open_warm(cpu);
	struct hugepool_range range;
	long faults = 0;

	while (try_take(pool, handout->bytes, &range, 1)) {
		const long before = page_faults();

		memset(range.address, 0x5a, range.bytes);
		faults += page_faults() - before;
	}
	close_pool(pool);
	return (double)faults;
}

/* A range of 48 MiB out of blocks of 64 MiB: whole ones, and such that lie in two. */
void case_first_touch(struct bench *bench)
{
	const struct handout handout = {
		.shape = {.zone_bytes = 512 * MIB, .block_bytes = 64 * MIB, .baseline_bytes = 0},
		.bytes = 48 * MIB,
	};
	struct handout_subject subject = {
		.variant = "product", .round = touch_all, .cpu = stage_first_cpu()};
	struct bench_quality quality;

	if (!stage_begin("first-touch", &handout.shape))
		return;
	handout_measure(bench, &subject, 1, &handout, &quality);
	handout_report(bench, "first-touch", "fault", &handout.shape, &subject, NULL, &quality);
	stage_end();
}
