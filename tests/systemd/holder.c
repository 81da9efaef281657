/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holder MIB FILE: takes a range, writes its mark all over, and then again and again checks the mark,
 * and allocates and frees another range. FILE has the number of rounds so far, and at the end "wrong" or
 * what failed. A restart of the daemon is nothing but a slow round to it. SIGTERM ends it.
 */
#include <hugepool/hugepool.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void on_term(int number)
{
	(void)number;
	ended = 1;
}

static void say(const char *path, const char *what, long number)
{
	char temporary[512];
	FILE *file;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	file = fopen(temporary, "w");
	if (!file)
		exit(3);
	fprintf(file, "%s %ld\n", what, number);
	fclose(file);
	rename(temporary, path);
}

static int is_marked(const uint64_t *words, uint64_t bytes, uint64_t mark)
{
	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != mark + i)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range mine, other;
	struct hugepool *pool = NULL;
	uint64_t mark = (uint64_t)getpid() << 32;
	uint64_t *words;
	int r;

	if (argc != 3)
		return 2;
	signal(SIGTERM, on_term);
	request.bytes = (uint64_t)atol(argv[1]) << 20;
	r = hugepool_open(&pool, NULL);
	if (r == 0)
		r = hugepool_alloc(pool, &request, &mine);
	if (r < 0) {
		say(argv[2], strerror(-r), 0);
		return 1;
	}
	words = mine.address;
	for (uint64_t i = 0; i < mine.bytes / sizeof(*words); i++)
		words[i] = mark + i;
	for (long round = 1; !ended; round++) {
		if (!is_marked(words, mine.bytes, mark)) {
			say(argv[2], "wrong", round);
			return 1;
		}
		r = hugepool_alloc(pool, &request, &other);
		if (r == 0)
			r = hugepool_free(pool, &other);
		if (r < 0) {
			say(argv[2], strerror(-r), round);
			return 1;
		}
		say(argv[2], "rounds", round);
		usleep(10000);
	}
	hugepool_close(pool);
	say(argv[2], "ended", 0);
	return 0;
}
