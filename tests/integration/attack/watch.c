/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a daemon from outside.
 *
 * Whether a thread waits in a system call is read from /proc: a thread that sleeps in a call shows the
 * call, one that could run does not, however long the machine lets it wait. If two looks show the
 * same call and the same number of times it went to sleep, it slept all the time in between. So the
 * measure does not depend on the load of the machine.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/integration/attack/attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/peer.h"

#define THREADS_MAX 1024
#define OWNERS_MAX  1024

/*
 * How long an event loop may sleep in a call. Where it waits for another thread of the daemon, that one
 * may wait for a processor, or for the host of this machine to give it one, which is nobody's fault:
 * the limit for that is below what attackers reach who hold a lock that the daemon waits for.
 */
#define BLOCKED_NS	  UINT64_C(5000000)
#define BLOCKED_THREAD_NS UINT64_C(40000000)

#define STUCK_NS UINT64_C(20000000)

struct thread {
	pid_t tid;	   /* 0: free */
	long call;	   /* that it sleeps in, or -1 */
	uint64_t slept;	   /* how often it went to sleep, as of the first look at this sleep */
	uint64_t since_ns; /* that look */
	bool told;
};

struct watch {
	const struct stage *stage;
	struct peer *admin;
	struct thread threads[THREADS_MAX];
	size_t nr_threads;
	bool attackers[OWNERS_MAX]; /* by owner's number */
	uint64_t held_blocks[OWNERS_MAX];
	uint8_t seen[NR_BLOCKS]; /* state of each block, at the last look */
	bool seen_held[NR_BLOCKS];
};

struct watch *watch_new(const struct stage *stage)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	watch->stage = stage;
	watch->admin = peer_connect(stage->admin_socket);
	peer_hello(watch->admin);
	return watch;
}

struct watch *watch_free(struct watch *watch)
{
	if (watch)
		peer_free(watch->admin);
	free(watch);
	return NULL;
}

/* --- threads ---------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A file of a thread. Return: its first bytes, or "" if the thread is gone. */
static const char *read_thread(const struct watch *watch, pid_t tid, const char *name)
{
	static char text[4096];
	char path[64];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", watch->stage->daemon_pid, tid,
		       name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

/* The call that a thread sleeps in, and how often it has gone to sleep; -1: it does not sleep. */
static long sleeps_in(const struct watch *watch, pid_t tid, uint64_t *ret_slept)
{
	const char *text = read_thread(watch, tid, "syscall");
	long call = *text >= '0' && *text <= '9' ? atol(text) : -1;

	*ret_slept = 0;
	if (call < 0)
		return -1;
	text = strstr(read_thread(watch, tid, "status"), "\nvoluntary_ctxt_switches:");
	if (text)
		*ret_slept = strtoull(text + strlen("\nvoluntary_ctxt_switches:"), NULL, 10);
	return call;
}

static bool is_event_loop(const struct watch *watch, pid_t tid)
{
	return tid == watch->stage->daemon_pid ||
	       strncmp(read_thread(watch, tid, "comm"), "worker-", 7) == 0;
}

/* Where a thread that has nothing to do sleeps. */
static bool is_rest(long call, bool event_loop)
{
	if (call == SYS_epoll_wait || call == SYS_epoll_pwait)
		return true;
	return !event_loop && (call == SYS_futex || call == SYS_ppoll || call == SYS_poll);
}

static struct thread *find_thread(struct watch *watch, pid_t tid)
{
	for (size_t i = 0; i < watch->nr_threads; i++)
		if (watch->threads[i].tid == tid)
			return &watch->threads[i];
	if (watch->nr_threads == THREADS_MAX)
		watch->nr_threads = 0; /* begins anew */
	watch->threads[watch->nr_threads] = (struct thread){.tid = tid, .call = -1};
	return &watch->threads[watch->nr_threads++];
}

/* Return: how long this thread has been seen asleep where it should not be. */
static uint64_t look_at_thread(struct watch *watch, struct thread *thread, bool event_loop)
{
	uint64_t slept, now = now_ns();
	long call = sleeps_in(watch, thread->tid, &slept);

	if (call < 0 || is_rest(call, event_loop)) {
		thread->call = -1;
		return 0;
	}
	if (call != thread->call || slept != thread->slept) {
		*thread = (struct thread){thread->tid, call, slept, now, false};
		return 0;
	}
	return now - thread->since_ns;
}

static bool is_too_long(long call, uint64_t ns)
{
	return ns > (call == SYS_futex ? BLOCKED_THREAD_NS : BLOCKED_NS);
}

/* Whether the file that this thread truncates is one whose lock is kept busy. */
static bool is_locked(const struct watch *watch, pid_t tid)
{
	const char *text = read_thread(watch, tid, "syscall");
	char path[64];
	struct stat st;

	text = strchr(text, ' '); /* its first argument: the descriptor */
	if (!text)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%ld", watch->stage->daemon_pid,
		       strtol(text, NULL, 16));
	if (stat(path, &st))
		return false;
	for (size_t i = 0; i < LOCKED_FILES; i++)
		if (tally->locked[i] == st.st_dev)
			return true;
	return false;
}

void watch_threads(struct watch *watch)
{
	char path[64];
	struct dirent *entry;
	unsigned stuck = 0;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", watch->stage->daemon_pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);
		bool event_loop = tid && is_event_loop(watch, tid);
		struct thread *thread = tid ? find_thread(watch, tid) : NULL;
		uint64_t ns = thread ? look_at_thread(watch, thread, event_loop) : 0;

		if (event_loop && is_too_long(thread->call, ns) && !thread->told) {
			(void)fprintf(stderr, "attack: event loop asleep in system call %ld\n",
				      thread->call);
			thread->told = true;
			wrong(WRONG_BLOCKED);
		}
		if (thread && thread->call == SYS_ftruncate && ns > STUCK_NS)
			stuck += is_locked(watch, tid);
	}
	if (tasks)
		closedir(tasks);
	if (stuck > 1)
		wrong(WRONG_CROWDED);
}

/* --- lists ------------------------------------------------------------------------------------ */

typedef void (*row_fn)(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i);

static void for_each_row(struct watch *watch, Hugepool__V1__ListWhat what, size_t nr_offset,
			 row_fn fn)
{
	Hugepool__V1__List request = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	request.what = what;
	do {
		size_t n;

		peer_send(watch->admin, TYPE(LIST), 4, &request.base);
		reply = peer_expect(watch->admin, TYPE(LIST_REPLY), 4);
		memcpy(&n, (const char *)reply + nr_offset, sizeof(n));
		for (size_t i = 0; i < n; i++)
			fn(watch, reply, i);
		request.cursor = reply->next;
	} while (request.cursor);
}
#define FOR_EACH(watch, list, field, fn) \
	for_each_row(watch, WHAT(list), offsetof(Hugepool__V1__ListReply, n_##field), fn)

static bool is_named(ProtobufCBinaryData text, const char *name)
{
	return text.len == strlen(name) && memcmp(text.data, name, text.len) == 0;
}

static void note_tenant(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i)
{
	const Hugepool__V1__Tenant *tenant = reply->tenants[i];

	if (tenant->owner >= OWNERS_MAX)
		return;
	watch->attackers[tenant->owner] = is_named(tenant->name, "mallory") ||
					  is_named(tenant->name, "locker") ||
					  is_named(tenant->name, "leaver");
	watch->held_blocks[tenant->owner] = tenant->n_held_blocks ? tenant->held_blocks[0] : 0;
}

static void load_tenants(struct watch *watch)
{
	memset(watch->attackers, 0, sizeof(watch->attackers));
	memset(watch->held_blocks, 0, sizeof(watch->held_blocks));
	FOR_EACH(watch, TENANTS, tenants, note_tenant);
}

#define BLOCK_STATE(name) HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_##name

static bool says(const Hugepool__V1__Block *block, const char *text)
{
	return block->reason.len &&
	       memmem(block->reason.data, block->reason.len, text, strlen(text));
}

/* Each time a block comes into a state it is counted once. */
static void note_block(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i)
{
	const Hugepool__V1__Block *block = reply->blocks[i];
	bool attackers = block->owner < OWNERS_MAX && watch->attackers[block->owner];
	bool held = says(block, "still open or mapped");

	if (block->index >= NR_BLOCKS)
		return;
	if (block->state == BLOCK_STATE(QUARANTINED) &&
	    watch->seen[block->index] != BLOCK_STATE(QUARANTINED)) {
		if (attackers)
			hit(HIT_QUARANTINED);
		else
			wrong(WRONG_FAILED_RECYCLES);
		if (says(block, "reservation lost"))
			wrong(WRONG_LOST);
	}
	if (held && !watch->seen_held[block->index] && attackers)
		hit(HIT_HELD);
	watch->seen[block->index] = (uint8_t)block->state;
	watch->seen_held[block->index] = held;
}

void watch_blocks(struct watch *watch)
{
	load_tenants(watch);
	FOR_EACH(watch, BLOCKS, blocks, note_block);
}

static struct watch_held held_now;
static uint64_t found_blocks[OWNERS_MAX];

static void count_block(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i)
{
	const Hugepool__V1__Block *block = reply->blocks[i];

	if (block->state == BLOCK_STATE(CLEAN))
		return;
	if (block->owner < OWNERS_MAX && watch->attackers[block->owner])
		held_now.attackers++;
	else
		held_now.others++;
	if (block->owner < OWNERS_MAX)
		found_blocks[block->owner]++;
}

struct watch_held watch_held(struct watch *watch)
{
	held_now = (struct watch_held){0};
	memset(found_blocks, 0, sizeof(found_blocks));
	load_tenants(watch);
	FOR_EACH(watch, BLOCKS, blocks, count_block);
	for (size_t owner = 1; owner < OWNERS_MAX; owner++)
		if (found_blocks[owner] > watch->held_blocks[owner])
			held_now.uncharged +=
				(unsigned)(found_blocks[owner] - watch->held_blocks[owner]);
	return held_now;
}

static void print_block(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i)
{
	const Hugepool__V1__Block *block = reply->blocks[i];

	(void)watch;
	if (block->state != BLOCK_STATE(CLEAN))
		(void)fprintf(stderr,
			      "attack: block %u state %d owner %u free %u of %u, %llu ms: %.*s\n",
			      block->index, (int)block->state, block->owner, block->free_pages,
			      block->pages, (unsigned long long)block->age_ms,
			      (int)block->reason.len, (const char *)block->reason.data);
}

static void print_tenant(struct watch *watch, const Hugepool__V1__ListReply *reply, size_t i)
{
	const Hugepool__V1__Tenant *tenant = reply->tenants[i];

	(void)watch;
	(void)fprintf(stderr, "attack: tenant %.*s: owner %u, %u sessions\n", (int)tenant->name.len,
		      (const char *)tenant->name.data, tenant->owner, tenant->sessions);
}

void watch_print(struct watch *watch)
{
	FOR_EACH(watch, TENANTS, tenants, print_tenant);
	FOR_EACH(watch, BLOCKS, blocks, print_block);
}

/* --- figures ---------------------------------------------------------------------------------- */

uint64_t watch_recycles(struct watch *watch)
{
	return peer_zone(watch->admin, 0).recycles;
}

uint64_t watch_longest_turn_ns(struct watch *watch)
{
	const Hugepool__V1__StatsReply *stats;

	peer_send(watch->admin, TYPE(STATS), 6, NULL);
	stats = peer_expect(watch->admin, TYPE(STATS_REPLY), 6);
	return stats->longest_turn_ns;
}

unsigned watch_check(struct watch *watch)
{
	const Hugepool__V1__CheckReply *reply;

	peer_send(watch->admin, TYPE(CHECK), 5, NULL);
	reply = peer_expect(watch->admin, TYPE(CHECK_REPLY), 5);
	for (size_t i = 0; i < reply->n_messages; i++)
		(void)fprintf(stderr, "attack: %.*s\n", (int)reply->messages[i].len,
			      (const char *)reply->messages[i].data);
	return reply->violations;
}
