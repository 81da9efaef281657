/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways, far apart: for memory in a cache the string instruction behind memset() is several
 * times faster than stores that go around the caches; for memory that is not, it is the other way
 * round, and memset() would throw everybody's data out of them besides. Which memory is cached
 * cannot be asked, but what a program has just given back is a good guess.
 */
#include "client/zero.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define CACHED_BYTES (4u << 20)	  /* freed since, and still believed to be in a cache */
#define COLD_MIN     (256u << 10) /* below this, the choice is not worth a thought */

void recency_note(struct recency *recency, uint8_t zone, uint32_t page, uint32_t pages,
		  uint64_t bytes)
{
	recency->freed[recency->next].zone = zone;
	recency->freed[recency->next].page = page;
	recency->freed[recency->next].pages = pages;
	recency->freed[recency->next].bytes = bytes;
	recency->next = (recency->next + 1) % RECENT_MAX;
}

bool recency_is_hot(const struct recency *recency, uint8_t zone, uint32_t page, uint32_t pages)
{
	uint64_t since = 0;

	for (unsigned i = 1; i <= RECENT_MAX; i++) {
		unsigned at = (recency->next - i) % RECENT_MAX;

		since += recency->freed[at].bytes;
		if (recency->freed[at].pages == 0 || since > CACHED_BYTES)
			return false;
		if (recency->freed[at].zone == zone && page >= recency->freed[at].page &&
		    page - recency->freed[at].page < recency->freed[at].pages)
			return pages <= recency->freed[at].pages;
	}
	return false;
}

static void zero_around_caches(void *p, size_t bytes)
{
#ifdef __SSE2__
	const __m128i zero = _mm_setzero_si128();
	__m128i *at = p, *end = (__m128i *)((char *)p + bytes);

	for (; at < end; at += 4) {
		_mm_stream_si128(at, zero);
		_mm_stream_si128(at + 1, zero);
		_mm_stream_si128(at + 2, zero);
		_mm_stream_si128(at + 3, zero);
	}
	_mm_sfence();
#else
	memset(p, 0, bytes);
#endif
}

void zero_memory(void *p, size_t bytes, bool hot)
{
	if (hot || bytes < COLD_MIN)
		memset(p, 0, bytes);
	else
		zero_around_caches(p, bytes);
}
