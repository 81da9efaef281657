/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits and guarantees: whatever others do, whatever the admin changes meanwhile.
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/many.h"

/* --- limits and guarantees -------------------------------------------------------------------- */

/* Whoever is greedy gets everything but what is guaranteed to somebody, who gets that at any time. */
static void test_greedy_against_guaranteed(void **state)
{
	struct many *f = *state;
	struct client *sure = many_start(f, UID_A), *greedy = many_start(f, UID_B),
		      *other = many_start(f, UID_C);
	struct hugepool_error error;

	assert_int_equal(many_take_all(greedy, BLOCK_BYTES, -ENOMEM), 12);
	assert_int_equal(client_take(other, 0, "small", 2 * MIB, 0, &error), -ENOMEM);
	assert_int_equal(error.leasable_bytes, 0);
	assert_true(error.free_bytes >= 4 * BLOCK_BYTES); /* there, but not for him */
	for (int round = 0; round < 10; round++) {
		client_begin_take(other, 0, "small", BLOCK_BYTES, 20000); /* the next one is his */
		for (size_t i = 0; i < 4; i++) {
			many_take(sure, i, BLOCK_BYTES);
			assert_true(round > 0 || client_is_zero(sure, i));
			client_fill(sure, i, i);
		}
		assert_int_equal(many_tenant(f, "sure").held, 4);
		assert_int_equal(many_tenant(f, "uid:54323").held, 0);
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
		assert_int_equal(many_tenant(f, "uid:54322").held, 12);
	}
	client_free(other);
	/* more than is guaranteed is a matter of what there is */
	for (size_t i = 0; i < 4; i++)
		many_take(sure, i, BLOCK_BYTES);
	assert_int_equal(client_take(sure, 4, "small", 2 * MIB, 0, NULL), -ENOMEM);
	client_free(greedy);
	many_wait_for_clean(f, PAGES - 4 * BLOCK_PAGES);
	for (size_t i = 4; i < 8; i++)
		many_take(sure, i, BLOCK_BYTES);
	assert_int_equal(client_take(sure, 8, "small", 2 * MIB, 0, NULL), -EDQUOT);
	client_free(sure);
}

/* A page kept in each block costs the block: 1/4 of the memory does not get him more than his limit. */
static void test_one_page_in_every_block(void **state)
{
	struct many *f = *state;
	struct client *miser = many_start_at(f, "box.sock", UID_B), *other = many_start(f, UID_C),
		      *sure = many_start(f, UID_A);
	struct hugepool_error error;
	bool kept[BLOCKS] = {false};
	struct many_figures figures;
	size_t n = many_take_all(miser, 2 * MIB, -EDQUOT), left = 0;

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
	figures = many_tenant(f, "box");
	assert_int_equal(figures.held, 4);
	assert_int_equal(figures.leased, 4);
	/* he holds 4 of 64 pages, and as many blocks as he may */
	assert_int_equal(client_take(miser, 20, "small", BLOCK_BYTES, 0, &error), -EDQUOT);
	assert_non_null(strstr(error.message, "may hold 4 blocks of 4 pages and holds 4"));
	assert_int_equal(error.limit_bytes, 4 * BLOCK_BYTES);
	/* so everything else is for others */
	assert_int_equal(many_take_all(other, BLOCK_BYTES, -ENOMEM), 8);
	assert_int_equal(many_take_all(sure, BLOCK_BYTES, -ENOMEM), 4);
	client_free(miser);
	client_free(other);
	client_free(sure);
}

/* --- many under load -------------------------------------------------------------------------- */

#define NR_LOADS	16
#define UID_LOAD	60000 /* and those behind it */
#define LOAD_ALARM_SECS 110   /* its parent is gone, or stuck */
#define LOAD_MS		1500

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

	alarm(LOAD_ALARM_SECS);
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

/* What was seen of a tenant when it was looked at last. */
struct sample {
	uint64_t held, limit;
};

struct looks {
	struct many *many;
	struct sample sample[HP_TENANTS_MAX];
	unsigned n, most, most_held; /* most: how many tenants held something at one time */
};

/*
 * One look at everybody. Since the last one there was at most one change: nobody holds more than the
 * larger one of the two limits, or, if he was over it already, more than before.
 */
static void look(struct looks *looks)
{
	Hugepool__V1__List list = HUGEPOOL__V1__LIST__INIT;
	const Hugepool__V1__ListReply *reply;
	unsigned holding = 0, all = 0;

	list.what = WHAT(TENANTS);
	peer_send(looks->many->admin, TYPE(LIST), 1, &list.base);
	reply = peer_expect(looks->many->admin, TYPE(LIST_REPLY), 1);
	for (size_t i = 0; i < reply->n_tenants; i++) {
		const Hugepool__V1__Tenant *t = reply->tenants[i];
		struct sample *before = &looks->sample[t->owner];
		struct sample now = {t->held_blocks[0], t->limit_blocks[0]};

		if (looks->n && now.held > now.limit && now.held > before->limit &&
		    now.held > before->held)
			fail_msg("%.*s holds %llu blocks of %llu; at the last look %llu of %llu",
				 (int)t->name.len, (const char *)t->name.data,
				 (unsigned long long)now.held, (unsigned long long)now.limit,
				 (unsigned long long)before->held,
				 (unsigned long long)before->limit);
		*before = now;
		holding += now.held > 0;
		all += (unsigned)now.held;
	}
	looks->n++;
	if (holding > looks->most)
		looks->most = holding;
	if (all > looks->most_held)
		looks->most_held = all;
}

static void set_limit(struct looks *looks, uid_t uid, uint32_t limit)
{
	Hugepool__V1__Quota quota = HUGEPOOL__V1__QUOTA__INIT;
	char name[32];

	snprintf(name, sizeof(name), "uid:%u", uid);
	quota.tenant = peer_text(name);
	quota.zone = peer_text("small");
	quota.set_limit = true;
	quota.limit_blocks = limit;
	peer_send(looks->many->admin, TYPE(QUOTA), 2, &quota.base);
	peer_expect(looks->many->admin, TYPE(DONE), 2);
	look(looks);
}

static void reload(struct looks *looks, uint32_t default_limit)
{
	char tenants[512];

	snprintf(tenants, sizeof(tenants),
		 "[tenant sure]\nuid = %d\nlimit.small = 8\nguarantee.small = 4\n"
		 "[default]\nlimit.small = %u\n",
		 UID_A, default_limit);
	many_write_config(looks->many, DAEMON, tenants);
	peer_send(looks->many->admin, TYPE(RELOAD), 3, NULL);
	peer_expect(looks->many->admin, TYPE(RELOADED), 3);
	look(looks);
}

/* A connection that does nothing: its tenant is there all the time. */
static struct peer *stay(struct many *f, uid_t uid)
{
	struct peer *peer;

	assert_int_equal(seteuid(uid), 0);
	peer = peer_connect(f->program->socket);
	assert_int_equal(seteuid(0), 0);
	peer_hello(peer);
	return peer;
}

static void start_loads(struct many *f, struct load *load, pid_t pids[NR_LOADS])
{
	for (unsigned i = 0; i < NR_LOADS; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0)
			run_load(f->program->socket, UID_LOAD + i, load, i);
	}
}

static void end_loads(struct load *load, const pid_t pids[NR_LOADS])
{
	unsigned taking = 0;
	int status;

	load->stop = true;
	for (unsigned i = 0; i < NR_LOADS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		if (status)
			fail_msg("load %u: status %#x, %llu taken, %llu refused", i, status,
				 (unsigned long long)load->taken[i],
				 (unsigned long long)load->refused[i]);
		taking += load->taken[i] > 0;
	}
	/* nobody waits, and there is not enough for all: one may be out of luck all the time */
	assert_true(taking > NR_LOADS / 2);
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
	static struct looks looks;
	struct many *f = *state;
	struct client *sure = many_start(f, UID_A);
	struct load *load = mmap(NULL, sizeof(*load), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct peer *idle[NR_LOADS];
	pid_t pids[NR_LOADS];
	uint64_t until;

	assert_true(load != MAP_FAILED);
	looks = (struct looks){.many = f};
	for (unsigned i = 0; i < NR_LOADS; i++)
		idle[i] = stay(f, UID_LOAD + i);
	reload(&looks, 2);
	start_loads(f, load, pids);
	until = now_ms() + LOAD_MS;
	for (unsigned round = 0; now_ms() < until || round < 32; round++) {
		look(&looks);
		set_limit(&looks, UID_LOAD + round % NR_LOADS, 1 + round % 4);
		for (size_t i = 0; round % 8 == 0 && i < 4; i++)
			many_take(sure, i, BLOCK_BYTES);
		for (size_t i = 0; round % 8 == 0 && i < 4; i++)
			assert_int_equal(client_give(sure, i), 0);
		if (round % 16 == 5)
			reload(&looks, 2 + round / 16 % 2);
		if (round % 16 == 11)
			peer_check(f->admin);
	}
	end_loads(load, pids);
	munmap(load, sizeof(*load));
	for (unsigned i = 0; i < NR_LOADS; i++)
		peer_free(idle[i]);
	client_free(sure);
	print_message("looks %u, at most %u tenants held, %u of %u blocks\n", looks.n, looks.most,
		      looks.most_held, BLOCKS);
	assert_true(looks.most >= 4);
}

/* --- quotas ----------------------------------------------------------------------------------- */

static void test_quota(void **state)
{
	struct many *f = *state;
	struct client *a = many_start(f, UID_B);
	struct hugepool_error error;

	MANY_CTL(f, 0, "8 blocks", "quota sure small");
	MANY_CTL(f, 0, "10 blocks", "quota sure small --limit 80M --guarantee 5");
	assert_int_equal(many_tenant(f, "sure").limit, 10);
	assert_int_equal(many_tenant(f, "sure").guarantee, 5);
	MANY_CTL(f, 1, "limit of 4 blocks is below the guarantee of 5",
		 "quota sure small --limit 4");
	MANY_CTL(f, 1, "17 blocks were asked for, zone small has 16", "quota box small --limit 17");
	MANY_CTL(f, 1, "12 blocks guaranteed to box and 5 to others add up to 17, and it has 16",
		 "quota box small --limit 16 --guarantee 12");
	MANY_CTL(f, 2, "12M is not whole blocks of zone small, which are 8 MiB each",
		 "quota box small --limit 12M");
	MANY_CTL(f, 2, "'lots' is not a number of blocks", "quota box small --limit lots");
	MANY_CTL(f, 1, "there is no tenant \"nobody\"", "quota nobody small --limit 1");
	MANY_CTL(f, 1, "there is no zone \"large\"", "quota box large --limit 1");
	assert_int_equal(many_tenant(f, "sure").limit, 10);
	assert_int_equal(many_tenant(f, "box").limit, 4);

	/* below what is held: nothing more, not even in blocks that it has, until it fell */
	many_take(a, 0, 3 * BLOCK_BYTES);
	many_take(a, 1, 2 * MIB);
	MANY_CTL(f, 0, "2 blocks", "quota uid:54322 small --limit 2");
	assert_int_equal(many_tenant(f, "uid:54322").held, 4);
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, &error), -EDQUOT);
	assert_non_null(strstr(error.message, "may hold 2 blocks of 4 pages and holds 4"));
	assert_int_equal(client_give(a, 1), 0); /* its block is not kept as an idle one */
	for (int i = 0; i < WAIT_TRIES && many_tenant(f, "uid:54322").held > 3; i++)
		poll(NULL, 0, 5);
	assert_int_equal(many_tenant(f, "uid:54322").held, 3);
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, NULL), -EDQUOT);
	/* what waits gets its turn when it fell, what is more than the limit does not wait */
	client_begin_take(a, 1, "small", 3 * BLOCK_BYTES, 60000);
	assert_int_equal(client_end_take(a, &error), -EDQUOT);
	assert_int_equal(client_give_part(a, 0, BLOCK_BYTES, 2 * BLOCK_BYTES, 3), 0);
	for (int i = 0; i < WAIT_TRIES && client_take(a, 2, "small", 2 * MIB, 0, NULL); i++)
		poll(NULL, 0, 5);
	assert_in_range(many_tenant(f, "uid:54322").held, 1, 2);
	/* a limit that is lowered while a request waits for more than that */
	client_begin_take(a, 4, "small", 2 * BLOCK_BYTES, 60000); /* it has one, and may have two */
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).waiting; i++)
		poll(NULL, 0, 5);
	MANY_CTL(f, 0, "1 blocks", "quota uid:54322 small --limit 1");
	assert_int_equal(client_end_take(a, &error), -EDQUOT);
	client_free(a);
}

/* A guarantee that is raised takes what others do not use. */
static void test_raised_guarantee(void **state)
{
	struct many *f = *state;
	struct client *a = many_start(f, UID_A), *b = many_start(f, UID_B);
	size_t n = many_take_all(b, BLOCK_BYTES, -ENOMEM);

	assert_int_equal(n, 12);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(client_give(b, i), 0); /* idle, and still his */
	MANY_CTL(f, 0, "8 blocks", "quota sure small --guarantee 8");
	many_wait_for_clean(f, 8 * BLOCK_PAGES);
	assert_int_equal(many_take_all(b, BLOCK_BYTES, -ENOMEM), 2);
	for (size_t i = 0; i < 8; i++)
		many_take(a, i, BLOCK_BYTES);
	client_free(a);
	client_free(b);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, many_setup, many_teardown)
	const struct CMUnitTest tests[] = {
		TEST(greedy_against_guaranteed), TEST(one_page_in_every_block),
		TEST(many_under_load),		 TEST(quota),
		TEST(raised_guarantee),
	};
	int rc = many_main(argc, argv);

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
