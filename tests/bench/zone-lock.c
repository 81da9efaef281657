/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock alone: the product's, and the ones it could have been. Each guards one counter; nothing
 * is done outside the lock, which is the hardest a lock can be used. With two threads this is the
 * cost of handing a cache line to and fro, and what differs is how often that is done in vain.
 */
#include <pthread.h>
#include <sched.h>

#include "alloc/lock.h"
#include "tests/bench/zone-cases.h"
#include "tests/bench/zone-product.h"

#define ROUNDS_A_PASS 256

struct test_and_set {
	atomic_bool taken;
};

struct ticket {
	atomic_uint next, serving;
};

struct guarded {
	_Alignas(BENCH_CACHELINE) union {
		struct hp_lock product;
		pthread_mutex_t mutex;
		struct test_and_set test_and_set;
		struct ticket ticket;
	} lock;
	uint64_t counter; /* beside the lock, as the data of a small lock is */
	_Alignas(BENCH_CACHELINE) atomic_uint_fast64_t expected;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static inline void test_and_set_lock(struct test_and_set *lock)
{
	while (atomic_exchange_explicit(&lock->taken, true, memory_order_acquire))
		relax();
}

static inline void test_and_set_unlock(struct test_and_set *lock)
{
	atomic_store_explicit(&lock->taken, false, memory_order_release);
}

static inline void ticket_lock(struct ticket *lock)
{
	const unsigned mine = atomic_fetch_add_explicit(&lock->next, 1, memory_order_relaxed);

	while (atomic_load_explicit(&lock->serving, memory_order_acquire) != mine)
		relax();
}

static inline void ticket_unlock(struct ticket *lock)
{
	const unsigned mine = atomic_load_explicit(&lock->serving, memory_order_relaxed);

	atomic_store_explicit(&lock->serving, mine + 1, memory_order_release);
}

#define LOCK_WORK(name, acquire, release)                                     \
	static void lock_##name(struct bench_section *section)                \
	{                                                                     \
		struct guarded *guarded = section->state;                     \
                                                                              \
		bench_begin(section);                                         \
		while (bench_more(section)) {                                 \
			for (unsigned i = 0; i < ROUNDS_A_PASS; i++) {        \
				acquire(&guarded->lock.name);                 \
				*(volatile uint64_t *)&guarded->counter += 1; \
				release(&guarded->lock.name);                 \
			}                                                     \
			section->ops += ROUNDS_A_PASS;                        \
		}                                                             \
		bench_end(section);                                           \
		atomic_fetch_add(&guarded->expected, section->ops);           \
	}

LOCK_WORK(product, hp_lock_acquire, hp_lock_release)
LOCK_WORK(mutex, pthread_mutex_lock, pthread_mutex_unlock)
LOCK_WORK(test_and_set, test_and_set_lock, test_and_set_unlock)
LOCK_WORK(ticket, ticket_lock, ticket_unlock)

static void compare_locks(struct bench *bench, unsigned threads)
{
	struct guarded *guarded = bench_memory(4 * sizeof(*guarded));
	struct bench_subject subjects[] = {
		{.variant = "product", .run = lock_product},
		{.variant = "pthread_mutex", .run = lock_mutex},
		{.variant = "test-and-set", .run = lock_test_and_set},
		{.variant = "ticket", .run = lock_ticket},
	};
	struct bench_quality quality;

	hp_lock_init(&guarded[0].lock.product);
	pthread_mutex_init(&guarded[1].lock.mutex, NULL);
	for (unsigned i = 0; i < 4; i++) {
		subjects[i].threads = threads;
		subjects[i].state = &guarded[i];
	}
	bench_measure(bench, subjects, 4, &quality);
	for (unsigned i = 0; i < 4; i++) {
		if (guarded[i].counter != atomic_load(&guarded[i].expected))
			bench_die("lock %s lets two in", subjects[i].variant);
		bench_report(bench, &(struct bench_row){.name = "lock",
							.variant = subjects[i].variant,
							.pages = PRODUCT_SMALL,
							.block_order = PRODUCT_BLOCK_ORDER,
							.threads = threads,
							.unit = "ns",
							.value = subjects[i].value,
							.baseline = "pthread_mutex",
							.baseline_value = subjects[1].value,
							.quality = &quality});
	}
	pthread_mutex_destroy(&guarded[1].lock.mutex);
	bench_memory_free(guarded);
}

/* Two threads take turns on one word: each turn is the way of a line from one core to the other. */
static void transfer(struct bench_section *section)
{
	struct guarded *guarded = section->state;
	atomic_uint *word = &guarded->lock.ticket.next;

	while (bench_more_together(section)) {
		bench_begin(section);
		for (unsigned i = 0; i < ROUNDS_A_PASS; i++) {
			while (atomic_load_explicit(word, memory_order_acquire) % 2 !=
			       section->thread)
				relax();
			atomic_fetch_add_explicit(word, 1, memory_order_release);
		}
		bench_end(section);
		section->ops += 2 * ROUNDS_A_PASS;
	}
}

/*
 * What all figures of two threads hang on. It is not the same in every run of a virtual machine,
 * whose processors may be two threads of one core now and two cores a minute later.
 */
static void show_transfer(struct bench *bench)
{
	struct guarded *guarded = bench_memory(sizeof(*guarded));
	struct bench_subject subject = {
		.variant = "line-transfer", .threads = 2, .run = transfer, .state = guarded};
	struct bench_quality quality;

	bench_measure(bench, &subject, 1, &quality);
	bench_report(bench, &(struct bench_row){.name = "lock",
						.variant = subject.variant,
						.pages = PRODUCT_SMALL,
						.block_order = PRODUCT_BLOCK_ORDER,
						.threads = 2,
						.unit = "ns",
						.value = subject.value,
						.quality = &quality});
	bench_memory_free(guarded);
}

void case_lock(struct bench *bench)
{
	for (unsigned threads = 1; threads <= 2 && threads <= bench_threads(bench); threads++)
		compare_locks(bench, threads);
	if (bench_threads(bench) >= 2)
		show_transfer(bench);
}
