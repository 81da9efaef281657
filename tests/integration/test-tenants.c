/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants that cannot hurt each other: the real hugepoold, clients of several uids, hugepoolctl, on
 * huge pages of this machine (argument "hugetlb") or on ordinary memory ("shmem").
 *
 * After each test the zones are checked through the admin socket, everything has come back, and the
 * machine's huge pages are as they were.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/peer.h"
#include "tests/daemon/program.h"
#include "tests/integration/client.h"

#define UID_A 54321
#define UID_B 54322
#define UID_C 54323
#define MIB   (UINT64_C(1) << 20)

/* 16 blocks of 4 pages. */
#define BLOCKS	    16
#define BLOCK_PAGES 4
#define PAGES	    (BLOCKS * BLOCK_PAGES)
#define BLOCK_BYTES (BLOCK_PAGES * 2 * MIB)

#define WAIT_TRIES 4000 /* of 5 ms */

static const char *executable, *hugepoolctl;
static bool on_huge_pages;

/* --- the machine ------------------------------------------------------------------------------ */

static long counter(const char *name)
{
	char path[128];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s_hugepages",
		 name);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

struct huge_pages {
	long total, free, reserved, surplus;
};

static struct huge_pages look_at_huge_pages(void)
{
	return (struct huge_pages){counter("nr"), counter("free"), counter("resv"),
				   counter("surplus")};
}

static void expect_huge_pages(struct huge_pages before)
{
	struct huge_pages now;

	if (!on_huge_pages)
		return; /* they may be others' at that time */
	for (int i = 0; i < WAIT_TRIES; i++) {
		now = look_at_huge_pages();
		if (memcmp(&now, &before, sizeof(now)) == 0)
			return;
		poll(NULL, 0, 5);
	}
	fail_msg("huge pages: total %ld free %ld reserved %ld surplus %ld; before: %ld %ld %ld %ld",
		 now.total, now.free, now.reserved, now.surplus, before.total, before.free,
		 before.reserved, before.surplus);
}

/* --- each test -------------------------------------------------------------------------------- */

struct fixture {
	struct huge_pages before;
	struct program *program;
	struct peer *admin;
	char text[4096]; /* of the configuration at hand, and of what hugepoolctl says */
};

/* daemon: more of [daemon]; tenants: the sections behind the zone. %s in them: the directory of sockets. */
static const char *config(struct fixture *f, const char *daemon, const char *tenants)
{
	char run[96];
	int n;

	snprintf(run, sizeof(run), "%s/run", f->program->directory);
	n = snprintf(f->text, sizeof(f->text),
		     "%s[zone small]\npage-size = 2M\nblock-size = 8M\nsize = 128M\n%s\n", daemon,
		     on_huge_pages ? "grow-nr-hugepages = yes" : "backing = shmem");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(f->text + n, sizeof(f->text) - (size_t)n, tenants, run, run);
#pragma GCC diagnostic pop
	return f->text;
}

#define DAEMON "idle-delay = 100ms\n"
#define TENANTS                                                                     \
	"[tenant sure]\nuid = 54321\nlimit.small = 8\nguarantee.small = 4\n"        \
	"[tenant box]\nsocket = %s/box.sock\nsocket-mode = 0666\nlimit.small = 4\n" \
	"[default]\nlimit.small = 12\n"

static void start_daemon(struct fixture *f, const char *daemon, const char *tenants)
{
	program_write_config(f->program, config(f, daemon, tenants));
	program_start(f->program);
	assert_true(program_log_has(f->program, "READY"));
	f->admin = peer_connect(f->program->admin_socket);
	peer_hello(f->admin);
}

static int setup_stopped(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->before = look_at_huge_pages();
	f->program = program_new(executable, "");
	*state = f;
	return 0;
}

static int setup(void **state)
{
	setup_stopped(state);
	start_daemon(*state, DAEMON, TENANTS);
	return 0;
}

static void wait_for_clean(struct fixture *f, uint64_t pages)
{
	uint64_t clean = 0;

	for (int i = 0; i < WAIT_TRIES; i++) {
		clean = peer_zone(f->admin, 0).clean;
		if (clean == pages)
			return;
		poll(NULL, 0, 5);
	}
	fail_msg("%llu pages are clean, expected %llu", (unsigned long long)clean,
		 (unsigned long long)pages);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->program->pid) {
		wait_for_clean(f, PAGES);
		peer_check(f->admin);
		peer_free(f->admin);
		assert_int_equal(program_end(f->program, SIGTERM), 0);
	}
	program_free(f->program);
	expect_huge_pages(f->before);
	free(f);
	return 0;
}

static struct client *start(struct fixture *f, uid_t uid)
{
	return client_new(f->program->socket, uid);
}

static struct client *start_at(struct fixture *f, const char *name, uid_t uid)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/run/%s", f->program->directory, name);
	return client_new(path, uid);
}

static void take(struct client *client, size_t number, uint64_t bytes)
{
	struct hugepool_error error;
	int rc = client_take(client, number, "small", bytes, 0, &error);

	if (rc)
		fail_msg("alloc of %llu MiB: %s: %s", (unsigned long long)(bytes / MIB),
			 strerror(-rc), error.message);
}

/* Blocks one by one until there are no more. Return: how many. */
static size_t take_all(struct client *client, uint64_t bytes, int expected)
{
	size_t n = 0;
	int rc;

	while ((rc = client_take(client, n, "small", bytes, 0, NULL)) == 0)
		n++;
	assert_int_equal(rc, expected);
	return n;
}

/* --- the admin -------------------------------------------------------------------------------- */

struct figures {
	bool there;
	uint64_t held, leased, limit, guarantee;
	uint32_t sessions;
};

static struct figures tenant(struct fixture *f, const char *name)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;

	list.what = WHAT(TENANTS);
	peer_send(f->admin, TYPE(LIST), 1, &list.base);
	reply = peer_expect(f->admin, TYPE(LIST_REPLY), 1);
	assert_int_equal(reply->next, 0);
	for (size_t i = 0; i < reply->n_tenants; i++) {
		const Hugepool__V1__Tenant *t = reply->tenants[i];

		if (t->name.len == strlen(name) && memcmp(t->name.data, name, t->name.len) == 0)
			return (struct figures){
				.there = true,
				.held = t->held_blocks[0],
				.leased = t->leased_pages[0],
				.limit = t->limit_blocks[0],
				.guarantee = t->guarantee_blocks[0],
				.sessions = t->sessions,
			};
	}
	return (struct figures){.there = false};
}

/* Runs hugepoolctl with these arguments; what it says, on both outputs, is in f->text. */
static int ctl(struct fixture *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int ctl(struct fixture *f, const char *format, ...)
{
	char arguments[512], command[1024];
	va_list args;
	FILE *output;
	size_t n;
	int status;

	va_start(args, format);
	vsnprintf(arguments, sizeof(arguments), format, args);
	va_end(args);
	snprintf(command, sizeof(command), "HUGEPOOL_ADMIN_SOCKET=%s exec %s %s 2>&1",
		 f->program->admin_socket, hugepoolctl, arguments);
	output = popen(command, "re");
	assert_non_null(output);
	n = fread(f->text, 1, sizeof(f->text) - 1, output);
	f->text[n] = '\0';
	status = pclose(output);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define EXPECT_CTL(f, status, says, ...)                                                     \
	do {                                                                                 \
		int got = ctl(f, __VA_ARGS__);                                               \
		if (got != (status) || !strstr((f)->text, says))                             \
			fail_msg("status %d, expected %d and \"%s\": %s", got, status, says, \
				 (f)->text);                                                 \
	} while (0)

static void wait_until_gone(struct fixture *f, const char *name)
{
	for (int i = 0; i < WAIT_TRIES && tenant(f, name).there; i++)
		poll(NULL, 0, 5);
	assert_false(tenant(f, name).there);
}

/* --- limits and guarantees -------------------------------------------------------------------- */

/* Whoever is greedy gets everything but what is guaranteed to somebody, who gets that at any time. */
static void test_greedy_against_guaranteed(void **state)
{
	struct fixture *f = *state;
	struct client *sure = start(f, UID_A), *greedy = start(f, UID_B), *other = start(f, UID_C);
	struct hugepool_error error;

	assert_int_equal(take_all(greedy, BLOCK_BYTES, -ENOMEM), 12);
	assert_int_equal(client_take(other, 0, "small", 2 * MIB, 0, &error), -ENOMEM);
	assert_int_equal(error.leasable_bytes, 0);
	assert_true(error.free_bytes >= 4 * BLOCK_BYTES); /* there, but not for him */
	for (int round = 0; round < 10; round++) {
		client_begin_take(other, 0, "small", BLOCK_BYTES, 20000); /* the next one is his */
		for (size_t i = 0; i < 4; i++) {
			take(sure, i, BLOCK_BYTES);
			assert_true(round > 0 || client_is_zero(sure, i));
			client_fill(sure, i, i);
		}
		assert_int_equal(tenant(f, "sure").held, 4);
		assert_int_equal(tenant(f, "uid:54323").held, 0);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(client_give(sure, i), 0);
		assert_int_equal(client_give(greedy, 0), 0); /* that is what the other gets */
		assert_int_equal(client_end_take(other, &error), 0);
		assert_true(client_is_zero(other, 0));
		assert_int_equal(client_give(other, 0), 0);
		for (int i = 0; i < WAIT_TRIES; i++) {
			if (client_take(greedy, 0, "small", BLOCK_BYTES, 0, &error) == 0)
				break;
			poll(NULL, 0, 5);
		}
		assert_int_equal(tenant(f, "uid:54322").held, 12);
	}
	client_free(other);
	/* more than is guaranteed is a matter of what there is */
	for (size_t i = 0; i < 4; i++)
		take(sure, i, BLOCK_BYTES);
	assert_int_equal(client_take(sure, 4, "small", 2 * MIB, 0, NULL), -ENOMEM);
	client_free(greedy);
	wait_for_clean(f, PAGES - 4 * BLOCK_PAGES);
	for (size_t i = 4; i < 8; i++)
		take(sure, i, BLOCK_BYTES);
	assert_int_equal(client_take(sure, 8, "small", 2 * MIB, 0, NULL), -EDQUOT);
	client_free(sure);
}

/* A page kept in each block costs the block: 1/4 of the memory does not get him more than his limit. */
static void test_one_page_in_every_block(void **state)
{
	struct fixture *f = *state;
	struct client *miser = start_at(f, "box.sock", UID_B), *other = start(f, UID_C),
		      *sure = start(f, UID_A);
	struct hugepool_error error;
	bool kept[BLOCKS] = {false};
	struct figures figures;
	size_t n = take_all(miser, 2 * MIB, -EDQUOT), left = 0;

	assert_int_equal(n, 4 * BLOCK_PAGES);
	for (size_t i = 0; i < n; i++) {
		uint64_t block = (client_range(miser, i).lease[0] & UINT32_MAX) / BLOCK_PAGES;

		if (!kept[block]) {
			kept[block] = true;
			left++;
		} else {
			assert_int_equal(client_give(miser, i), 0);
		}
	}
	assert_int_equal(left, 4);
	figures = tenant(f, "box");
	assert_int_equal(figures.held, 4);
	assert_int_equal(figures.leased, 4);
	/* he holds 4 of 64 pages, and as many blocks as he may */
	assert_int_equal(client_take(miser, 20, "small", BLOCK_BYTES, 0, &error), -EDQUOT);
	assert_non_null(strstr(error.message, "may hold 4 blocks of 4 pages and holds 4"));
	assert_int_equal(error.limit_bytes, 4 * BLOCK_BYTES);
	/* so everything else is for others */
	assert_int_equal(take_all(other, BLOCK_BYTES, -ENOMEM), 8);
	assert_int_equal(take_all(sure, BLOCK_BYTES, -ENOMEM), 4);
	client_free(miser);
	client_free(other);
	client_free(sure);
}

/* --- many under load -------------------------------------------------------------------------- */

#define NR_LOADS 16
#define LOAD_MS	 1500

struct load {
	_Atomic bool stop;
	_Atomic uint64_t taken[NR_LOADS], refused[NR_LOADS];
};

/* Takes and gives at random as fast as it can. */
static _Noreturn void run_load(const char *socket, uid_t uid, struct load *load, unsigned me)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool_range ranges[8];
	struct hugepool *pool;
	unsigned short dice[3] = {(unsigned short)me, 1, 2};
	size_t n = 0;

	alarm(60);
	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		_exit(2);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	options.socket = socket;
	if (hugepool_open(&pool, &options))
		_exit(3);
	request.zone = "small";
	while (!load->stop) {
		int rc = 0;

		if (n < 8 && nrand48(dice) % 3) {
			request.bytes = (uint64_t)(1 + nrand48(dice) % 6) * 2 * MIB;
			rc = hugepool_alloc(pool, &request, &ranges[n]);
			if (rc == 0) {
				*(volatile char *)ranges[n++].address = 1;
				load->taken[me]++;
				continue;
			}
			if (rc != -ENOMEM && rc != -EDQUOT)
				_exit(4);
			load->refused[me]++;
		}
		if (n) {
			size_t i = (size_t)nrand48(dice) % n;

			if (hugepool_free(pool, &ranges[i]))
				_exit(5);
			ranges[i] = ranges[--n];
		}
	}
	hugepool_close(pool);
	_exit(0);
}

struct sample {
	char name[HP_NAME_MAX + 1];
	uint64_t held;
};

/*
 * One look at everybody: nobody is over his limit, or, if that was lowered, holds more than before.
 * Return: how many hold something.
 */
static size_t sample(struct fixture *f, struct sample samples[HP_TENANTS_MAX], uint64_t *ret_held)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;
	size_t holding = 0;

	list.what = WHAT(TENANTS);
	peer_send(f->admin, TYPE(LIST), 1, &list.base);
	reply = peer_expect(f->admin, TYPE(LIST_REPLY), 1);
	*ret_held = 0;
	for (size_t i = 0; i < reply->n_tenants; i++) {
		const Hugepool__V1__Tenant *t = reply->tenants[i];
		struct sample *s = &samples[t->owner];
		char name[HP_NAME_MAX + 1];

		snprintf(name, sizeof(name), "%.*s", (int)t->name.len, (const char *)t->name.data);
		if (strcmp(s->name, name) != 0)
			*s = (struct sample){.held = 0};
		if (t->held_blocks[0] > t->limit_blocks[0] && t->held_blocks[0] > s->held)
			fail_msg("%s holds %llu blocks, its limit is %llu, it held %llu before",
				 name, (unsigned long long)t->held_blocks[0],
				 (unsigned long long)t->limit_blocks[0],
				 (unsigned long long)s->held);
		snprintf(s->name, sizeof(s->name), "%s", name);
		s->held = t->held_blocks[0];
		holding += t->held_blocks[0] > 0;
		*ret_held += t->held_blocks[0];
	}
	return holding;
}

static void set_limit(struct fixture *f, uid_t uid, uint32_t limit)
{
	Hugepool__V1__Quota quota = HUGEPOOL__V1__QUOTA__INIT;
	char name[32];

	snprintf(name, sizeof(name), "uid:%u", uid);
	quota.tenant = peer_text(name);
	quota.zone = peer_text("small");
	quota.set_limit = true;
	quota.limit_blocks = limit;
	peer_send(f->admin, TYPE(QUOTA), 2, &quota.base);
	peer_recv(f->admin); /* unknown while nothing names him */
	assert_int_equal(f->admin->frame.tag, 2);
}

static void start_loads(struct fixture *f, struct load *load, pid_t pids[NR_LOADS])
{
	for (unsigned i = 0; i < NR_LOADS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			run_load(f->program->socket, 60000 + i, load, i);
	}
}

static void end_loads(struct load *load, const pid_t pids[NR_LOADS])
{
	int status;

	load->stop = true;
	for (unsigned i = 0; i < NR_LOADS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		if (status || !load->taken[i])
			fail_msg("load %u: status %#x, %llu taken, %llu refused", i, status,
				 (unsigned long long)load->taken[i],
				 (unsigned long long)load->refused[i]);
	}
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/*
 * 16 users with limits of 2 blocks (together twice the zone) take and give; quotas and configuration
 * change meanwhile; somebody with a guarantee always gets it. Looked at all the time.
 */
static void test_many_under_load(void **state)
{
	static const char *const defaults[] = {"[default]\nlimit.small = 2\n",
					       "[default]\nlimit.small = 3\n"};
	static struct sample samples[HP_TENANTS_MAX];
	struct fixture *f = *state;
	struct client *sure = start(f, UID_A);
	struct load *load = mmap(NULL, sizeof(*load), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned looks = 0, most = 0, most_held = 0;
	pid_t pids[NR_LOADS];
	uint64_t until, held;

	assert_true(load != MAP_FAILED);
	memset(samples, 0, sizeof(samples));
	start_loads(f, load, pids);
	for (until = now_ms() + LOAD_MS; now_ms() < until; looks++) {
		size_t holding = sample(f, samples, &held);

		most = holding > most ? (unsigned)holding : most;
		most_held = held > most_held ? (unsigned)held : most_held;
		set_limit(f, 60000 + looks % NR_LOADS, 1 + looks % 4);
		if (looks % 8 == 0) {
			for (size_t i = 0; i < 4; i++)
				take(sure, i, BLOCK_BYTES);
			for (size_t i = 0; i < 4; i++)
				assert_int_equal(client_give(sure, i), 0);
		}
		if (looks % 16 == 5) {
			char tenants[512];

			snprintf(
				tenants, sizeof(tenants),
				"[tenant sure]\nuid = %d\nlimit.small = 8\nguarantee.small = 4\n%s",
				UID_A, defaults[looks / 16 % 2]);
			program_write_config(f->program, config(f, DAEMON, tenants));
			peer_send(f->admin, TYPE(RELOAD), 3, NULL);
			peer_expect(f->admin, TYPE(RELOADED), 3);
		}
		if (looks % 16 == 11)
			peer_check(f->admin);
	}
	end_loads(load, pids);
	munmap(load, sizeof(*load));
	print_message("looks %u, at most %u tenants held %u of %u blocks\n", looks, most, most_held,
		      BLOCKS);
	assert_true(looks >= 10);
	assert_true(most >= 4);
	client_free(sure);
}

/* --- quotas ----------------------------------------------------------------------------------- */

static void test_quota(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_B);
	struct hugepool_error error;

	EXPECT_CTL(f, 0, "8 blocks", "quota sure small");
	EXPECT_CTL(f, 0, "10 blocks", "quota sure small --limit 80M --guarantee 5");
	assert_int_equal(tenant(f, "sure").limit, 10);
	assert_int_equal(tenant(f, "sure").guarantee, 5);
	EXPECT_CTL(f, 1, "limit of 4 blocks is below the guarantee of 5",
		   "quota sure small --limit 4");
	EXPECT_CTL(f, 1, "17 blocks were asked for, zone small has 16",
		   "quota box small --limit 17");
	EXPECT_CTL(f, 1, "12 blocks guaranteed to box and 5 to others add up to 17, and it has 16",
		   "quota box small --limit 16 --guarantee 12");
	EXPECT_CTL(f, 2, "12M is not whole blocks of zone small, which are 8 MiB each",
		   "quota box small --limit 12M");
	EXPECT_CTL(f, 2, "'lots' is not a number of blocks", "quota box small --limit lots");
	EXPECT_CTL(f, 1, "there is no tenant \"nobody\"", "quota nobody small --limit 1");
	EXPECT_CTL(f, 1, "there is no zone \"large\"", "quota box large --limit 1");
	assert_int_equal(tenant(f, "sure").limit, 10);
	assert_int_equal(tenant(f, "box").limit, 4);

	/* below what is held: nothing more, not even in blocks that it has, until it fell */
	take(a, 0, 3 * BLOCK_BYTES);
	take(a, 1, 2 * MIB);
	EXPECT_CTL(f, 0, "2 blocks", "quota uid:54322 small --limit 2");
	assert_int_equal(tenant(f, "uid:54322").held, 4);
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, &error), -EDQUOT);
	assert_non_null(strstr(error.message, "may hold 2 blocks of 4 pages and holds 4"));
	assert_int_equal(client_give(a, 1), 0); /* its block is not kept as an idle one */
	for (int i = 0; i < WAIT_TRIES && tenant(f, "uid:54322").held > 3; i++)
		poll(NULL, 0, 5);
	assert_int_equal(tenant(f, "uid:54322").held, 3);
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, NULL), -EDQUOT);
	/* what waits gets its turn when it fell, what is more than the limit does not wait */
	client_begin_take(a, 1, "small", 3 * BLOCK_BYTES, 60000);
	assert_int_equal(client_end_take(a, &error), -EDQUOT);
	assert_int_equal(client_give_part(a, 0, BLOCK_BYTES, 2 * BLOCK_BYTES, 3), 0);
	for (int i = 0; i < WAIT_TRIES && client_take(a, 2, "small", 2 * MIB, 0, NULL); i++)
		poll(NULL, 0, 5);
	assert_in_range(tenant(f, "uid:54322").held, 1, 2);
	/* a limit that is lowered while a request waits for more than that */
	client_begin_take(a, 4, "small", 2 * BLOCK_BYTES, 60000); /* it has one, and may have two */
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).waiting; i++)
		poll(NULL, 0, 5);
	EXPECT_CTL(f, 0, "1 blocks", "quota uid:54322 small --limit 1");
	assert_int_equal(client_end_take(a, &error), -EDQUOT);
	client_free(a);
}

/* A guarantee that is raised takes what others do not use. */
static void test_raised_guarantee(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_B);
	size_t n = take_all(b, BLOCK_BYTES, -ENOMEM);

	assert_int_equal(n, 12);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(client_give(b, i), 0); /* idle, and still his */
	EXPECT_CTL(f, 0, "8 blocks", "quota sure small --guarantee 8");
	wait_for_clean(f, 8 * BLOCK_PAGES);
	assert_int_equal(take_all(b, BLOCK_BYTES, -ENOMEM), 2);
	for (size_t i = 0; i < 8; i++)
		take(a, i, BLOCK_BYTES);
	client_free(a);
	client_free(b);
}

/* --- reload ----------------------------------------------------------------------------------- */

static void write_config(struct fixture *f, const char *daemon, const char *tenants)
{
	program_write_config(f->program, config(f, daemon, tenants));
}

static void wait_for_log(struct fixture *f, const char *text)
{
	for (int i = 0; i < WAIT_TRIES && !program_log_has(f->program, text); i++)
		poll(NULL, 0, 5);
	assert_true(program_log_has(f->program, text));
}

static void test_reload(void **state)
{
	struct fixture *f = *state;
	struct client *a = start(f, UID_A), *b = start(f, UID_B),
		      *box = start_at(f, "box.sock", UID_C);
	struct stat st;
	char path[128];

	take(a, 0, BLOCK_BYTES);
	take(b, 0, BLOCK_BYTES);
	take(box, 0, BLOCK_BYTES);
	client_fill(a, 0, 1);
	/* mistakes, with file, line and numbers: nothing changes */
	write_config(f, DAEMON,
		     "[tenant sure]\nuid = 54321\nlimit.small = 3\nguarantee.small = 4\n");
	EXPECT_CTL(f, 1, "guarantee.small is 4 blocks, limit.small 3 blocks", "reload");
	snprintf(path, sizeof(path), "%s:16: ", f->program->config);
	if (!strstr(f->text, path))
		fail_msg("no %s in: %s", path, f->text);
	write_config(f, DAEMON, "clean-low = 17\n[default]\nlimit.small = 1\n");
	EXPECT_CTL(f, 1, "clean-low: 17 blocks; expected at most the 16", "reload");
	write_config(f, DAEMON,
		     "[tenant sure]\nuid = 54321\nlimit.small = 9\nguarantee.small = 9\n"
		     "[tenant y]\nuid = 7\nlimit.small = 9\nguarantee.small = 9\n");
	EXPECT_CTL(f, 1, "add up to 18 blocks", "reload");
	write_config(f, DAEMON, "[tenant sure]\nuid = 54321\nguarantee.small = 12M\n");
	EXPECT_CTL(f, 1, "guarantee.small = 12M: expected a multiple", "reload");
	write_config(f, DAEMON,
		     "[tenant y]\nsocket = /nonexistent/dir/y.sock\n[default]\nlimit.small = 1\n");
	EXPECT_CTL(f, 1, "/nonexistent/dir/y.sock cannot be made", "reload");
	assert_int_equal(tenant(f, "sure").limit, 8);
	assert_int_equal(tenant(f, "sure").guarantee, 4);
	assert_int_equal(tenant(f, "uid:54322").limit, 12);
	assert_false(tenant(f, "y").there);
	assert_true(client_is_filled(a, 0, 1));

	/* what cannot change is named, all else changes at once: a uid gets a name, one loses it */
	write_config(f, "workers = 2\nidle-delay = 50ms\n",
		     "clean-low = 3\nclean-high = 4\n"
		     "[tenant named]\nuid = 54322\nlimit.small = 2\nguarantee.small = 1\n"
		     "[tenant new]\nsocket = %s/new.sock\nsocket-mode = 0666\nlimit.small = 1\n"
		     "[default]\nlimit.small = 5\n");
	EXPECT_CTL(f, 0, "needs a restart: [daemon] workers", "reload");
	assert_int_equal(tenant(f, "named").limit, 2);
	assert_int_equal(tenant(f, "named").held, 1);
	assert_false(tenant(f, "uid:54322").there);
	assert_int_equal(tenant(f, "sure").limit, 5);
	assert_int_equal(tenant(f, "sure").guarantee, 0);
	assert_int_equal(peer_zone(f->admin, 0).clean_low, 3);
	snprintf(path, sizeof(path), "%s/run/box.sock", f->program->directory);
	assert_int_equal(stat(path, &st), -1);
	take(box, 1, BLOCK_BYTES); /* it stays until it leaves */
	client_free(box);
	wait_until_gone(f, "box");
	box = start_at(f, "new.sock", UID_C);
	assert_int_equal(take_all(box, BLOCK_BYTES, -EDQUOT), 1);
	assert_true(client_is_filled(a, 0, 1));
	client_free(a);
	wait_until_gone(f, "sure");

	/* by signal; and what an admin had set is the configuration's again */
	EXPECT_CTL(f, 0, "3 blocks", "quota named small --limit 3");
	write_config(f, DAEMON, TENANTS "[tenant named]\nuid = 54322\nlimit.small = 6\n");
	assert_int_equal(kill(f->program->pid, SIGHUP), 0);
	wait_for_log(f, "configuration reloaded tenants=3 restart_needed=0");
	assert_int_equal(tenant(f, "named").limit, 6);
	assert_int_equal(tenant(f, "sure").guarantee, 4);
	client_free(box);
	client_free(b);
}

/* Guarantees change hands under a reload, and their sum is the whole zone before and after. */
static void test_reload_moves_guarantees(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 6; i++) {
		char tenants[512];

		snprintf(tenants, sizeof(tenants),
			 "[tenant x]\nuid = 70\nlimit.small = 16\nguarantee.small = %d\n"
			 "[tenant y]\nuid = 71\nlimit.small = 16\nguarantee.small = %d\n",
			 i % 2 ? 16 : 0, i % 2 ? 0 : 16);
		write_config(f, DAEMON, tenants);
		EXPECT_CTL(f, 0, "reloaded, with 2 tenants", "reload");
		assert_int_equal(tenant(f, "x").guarantee, i % 2 ? 16 : 0);
		assert_int_equal(tenant(f, "y").guarantee, i % 2 ? 0 : 16);
	}
	/* with one that was made it does not fit any more; without the guarantee it does */
	write_config(f, DAEMON, "[default]\nlimit.small = 8\n");
	EXPECT_CTL(f, 0, "reloaded", "reload");
	EXPECT_CTL(f, 0, "tenant-m.sock", "tenant create m --guarantee small=2");
	write_config(f, DAEMON, "[tenant x]\nuid = 70\nlimit.small = 16\nguarantee.small = 15\n");
	EXPECT_CTL(
		f, 1,
		"15 blocks guaranteed by the configuration and 2 to tenants made at run time add up to 17",
		"reload");
	EXPECT_CTL(f, 0, "0 blocks", "quota m small --guarantee 0");
	EXPECT_CTL(f, 0, "reloaded", "reload");
	assert_int_equal(tenant(f, "m").limit, 8);
	/* the configuration wins */
	write_config(f, DAEMON, "[tenant m]\nuid = 72\nlimit.small = 3\n");
	EXPECT_CTL(f, 0, "reloaded", "reload");
	assert_int_equal(tenant(f, "m").limit, 3);
	EXPECT_CTL(f, 1, "take its section out of the configuration", "tenant delete m");
}

/* --- sockets of tenants ----------------------------------------------------------------------- */

/* Whoever comes over its socket belongs to the tenant, whatever his uid. */
static void test_socket_of_a_tenant(void **state)
{
	struct fixture *f = *state;
	struct client *b = start_at(f, "box.sock", UID_B), *c = start_at(f, "box.sock", UID_C);
	struct client *own = start(f, UID_B);

	take(b, 0, 2 * BLOCK_BYTES);
	take(c, 0, 2 * BLOCK_BYTES);
	assert_int_equal(client_take(b, 1, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(client_take(c, 1, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(tenant(f, "box").held, 4);
	assert_int_equal(tenant(f, "box").sessions, 2);
	take(own, 0, BLOCK_BYTES); /* the same uid, and another tenant */
	assert_int_equal(tenant(f, "uid:54322").held, 1);
	client_free(b);
	client_free(c);
	client_free(own);
}

/* Each connection is a tenant; what it leaves is nobody's at once, whatever idle-delay is. */
static void test_session_policy(void **state)
{
	struct fixture *f = *state;
	struct client *first, *second, *named;

	start_daemon(f, "idle-delay = 1h\npolicy = session\n",
		     "[tenant sure]\nuid = 54321\nlimit.small = 8\nguarantee.small = 4\n"
		     "[default]\nlimit.small = 5\nsessions = 3\n");
	first = start(f, UID_B);
	second = start(f, UID_B);
	named = start(f, UID_A);
	assert_int_equal(take_all(first, BLOCK_BYTES, -EDQUOT), 5);
	assert_int_equal(take_all(second, BLOCK_BYTES, -EDQUOT), 5);
	assert_int_equal(tenant(f, "session:1").held, 5);
	assert_int_equal(tenant(f, "session:2").held, 5);
	take(named, 0, BLOCK_BYTES);
	assert_int_equal(tenant(f, "sure").held, 1);
	client_free(first);
	wait_until_gone(f, "session:1");
	wait_for_clean(f, PAGES - 6 * BLOCK_PAGES);
	client_free(second);
	client_free(named);
	wait_until_gone(f, "session:2");
	/* so many connections of one user */
	for (int i = 0; i < 2; i++) {
		struct peer *peers[4];
		Hugepool__V1__Code code;

		for (int p = 0; p < 3; p++) {
			peers[p] = peer_connect(f->program->socket);
			peer_hello(peers[p]);
		}
		peers[3] = peer_connect(f->program->socket);
		assert_int_equal(peer_try_hello(peers[3], &code), TYPE(ERROR));
		assert_int_equal(code, CODE(TOO_MANY));
		for (int p = 0; p < 4; p++)
			peer_free(peers[p]);
		for (int t = 0; t < WAIT_TRIES && tenant(f, "session:5").there; t++)
			poll(NULL, 0, 5);
		if (i == 0)
			wait_until_gone(f, "session:5");
	}
	/* what the tenant with a name keeps idle would stay for an hour */
	program_write_config(f->program, config(f, "policy = session\nidle-delay = 10ms\n", "\n"));
	EXPECT_CTL(f, 0, "reloaded", "reload");
}

/* --- made and deleted ------------------------------------------------------------------------- */

static void test_create(void **state)
{
	struct fixture *f = *state;
	struct client *b;
	struct peer *peer;
	Hugepool__V1__Code code;
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/run/tenant-web.sock", f->program->directory);
	assert_int_equal(
		ctl(f, "tenant create web --limit small=3 --guarantee small=16M --user %d", UID_B),
		0);
	assert_memory_equal(f->text, path, strlen(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(tenant(f, "web").limit, 3);
	assert_int_equal(tenant(f, "web").guarantee, 2);
	b = start_at(f, "tenant-web.sock", UID_B);
	assert_int_equal(take_all(b, BLOCK_BYTES, -EDQUOT), 3);
	/* root is not the user that may */
	peer = peer_connect(path);
	assert_int_equal(peer_try_hello(peer, &code), TYPE(ERROR));
	assert_int_equal(code, CODE(PERMISSION));
	peer_free(peer);
	/* refusals, with numbers; nothing is left of them */
	EXPECT_CTL(f, 1, "there is a tenant web already: 1 sessions", "tenant create web");
	EXPECT_CTL(f, 1, "1 to 32 letters", "tenant create 'a/b'");
	EXPECT_CTL(f, 1, "1 to 32 letters", "tenant create %033d", 7);
	EXPECT_CTL(f, 1, "11 blocks guaranteed to x and 6 to others add up to 17",
		   "tenant create x --limit small=12 --guarantee small=11");
	EXPECT_CTL(f, 1, "17 blocks were asked for, zone small has 16",
		   "tenant create x --limit small=17");
	EXPECT_CTL(f, 1, "limit of 1 blocks is below the guarantee of 2",
		   "tenant create x --limit small=1 --guarantee small=2");
	EXPECT_CTL(f, 1, "there is no zone \"large\"", "tenant create x --limit large=1");
	EXPECT_CTL(f, 2, "names no zone", "tenant create x --limit 1");
	EXPECT_CTL(f, 2, "neither create nor delete", "tenant make x");
	assert_false(tenant(f, "x").there);
	client_free(b);
	EXPECT_CTL(f, 0, "", "tenant delete web");
	assert_int_equal(stat(path, &st), -1);
	wait_until_gone(f, "web");
	EXPECT_CTL(f, 1, "there is no tenant \"web\"", "tenant delete web");
	EXPECT_CTL(f, 1, "was not made at run time", "tenant delete sure");
	/* the name is free again */
	EXPECT_CTL(f, 0, "tenant-web.sock", "tenant create web --any-user");
	b = start_at(f, "tenant-web.sock", UID_C);
	take(b, 0, BLOCK_BYTES);
	client_free(b);
}

/* Sends TENANT_DELETE, on a connection of its own. */
static struct peer *begin_delete(struct fixture *f, const char *name, uint32_t grace_ms)
{
	Hugepool__V1__TenantDelete request = HUGEPOOL__V1__TENANT_DELETE__INIT;
	struct peer *peer = peer_connect(f->program->admin_socket);

	peer_hello(peer);
	request.name = peer_text(name);
	request.grace_ms = grace_ms;
	peer_send(peer, TYPE(TENANT_DELETE), 1, &request.base);
	return peer;
}

/* Its sessions get the grace, nobody else gets anything, and it is over as soon as they are. */
static void test_delete_with_grace(void **state)
{
	struct fixture *f = *state;
	struct client *a, *b;
	struct hugepool_error error;
	struct peer *deleting;
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/run/tenant-web.sock", f->program->directory);
	EXPECT_CTL(f, 0, path, "tenant create web --any-user --limit small=4 --guarantee small=4");
	a = start_at(f, "tenant-web.sock", UID_B);
	b = start_at(f, "tenant-web.sock", UID_C);
	take(a, 0, BLOCK_BYTES);
	take(a, 1, 2 * MIB);
	client_fill(a, 0, 5);
	take(b, 0, 2 * BLOCK_BYTES);
	client_begin_take(b, 1, "small", BLOCK_BYTES, 60000); /* waits: it has its limit */
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).waiting; i++)
		poll(NULL, 0, 5);
	deleting = begin_delete(f, "web", 600000);
	assert_int_equal(client_end_take(b, &error), -ESHUTDOWN);
	assert_non_null(strstr(error.message, "tenant web is being deleted"));
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(tenant(f, "web").guarantee, 0); /* others may have that already */
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, &error), -ESHUTDOWN);
	EXPECT_CTL(f, 1, "web is being deleted: 2 sessions, 2 holders left",
		   "quota web small --limit 1");
	EXPECT_CTL(f, 1, "which is being deleted: 2 sessions", "tenant create web");
	EXPECT_CTL(f, 1, "is being deleted", "tenant delete web");
	assert_true(client_is_filled(a, 0, 5));
	assert_int_equal(client_give(a, 1), 0);
	peer_expect_silence(deleting, 50);
	client_free(a);
	client_kill(b);
	client_free(b);
	peer_expect(deleting, TYPE(DONE), 1);
	peer_free(deleting);
	wait_until_gone(f, "web");
}

/* The grace is over: so is what a living process held; its blocks come back when it lets go. */
static void test_delete_of_the_living(void **state)
{
	struct fixture *f = *state;
	struct client *a, *condemned;
	struct peer *deleting;

	EXPECT_CTL(f, 0, "web", "tenant create web --any-user --limit small=4");
	a = start_at(f, "tenant-web.sock", UID_B);
	condemned = start_at(f, "tenant-web.sock", UID_C);
	take(a, 0, 2 * BLOCK_BYTES);
	take(condemned, 0, BLOCK_BYTES);
	client_break(condemned);
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).condemned; i++)
		poll(NULL, 0, 5);
	deleting = begin_delete(f, "web", 100);
	peer_expect(deleting, TYPE(DONE), 1);
	peer_free(deleting);
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
	assert_int_equal(peer_zone(f->admin, 0).condemned, 0);
	wait_for_log(f, "tenant deleted name=web sessions_ended=1 holders_ended=2");
	/* they still map it: charged to the tenant, and nobody else's */
	assert_int_equal(tenant(f, "web").held, 3);
	assert_int_equal(tenant(f, "web").sessions, 0);
	EXPECT_CTL(f, 1, "which is being deleted", "tenant create web");
	client_kill(a);
	client_kill(condemned);
	wait_until_gone(f, "web");
	client_free(a);
	client_free(condemned);
}

/* The admin need not wait; and a daemon that ends meanwhile has no trouble with it. */
static void test_delete_without_an_admin(void **state)
{
	struct fixture *f = *state;
	struct client *a;

	EXPECT_CTL(f, 0, "one", "tenant create one --any-user --limit small=4");
	EXPECT_CTL(f, 0, "two", "tenant create two --any-user --limit small=4");
	a = start_at(f, "tenant-one.sock", UID_B);
	take(a, 0, BLOCK_BYTES);
	peer_free(begin_delete(f, "one", 200));
	wait_for_log(f, "tenant deleted name=one");
	client_free(a);
	wait_until_gone(f, "one");
	a = start_at(f, "tenant-two.sock", UID_B);
	take(a, 0, BLOCK_BYTES);
	peer_free(begin_delete(f, "two", 600000));
	wait_for_log(f, "tenant leaves name=two");
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	client_free(a);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(greedy_against_guaranteed),
		TEST(one_page_in_every_block),
		TEST(many_under_load),
		TEST(quota),
		TEST(raised_guarantee),
		TEST(reload),
		TEST(reload_moves_guarantees),
		TEST(socket_of_a_tenant),
		cmocka_unit_test_setup_teardown(test_session_policy, setup_stopped, teardown),
		TEST(create),
		TEST(delete_with_grace),
		TEST(delete_of_the_living),
		TEST(delete_without_an_admin),
	};

	if (argc != 4 || (strcmp(argv[3], "hugetlb") && strcmp(argv[3], "shmem"))) {
		fprintf(stderr, "usage: %s HUGEPOOLD HUGEPOOLCTL hugetlb|shmem\n", argv[0]);
		return 2;
	}
	executable = argv[1];
	hugepoolctl = argv[2];
	on_huge_pages = strcmp(argv[3], "hugetlb") == 0;
	if (getuid() != 0) {
		puts("skipped: only root can be several users");
		return 77;
	}
	if (on_huge_pages && counter("nr") < 0) {
		puts("skipped: this kernel has no huge pages of 2 MiB");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
