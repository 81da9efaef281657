/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants, slots and processes by themselves: numbers that are used again only when nothing names
 * them, states that change only as they may, and who is at the other end of a socket.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/tenancy/tenant-internal.h"
#include "tests/daemon/rig.h"

static int setup(void **state)
{
	struct rig_options options = {.config = "[daemon]\nidle-delay = 50ms\n" RIG_CONFIG
						"[tenant named]\nuid = 7\nlimit.small = 3\n"
						"guarantee.small = 2\nsessions = 2\n"
						"[default]\nlimit.small = 5\n"};

	*state = rig_new(&options);
	return 0;
}

static int teardown(void **state)
{
	rig_free(*state);
	return 0;
}

static struct tenant *enter(struct rig *rig, uid_t uid)
{
	struct tenant *tenant;

	assert_int_equal(tenants_enter(rig->net.tenants, uid, &tenant), 0);
	return tenant;
}

/* --- tenants ---------------------------------------------------------------------------------- */

static void test_quotas(void **state)
{
	struct rig *rig = *state;
	struct tenant *named = enter(rig, 7), *other = enter(rig, 8);
	struct tenant_figures figures;

	assert_string_equal(named->name, "named");
	assert_string_equal(other->name, "uid:8");
	tenant_get_figures(named, pool_zone(rig->net.pool, 0), &figures);
	assert_int_equal(figures.limit_blocks, 3);
	assert_int_equal(figures.guarantee_blocks, 2);
	assert_int_equal(figures.leasable_pages, 3 * RIG_SMALL_BLOCK_PAGES);
	tenant_get_figures(other, pool_zone(rig->net.pool, 0), &figures);
	assert_int_equal(figures.limit_blocks, 5);
	/* built in: half of the zone */
	tenant_get_figures(named, pool_zone(rig->net.pool, 1), &figures);
	assert_int_equal(figures.limit_blocks, 2);
	tenants_leave(rig->net.tenants, named);
	tenants_leave(rig->net.tenants, other);
}

static void test_sessions_of_a_tenant(void **state)
{
	struct rig *rig = *state;
	struct tenant *one = enter(rig, 7), *two = enter(rig, 7), *three;

	assert_ptr_equal(one, two);
	assert_int_equal(tenants_enter(rig->net.tenants, 7, &three), TENANT_TOO_MANY_SESSIONS);
	assert_int_equal(tenants_sessions_max(rig->net.tenants, 7), 2);
	tenants_leave(rig->net.tenants, one);
	assert_ptr_equal(enter(rig, 7), two);
	tenants_leave(rig->net.tenants, two);
	tenants_leave(rig->net.tenants, two);
}

static void test_numbers_are_used_again(void **state)
{
	struct rig *rig = *state;
	struct tenant *tenant = enter(rig, 100), *next;
	struct hp_zone *zone = pool_zone(rig->net.pool, 0)->zone;
	struct hp_request request = {.slot = 1, .pages = 1};
	struct hp_grant grant;
	uint32_t owner = tenant->owner;

	/* named by a connection, then by a holder, then by a block */
	assert_int_equal(tenants_hold(rig->net.tenants, tenant), 0);
	request.owner = owner;
	assert_int_equal(hp_zone_alloc(zone, NULL, &request, &grant), 0);
	tenants_leave(rig->net.tenants, tenant);
	assert_int_equal(tenants_count(rig->net.tenants), 2);
	tenants_unhold(rig->net.tenants, tenant);
	tenants_collect(rig->net.tenants, owner);
	assert_int_equal(tenants_count(rig->net.tenants), 2);
	next = enter(rig, 101);
	assert_int_not_equal(next->owner, owner);
	tenants_leave(rig->net.tenants, next);
	/* who comes back finds himself */
	assert_ptr_equal(enter(rig, 100), tenant);
	tenants_leave(rig->net.tenants, tenant);

	/* the block goes, and the pool says so */
	assert_int_equal(hp_zone_free(zone, NULL, 1, &grant.range), 0);
	for (int i = 0; i < 4000 && tenants_count(rig->net.tenants) > 1; i++)
		poll(NULL, 0, 5);
	assert_int_equal(tenants_count(rig->net.tenants), 1);
	next = enter(rig, 102);
	assert_int_equal(next->owner, owner);
	tenants_leave(rig->net.tenants, next);
	/* the configured one stays */
	assert_int_equal(tenants_count(rig->net.tenants), 1);
}

static void test_too_many_tenants(void **state)
{
	struct rig *rig = *state;
	struct tenant *tenants[HP_TENANTS_MAX], *one_more;
	uint32_t n = 0;

	while (n < HP_TENANTS_MAX - 2)
		tenants[n] = enter(rig, 1000 + n), n++;
	assert_int_equal(tenants_enter(rig->net.tenants, 999, &one_more), TENANT_TOO_MANY_TENANTS);
	tenants_leave(rig->net.tenants, enter(rig, 1005)); /* who is in is in */
	tenants_leave(rig->net.tenants, tenants[17]);
	one_more = enter(rig, 999);
	tenants_leave(rig->net.tenants, one_more);
	for (uint32_t i = 0; i < n; i++)
		if (i != 17)
			tenants_leave(rig->net.tenants, tenants[i]);
	assert_int_equal(tenants_count(rig->net.tenants), 1);
}

/* --- what an admin changes -------------------------------------------------------------------- */

static const struct tenant_change nothing[HP_ZONES_MAX];

static struct tenant *make(struct rig *rig, const char *name)
{
	char why[TENANT_WHY_MAX];
	struct tenant *tenant;

	if (tenants_make(rig->net.tenants, name, 5, false, nothing, &tenant, why))
		fail_msg("%s: %s", name, why);
	return tenant;
}

static void test_made_and_deleted(void **state)
{
	struct rig *rig = *state;
	struct tenants *tenants = rig->net.tenants;
	struct tenant *tenant = make(rig, "made"), *same;
	struct tenant_record record;
	char why[TENANT_WHY_MAX];

	tenant_get_record(tenant, &record);
	assert_string_equal(record.name, "made");
	assert_int_equal(record.origin, TENANT_MADE);
	assert_int_equal(record.quota[0].limit_blocks, 5); /* as in [default] */
	assert_int_equal(record.owner, tenant->owner);
	assert_int_equal(tenants_make(tenants, "made", 5, false, nothing, &same, why), -EEXIST);
	assert_int_equal(tenants_make(tenants, "named", 5, false, nothing, &same, why), -EEXIST);
	assert_int_equal(tenants_make(tenants, "uid:9", 5, false, nothing, &same, why), -EINVAL);
	assert_int_equal(tenants_make(tenants, "", 5, false, nothing, &same, why), -EINVAL);

	/* over its socket as its user; that user by himself is somebody else */
	assert_int_equal(tenants_enter_own(tenants, tenant, 6), TENANT_NOT_FOR_USER);
	assert_int_equal(tenants_enter_own(tenants, tenant, 5), 0);
	same = enter(rig, 5);
	assert_ptr_not_equal(same, tenant);
	tenants_leave(tenants, same);

	assert_int_equal(tenants_delete(tenants, "named", 5, &same, why), -EPERM);
	assert_non_null(strstr(why, "reload"));
	assert_int_equal(tenants_delete(tenants, "nobody", 6, &same, why), -ENOENT);
	assert_int_equal(tenants_delete(tenants, "made", 4, &same, why), 0);
	assert_ptr_equal(same, tenant);
	assert_int_equal(tenants_enter_own(tenants, tenant, 5), TENANT_LEAVES);
	assert_int_equal(tenants_delete(tenants, "made", 4, &same, why), -EBUSY);
	assert_int_equal(tenants_make(tenants, "made", 5, false, nothing, &same, why), -EBUSY);
	assert_null(tenants_find(tenants, "made", 4));
	tenants_end(tenants, tenant);
	tenants_forget(tenants, tenant);
	assert_int_equal(tenants_count(tenants), 2); /* it has a connection still */
	tenants_leave(tenants, tenant);
	assert_int_equal(tenants_count(tenants), 1);
	tenants_forget(tenants, make(rig, "made"));
}

static void test_too_many_made(void **state)
{
	struct rig *rig = *state;
	struct tenant *made[HP_TENANTS_MADE_MAX], *one_more;
	char name[32], why[TENANT_WHY_MAX];

	for (int i = 0; i < HP_TENANTS_MADE_MAX; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		made[i] = make(rig, name);
	}
	assert_int_equal(tenants_make(rig->net.tenants, "more", 5, false, nothing, &one_more, why),
			 -ENOSPC);
	assert_non_null(strstr(why, "256"));
	for (int i = 0; i < HP_TENANTS_MADE_MAX; i++)
		tenants_forget(rig->net.tenants, made[i]);
	assert_int_equal(tenants_count(rig->net.tenants), 1);
}

static int set(struct rig *rig, const char *name, int limit, int guarantee,
	       char why[TENANT_WHY_MAX])
{
	struct tenant_change change = {
		.set_limit = limit >= 0,
		.set_guarantee = guarantee >= 0,
		.quota = {(uint32_t)limit, (uint32_t)guarantee},
	};

	return tenants_set_quota(rig->net.tenants, name, strlen(name), pool_zone(rig->net.pool, 0),
				 &change, why);
}

static void test_refused_quotas(void **state)
{
	struct rig *rig = *state;
	struct tenant *made = make(rig, "made");
	struct tenant_record record;
	char why[TENANT_WHY_MAX];

	assert_int_equal(set(rig, "named", 17, -1, why), -EINVAL);
	assert_non_null(strstr(why, "17 blocks"));
	assert_int_equal(set(rig, "named", 1, -1, why), -EINVAL);
	assert_non_null(strstr(why, "guarantee of 2"));
	assert_int_equal(set(rig, "named", 16, 17, why), -EINVAL);
	assert_int_equal(set(rig, "uid:3", 1, -1, why), -ENOENT);
	/* the sum: 14 and 2 are the zone, 15 and 2 are not */
	assert_int_equal(set(rig, "made", 16, 15, why), -EDQUOT);
	assert_non_null(strstr(why, "15 blocks guaranteed to made and 2 to others add up to 17"));
	tenant_get_record(made, &record);
	assert_int_equal(record.quota[0].limit_blocks, 5); /* none of it has happened */
	assert_int_equal(set(rig, "made", 16, 14, why), 0);
	tenants_forget(rig->net.tenants, made);
	assert_int_equal(set(rig, "named", 16, 16, why), 0);
}

/* Below what is held, and back under it. */
static void test_lowered_limit(void **state)
{
	struct rig *rig = *state;
	struct tenant *named = enter(rig, 7);
	struct pool_zone *zone = pool_zone(rig->net.pool, 0);
	struct hp_request request = {.owner = named->owner, .slot = 1, .pages = 1};
	struct hp_grant grants[2 * RIG_SMALL_BLOCK_PAGES];
	struct tenant_record record;
	char why[TENANT_WHY_MAX];
	size_t n = 0;

	while (n < 2 * RIG_SMALL_BLOCK_PAGES)
		assert_int_equal(hp_zone_alloc(zone->zone, NULL, &request, &grants[n++]), 0);
	assert_false(tenant_is_over_limit(named, zone));
	assert_int_equal(set(rig, "named", 1, 1, why), 0);
	tenant_get_record(named, &record);
	assert_int_equal(record.set_zones, 1);
	assert_int_equal(record.quota[0].limit_blocks, 1);
	assert_true(tenant_is_over_limit(named, zone));
	assert_true(tenant_is_over_limit(named, zone)); /* asking changes nothing */
	while (n)
		assert_int_equal(hp_zone_free(zone->zone, NULL, 1, &grants[--n].range), 0);
	pool_poke(rig->net.pool);
	for (int i = 0; i < 4000 && tenant_is_over_limit(named, zone); i++)
		poll(NULL, 0, 5);
	assert_false(tenant_is_over_limit(named, zone));
	assert_int_equal(named->over_limit, 0); /* from now on it costs nothing to ask */
	tenants_leave(rig->net.tenants, named);
}

/* Every connection is a tenant of its own, but for users with a name. */
static void test_policy_session(void **state)
{
	struct rig_options options = {.config = "[daemon]\npolicy = session\n" RIG_CONFIG
						"[tenant named]\nuid = 7\n"
						"[default]\nsessions = 2\n"};
	struct rig *rig = rig_new(&options);
	struct tenant *one = enter(rig, 8), *two = enter(rig, 8), *more, *named = enter(rig, 7);
	uint32_t owner = one->owner;

	(void)state;
	assert_ptr_not_equal(one, two);
	assert_string_equal(one->name, "session:1");
	assert_string_equal(two->name, "session:2");
	assert_string_equal(named->name, "named");
	assert_int_equal(tenants_enter(rig->net.tenants, 8, &more), TENANT_TOO_MANY_SESSIONS);
	tenants_leave(rig->net.tenants, one);
	more = enter(rig, 8);
	assert_string_equal(more->name, "session:3");
	assert_int_equal(more->owner, owner); /* the number comes again, the name does not */
	tenants_leave(rig->net.tenants, more);
	tenants_leave(rig->net.tenants, two);
	tenants_leave(rig->net.tenants, named);
	assert_int_equal(tenants_count(rig->net.tenants), 1);
	rig_free(rig);
}

/* What the table of states does not allow ends the process. */
static void test_forbidden_states(void **state)
{
	static const bool allowed[TENANT_STATES][TENANT_STATES] = {
		[TENANT_LIVE] = {[TENANT_LEAVING] = true},
		[TENANT_LEAVING] = {[TENANT_ENDING] = true},
	};
	struct rig *rig = *state;
	struct tenant *tenant = make(rig, "made");

	for (enum tenant_state from = TENANT_LIVE; from < TENANT_STATES; from++) {
		tenant->state = from;
		for (enum tenant_state to = TENANT_LIVE; to < TENANT_STATES; to++) {
			pid_t pid = fork();
			int status;

			assert_true(pid >= 0);
			if (pid == 0) {
				signal(SIGABRT, SIG_DFL);
				freopen("/dev/null", "w", stderr);
				tenant_set_state(tenant, to);
				_exit(0);
			}
			assert_int_equal(waitpid(pid, &status, 0), pid);
			assert_int_equal(WIFEXITED(status), allowed[from][to]);
		}
	}
	tenants_forget(rig->net.tenants, tenant);
}

/* --- slots ------------------------------------------------------------------------------------ */

static void test_slots(void **state)
{
	struct rig *rig = *state;
	struct tenant *tenant = enter(rig, 7);
	struct process process = {.pid = 42};
	struct slot *slots[3];
	uint8_t token[SLOT_TOKEN_BYTES];

	for (int i = 0; i < 3; i++)
		assert_int_equal(slots_open(rig->net.slots, tenant, &process, "x", &slots[i]), 0);
	assert_int_equal(slots[2]->number, 3);
	assert_int_equal(slots_count(rig->net.slots, SLOT_OPEN), 3);
	memcpy(token, slots[1]->token, sizeof(token));
	slots_set_state(rig->net.slots, slots[1], SLOT_CONDEMNED);
	assert_int_equal(slots_count(rig->net.slots, SLOT_CONDEMNED), 1);
	slots_set_state(rig->net.slots, slots[2], SLOT_ORPHANED);
	leases_end(rig->net.leases, slots[1]);
	assert_int_equal(slots_count(rig->net.slots, SLOT_CONDEMNED), 0);

	/* the number comes again, the session's number and token do not */
	assert_int_equal(slots_open(rig->net.slots, tenant, &process, "x", &slots[1]), 0);
	assert_int_equal(slots[1]->number, 2);
	assert_int_equal(slots[1]->session, 4);
	assert_memory_not_equal(slots[1]->token, token, sizeof(token));
	assert_int_equal(tenant->holders, 3);
	for (int i = 0; i < 3; i++)
		leases_end(rig->net.leases, slots[i]);
	assert_int_equal(tenant->holders, 0);
	assert_int_equal(slots_count(rig->net.slots, SLOT_OPEN), 0);
	tenants_leave(rig->net.tenants, tenant);
}

static void test_too_many_slots_of_a_tenant(void **state)
{
	struct rig *rig = *state;
	struct tenant *tenant = enter(rig, 7), *other = enter(rig, 8);
	struct process process = {.pid = 42};
	static struct slot *slots[HP_SLOTS_PER_TENANT_MAX];
	struct slot *slot;

	for (int i = 0; i < HP_SLOTS_PER_TENANT_MAX; i++)
		assert_int_equal(slots_open(rig->net.slots, tenant, &process, "", &slots[i]), 0);
	assert_int_equal(slots_open(rig->net.slots, tenant, &process, "", &slot),
			 SLOT_TOO_MANY_OF_TENANT);
	assert_int_equal(slots_open(rig->net.slots, other, &process, "", &slot), 0);
	leases_end(rig->net.leases, slot);
	for (int i = 0; i < HP_SLOTS_PER_TENANT_MAX; i++)
		leases_end(rig->net.leases, slots[i]);
	tenants_leave(rig->net.tenants, tenant);
	tenants_leave(rig->net.tenants, other);
}

/* Everything that the table does not allow ends the process. */
static void test_forbidden_transitions(void **state)
{
	static const enum slot_state to[] = {SLOT_FREE, SLOT_OPEN, SLOT_CONDEMNED, SLOT_ORPHANED,
					     SLOT_CLOSING};
	static const bool allowed[SLOT_STATES][SLOT_STATES] = {
		[SLOT_OPEN] = {[SLOT_CONDEMNED] = 1, [SLOT_ORPHANED] = 1, [SLOT_CLOSING] = 1},
		[SLOT_CONDEMNED] = {[SLOT_OPEN] = 1, [SLOT_CLOSING] = 1},
		[SLOT_ORPHANED] = {[SLOT_CLOSING] = 1},
		[SLOT_CLOSING] = {[SLOT_FREE] = 1},
	};
	struct rig *rig = *state;
	struct tenant *tenant = enter(rig, 7);
	struct process process = {.pid = 42};
	struct slot *slot;

	for (enum slot_state from = SLOT_OPEN; from < SLOT_STATES; from++) {
		assert_int_equal(slots_open(rig->net.slots, tenant, &process, "", &slot), 0);
		if (from != SLOT_OPEN)
			slots_set_state(rig->net.slots, slot, from);
		for (size_t i = 0; i < SLOT_STATES; i++) {
			pid_t pid = fork();
			int status;

			assert_true(pid >= 0);
			if (pid == 0) {
				signal(SIGABRT, SIG_DFL);
				freopen("/dev/null", "w", stderr);
				slots_set_state(rig->net.slots, slot, to[i]);
				_exit(0);
			}
			assert_int_equal(waitpid(pid, &status, 0), pid);
			assert_int_equal(WIFEXITED(status), allowed[from][to[i]]);
		}
		if (from != SLOT_CLOSING)
			slots_set_state(rig->net.slots, slot, SLOT_CLOSING);
		slots_close(rig->net.slots, slot);
	}
	tenants_leave(rig->net.tenants, tenant);
}

/* --- processes -------------------------------------------------------------------------------- */

/* A child connects and then waits, or not, on its end of a pipe. Return: the accepted socket. */
static int accept_child(pid_t *ret_pid, int *ret_hold)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(sa_family_t);
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), hold[2], fd;

	assert_int_equal(bind(listening, (struct sockaddr *)&address, size), 0); /* autobind */
	size = sizeof(address);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
	*ret_pid = fork();
	assert_true(*ret_pid >= 0);
	if (*ret_pid == 0) {
		char byte;

		close(hold[1]);
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&address, size))
			_exit(1);
		if (read(hold[0], &byte, 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(hold[0]);
	*ret_hold = hold[1];
	fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	close(listening);
	return fd;
}

static void test_process_of_peer(void **state)
{
	struct process process;
	int pidfd, hold, fd;
	uid_t uid;
	pid_t pid;

	(void)state;
	fd = accept_child(&pid, &hold);
	assert_int_equal(process_peer_uid(fd, &uid), 0);
	assert_int_equal(uid, getuid());
	assert_int_equal(process_of_peer(fd, &process, &pidfd), 0);
	assert_int_equal(process.pid, pid);
	assert_int_equal(process.uid, uid);
	assert_true(process.start_ticks > 0);
	assert_string_equal(process.command, "test-tenancy");
	assert_false(process_has_ended(pidfd));
	close(hold); /* its end: it exits */
	for (int i = 0; i < 2000 && !process_has_ended(pidfd); i++)
		poll(NULL, 0, 5);
	assert_true(process_has_ended(pidfd)); /* though nobody has waited for it */
	close(pidfd);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_of_peer(fd, &process, &pidfd), PROCESS_GONE);
	close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(quotas),
		TEST(sessions_of_a_tenant),
		TEST(numbers_are_used_again),
		TEST(too_many_tenants),
		TEST(made_and_deleted),
		TEST(too_many_made),
		TEST(refused_quotas),
		TEST(lowered_limit),
		cmocka_unit_test(test_policy_session),
		TEST(forbidden_states),
		TEST(slots),
		TEST(too_many_slots_of_a_tenant),
		TEST(forbidden_transitions),
		cmocka_unit_test(test_process_of_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
