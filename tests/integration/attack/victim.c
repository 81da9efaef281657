/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A victim: takes memory, looks whether it is as promised, writes secrets, looks whether they are
 * still there, gives them back without wiping them.
 *
 * Half of what it takes is exclusive and not asked to be zero: such blocks are clean, so the daemon
 * and not the library answers for every byte. The other half is asked to be zero, whatever it was.
 */
#include "tests/integration/attack/attack.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RANGES_MAX     3
#define SESSION_ROUNDS 4
#define DEADLINE_MS    30000

static void complain(struct hugepool *pool, const char *what, int r)
{
	struct hugepool_error error = {.size = sizeof(error)};

	if (pool)
		hugepool_get_error(pool, &error);
	(void)fprintf(stderr, "victim: %s: %s: %s\n", what, strerror(-r), error.message);
	wrong(WRONG_REFUSED);
}

static bool take(struct hugepool *pool, bool exclusive, struct hugepool_range *range, uint32_t who)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	int r;

	request.bytes = exclusive ? BLOCK_BYTES : (1 + random() % BLOCK_PAGES) * PAGE_BYTES;
	request.flags = exclusive ? HUGEPOOL_EXCLUSIVE : HUGEPOOL_ZERO;
	request.deadline_ms = DEADLINE_MS;
	r = hugepool_alloc(pool, &request, range);
	if (r) {
		complain(pool, "alloc", r);
		return false;
	}
	memory_search(range->address, range->bytes, who); /* whose it was, if it is not clean */
	if (!memory_is_zero(range->address, range->bytes))
		wrong(WRONG_DIRTY);
	tally->looked_bytes += range->bytes;
	memory_mark(range->address, range->bytes, who);
	return true;
}

static void one_round(struct hugepool *pool, uint32_t who)
{
	struct hugepool_range ranges[RANGES_MAX];
	bool exclusive = random() % 2;
	size_t n = 0, wanted = 1 + (size_t)random() % RANGES_MAX;

	while (n < wanted && take(pool, exclusive, &ranges[n], who))
		n++;
	if (random() % 4 == 0)
		nap_ms(1 + (unsigned)random() % 10);
	for (size_t i = 0; i < n; i++) {
		int r;

		if (!memory_is_marked(ranges[i].address, ranges[i].bytes, who))
			wrong(WRONG_FOREIGN);
		r = hugepool_free(pool, &ranges[i]);
		if (r)
			complain(pool, "free", r);
	}
}

void victim(uint32_t who)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool;
	int r;

	options.socket = attack_socket;
	while (attacking()) {
		r = hugepool_open(&pool, &options);
		if (r) {
			complain(NULL, "open", r);
			break;
		}
		for (int i = 0; i < SESSION_ROUNDS && attacking(); i++)
			one_round(pool, who);
		hugepool_close(pool);
	}
	exit(0);
}
