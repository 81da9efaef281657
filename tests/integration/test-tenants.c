/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants that come and go: by reload, by their sockets, one for each connection, made and deleted by
 * the admin while their clients are at work.
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
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/many.h"

/* --- reload ----------------------------------------------------------------------------------- */

static void test_reload(void **state)
{
	struct many *f = *state;
	struct client *a = many_start(f, UID_A), *b = many_start(f, UID_B),
		      *box = many_start_at(f, "box.sock", UID_C);
	struct stat st;
	char path[128];

	many_take(a, 0, BLOCK_BYTES);
	many_take(b, 0, BLOCK_BYTES);
	many_take(box, 0, BLOCK_BYTES);
	client_fill(a, 0, 1);
	/* mistakes, with file, line and numbers: nothing changes */
	many_write_config(f, DAEMON,
			  "[tenant sure]\nuid = 54321\nlimit.small = 3\nguarantee.small = 4\n");
	MANY_CTL(f, 1, "guarantee.small is 4 blocks, limit.small 3 blocks", "reload");
	snprintf(path, sizeof(path), "%s:16: ", f->program->config);
	if (!strstr(f->text, path))
		fail_msg("no %s in: %s", path, f->text);
	many_write_config(f, DAEMON, "clean-low = 17\n[default]\nlimit.small = 1\n");
	MANY_CTL(f, 1, "clean-low: 17 blocks; expected at most the 16", "reload");
	many_write_config(f, DAEMON,
			  "[tenant sure]\nuid = 54321\nlimit.small = 9\nguarantee.small = 9\n"
			  "[tenant y]\nuid = 7\nlimit.small = 9\nguarantee.small = 9\n");
	MANY_CTL(f, 1, "add up to 18 blocks", "reload");
	many_write_config(f, DAEMON, "[tenant sure]\nuid = 54321\nguarantee.small = 12M\n");
	MANY_CTL(f, 1, "guarantee.small = 12M: expected a multiple", "reload");
	many_write_config(
		f, DAEMON,
		"[tenant y]\nsocket = /nonexistent/dir/y.sock\n[default]\nlimit.small = 1\n");
	MANY_CTL(f, 1, "/nonexistent/dir/y.sock cannot be made", "reload");
	assert_int_equal(many_tenant(f, "sure").limit, 8);
	assert_int_equal(many_tenant(f, "sure").guarantee, 4);
	assert_int_equal(many_tenant(f, "uid:54322").limit, 12);
	assert_false(many_tenant(f, "y").there);
	assert_true(client_is_filled(a, 0, 1));

	/* what cannot change is named, all else changes at once: a uid gets a name, one loses it */
	many_write_config(
		f, "workers = 2\nidle-delay = 50ms\n",
		"clean-low = 3\nclean-high = 4\n"
		"[tenant named]\nuid = 54322\nlimit.small = 2\nguarantee.small = 1\n"
		"[tenant new]\nsocket = %s/new.sock\nsocket-mode = 0666\nlimit.small = 1\n"
		"[default]\nlimit.small = 5\n");
	MANY_CTL(f, 0, "needs a restart: [daemon] workers", "reload");
	assert_int_equal(many_tenant(f, "named").limit, 2);
	assert_int_equal(many_tenant(f, "named").held, 1);
	assert_false(many_tenant(f, "uid:54322").there);
	assert_int_equal(many_tenant(f, "sure").limit, 5);
	assert_int_equal(many_tenant(f, "sure").guarantee, 0);
	assert_int_equal(peer_zone(f->admin, 0).clean_low, 3);
	snprintf(path, sizeof(path), "%s/run/box.sock", f->program->directory);
	assert_int_equal(stat(path, &st), -1);
	many_take(box, 1, BLOCK_BYTES); /* it stays until it leaves */
	client_free(box);
	many_wait_until_gone(f, "box");
	box = many_start_at(f, "new.sock", UID_C);
	assert_int_equal(many_take_all(box, BLOCK_BYTES, -EDQUOT), 1);
	assert_true(client_is_filled(a, 0, 1));
	client_free(a);
	many_wait_until_gone(f, "sure");

	/* by signal; and what an admin had set is the configuration's again */
	MANY_CTL(f, 0, "3 blocks", "quota named small --limit 3");
	many_write_config(f, DAEMON, TENANTS "[tenant named]\nuid = 54322\nlimit.small = 6\n");
	assert_int_equal(kill(f->program->pid, SIGHUP), 0);
	many_wait_for_log(f, "configuration reloaded tenants=3 restart_needed=0");
	assert_int_equal(many_tenant(f, "named").limit, 6);
	assert_int_equal(many_tenant(f, "sure").guarantee, 4);
	client_free(box);
	client_free(b);
}

/* Guarantees change hands under a reload, and their sum is the whole zone before and after. */
static void test_reload_moves_guarantees(void **state)
{
	struct many *f = *state;

	for (int i = 0; i < 6; i++) {
		char tenants[512];

		snprintf(tenants, sizeof(tenants),
			 "[tenant x]\nuid = 70\nlimit.small = 16\nguarantee.small = %d\n"
			 "[tenant y]\nuid = 71\nlimit.small = 16\nguarantee.small = %d\n",
			 i % 2 ? 16 : 0, i % 2 ? 0 : 16);
		many_write_config(f, DAEMON, tenants);
		MANY_CTL(f, 0, "reloaded, with 2 tenants", "reload");
		assert_int_equal(many_tenant(f, "x").guarantee, i % 2 ? 16 : 0);
		assert_int_equal(many_tenant(f, "y").guarantee, i % 2 ? 0 : 16);
	}
	/* with one that was made it does not fit any more; without the guarantee it does */
	many_write_config(f, DAEMON, "[default]\nlimit.small = 8\n");
	MANY_CTL(f, 0, "reloaded", "reload");
	MANY_CTL(f, 0, "tenants/m.sock", "tenant create m --guarantee small=2");
	many_write_config(f, DAEMON,
			  "[tenant x]\nuid = 70\nlimit.small = 16\nguarantee.small = 15\n");
	MANY_CTL(
		f, 1,
		"15 blocks guaranteed by the configuration and 2 to tenants made at run time add up to 17",
		"reload");
	MANY_CTL(f, 0, "0 blocks", "quota m small --guarantee 0");
	MANY_CTL(f, 0, "reloaded", "reload");
	assert_int_equal(many_tenant(f, "m").limit, 8);
	/* the configuration wins */
	many_write_config(f, DAEMON, "[tenant m]\nuid = 72\nlimit.small = 3\n");
	MANY_CTL(f, 0, "reloaded", "reload");
	assert_int_equal(many_tenant(f, "m").limit, 3);
	MANY_CTL(f, 1, "take its section out of the configuration", "tenant delete m");
}

/* --- sockets of tenants ----------------------------------------------------------------------- */

/* Whoever comes over its socket belongs to the tenant, whatever his uid. */
static void test_socket_of_a_tenant(void **state)
{
	struct many *f = *state;
	struct client *b = many_start_at(f, "box.sock", UID_B),
		      *c = many_start_at(f, "box.sock", UID_C);
	struct client *own = many_start(f, UID_B);

	many_take(b, 0, 2 * BLOCK_BYTES);
	many_take(c, 0, 2 * BLOCK_BYTES);
	assert_int_equal(client_take(b, 1, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(client_take(c, 1, "small", 2 * MIB, 0, NULL), -EDQUOT);
	assert_int_equal(many_tenant(f, "box").held, 4);
	assert_int_equal(many_tenant(f, "box").sessions, 2);
	many_take(own, 0, BLOCK_BYTES); /* the same uid, and another tenant */
	assert_int_equal(many_tenant(f, "uid:54322").held, 1);
	client_free(b);
	client_free(c);
	client_free(own);
}

/* Each connection is a tenant; what it leaves is nobody's at once, whatever idle-delay is. */
static void test_session_policy(void **state)
{
	struct many *f = *state;
	struct client *first, *second, *named;

	many_start_daemon(f, "idle-delay = 1h\npolicy = session\n",
			  "[tenant sure]\nuid = 54321\nlimit.small = 8\nguarantee.small = 4\n"
			  "[default]\nlimit.small = 5\nsessions = 3\n");
	first = many_start(f, UID_B);
	second = many_start(f, UID_B);
	named = many_start(f, UID_A);
	assert_int_equal(many_take_all(first, BLOCK_BYTES, -EDQUOT), 5);
	assert_int_equal(many_take_all(second, BLOCK_BYTES, -EDQUOT), 5);
	assert_int_equal(many_tenant(f, "session:1").held, 5);
	assert_int_equal(many_tenant(f, "session:2").held, 5);
	many_take(named, 0, BLOCK_BYTES);
	assert_int_equal(many_tenant(f, "sure").held, 1);
	client_free(first);
	many_wait_until_gone(f, "session:1");
	many_wait_for_clean(f, PAGES - 6 * BLOCK_PAGES);
	client_free(second);
	client_free(named);
	many_wait_until_gone(f, "session:2");
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
		for (int t = 0; t < WAIT_TRIES && many_tenant(f, "session:5").there; t++)
			poll(NULL, 0, 5);
		if (i == 0)
			many_wait_until_gone(f, "session:5");
	}
	/* what the tenant with a name keeps idle would stay for an hour */
	many_write_config(f, "policy = session\nidle-delay = 10ms\n", "\n");
	MANY_CTL(f, 0, "reloaded", "reload");
}

/* --- made and deleted ------------------------------------------------------------------------- */

static void test_create(void **state)
{
	struct many *f = *state;
	struct client *b;
	struct peer *peer;
	Hugepool__V1__Code code;
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/run/tenants/web.sock", f->program->directory);
	assert_int_equal(
		many_ctl(f, "tenant create web --limit small=3 --guarantee small=16M --user %d",
			 UID_B),
		0);
	assert_memory_equal(f->text, path, strlen(path));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(many_tenant(f, "web").limit, 3);
	assert_int_equal(many_tenant(f, "web").guarantee, 2);
	b = many_start_at(f, "tenants/web.sock", UID_B);
	assert_int_equal(many_take_all(b, BLOCK_BYTES, -EDQUOT), 3);
	/* root is not the user that may */
	peer = peer_connect(path);
	assert_int_equal(peer_try_hello(peer, &code), TYPE(ERROR));
	assert_int_equal(code, CODE(PERMISSION));
	peer_free(peer);
	/* refusals, with numbers; nothing is left of them */
	MANY_CTL(f, 1, "there is a tenant web already: 1 sessions", "tenant create web");
	MANY_CTL(f, 1, "1 to 32 letters", "tenant create 'a/b'");
	MANY_CTL(f, 1, "1 to 32 letters", "tenant create %033d", 7);
	MANY_CTL(f, 1, "11 blocks guaranteed to x and 6 to others add up to 17",
		 "tenant create x --limit small=12 --guarantee small=11");
	MANY_CTL(f, 1, "17 blocks were asked for, zone small has 16",
		 "tenant create x --limit small=17");
	MANY_CTL(f, 1, "limit of 1 blocks is below the guarantee of 2",
		 "tenant create x --limit small=1 --guarantee small=2");
	MANY_CTL(f, 1, "there is no zone \"large\"", "tenant create x --limit large=1");
	MANY_CTL(f, 2, "names no zone", "tenant create x --limit 1");
	MANY_CTL(f, 2, "neither create nor delete", "tenant make x");
	assert_false(many_tenant(f, "x").there);
	client_free(b);
	MANY_CTL(f, 0, "", "tenant delete web");
	assert_int_equal(stat(path, &st), -1);
	many_wait_until_gone(f, "web");
	MANY_CTL(f, 1, "there is no tenant \"web\"", "tenant delete web");
	MANY_CTL(f, 1, "was not made at run time", "tenant delete sure");
	/* the name is free again */
	MANY_CTL(f, 0, "tenants/web.sock", "tenant create web --any-user");
	b = many_start_at(f, "tenants/web.sock", UID_C);
	many_take(b, 0, BLOCK_BYTES);
	client_free(b);
}

/* Sends TENANT_DELETE, on a connection of its own. */
static struct peer *begin_delete(struct many *f, const char *name, uint32_t grace_ms)
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
	struct many *f = *state;
	struct client *a, *b;
	struct hugepool_error error;
	struct peer *deleting;
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/run/tenants/web.sock", f->program->directory);
	MANY_CTL(f, 0, path, "tenant create web --any-user --limit small=4 --guarantee small=4");
	a = many_start_at(f, "tenants/web.sock", UID_B);
	b = many_start_at(f, "tenants/web.sock", UID_C);
	many_take(a, 0, BLOCK_BYTES);
	many_take(a, 1, 2 * MIB);
	client_fill(a, 0, 5);
	many_take(b, 0, 2 * BLOCK_BYTES);
	client_begin_take(b, 1, "small", BLOCK_BYTES, 60000); /* waits: it has its limit */
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).waiting; i++)
		poll(NULL, 0, 5);
	deleting = begin_delete(f, "web", 600000);
	assert_int_equal(client_end_take(b, &error), -ESHUTDOWN);
	assert_non_null(strstr(error.message, "tenant web is being deleted"));
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(many_tenant(f, "web").guarantee, 0); /* others may have that already */
	assert_int_equal(client_take(a, 2, "small", 2 * MIB, 0, &error), -ESHUTDOWN);
	MANY_CTL(f, 1, "web is being deleted: 2 sessions, 2 holders left",
		 "quota web small --limit 1");
	MANY_CTL(f, 1, "which is being deleted: 2 sessions", "tenant create web");
	MANY_CTL(f, 1, "is being deleted", "tenant delete web");
	assert_true(client_is_filled(a, 0, 5));
	assert_int_equal(client_give(a, 1), 0);
	peer_expect_silence(deleting, 50);
	client_free(a);
	client_kill(b);
	client_free(b);
	peer_expect(deleting, TYPE(DONE), 1);
	peer_free(deleting);
	many_wait_until_gone(f, "web");
}

/* A child looks at it: is it dead? */
static bool is_dead(const volatile char *memory)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGBUS, SIG_DFL);
		_exit(*memory ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0); /* not zero, not of anybody */
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

/* A session of this program, with a block that it has mapped and written to. */
static struct peer *map_block(struct many *f, const char *name, char **ret_memory)
{
	struct peer_range range;
	struct peer *peer;
	char path[128];

	snprintf(path, sizeof(path), "%s/run/%s", f->program->directory, name);
	peer = peer_connect(path);
	peer_hello(peer);
	peer_alloc(peer, "small", BLOCK_PAGES, 1, &range);
	assert_int_equal(peer->nr_fds, 1);
	*ret_memory = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, peer->fds[0], 0);
	assert_ptr_not_equal(*ret_memory, MAP_FAILED);
	memset(*ret_memory, 7, BLOCK_BYTES);
	return peer;
}

/* The grace is over: so is what living processes held; its blocks come back when they let go. */
static void test_delete_of_the_living(void **state)
{
	struct many *f = *state;
	struct client *a, *condemned;
	struct peer *deleting, *own;
	char *memory;

	MANY_CTL(f, 0, "web", "tenant create web --any-user --limit small=4");
	a = many_start_at(f, "tenants/web.sock", UID_B);
	condemned = many_start_at(f, "tenants/web.sock", UID_C);
	many_take(a, 0, 2 * BLOCK_BYTES);
	many_take(condemned, 0, BLOCK_BYTES);
	own = map_block(f, "tenants/web.sock", &memory);
	client_break(condemned);
	for (int i = 0; i < WAIT_TRIES && !peer_zone(f->admin, 0).condemned; i++)
		poll(NULL, 0, 5);
	deleting = begin_delete(f, "web", 100);
	peer_expect(deleting, TYPE(DONE), 1);
	peer_free(deleting);
	assert_int_equal(peer_zone(f->admin, 0).leased, 0);
	assert_int_equal(peer_zone(f->admin, 0).condemned, 0);
	many_wait_for_log(f, "tenant deleted name=web sessions_ended=2 holders_ended=3");
	/* they still map it: charged to the tenant, and nobody else's */
	assert_int_equal(many_tenant(f, "web").held, 4);
	assert_int_equal(many_tenant(f, "web").sessions, 0);
	MANY_CTL(f, 1, "which is being deleted", "tenant create web");
	for (int i = 0; i < WAIT_TRIES && !is_dead(memory); i++)
		poll(NULL, 0, 5);
	assert_true(is_dead(memory));
	peer_free(own);
	munmap(memory, BLOCK_BYTES);
	client_kill(a);
	client_kill(condemned);
	many_wait_until_gone(f, "web");
	client_free(a);
	client_free(condemned);
}

/* The admin need not wait; and a daemon that ends meanwhile has no trouble with it. */
static void test_delete_without_an_admin(void **state)
{
	struct many *f = *state;
	struct client *a;

	MANY_CTL(f, 0, "one", "tenant create one --any-user --limit small=4");
	MANY_CTL(f, 0, "two", "tenant create two --any-user --limit small=4");
	a = many_start_at(f, "tenants/one.sock", UID_B);
	many_take(a, 0, BLOCK_BYTES);
	peer_free(begin_delete(f, "one", 200));
	many_wait_for_log(f, "tenant deleted name=one");
	client_free(a);
	many_wait_until_gone(f, "one");
	a = many_start_at(f, "tenants/two.sock", UID_B);
	many_take(a, 0, BLOCK_BYTES);
	peer_free(begin_delete(f, "two", 600000));
	many_wait_for_log(f, "tenant leaves name=two");
	peer_free(f->admin);
	assert_int_equal(program_end(f->program, SIGTERM), 0);
	client_free(a);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, many_setup, many_teardown)
	const struct CMUnitTest tests[] = {
		TEST(reload),
		TEST(reload_moves_guarantees),
		TEST(socket_of_a_tenant),
		cmocka_unit_test_setup_teardown(test_session_policy, many_setup_stopped,
						many_teardown),
		TEST(create),
		TEST(delete_with_grace),
		TEST(delete_of_the_living),
		TEST(delete_without_an_admin),
	};
	int rc = many_main(argc, argv);

	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
