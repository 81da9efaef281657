/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client for the demo, led by hand: one command a line on stdin, one answer a line on stdout,
 * "ok", maybe with a figure, or "error" and why. So the story is told in one place, the script,
 * while the memory is held and looked at by processes of their own, each with its own uid.
 *
 * It uses what any program could: libhugepool's public header. Commands, ID being 0 to 31:
 *
 *   open [keep]                     connect; keep: blocks stay mapped when they hold no range any
 * more take ID ZONE BYTES [zero] [exclusive]      answers how long it took, ns free ID fill ID
 * SEED, verify ID SEED    every word of the range, a pattern zero ID                         is
 * every word of the range zero? cling ID                        map the range's file once more,
 * past the library, and hold on to it touch ID                        read through that mapping:
 * "ok alive", or "ok dead" after SIGBUS letgo ID                        unmap it run ID COMMAND run
 * a shell command that gets nothing but the range's descriptor, as its stdin, at the range's
 * beginning populate BYTES huge|small       a fresh populated mapping, for comparison: ns close
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"

#define RANGES_MAX 32
#define WORDS_MAX  8 /* of a command */

struct held {
	bool taken;
	struct hugepool_range range;
	void *clung; /* a mapping of the same memory that the library knows nothing of, or NULL */
	size_t clung_bytes;
};

static struct hugepool *pool;
static struct held table[RANGES_MAX];
static sigjmp_buf touched;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Answers with the numbers behind a failure of the library. */
static void answer_error(int error)
{
	struct hugepool_error details = {.size = sizeof(details)};

	if (pool && hugepool_get_error(pool, &details) == 0 && details.error == -error)
		printf("error %s\n", details.message);
	else
		printf("error %s\n", strerror(-error));
}

static void answer(int r)
{
	if (r < 0)
		answer_error(r);
	else
		puts("ok");
}

static void do_open(char **words)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;

	if (words[1] && strcmp(words[1], "keep") == 0)
		options.flags = HUGEPOOL_KEEP_BLOCKS | HUGEPOOL_KEEP_FDS;
	answer(hugepool_open(&pool, &options));
}

static void do_take(struct held *held, char **words)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	uint64_t start;
	int r;

	request.zone = words[2];
	request.bytes = strtoull(words[3], NULL, 10);
	for (char **option = words + 4; *option; option++) {
		if (strcmp(*option, "zero") == 0)
			request.flags |= HUGEPOOL_ZERO;
		else if (strcmp(*option, "exclusive") == 0)
			request.flags |= HUGEPOOL_EXCLUSIVE;
	}
	start = now_ns();
	r = hugepool_alloc(pool, &request, &held->range);
	if (r < 0) {
		answer_error(r);
		return;
	}
	printf("ok %llu\n", (unsigned long long)(now_ns() - start));
	held->taken = true;
}

static void do_free(struct held *held)
{
	int r = hugepool_free(pool, &held->range);

	if (r == 0)
		held->taken = false;
	answer(r);
}

/* The pattern: no word is like another, and none is like a word of another seed. */
static uint64_t pattern(uint64_t seed, size_t i)
{
	return (seed << 48 ^ i) * UINT64_C(0x9e3779b97f4a7c15);
}

static void do_fill(struct held *held, uint64_t seed)
{
	uint64_t *word = held->range.address;

	for (size_t i = 0; i < held->range.bytes / sizeof(*word); i++)
		word[i] = pattern(seed, i);
	puts("ok");
}

static void do_text(struct held *held)
{
	static const char line[] = "hugepool\n";
	char *byte = held->range.address;

	for (uint64_t i = 0; i < held->range.bytes; i++)
		byte[i] = line[i % (sizeof(line) - 1)];
	puts("ok");
}

static void do_verify(const struct held *held, uint64_t seed)
{
	const uint64_t *word = held->range.address;

	for (size_t i = 0; i < held->range.bytes / sizeof(*word); i++) {
		if (word[i] != pattern(seed, i)) {
			printf("error byte %zu is not what was written\n", i * sizeof(*word));
			return;
		}
	}
	puts("ok");
}

static void do_zero(const struct held *held)
{
	const uint64_t *word = held->range.address;

	for (size_t i = 0; i < held->range.bytes / sizeof(*word); i++) {
		if (word[i]) {
			printf("error byte %zu is not zero\n", i * sizeof(*word));
			return;
		}
	}
	puts("ok");
}

static void do_cling(struct held *held)
{
	uint64_t offset;
	int fd = hugepool_range_fd(pool, &held->range, &offset);
	void *clung;

	if (fd < 0) {
		answer_error(fd);
		return;
	}
	clung = mmap(NULL, held->range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		     (off_t)offset);
	if (clung == MAP_FAILED) {
		printf("error mmap: %s\n", strerror(errno));
		return;
	}
	held->clung = clung;
	held->clung_bytes = held->range.bytes;
	puts("ok");
}

static void on_sigbus(int signal)
{
	(void)signal;
	siglongjmp(touched, 1);
}

static void do_touch(const struct held *held)
{
	struct sigaction action = {.sa_handler = on_sigbus}, before;

	sigaction(SIGBUS, &action, &before);
	if (sigsetjmp(touched, 1) == 0) {
		*(volatile char *)held->clung;
		puts("ok alive");
	} else {
		puts("ok dead");
	}
	sigaction(SIGBUS, &before, NULL);
}

static void do_letgo(struct held *held)
{
	munmap(held->clung, held->clung_bytes);
	held->clung = NULL;
	puts("ok");
}

static void do_run(struct held *held, const char *command)
{
	uint64_t offset;
	int fd = hugepool_range_fd(pool, &held->range, &offset);
	int status;
	pid_t child;

	if (fd < 0) {
		answer_error(fd);
		return;
	}
	child = fork();
	if (child == 0) {
		if (dup2(fd, STDIN_FILENO) < 0 ||
		    lseek(STDIN_FILENO, (off_t)offset, SEEK_SET) < 0 ||
		    dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			_exit(126);
		execl("/bin/bash", "bash", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		printf("error %s\n", strerror(errno));
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		printf("error it ended with status %d\n", WEXITSTATUS(status));
	else
		puts("ok");
}

static void do_populate(size_t bytes, const char *kind)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	uint64_t start, end;
	void *memory;

	if (strcmp(kind, "huge") == 0)
		flags |= MAP_HUGETLB;
	start = now_ns();
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	end = now_ns();
	if (memory == MAP_FAILED) {
		printf("error mmap: %s\n", strerror(errno));
		return;
	}
	munmap(memory, bytes);
	printf("ok %llu\n", (unsigned long long)(end - start));
}

/* The range that a command names, or NULL, answered. */
static struct held *held_by(const char *word, bool taken)
{
	unsigned long id = strtoul(word ? word : "99", NULL, 10);

	if (!pool || id >= RANGES_MAX || table[id].taken != taken) {
		puts("error no such range");
		return NULL;
	}
	return &table[id];
}

/* line is cut into words; rest: what follows the second word. */
static void obey(char **words, char *rest)
{
	const char *verb = words[0];
	struct held *held;

	if (strcmp(verb, "open") == 0 && !pool) {
		do_open(words);
	} else if (strcmp(verb, "populate") == 0 && words[1] && words[2]) {
		do_populate(strtoull(words[1], NULL, 10), words[2]);
	} else if (strcmp(verb, "take") == 0 && words[1] && words[2] && words[3]) {
		if ((held = held_by(words[1], false)))
			do_take(held, words);
	} else if (strcmp(verb, "touch") == 0 || strcmp(verb, "letgo") == 0) {
		held = words[1] ? &table[strtoul(words[1], NULL, 10) % RANGES_MAX] : NULL;
		if (!held || !held->clung)
			puts("error nothing is clung to");
		else if (*verb == 't')
			do_touch(held);
		else
			do_letgo(held);
	} else if ((held = held_by(words[1], true))) {
		if (strcmp(verb, "free") == 0)
			do_free(held);
		else if (strcmp(verb, "fill") == 0 && words[2])
			do_fill(held, strtoull(words[2], NULL, 10));
		else if (strcmp(verb, "verify") == 0 && words[2])
			do_verify(held, strtoull(words[2], NULL, 10));
		else if (strcmp(verb, "zero") == 0)
			do_zero(held);
		else if (strcmp(verb, "text") == 0)
			do_text(held);
		else if (strcmp(verb, "cling") == 0)
			do_cling(held);
		else if (strcmp(verb, "run") == 0 && rest)
			do_run(held, rest);
		else
			puts("error not understood");
	}
}

int main(void)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((n = getline(&line, &size, stdin)) > 0) {
		char *words[WORDS_MAX + 1] = {NULL};
		char *copy, *rest, *state = NULL;

		line[strcspn(line, "\n")] = '\0';
		copy = strdup(line);
		if (!copy)
			return 1;
		for (size_t i = 0; i < WORDS_MAX; i++)
			if (!(words[i] = strtok_r(i ? NULL : copy, " ", &state)))
				break;
		rest = words[0] && words[1] && words[2] ? line + (words[2] - copy) : NULL;
		if (words[0] && strcmp(words[0], "close") == 0)
			n = 0;
		else if (words[0])
			obey(words, rest);
		free(copy);
		if (n == 0)
			break;
	}
	free(line);
	pool = hugepool_close(pool);
	puts("ok");
	return 0;
}
