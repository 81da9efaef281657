/* SPDX-License-Identifier: Apache-2.0 */
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
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/many.h"

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

/* daemon: more of [daemon]; tenants: the sections behind the zone. %s in them: the directory of sockets. */
static const char *config(struct many *f, const char *daemon, const char *tenants)
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

void many_start_daemon(struct many *f, const char *daemon, const char *tenants)
{
	program_write_config(f->program, config(f, daemon, tenants));
	program_start(f->program);
	assert_true(program_log_has(f->program, "READY"));
	f->admin = peer_connect(f->program->admin_socket);
	peer_hello(f->admin);
}

int many_setup_stopped(void **state)
{
	struct many *f = calloc(1, sizeof(*f));

	f->before = look_at_huge_pages();
	f->program = program_new(executable, "");
	*state = f;
	return 0;
}

int many_setup(void **state)
{
	many_setup_stopped(state);
	many_start_daemon(*state, DAEMON, TENANTS);
	return 0;
}

void many_wait_for_clean(struct many *f, uint64_t pages)
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

int many_teardown(void **state)
{
	struct many *f = *state;

	if (f->program->pid) {
		many_wait_for_clean(f, PAGES);
		peer_check(f->admin);
		peer_free(f->admin);
		assert_int_equal(program_end(f->program, SIGTERM), 0);
	}
	program_free(f->program);
	expect_huge_pages(f->before);
	free(f);
	return 0;
}

struct client *many_start(struct many *f, uid_t uid)
{
	return client_new(f->program->socket, uid);
}

struct client *many_start_at(struct many *f, const char *name, uid_t uid)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/run/%s", f->program->directory, name);
	return client_new(path, uid);
}

void many_take(struct client *client, size_t number, uint64_t bytes)
{
	struct hugepool_error error;
	int rc = client_take(client, number, "small", bytes, 0, &error);

	if (rc)
		fail_msg("alloc of %llu MiB: %s: %s", (unsigned long long)(bytes / MIB),
			 strerror(-rc), error.message);
}

/* Blocks one by one until there are no more. Return: how many. */
size_t many_take_all(struct client *client, uint64_t bytes, int expected)
{
	size_t n = 0;
	int rc;

	while ((rc = client_take(client, n, "small", bytes, 0, NULL)) == 0)
		n++;
	assert_int_equal(rc, expected);
	return n;
}

/* --- the admin -------------------------------------------------------------------------------- */

struct many_figures many_tenant(struct many *f, const char *name)
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
			return (struct many_figures){
				.there = true,
				.held = t->held_blocks[0],
				.leased = t->leased_pages[0],
				.limit = t->limit_blocks[0],
				.guarantee = t->guarantee_blocks[0],
				.sessions = t->sessions,
			};
	}
	return (struct many_figures){.there = false};
}

/* Runs hugepoolctl with these arguments; what it says, on both outputs, is in f->text. */
int many_ctl(struct many *f, const char *format, ...)
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

void many_wait_until_gone(struct many *f, const char *name)
{
	for (int i = 0; i < WAIT_TRIES && many_tenant(f, name).there; i++)
		poll(NULL, 0, 5);
	assert_false(many_tenant(f, name).there);
}

void many_write_config(struct many *f, const char *daemon, const char *tenants)
{
	program_write_config(f->program, config(f, daemon, tenants));
}

void many_wait_for_log(struct many *f, const char *text)
{
	for (int i = 0; i < WAIT_TRIES && !program_log_has(f->program, text); i++)
		poll(NULL, 0, 5);
	assert_true(program_log_has(f->program, text));
}

/* --- the program ------------------------------------------------------------------------------ */

int many_main(int argc, char **argv)
{
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
	return 0;
}
