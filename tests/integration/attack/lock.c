/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attacker that keeps the locks of its files busy: many threads punch holes into them and fill
 * them again, which takes the lock for as long as it takes to zero a block. Whoever wants to truncate
 * such a file queues with them.
 */
#include "tests/integration/attack/attack.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_OF_FILE 12
#define KEEP_MS		250
#define REST_MS		100

struct burst {
	struct taken taken[LOCKED_FILES];
	size_t n;
	_Atomic bool stop;
};

struct worker {
	struct burst *burst;
	int fd;
	pthread_t thread;
};

static void *occupy(void *argument)
{
	struct worker *worker = argument;

	while (!worker->burst->stop) {
		fallocate(worker->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK_BYTES);
		fallocate(worker->fd, 0, 0, BLOCK_BYTES);
	}
	return NULL;
}

/* So that the watcher knows whose truncation it sees waiting. */
static void publish(const struct burst *burst)
{
	struct stat st;

	for (size_t i = 0; i < burst->n; i++)
		if (fstat(burst->taken[i].fd, &st) == 0)
			tally->locked[i] = st.st_dev;
}

static void run(struct burst *burst)
{
	struct worker workers[LOCKED_FILES * THREADS_OF_FILE];
	size_t n = 0;

	for (size_t i = 0; i < burst->n * THREADS_OF_FILE; i++) {
		workers[n] = (struct worker){burst, burst->taken[i % burst->n].fd, 0};
		n += pthread_create(&workers[n].thread, NULL, occupy, &workers[n]) == 0;
	}
	nap_ms(REST_MS); /* all at it */
	publish(burst);
	for (size_t i = 0; i < burst->n; i++)
		taken_give_back(&burst->taken[i]);
	nap_ms(KEEP_MS);
	burst->stop = true;
	for (size_t i = 0; i < LOCKED_FILES; i++)
		tally->locked[i] = 0;
	for (size_t i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	if (n == burst->n * THREADS_OF_FILE)
		hit(HIT_LOCK_BURSTS);
}

void attacker_lock(uint32_t who)
{
	while (attacking()) {
		struct burst burst = {.n = 0};

		while (burst.n < LOCKED_FILES && taken_new(&burst.taken[burst.n], who))
			burst.n++;
		if (burst.n == LOCKED_FILES)
			run(&burst);
		if (!attacking())
			hold();
		for (size_t i = 0; i < burst.n; i++) {
			taken_give_back(&burst.taken[i]);
			taken_drop(&burst.taken[i]);
		}
		nap_ms(REST_MS);
	}
	hold();
}
