/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One struct each way over a socket pair. The child never returns into the test's code: it ends
 * with its parent, or when the socket does.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/client.h"

#define STRIDE	  4096 /* every so many bytes a word of the pattern */
#define GIVE_UP_S 60

enum op {
	OP_OPEN,
	OP_TAKE,
	OP_GIVE,
	OP_GIVE_FOREIGN,
	OP_GIVE_PART,
	OP_RANGE,
	OP_FILL,
	OP_CHECK,
	OP_ZERO,
	OP_RUN,
	OP_BREAK,
	OP_FORK
};

struct call {
	enum op op;
	size_t number;
	char text[108];
	uint64_t bytes, seed, offset, deadline_ms;
	size_t rest;
	unsigned flags;
	struct hugepool_range range;
	client_fn fn;
};

struct answer {
	int rc;
	struct hugepool_range range;
	struct hugepool_error error;
};

/* --- the child -------------------------------------------------------------------------------- */

struct state {
	struct hugepool *pool;
	struct hugepool_range range[CLIENT_RANGES_MAX];
	int daemon_fd; /* the library's connection, found by what it is connected to */
};

static int find_connection(const char *path)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	int found = -1;

	while (dir && (entry = readdir(dir))) {
		struct sockaddr_un address = {0};
		socklen_t size = sizeof(address);
		int fd = atoi(entry->d_name);

		if (getpeername(fd, (struct sockaddr *)&address, &size) == 0 &&
		    address.sun_family == AF_UNIX && strcmp(address.sun_path, path) == 0)
			found = fd;
	}
	if (dir)
		closedir(dir);
	return found;
}

static int do_open(struct state *state, const struct call *call)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	int rc;

	options.socket = call->text;
	options.name = "integration";
	rc = hugepool_open(&state->pool, &options);
	state->daemon_fd = find_connection(call->text);
	return rc ? rc : state->daemon_fd < 0 ? -ENOTCONN : 0;
}

static void do_take(struct state *state, const struct call *call, struct answer *answer)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.zone = *call->text ? call->text : NULL;
	request.bytes = call->bytes;
	request.flags = call->flags;
	request.deadline_ms = call->deadline_ms;
	answer->rc = hugepool_alloc(state->pool, &request, &state->range[call->number]);
	answer->error.size = sizeof(answer->error);
	if (answer->rc)
		hugepool_get_error(state->pool, &answer->error);
}

static void fill(const struct hugepool_range *range, uint64_t seed)
{
	for (uint64_t at = 0; at < range->bytes; at += STRIDE)
		*(volatile uint64_t *)((char *)range->address + at) =
			seed * 0x9e3779b97f4a7c15 + at;
}

static int is_filled(const struct hugepool_range *range, uint64_t seed, uint64_t offset)
{
	for (uint64_t at = 0; at < range->bytes; at += STRIDE)
		if (*(volatile uint64_t *)((char *)range->address + at) !=
		    seed * 0x9e3779b97f4a7c15 + offset + at)
			return 0;
	return 1;
}

static int is_zero(const struct hugepool_range *range)
{
	const uint64_t *words = range->address;

	for (uint64_t i = 0; i < range->bytes / sizeof(*words); i++)
		if (words[i])
			return 0;
	return 1;
}

static int do_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		alarm(GIVE_UP_S);
		for (;;)
			pause();
	}
	return pid < 0 ? -errno : pid;
}

static void do_call(struct state *state, const struct call *call, struct answer *answer)
{
	struct hugepool_range *range = &state->range[call->number];

	switch (call->op) {
	case OP_OPEN:
		answer->rc = do_open(state, call);
		break;
	case OP_TAKE:
		do_take(state, call, answer);
		break;
	case OP_GIVE:
		answer->rc = hugepool_free(state->pool, range);
		break;
	case OP_GIVE_FOREIGN:
		answer->rc = hugepool_free(state->pool, &call->range);
		break;
	case OP_GIVE_PART:
		answer->rc = hugepool_free_part(state->pool, range, call->offset, call->bytes,
						&state->range[call->rest]);
		break;
	case OP_RANGE:
		answer->range = *range;
		break;
	case OP_FILL:
		fill(range, call->seed);
		break;
	case OP_CHECK:
		answer->rc = is_filled(range, call->seed, call->offset);
		break;
	case OP_ZERO:
		answer->rc = is_zero(range);
		break;
	case OP_RUN:
		answer->rc = call->fn(state->pool, range, call->text);
		break;
	case OP_BREAK:
		answer->rc = shutdown(state->daemon_fd, SHUT_RDWR);
		break;
	case OP_FORK:
		answer->rc = do_fork();
		break;
	}
}

static _Noreturn void child(int socket, uid_t uid)
{
	static struct state state;
	struct call call;
	struct answer answer;

	alarm(GIVE_UP_S);
	if (uid != getuid() && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recv(socket, &call, sizeof(call), MSG_WAITALL) == sizeof(call)) {
		memset(&answer, 0, sizeof(answer));
		do_call(&state, &call, &answer);
		if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			break;
	}
	hugepool_close(state.pool);
	_exit(0);
}

/* --- the test's side --------------------------------------------------------------------------- */

static void tell(struct client *client, const struct call *call)
{
	assert_int_equal(send(client->socket, call, sizeof(*call), MSG_NOSIGNAL), sizeof(*call));
}

static struct answer hear(struct client *client)
{
	struct answer answer;

	assert_int_equal(recv(client->socket, &answer, sizeof(answer), MSG_WAITALL),
			 sizeof(answer));
	return answer;
}

static struct answer ask(struct client *client, const struct call *call)
{
	tell(client, call);
	return hear(client);
}

struct client *client_new(const char *socket, uid_t uid)
{
	struct client *client = calloc(1, sizeof(*client));
	struct call call = {.op = OP_OPEN};
	int ends[2];

	assert_non_null(client);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	client->pid = fork();
	assert_true(client->pid >= 0);
	if (client->pid == 0) {
		close(ends[0]);
		child(ends[1], uid);
	}
	close(ends[1]);
	client->socket = ends[0];
	strncpy(call.text, socket, sizeof(call.text) - 1);
	assert_int_equal(ask(client, &call).rc, 0);
	return client;
}

static void wait_for(struct client *client, int *ret_status)
{
	assert_int_equal(waitpid(client->pid, ret_status, 0), client->pid);
	client->pid = 0;
	close(client->socket);
}

struct client *client_free(struct client *client)
{
	int status;

	if (!client)
		return NULL;
	if (client->pid) {
		shutdown(client->socket, SHUT_WR);
		wait_for(client, &status);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	free(client);
	return NULL;
}

void client_kill(struct client *client)
{
	int status;

	assert_int_equal(kill(client->pid, SIGKILL), 0);
	wait_for(client, &status);
	assert_true(WIFSIGNALED(status));
}

int client_take(struct client *client, size_t number, const char *zone, uint64_t bytes,
		unsigned flags, struct hugepool_error *error)
{
	struct call call = {.op = OP_TAKE, .number = number, .bytes = bytes, .flags = flags};
	struct answer answer;

	assert_true(number < CLIENT_RANGES_MAX);
	strncpy(call.text, zone, sizeof(call.text) - 1);
	answer = ask(client, &call);
	if (error)
		*error = answer.error;
	return answer.rc;
}

void client_begin_take(struct client *client, size_t number, const char *zone, uint64_t bytes,
		       uint64_t deadline_ms)
{
	struct call call = {
		.op = OP_TAKE, .number = number, .bytes = bytes, .deadline_ms = deadline_ms};

	assert_true(number < CLIENT_RANGES_MAX);
	strncpy(call.text, zone, sizeof(call.text) - 1);
	tell(client, &call);
}

int client_end_take(struct client *client, struct hugepool_error *error)
{
	struct answer answer = hear(client);

	if (error)
		*error = answer.error;
	return answer.rc;
}

int client_give_part(struct client *client, size_t number, uint64_t offset_bytes,
		     uint64_t length_bytes, size_t rest)
{
	assert_true(number < CLIENT_RANGES_MAX && rest < CLIENT_RANGES_MAX);
	return ask(client, &(struct call){.op = OP_GIVE_PART,
					  .number = number,
					  .offset = offset_bytes,
					  .bytes = length_bytes,
					  .rest = rest})
		.rc;
}

int client_give(struct client *client, size_t number)
{
	return ask(client, &(struct call){.op = OP_GIVE, .number = number}).rc;
}

int client_give_foreign(struct client *client, const struct hugepool_range *range)
{
	return ask(client, &(struct call){.op = OP_GIVE_FOREIGN, .range = *range}).rc;
}

struct hugepool_range client_range(struct client *client, size_t number)
{
	return ask(client, &(struct call){.op = OP_RANGE, .number = number}).range;
}

void client_fill(struct client *client, size_t number, uint64_t seed)
{
	ask(client, &(struct call){.op = OP_FILL, .number = number, .seed = seed});
}

bool client_is_filled_from(struct client *client, size_t number, uint64_t seed,
			   uint64_t offset_bytes)
{
	return ask(client,
		   &(struct call){
			   .op = OP_CHECK, .number = number, .seed = seed, .offset = offset_bytes})
		.rc;
}

bool client_is_filled(struct client *client, size_t number, uint64_t seed)
{
	return client_is_filled_from(client, number, seed, 0);
}

bool client_is_zero(struct client *client, size_t number)
{
	return ask(client, &(struct call){.op = OP_ZERO, .number = number}).rc;
}

void client_begin_run(struct client *client, size_t number, client_fn fn, const char *text)
{
	struct call call = {.op = OP_RUN, .number = number, .fn = fn};

	assert_true(number < CLIENT_RANGES_MAX && strlen(text) < sizeof(call.text));
	strncpy(call.text, text, sizeof(call.text) - 1);
	tell(client, &call);
}

int client_end_run(struct client *client)
{
	return hear(client).rc;
}

int client_run(struct client *client, size_t number, client_fn fn, const char *text)
{
	client_begin_run(client, number, fn, text);
	return client_end_run(client);
}

void client_break(struct client *client)
{
	assert_int_equal(ask(client, &(struct call){.op = OP_BREAK}).rc, 0);
}

pid_t client_fork(struct client *client)
{
	pid_t pid = ask(client, &(struct call){.op = OP_FORK}).rc;

	assert_true(pid > 0);
	return pid;
}
