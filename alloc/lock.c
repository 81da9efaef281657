/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slow sides of the locks: waiting, sleeping, and the fence of the biased lock. The reasons are
 * in lock.h. Nothing here is reached by a worker that nobody disturbs.
 */
#include "alloc/lock.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Back-off in pause instructions: doubled from the first to the last, then the kernel. */
#define BACKOFF_FIRST 4u
#define BACKOFF_LAST  256u
#define BACKOFF_TRIES 24u

/* How often the worker's busy word is looked at before the processor is given away. */
#define BUSY_SPINS 256u

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
}

void hp_lock_init(struct hp_lock *lock)
{
	*lock = (struct hp_lock){0};
}

static void futex(uint32_t *word, int operation, uint32_t value)
{
	/* The result does not matter: whoever calls looks at the word again. */
	(void)syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void hp_lock_wait(struct hp_lock *lock)
{
	unsigned delay = BACKOFF_FIRST;

	for (unsigned i = 0; i < BACKOFF_TRIES; i++) {
		for (unsigned j = 0; j < delay; j++)
			relax();
		if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) == 0 && hp_lock_try(lock))
			return;
		if (delay < BACKOFF_LAST)
			delay *= 2;
	}
	while (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) != 0)
		futex(&lock->state, FUTEX_WAIT, 2);
}

void hp_lock_wake(struct hp_lock *lock)
{
	futex(&lock->state, FUTEX_WAKE, 1);
}

uint64_t hp_lock_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void hp_bias_init(struct hp_bias *bias)
{
	bool there = !HP_TSAN && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);

	*bias = (struct hp_bias){.revoked = there ? 0 : HP_BIAS_FENCED};
	hp_lock_init(&bias->others);
}

bool hp_bias_try_fenced(struct hp_bias *bias)
{
	/* If a fence is needed, the busy word written so far says nothing. */
	if (__atomic_load_n(&bias->revoked, __ATOMIC_RELAXED) & HP_BIAS_FENCED) {
		(void)__atomic_exchange_n(&bias->busy, 1, __ATOMIC_SEQ_CST);
		if (!(__atomic_load_n(&bias->revoked, __ATOMIC_SEQ_CST) & HP_BIAS_REVOKED))
			return true;
	}
	hp_bias_leave(bias);
	return false;
}

void hp_bias_revoke(struct hp_bias *bias)
{
	unsigned spins = 0;

	hp_lock_acquire(&bias->others);
	if (!(__atomic_fetch_or(&bias->revoked, HP_BIAS_REVOKED, __ATOMIC_SEQ_CST) &
	      HP_BIAS_FENCED)) {
		bool done = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);

		/* Registered in hp_bias_init(): it has no other way to fail. */
		assert(done);
		(void)done;
	}
	/* The worker is inside for a microsecond, or preempted: then he needs our processor. */
	while (__atomic_load_n(&bias->busy, __ATOMIC_SEQ_CST)) {
		if (++spins < BUSY_SPINS)
			relax();
		else
			sched_yield();
	}
}

void hp_bias_restore(struct hp_bias *bias)
{
	__atomic_fetch_and(&bias->revoked, ~HP_BIAS_REVOKED, __ATOMIC_RELEASE);
	hp_lock_release(&bias->others);
}
