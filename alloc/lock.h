/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two locks of the allocator.
 *
 * struct hp_lock is the zone's: test and set, bounded exponential back-off, then the futex. A
 * critical section of ours lasts a microsecond at most, so a waiter that spins a little nearly
 * always gets the lock without the kernel; backing off keeps him from pulling the cache line away
 * from the holder while he works. The futex is for a holder that has been preempted.
 *
 * struct hp_bias is the lock of a page cache, which one thread, its worker, takes all the time and
 * others take hardly ever. It is biased to the worker: he pays two plain stores and a load. This is
 * Dekker's argument with its fence moved to the rare side:
 *
 *	the worker                          anybody else
 *
 *	busy = 1                            revoked = 1
 *	(compiler barrier)                  membarrier()
 *	if (revoked): busy = 0, back off    wait until busy == 0
 *	... work ...                        ... work ...
 *	busy = 0                            revoked = 0
 *
 * Each side writes its own word and then reads the other's. If neither read can come before the
 * write of the same side, at least one of them sees the other, and the worker's back-off makes that
 * enough. membarrier(PRIVATE_EXPEDITED) makes every running thread of the process execute a full
 * barrier at some point between the begin and the end of that call. For the worker this point lies
 *
 *	- before he writes busy: then he reads revoked after it, sees the 1 that was written before
 *	  the call, and backs off;
 *	- or after he wrote busy: then the write is visible when the call returns, and the other side
 *	  waits for busy == 0, an acquire that pairs with his release and shows all his work.
 *
 * Without membarrier (an old kernel, a seccomp filter) the worker uses a real fence. So does a
 * build with ThreadSanitizer, which has to see the order in the code. A child of fork() has to make
 * its caches anew: the registration belongs to the process.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define HP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HP_TSAN 1
#endif
#endif
#ifndef HP_TSAN
#define HP_TSAN 0
#endif

struct hp_lock {
	uint32_t state; /* 0: free, 1: held, 2: held, and somebody may sleep */
#ifdef HP_LOCK_TIMES
	uint64_t since_ns, held_ns; /* how long it was held in all: for bench-zone's lock-hold */
#endif
};

void hp_lock_init(struct hp_lock *lock);

/* The part of hp_lock_acquire() for a lock that is taken. */
void hp_lock_wait(struct hp_lock *lock);
/* The part of hp_lock_release() for a lock that somebody sleeps on. */
void hp_lock_wake(struct hp_lock *lock);
/* CLOCK_MONOTONIC, in nanoseconds. */
uint64_t hp_lock_now_ns(void);

static inline bool hp_lock_try(struct hp_lock *lock)
{
	uint32_t expected = 0;

	return __atomic_compare_exchange_n(&lock->state, &expected, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void hp_lock_acquire(struct hp_lock *lock)
{
	if (__builtin_expect(!hp_lock_try(lock), 0))
		hp_lock_wait(lock);
#ifdef HP_LOCK_TIMES
	lock->since_ns = hp_lock_now_ns();
#endif
}

static inline void hp_lock_release(struct hp_lock *lock)
{
#ifdef HP_LOCK_TIMES
	lock->held_ns += hp_lock_now_ns() - lock->since_ns;
#endif
	if (__builtin_expect(__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2, 0))
		hp_lock_wake(lock);
}

#define HP_BIAS_REVOKED 1u /* somebody else is inside or on his way */
#define HP_BIAS_FENCED	2u /* there is no membarrier: the worker has to fence */

struct hp_bias {
	uint32_t busy;	       /* written by the worker: he is inside */
	uint32_t revoked;      /* written by others */
	struct hp_lock others; /* one of the others at a time */
};

void hp_bias_init(struct hp_bias *bias);

/* The part of hp_bias_try() for a worker who has to look closer. */
bool hp_bias_try_fenced(struct hp_bias *bias);

/* Only the plain way in. False: nothing is known yet, and busy is to be taken back. */
static inline bool hp_bias_try_plain(struct hp_bias *bias)
{
	__atomic_store_n(&bias->busy, 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return __builtin_expect(__atomic_load_n(&bias->revoked, __ATOMIC_ACQUIRE) == 0, 1);
}

/* The worker's way in. Never waits; false: somebody else is inside or on his way. */
static inline bool hp_bias_try(struct hp_bias *bias)
{
	return hp_bias_try_plain(bias) || hp_bias_try_fenced(bias);
}

static inline void hp_bias_leave(struct hp_bias *bias)
{
	__atomic_store_n(&bias->busy, 0, __ATOMIC_RELEASE);
}

/* Anybody's way in, the worker's too when he has to wait. */
void hp_bias_revoke(struct hp_bias *bias);
void hp_bias_restore(struct hp_bias *bias);
