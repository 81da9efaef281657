/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of words at a time.
 *
 * A split range of 512 pages is 512 words to look at and 512 to store, and that is most of what its
 * free costs. So it is done with vectors, 32 bytes where the processor has AVX2 and 16 otherwise:
 * what has to be whole is a word, and no processor tears aligned 8 bytes of a vector. One by one
 * for the hook, and for ThreadSanitizer, which has to see atomics.
 */
#include "alloc/durable.h"

#if defined(__x86_64__) && !defined(HP_DURABLE_HOOK) && !defined(__SANITIZE_THREAD__)
#define VECTORS 1
#else
#define VECTORS 0
#endif

#if VECTORS

/* The loops for vectors of so many bytes, compiled for a processor that has them. */
#define VECTOR_LOOPS(name, bytes, isa)                                                        \
	typedef uint64_t name##_t __attribute__((vector_size(bytes), may_alias, aligned(8))); \
                                                                                              \
	__attribute__((target(isa))) static uint64_t name##_differ(const hp_word_t *words,    \
								   uint32_t n, uint64_t want) \
	{                                                                                     \
		const name##_t wants = want - (name##_t){0};                                  \
		name##_t differ[2] = {{0}, {0}};                                              \
		uint64_t any = 0;                                                             \
                                                                                              \
		for (uint32_t i = 0; i < n; i += 2 * bytes / sizeof(*words)) {                \
			const name##_t *pair = (const name##_t *)(const void *)&words[i];     \
                                                                                              \
			differ[0] |= pair[0] ^ wants;                                         \
			differ[1] |= pair[1] ^ wants;                                         \
		}                                                                             \
		differ[0] |= differ[1];                                                       \
		for (unsigned i = 0; i < bytes / sizeof(*words); i++)                         \
			any |= differ[0][i];                                                  \
		return any;                                                                   \
	}                                                                                     \
                                                                                              \
	__attribute__((target(isa))) static void name##_keep(hp_word_t *words, uint32_t n,    \
							     uint64_t mask)                   \
	{                                                                                     \
		const name##_t masks = mask - (name##_t){0};                                  \
                                                                                              \
		for (uint32_t i = 0; i < n; i += 2 * bytes / sizeof(*words)) {                \
			name##_t *pair = (name##_t *)(void *)&words[i];                       \
                                                                                              \
			pair[0] &= masks;                                                     \
			pair[1] &= masks;                                                     \
		}                                                                             \
	}

VECTOR_LOOPS(sse2, 16, "sse2")
VECTOR_LOOPS(avx2, 32, "avx2")
#endif

/* How many of n words are for the vectors: whole rounds of them. */
static uint32_t whole_rounds(uint32_t n)
{
	return VECTORS ? n & ~7u : 0;
}

static uint64_t vectors_differ(const hp_word_t *words, uint32_t n, uint64_t want)
{
#if VECTORS
	return __builtin_cpu_supports("avx2") ? avx2_differ(words, n, want)
					      : sse2_differ(words, n, want);
#else
	(void)words, (void)n, (void)want;
	return 0;
#endif
}

static void vectors_keep(hp_word_t *words, uint32_t n, uint64_t mask)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
#if VECTORS
	if (__builtin_cpu_supports("avx2"))
		avx2_keep(words, n, mask);
	else
		sse2_keep(words, n, mask);
#else
	(void)words, (void)n, (void)mask;
#endif
}

bool hp_durable_all(const hp_word_t *words, uint32_t n, uint64_t want, uint64_t mask)
{
	uint32_t whole = whole_rounds(n);
	uint64_t differ = whole ? vectors_differ(words, whole, want) : 0;

	for (uint32_t i = whole; i < n; i++)
		differ |= hp_durable_load(&words[i]) ^ want;
	return (differ & mask) == 0;
}

void hp_durable_keep(hp_word_t *words, uint32_t n, uint64_t mask)
{
	uint32_t whole = whole_rounds(n);

	if (whole)
		vectors_keep(words, whole, mask);
	for (uint32_t i = whole; i < n; i++)
		hp_durable_store(&words[i], hp_durable_load(&words[i]) & mask);
}
