/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon is killed again and again, while programs of two users take memory, mark it, verify it
 * and give it back, in whole and in part, and share some of it. They must not notice more than a delay.
 *
 * crash-loop SETUP HUGEPOOLD HUGEPOOLCTL [--kills N] [--seed S]
 *
 * The loop is the supervisor: it starts the daemon, kills it at a random moment, starts the next one. Some
 * of the programs are killed as well. Each page has a place in a table that all share, in which whoever
 * is granted it enters himself: so a page with two holders is seen at once, whatever the memory says.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/include/hugepool/hugepool.h"

#define CLIENTS	    8
#define PAGE_BYTES  (UINT64_C(2) << 20)
#define BLOCK_PAGES 4
#define NR_BLOCKS   24
#define NR_PAGES    (NR_BLOCKS * BLOCK_PAGES)
#define HELD_MAX    6
#define PAGES_MAX   9 /* of a range: over three blocks */
#define LIVES_MAX   4096
#define FIRST_UID   54321
#define SKIP	    77

enum operation {
	OP_NONE,
	OP_TAKE,
	OP_TAKE_MANY,
	OP_WAIT,
	OP_FREE,
	OP_FREE_MANY,
	OP_FREE_PART,
	OP_SHARE,
	OP_ATTACH,
	OP_DETACH,
	OP_OPEN,
	OP_CLOSE,
	OPERATIONS
};

static const char *const operation_names[OPERATIONS] = {
	[OP_NONE] = "none",	      [OP_TAKE] = "alloc",  [OP_TAKE_MANY] = "alloc_bulk",
	[OP_WAIT] = "alloc, waiting", [OP_FREE] = "free",   [OP_FREE_MANY] = "free_bulk",
	[OP_FREE_PART] = "free_part", [OP_SHARE] = "share", [OP_ATTACH] = "attach",
	[OP_DETACH] = "detach",	      [OP_OPEN] = "open",   [OP_CLOSE] = "close",
};

/* Shared by all processes. */
struct shared {
	_Atomic uint32_t holder[NR_PAGES]; /* life of the client that has it; 0: nobody */
	_Atomic bool dead[LIVES_MAX];	   /* of clients that were killed */
	_Atomic uint32_t operation[CLIENTS];
	_Atomic uint64_t done[CLIENTS];
	_Atomic uint64_t verified, refused, resumed, attached;
	_Atomic bool stop;
	_Atomic bool failed;
	char why[256];
};

static struct shared *shared;
static char directory[] = "/tmp/hugepool-crash-XXXXXX", config[64], socket_path[64], log_path[64];
static char admin_path[64];
static const char *setup_program, *daemon_program, *ctl_program;
static uint64_t seed;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&shared->failed, true))
		return;
	va_start(args, format);
	vsnprintf(shared->why, sizeof(shared->why), format, args);
	va_end(args);
}

static uint64_t dice(uint64_t *state, uint64_t n)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = *state;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % n;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void sleep_ms(uint64_t ms)
{
	const struct timespec t = {.tv_sec = (time_t)(ms / 1000),
				   .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/* --- a client --------------------------------------------------------------------------------- */

struct holding {
	struct hugepool_range range;
	uint64_t mark; /* of its first page; the others count on */
};

struct client {
	unsigned number;
	uint32_t life;
	uint64_t dice, marks;
	struct hugepool *pool;
	struct holding held[HELD_MAX];
	unsigned nr;
	struct holding published, attached; /* no bytes: none */
};

static void begin(struct client *c, enum operation operation)
{
	shared->operation[c->number] = operation;
}

static void end(struct client *c)
{
	shared->operation[c->number] = OP_NONE;
	shared->done[c->number]++;
}

static void failed(struct client *c, const char *what, int r)
{
	struct hugepool_error error = {.size = sizeof(error)};

	if (c->pool)
		(void)hugepool_get_error(c->pool, &error);
	fail("client %u: %s: %s: %s", c->number, what, strerror(-r), error.message);
}

static uint32_t page_of(const struct hugepool_range *range)
{
	return (uint32_t)range->lease[0];
}

static uint32_t pages_of(const struct hugepool_range *range)
{
	return (uint32_t)(range->bytes / PAGE_BYTES);
}

static void enter(struct client *c, const struct hugepool_range *range)
{
	for (uint32_t i = 0; i < pages_of(range); i++) {
		uint32_t other = atomic_exchange(&shared->holder[page_of(range) + i], c->life);

		if (other && !shared->dead[other])
			fail("page %u is granted to client %u (life %u), and life %u has it",
			     page_of(range) + i, c->number, c->life, other);
	}
}

static void leave(const struct client *c, uint32_t page, uint32_t pages)
{
	for (uint32_t i = 0; i < pages; i++) {
		uint32_t mine = c->life;

		if (!atomic_compare_exchange_strong(&shared->holder[page + i], &mine, 0))
			fail("page %u of client %u has become life %u's", page + i, c->number,
			     mine);
	}
}

static uint64_t *word(const struct holding *holding, uint32_t page, bool last)
{
	char *at = (char *)holding->range.address + page * PAGE_BYTES;

	return (uint64_t *)(void *)(last ? at + PAGE_BYTES - 8 : at);
}

static void mark(struct client *c, struct holding *holding)
{
	holding->mark = ((uint64_t)c->life << 32) + c->marks;
	c->marks += pages_of(&holding->range);
	for (uint32_t i = 0; i < pages_of(&holding->range); i++) {
		*word(holding, i, false) = holding->mark + i;
		*word(holding, i, true) = ~(holding->mark + i);
	}
}

static void verify(struct client *c, const struct holding *holding)
{
	for (uint32_t i = 0; i < pages_of(&holding->range); i++) {
		uint64_t want = holding->mark + i;

		if (*word(holding, i, false) != want || *word(holding, i, true) != ~want)
			fail("client %u: page %u has %" PRIx64 " instead of %" PRIx64, c->number,
			     page_of(&holding->range) + i, *word(holding, i, false), want);
		shared->verified++;
	}
}

static void hold(struct client *c, const struct hugepool_range *range, bool zeroed)
{
	struct holding *holding = &c->held[c->nr++];

	holding->range = *range;
	enter(c, range);
	for (uint32_t i = 0; zeroed && i < pages_of(range); i++)
		if (*word(holding, i, false) || *word(holding, i, true))
			fail("client %u: page %u is not zero", c->number, page_of(range) + i);
	mark(c, holding);
}

static bool is_no_room(int r)
{
	if (r == -ENOMEM || r == -EDQUOT || r == -ETIMEDOUT)
		shared->refused++;
	return r == -ENOMEM || r == -EDQUOT || r == -ETIMEDOUT;
}

static void take(struct client *c, enum operation operation)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range ranges[3];
	size_t n = operation == OP_TAKE_MANY ? 1 + dice(&c->dice, 3) : 1;
	int r;

	if (c->nr + n > HELD_MAX)
		return;
	request.bytes = (1 + dice(&c->dice, operation == OP_TAKE ? PAGES_MAX : 3)) * PAGE_BYTES;
	request.flags = dice(&c->dice, 2) ? HUGEPOOL_ZERO : 0;
	if (operation == OP_WAIT)
		request.deadline_ms = 1 + dice(&c->dice, 400);
	begin(c, operation);
	r = hugepool_alloc_bulk(c->pool, &request, ranges, n);
	end(c);
	if (r < 0 && !is_no_room(r))
		failed(c, operation_names[operation], r);
	for (size_t i = 0; r == 0 && i < n; i++)
		hold(c, &ranges[i], request.flags & HUGEPOOL_ZERO);
}

static void give(struct client *c, size_t n)
{
	struct hugepool_range ranges[HELD_MAX];
	int r;

	if (n > c->nr || n == 0)
		return;
	for (size_t i = 0; i < n; i++) {
		const struct holding *holding = &c->held[c->nr - 1 - i];

		verify(c, holding);
		ranges[i] = holding->range;
		leave(c, page_of(&ranges[i]), pages_of(&ranges[i]));
	}
	begin(c, n > 1 ? OP_FREE_MANY : OP_FREE);
	r = hugepool_free_bulk(c->pool, ranges, n);
	end(c);
	if (r < 0)
		failed(c, "free", r);
	c->nr -= (unsigned)n;
}

/* A part of the last one: what is left has its marks. */
static void give_part(struct client *c)
{
	struct holding *holding = &c->held[c->nr - 1];
	uint32_t pages = c->nr ? pages_of(&holding->range) : 0, page, offset, n;
	struct hugepool_range rest;
	uint64_t first;
	int r;

	if (pages < 2 || c->nr == HELD_MAX)
		return;
	verify(c, holding);
	page = page_of(&holding->range);
	first = holding->mark;
	offset = (uint32_t)dice(&c->dice, pages);
	n = 1 + (uint32_t)dice(&c->dice, pages - offset);
	leave(c, page + offset, n);
	begin(c, OP_FREE_PART);
	r = hugepool_free_part(c->pool, &holding->range, offset * PAGE_BYTES, n * PAGE_BYTES,
			       &rest);
	end(c);
	if (r < 0) {
		failed(c, "free_part", r);
		return;
	}
	holding->mark = offset ? first : first + n;
	if (rest.bytes)
		c->held[c->nr++] = (struct holding){rest, first + offset + n};
	else if (!holding->range.bytes)
		c->nr--;
}

/* --- sharing ---------------------------------------------------------------------------------- */

/* Every client has one name. It is in use for as long as anybody has what was published by it. */
static void name_of(char name[16], unsigned number)
{
	snprintf(name, 16, "of-%u", number);
}

static void detach(struct client *c, struct holding *holding, bool ours)
{
	int r;

	if (!holding->range.bytes)
		return;
	verify(c, holding);
	if (ours)
		leave(c, page_of(&holding->range), pages_of(&holding->range));
	begin(c, OP_DETACH);
	r = hugepool_detach(c->pool, &holding->range);
	end(c);
	if (r < 0)
		failed(c, "detach", r);
	holding->range.bytes = 0;
}

static void publish(struct client *c)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range range;
	char name[16];
	int r;

	if (c->published.range.bytes)
		return;
	request.bytes = (1 + dice(&c->dice, 5)) * PAGE_BYTES;
	request.flags = HUGEPOOL_SHAREABLE;
	begin(c, OP_SHARE);
	r = hugepool_alloc(c->pool, &request, &range);
	if (r == 0) {
		c->published.range = range;
		enter(c, &range);
		mark(c, &c->published);
		name_of(name, c->number);
		r = hugepool_share(c->pool, &range, name, NULL);
	}
	end(c);
	if (r < 0 && r != -EBUSY && !is_no_room(r))
		failed(c, "share", r);
	if (r < 0)
		detach(c, &c->published, true);
}

/* Of another one, to read or to write; its marks say whether it is whole. */
static void attach(struct client *c)
{
	struct hugepool_attach_options options = HUGEPOOL_ATTACH_OPTIONS_INIT;
	struct hugepool_range range;
	char name[16];
	int r;

	if (c->attached.range.bytes)
		return;
	name_of(name, (unsigned)dice(&c->dice, CLIENTS));
	options.flags = dice(&c->dice, 2) ? HUGEPOOL_READ_ONLY : 0;
	begin(c, OP_ATTACH);
	r = hugepool_attach(c->pool, name, &options, &range);
	end(c);
	if (r == -ENOENT || r == -EBUSY)
		return;
	if (r < 0) {
		failed(c, "attach", r);
		return;
	}
	c->attached.range = range;
	c->attached.mark = *word(&c->attached, 0, false);
	if (!c->attached.mark)
		fail("client %u: what was published as %s is empty", c->number, name);
	verify(c, &c->attached);
	shared->attached++;
}

static void on_resumed(void *userdata)
{
	(void)userdata;
	shared->resumed++;
}

static void open_pool(struct client *c)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_callbacks callbacks = {.size = sizeof(callbacks), .resumed = on_resumed};
	uint64_t until = now_ms() + 30000;
	int r;

	options.socket = socket_path;
	options.flags = dice(&c->dice, 2) ? HUGEPOOL_KEEP_BLOCKS : 0;
	begin(c, OP_OPEN);
	do { /* where there is no handle yet nothing is resumed: as any program at its start */
		r = hugepool_open(&c->pool, &options);
		if (r < 0)
			sleep_ms(2);
	} while (r < 0 && now_ms() < until && !shared->stop);
	end(c);
	if (r < 0) {
		c->pool = NULL;
		if (!shared->stop)
			failed(c, "open", r);
		return;
	}
	(void)hugepool_set_callbacks(c->pool, &callbacks);
}

static void close_pool(struct client *c)
{
	while (c->nr) {
		const struct holding *holding = &c->held[--c->nr];

		verify(c, holding);
		leave(c, page_of(&holding->range), pages_of(&holding->range));
	}
	if (c->published.range.bytes) {
		verify(c, &c->published);
		leave(c, page_of(&c->published.range), pages_of(&c->published.range));
	}
	if (c->attached.range.bytes)
		verify(c, &c->attached);
	c->published.range.bytes = c->attached.range.bytes = 0;
	begin(c, OP_CLOSE);
	c->pool = hugepool_close(c->pool);
	end(c);
}

static void step(struct client *c)
{
	switch (dice(&c->dice, 16)) {
	case 0:
	case 1:
	case 2:
		take(c, OP_TAKE);
		break;
	case 3:
		take(c, OP_TAKE_MANY);
		break;
	case 4:
		take(c, OP_WAIT);
		break;
	case 5:
	case 6:
		give(c, 1);
		break;
	case 7:
		give(c, 2 + dice(&c->dice, 3));
		break;
	case 8:
	case 9:
		if (c->nr)
			give_part(c);
		break;
	case 10:
		for (unsigned i = 0; i < c->nr; i++)
			verify(c, &c->held[i]);
		(void)hugepool_dispatch(c->pool, 0);
		break;
	case 11:
		publish(c);
		break;
	case 12:
	case 13:
		attach(c);
		break;
	case 14:
		detach(c, &c->attached, false);
		if (dice(&c->dice, 4) == 0)
			detach(c, &c->published, true);
		break;
	default:
		if (dice(&c->dice, 40) == 0)
			close_pool(c);
	}
}

static void client_main(unsigned number, uint32_t life)
{
	struct client c = {.number = number, .life = life, .dice = seed + life * 1000003u};
	uid_t uid = FIRST_UID + number % 2;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)) {
		fail("client %u: cannot become uid %u", number, uid);
		_exit(1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!shared->stop && !shared->failed) {
		if (!c.pool)
			open_pool(&c);
		else
			step(&c);
	}
	if (c.pool && !shared->failed)
		close_pool(&c);
	_exit(0);
}

/* --- programs --------------------------------------------------------------------------------- */

static pid_t spawn(const char *const *argv, bool quiet)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (quiet && (!freopen(log_path, "a", stdout) || !freopen(log_path, "a", stderr)))
		_exit(97);
	execv(argv[0], (char *const *)argv);
	_exit(98);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int setup(const char *first, const char *second)
{
	const char *const argv[] = {setup_program, "--config", config, first, second, NULL};

	return wait_for(spawn(argv, true));
}

static pid_t start_daemon(void)
{
	const char *const argv[] = {daemon_program, "--config", config, NULL};

	return spawn(argv, true);
}

static pid_t start_client(unsigned number, uint32_t life)
{
	pid_t pid = fork();

	if (pid == 0)
		client_main(number, life);
	return pid;
}

/* --- the loop --------------------------------------------------------------------------------- */

struct loop {
	unsigned kills, wanted, pending_kills, client_kills;
	unsigned histogram[OPERATIONS];
	uint64_t dice;
	pid_t daemon, fds, clients[CLIENTS];
	uint32_t lives, life[CLIENTS];
};

static void kill_daemon(struct loop *loop)
{
	bool pending = false;

	for (unsigned i = 0; i < CLIENTS; i++) {
		uint32_t operation = shared->operation[i];

		loop->histogram[operation]++;
		pending |= operation != OP_NONE;
	}
	kill(loop->daemon, SIGKILL);
	waitpid(loop->daemon, NULL, 0);
	loop->kills++;
	loop->pending_kills += pending;
	loop->daemon = start_daemon();
}

/* What it held becomes free when the daemon, or the next one, sees that it is gone. */
static void kill_client(struct loop *loop, unsigned number)
{
	shared->dead[loop->life[number]] = true;
	kill(loop->clients[number], SIGKILL);
	waitpid(loop->clients[number], NULL, 0);
	loop->client_kills++;
	shared->operation[number] = OP_NONE;
	loop->life[number] = ++loop->lives;
	loop->clients[number] = start_client(number, loop->life[number]);
}

/* Sanitized, it takes longer to start than it is let live: its time runs from when it serves. */
static void wait_until_served(void)
{
#ifdef __SANITIZE_ADDRESS__
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, socket_path, sizeof(socket_path));
	for (uint64_t until = now_ms() + 5000; now_ms() < until; sleep_ms(5)) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		int r = connect(fd, (struct sockaddr *)&address, sizeof(address));

		close(fd);
		if (r == 0)
			return;
	}
#endif
}

static void run_loop(struct loop *loop)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		loop->life[i] = ++loop->lives;
		loop->clients[i] = start_client(i, loop->life[i]);
	}
	loop->daemon = start_daemon();
	while (loop->kills < loop->wanted && !shared->failed) {
		/* 50 to 500 ms, more often short */
		uint64_t ms = 50 + dice(&loop->dice, 450) * dice(&loop->dice, 450) / 450;

		wait_until_served();
		sleep_ms(ms);
		kill_daemon(loop);
		if (dice(&loop->dice, 8) == 0 && loop->lives < LIVES_MAX - 1)
			kill_client(loop, (unsigned)dice(&loop->dice, CLIENTS));
	}
	shared->stop = true;
	for (unsigned i = 0; i < CLIENTS; i++) {
		uint64_t until = now_ms() + 60000;
		pid_t gone = 0;

		while (gone == 0 && now_ms() < until) {
			gone = waitpid(loop->clients[i], NULL, WNOHANG);
			if (gone == 0)
				sleep_ms(5);
		}
		if (gone == 0) {
			fail("client %u does not come to its end: %s", i,
			     operation_names[shared->operation[i]]);
			kill(loop->clients[i], SIGKILL);
			waitpid(loop->clients[i], NULL, 0);
		}
	}
}

/* What an admin command prints has this text, within 30 s. */
static bool ctl_says(const char *arguments, const char *text)
{
	char command[512], output[65536];

	snprintf(command, sizeof(command),
		 "HUGEPOOL_ADMIN_SOCKET=%s HUGEPOOL_SOCKET=%s '%s' %s 2>&1", admin_path,
		 socket_path, ctl_program, arguments);
	for (uint64_t until = now_ms() + 30000;; sleep_ms(50)) {
		FILE *pipe = popen(command, "r");
		size_t n = pipe ? fread(output, 1, sizeof(output) - 1, pipe) : 0;
		int status = pipe ? pclose(pipe) : -1;

		output[n] = '\0';
		if (status == 0 && strstr(output, text))
			return true;
		if (now_ms() > until) {
			fail("hugepoolctl %s: status %d, without %s: %.150s", arguments, status,
			     text, output);
			return false;
		}
	}
}

static void check_end(void)
{
	char clean[64];

	for (uint32_t i = 0; i < NR_PAGES && !shared->failed; i++)
		if (shared->holder[i] && !shared->dead[shared->holder[i]])
			fail("page %u is still life %u's", i, shared->holder[i]);
	if (!ctl_says("check", "") || !ctl_says("zones --json", "\"leased\": 0,") ||
	    !ctl_says("zones --json", "\"condemned\": 0,"))
		return;
	snprintf(clean, sizeof(clean), "\"clean\": %u,", NR_PAGES);
	ctl_says("zones --json", clean);
}

static void report(const struct loop *loop)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < CLIENTS; i++)
		done += shared->done[i];
	printf("kills %u, while a request was pending %u; clients killed %u; seed %" PRIu64 "\n",
	       loop->kills, loop->pending_kills, loop->client_kills, seed);
	printf("operations %" PRIu64 ", refused for want of room %" PRIu64
	       ", marks verified %" PRIu64 ", attached %" PRIu64 ", resumed (and told) %" PRIu64
	       "\n",
	       done, shared->refused, shared->verified, shared->attached, shared->resumed);
	printf("interrupted:");
	for (unsigned i = 0; i < OPERATIONS; i++)
		printf(" %s %u%s", operation_names[i], loop->histogram[i],
		       i + 1 < OPERATIONS ? "," : "\n");
}

/* --- around it -------------------------------------------------------------------------------- */

static bool write_config(void)
{
	FILE *file;

	snprintf(config, sizeof(config), "%s/conf", directory);
	snprintf(socket_path, sizeof(socket_path), "%s/sock", directory);
	snprintf(admin_path, sizeof(admin_path), "%s/admin", directory);
	snprintf(log_path, sizeof(log_path), "%s/log", directory);
	file = fopen(config, "w");
	if (!file)
		return false;
	fprintf(file,
		"[daemon]\nsocket = %s\nsocket-mode = 0666\nadmin-socket = %s\n"
		"setup-socket = %s/setup\nnamespace = %s/run/ns\nstate = %s/state\nidle-delay = 0\n"
		"[zone small]\npage-size = 2M\nblock-size = %uM\nsize = %uM\n"
		"grow-nr-hugepages = yes\n[default]\nlimit.small = %u\n",
		socket_path, admin_path, directory, directory, directory, 2 * BLOCK_PAGES,
		2 * NR_PAGES, NR_BLOCKS * 3 / 4);
	return fclose(file) == 0;
}

static void show_log(void)
{
	char command[128];

	snprintf(command, sizeof(command), "tail -n 60 %s", log_path);
	if (system(command))
		printf("no log\n");
}

static void remove_directory(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (system(command))
		printf("%s stays\n", directory);
}

static int run(struct loop *loop)
{
	const char *const fds[] = {setup_program, "--config", config, "fds", NULL};
	struct stat st;
	char setup_socket[96];

	if (setup("up", NULL)) {
		printf("skipped: hugepool-setup up has failed here\n");
		show_log();
		return SKIP;
	}
	loop->fds = spawn(fds, true);
	snprintf(setup_socket, sizeof(setup_socket), "%s/setup", directory);
	for (uint64_t until = now_ms() + 20000; stat(setup_socket, &st) && now_ms() < until;)
		sleep_ms(5);
	run_loop(loop);
	if (!shared->failed)
		check_end();
	kill(loop->daemon, SIGTERM);
	if (wait_for(loop->daemon))
		fail("the last daemon did not end well");
	kill(loop->fds, SIGTERM);
	wait_for(loop->fds);
	if (setup("--force", "down"))
		fail("hugepool-setup down has failed");
	report(loop);
	if (!shared->failed && loop->pending_kills * 4 < loop->kills * 3)
		fail("only %u of %u kills fell while a request was pending", loop->pending_kills,
		     loop->kills);
	if (!shared->failed)
		return 0;
	printf("FAILED: %s\n", shared->why);
	show_log();
	return 1;
}

int main(int argc, char **argv)
{
	struct loop loop = {.wanted = 200};
	int status;

	seed = (uint64_t)time(NULL);
	for (int i = 4; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--kills") == 0)
			loop.wanted = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 0);
	}
	if (argc < 4) {
		fprintf(stderr,
			"usage: crash-loop SETUP HUGEPOOLD HUGEPOOLCTL [--kills N] [--seed S]\n");
		return 2;
	}
	if (geteuid() != 0) {
		printf("skipped: needs root\n");
		return SKIP;
	}
	setup_program = argv[1];
	daemon_program = argv[2];
	ctl_program = argv[3];
	loop.dice = seed;
	signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || !mkdtemp(directory) || chmod(directory, 0755) ||
	    !write_config()) {
		perror("crash-loop");
		return 1;
	}
	status = run(&loop);
	remove_directory();
	return status;
}
