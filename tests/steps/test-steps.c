/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kill before every single store of every operation, and a second one inside the recovery.
 *
 * Each operation is done in a process of its own on a state file of its own, and ends it before its
 * n-th store, for every n there is. Another process then goes on with the file: every range has to be, as
 * a whole, as it was before the operation or as it is after it, never a third; every session likewise; no
 * record may be damaged and no block quarantined; the zone's invariants hold; and when all sessions are
 * ended every block becomes clean.
 */
#include "tests/steps/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Sanitized, processes take ten times as long: each of the points is in the plain build. */
#ifdef __SANITIZE_ADDRESS__
#define EVERY 7
#else
#define EVERY 1
#endif

static char directory[] = "/dev/shm/hugepool-steps-XXXXXX", path[64], log_path[64];

/* Of both processes, and of the test. */
static struct {
	struct facts facts;
	unsigned stores;
	struct hp_range range[HP_RANGES_MAX];
} * shared;

struct operation {
	const char *name;
	void (*before)(struct world *world, struct slot **slot); /* slot: of two */
	void (*act)(struct world *world, struct slot **slot);
	bool threads; /* of the pool take part */
};

/* --- operations ------------------------------------------------------------------------------- */

/* Somebody else's lease, in a block of his own: it has to stay as it is whatever happens. */
static void bystander(struct world *world, struct slot **slot)
{
	struct hp_range range;

	slot[1] = world_session(world, 1);
	world_grant(world, slot[1], 3, 1, &range);
}

static void with_session(struct world *world, struct slot **slot)
{
	bystander(world, slot);
	slot[0] = world_session(world, 0);
}

static void with_block(struct world *world, struct slot **slot)
{
	with_session(world, slot);
	world_grant(world, slot[0], 1, 2, shared->range);
}

static void with_many(struct world *world, struct slot **slot)
{
	with_session(world, slot);
	world_grant(world, slot[0], 1, 48, shared->range);
}

/* Over three blocks, from the middle of the first one. */
static void with_long(struct world *world, struct slot **slot)
{
	with_session(world, slot);
	world_grant(world, slot[0], 2 * WORLD_BLOCK_PAGES + 4, 1, shared->range);
}

static void open_session(struct world *world, struct slot **slot)
{
	slot[0] = world_session(world, 0);
	world_grant(world, slot[0], 1, 1, shared->range);
}

static void claim(struct world *world, struct slot **slot)
{
	world_grant(world, slot[0], WORLD_BLOCK_PAGES, 1, shared->range);
}

static void grant_1(struct world *world, struct slot **slot)
{
	world_grant(world, slot[0], 1, 1, shared->range);
}

static void grant_64(struct world *world, struct slot **slot)
{
	world_grant(world, slot[0], 1, 64, shared->range);
}

static void grant_long(struct world *world, struct slot **slot)
{
	world_grant(world, slot[0], 2 * WORLD_BLOCK_PAGES + 3, 1, shared->range);
}

static void must_be_ok(int r, const char *what)
{
	if (r)
		world_die("%s: %d", what, r);
}

static void give(struct world *world, struct slot **slot, size_t n)
{
	size_t bad;

	must_be_ok(leases_return(world->net.leases, world->workers[0]->caches, slot[0],
				 shared->range, n, &bad),
		   "free");
}

static void free_1(struct world *world, struct slot **slot)
{
	give(world, slot, 1);
}

static void free_48(struct world *world, struct slot **slot)
{
	give(world, slot, 48);
}

static void free_part(struct world *world, struct slot **slot)
{
	struct hp_range kept[2];
	unsigned nr;

	must_be_ok(leases_return_part(world->net.leases, world->workers[0]->caches, slot[0],
				      shared->range, 3, 2 * WORLD_BLOCK_PAGES - 2, kept, &nr),
		   "free_part");
}

/* What RESUME does: parts of one lease, over three blocks, and none of another. */
static void keep_parts(struct world *world, struct slot **slot)
{
	struct hp_range keep[3] = {shared->range[0], shared->range[0], shared->range[0]};

	keep[0].pages = 1;
	keep[1].pfn += 5;
	keep[1].pages = WORLD_BLOCK_PAGES;
	keep[2].pfn += 2 * WORLD_BLOCK_PAGES;
	keep[2].pages = 4;
	must_be_ok(leases_keep(world->net.leases, slot[0], keep, 3), "keep");
}

static void close_session(struct world *world, struct slot **slot)
{
	leases_end(world->net.leases, slot[0]);
}

static void break_session(struct world *world, struct slot **slot)
{
	slots_break(world->net.slots, slot[0], 0, NULL);
}

/* --- sharing --- */

#define SHARED_PAGES (WORLD_BLOCK_PAGES + 4) /* in two blocks */

static void grant_shared(struct world *world, struct slot **slot)
{
	struct hp_request request = {
		.pages = SHARED_PAGES,
		.flags = HP_ALLOC_EXCLUSIVE | HP_ALLOC_SHARED,
	};
	struct hp_grant grant;

	must_be_ok(leases_grant(world->net.leases, NULL, slot[0], world_zone(world), &request,
				&grant, 1),
		   "grant of a shareable range");
	shared->range[0] = grant.range;
}

static void publish_as(struct world *world, struct slot **slot, const char *name)
{
	const uint32_t uids[] = {WORLD_UID + 1, 7, 8};
	const struct share_terms terms = {
		.name = (const uint8_t *)name,
		.name_bytes = strlen(name),
		.uids = uids,
		.nr_uids = 3,
	};

	must_be_ok(shares_publish(world->net.shares, slot[0], shared->range, &terms), "publish");
}

static void publish(struct world *world, struct slot **slot)
{
	publish_as(world, slot, "first");
}

static void publish_again(struct world *world, struct slot **slot)
{
	publish_as(world, slot, "a name of more than eight bytes");
}

static void attach(struct world *world, struct slot **slot)
{
	struct hp_range range;

	must_be_ok(shares_attach(world->net.shares, slot[1], (const uint8_t *)"first", 5, NULL, 0,
				 true, &range),
		   "attach");
}

static void detach(struct world *world, struct slot **slot)
{
	shares_detach(world->net.shares, slot[0], shared->range);
}

static void with_shareable(struct world *world, struct slot **slot)
{
	with_session(world, slot);
	grant_shared(world, slot);
}

static void with_published(struct world *world, struct slot **slot)
{
	with_shareable(world, slot);
	publish(world, slot);
}

static void with_attached(struct world *world, struct slot **slot)
{
	with_published(world, slot);
	attach(world, slot);
}

/* An idle block is isolated, emptied, made anew and put back. */
static void recycle(struct world *world, struct slot **slot)
{
	uint32_t block = shared->range[0].pfn / WORLD_BLOCK_PAGES;
	struct tenant *tenant = slot[0]->tenant;

	leases_end(world->net.leases, slot[0]);
	hp_zone_drain(world_zone(world)->zone, HP_OWNER_NONE);
	pool_owner_gone(world->net.pool, tenant->owner);
	WORLD_WAIT(hp_zone_block_word(world_zone(world)->zone, block).state == HP_BLOCK_CLEAN);
}

static const struct operation operations[] = {
	{"session open and grant", bystander, open_session, false},
	{"grant of 1", with_block, grant_1, false},
	{"grant of 64", with_session, grant_64, false},
	{"grant over three blocks", with_block, grant_long, false},
	{"claim", with_session, claim, false},
	{"free", with_block, free_1, false},
	{"free of 48", with_many, free_48, false},
	{"free_part over three blocks", with_long, free_part, false},
	{"resume keeps parts", with_long, keep_parts, false},
	{"session close", with_many, close_session, false},
	{"session broken", with_block, break_session, false},
	{"recycle", with_block, recycle, true},
	{"shareable grant", with_session, grant_shared, false},
	{"publish", with_shareable, publish, false},
	{"publish again", with_published, publish_again, false},
	{"attach", with_published, attach, false},
	{"detach beside others", with_attached, detach, false},
	{"last detach", with_published, detach, true},
	{"publisher closes", with_attached, close_session, false},
};

/* --- processes -------------------------------------------------------------------------------- */

static int run(void (*fn)(const void *), const void *argument)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (!freopen(log_path, "a", stderr))
			_exit(3);
		fn(argument);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct job {
	const struct operation *operation; /* NULL: recovery only */
	bool act;
	unsigned kill_at;
};

static void do_operation(const void *argument)
{
	const struct job *job = argument;
	struct slot *slot[2] = {NULL, NULL};
	static struct world world; /* its threads live until _exit() */

	world_open(&world, path, true);
	job->operation->before(&world, slot);
	world_kill_at(job->kill_at);
	if (job->act)
		job->operation->act(&world, slot);
	shared->stores = world_stores();
	/* and here it ends, as by a kill */
}

static void report(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

static void recover(const void *argument)
{
	const struct job *job = argument;
	struct hp_zone_stats stats;
	static struct world world; /* its threads live until _exit() */

	world_kill_at(job->kill_at);
	world_open(&world, path, false);
	shared->stores = world_stores();
	world_kill_at(0);
	world_facts(&world, &shared->facts);
	if (hp_zone_check(world_zone(&world)->zone, report, NULL))
		world_die("the zone is not sound");
	for (uint32_t i = 1; i <= WORLD_SLOTS; i++) {
		struct slot *slot = slots_find(world.net.slots, i);
		uint32_t owner = slot ? slot->tenant->owner : 0;

		if (!slot)
			continue;
		leases_end(world.net.leases, slot);
		pool_owner_gone(world.net.pool, owner);
	}
	for (uint32_t owner = 1; owner <= WORLD_SLOTS; owner++)
		pool_owner_gone(world.net.pool, owner);
	must_be_ok(pool_start(world.net.pool), "threads");
	do {
		hp_zone_drain(world_zone(&world)->zone, HP_OWNER_NONE);
		hp_zone_stats(world_zone(&world)->zone, &stats);
	} while (stats.clean_blocks < WORLD_BLOCKS);
}

/* --- judging ---------------------------------------------------------------------------------- */

static bool same_fact(const struct fact *a, const struct fact *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool lease_is_as(const struct facts *found, const struct facts *side, uint32_t from,
			uint32_t n)
{
	for (uint32_t i = from; i < from + n; i++)
		if (!same_fact(&found->page[i], &side->page[i]))
			return false;
	return true;
}

static void judge(const struct operation *operation, unsigned n, const struct facts *before,
		  const struct facts *after, const struct facts *found)
{
	const struct facts *sides[] = {before, after};

	for (unsigned s = 0; s < 2; s++)
		for (uint32_t i = 0; i < WORLD_PAGES; i++) {
			const struct fact *fact = &sides[s]->page[i];

			if (fact->slot && fact->head == i &&
			    !lease_is_as(found, before, i, fact->pages) &&
			    !lease_is_as(found, after, i, fact->pages))
				fail_msg(
					"%s, killed before store %u: range at %u, %u pages, is neither as before nor as after",
					operation->name, n, i, fact->pages);
		}
	for (uint32_t i = 0; i < WORLD_PAGES; i++)
		if (!same_fact(&found->page[i], &before->page[i]) &&
		    !same_fact(&found->page[i], &after->page[i]))
			fail_msg("%s, killed before store %u: page %u is a third", operation->name,
				 n, i);
	for (uint32_t i = 1; i <= WORLD_SLOTS; i++)
		if (found->slot[i] != before->slot[i] && found->slot[i] != after->slot[i])
			fail_msg("%s, killed before store %u: session %u is a third",
				 operation->name, n, i);
	for (uint32_t i = 1; i <= WORLD_SLOTS; i++)
		if (found->attached_bytes[i] != before->attached_bytes[i] &&
		    found->attached_bytes[i] != after->attached_bytes[i])
			fail_msg("%s, killed before store %u: session %u is attached to a third",
				 operation->name, n, i);
	/* Between two names it has none: whoever publishes says it again. */
	if (*found->share && strcmp(found->share, before->share) &&
	    strcmp(found->share, after->share))
		fail_msg("%s, killed before store %u: a share is named %s", operation->name, n,
			 found->share);
}

static void expect_quiet(const struct operation *operation, unsigned n)
{
	static const char *const words[] = {"damaged", ", quarantined", "impossible", "dropped"};
	static char text[1 << 20];
	FILE *log = fopen(log_path, "r");
	size_t length = log ? fread(text, 1, sizeof(text) - 1, log) : 0;

	if (log)
		fclose(log);
	text[length] = '\0';
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(text, words[i]))
			fail_msg("%s, killed before store %u: %s", operation->name, n, text);
	unlink(log_path);
}

static void show_log(void)
{
	char command[96];

	snprintf(command, sizeof(command), "tail -n 20 %s >&2", log_path);
	if (system(command))
		fprintf(stderr, "no log\n");
}

static void expect(int status, int wanted, const struct operation *operation, unsigned n,
		   const char *what)
{
	if (status == wanted)
		return;
	show_log();
	fail_msg("%s, store %u: %s: status %d instead of %d", operation->name, n, what, status,
		 wanted);
}

static void recovered(const struct operation *operation, unsigned n, struct facts *ret)
{
	expect(run(recover, &(struct job){0}), 0, operation, n, "recovery");
	expect_quiet(operation, n);
	*ret = shared->facts;
	unlink(path);
}

/* Return: how many points. */
static unsigned all_kills_of(const struct operation *operation, unsigned *recovery_points)
{
	struct job job = {.operation = operation};
	struct facts before, after, found;
	unsigned points;

	expect(run(do_operation, &job), 0, operation, 0, "what comes before");
	recovered(operation, 0, &before);
	job.act = true;
	expect(run(do_operation, &job), 0, operation, 0, "the operation");
	points = shared->stores;
	assert_true(points > 0);
	recovered(operation, 0, &after);
	for (unsigned n = 1; n <= points; n += EVERY) {
		int status;

		job.kill_at = n;
		status = run(do_operation, &job);
		/* With threads at work the last ones may not come to be. */
		if (!operation->threads || status)
			expect(status, WORLD_KILLED, operation, n, "the kill");
		/* The recovery is killed as well, at another place each time. */
		status = run(recover, &(struct job){.kill_at = 1 + n * 7 % 23});
		*recovery_points += status == WORLD_KILLED;
		if (status != WORLD_KILLED) {
			expect(status, 0, operation, n, "recovery");
			expect_quiet(operation, n);
			judge(operation, n, &before, &after, &shared->facts);
			unlink(path);
			continue;
		}
		recovered(operation, n, &found);
		judge(operation, n, &before, &after, &found);
	}
	return points;
}

static void test_steps(void **state)
{
	unsigned all = 0, recovery = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		unsigned points = all_kills_of(&operations[i], &recovery);

		printf("%-28s %4u points\n", operations[i].name, points);
		all += points;
	}
	printf("in all %u points, and %u kills inside of recoveries\n", all, recovery);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps)};
	int failed;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || !mkdtemp(directory))
		return 1;
	snprintf(path, sizeof(path), "%s/state", directory);
	snprintf(log_path, sizeof(log_path), "%s/log", directory);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	unlink(log_path);
	rmdir(directory);
	return failed;
}
