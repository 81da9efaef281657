/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libevent ROUNDS: huge pages in an event loop of libevent. In each round a range is taken, used and
 * given back, one thing following from the other; the loop has time for others in between.
 */
#include <event2/event.h>
#include <hugepool/hugepool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program {
	struct event_base *base;
	struct hugepool *pool;
	long left;
	int status;
};

static void end(struct program *program, int status)
{
	program->status = status;
	event_base_loopbreak(program->base);
}

static void begin_round(struct program *program);

static void on_free(void *userdata, int result, const struct hugepool_range *range,
		    const struct hugepool_error *error)
{
	struct program *program = userdata;

	(void)range, (void)error;
	if (result < 0)
		end(program, 1);
	else if (--program->left > 0)
		begin_round(program);
	else
		end(program, 0);
}

static void on_alloc(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	struct program *program = userdata;

	if (result < 0) {
		fprintf(stderr, "%s\n", error->message);
		end(program, 1);
		return;
	}
	memset(range->address, 0x5a, range->bytes);
	if (hugepool_free_async(program->pool, range, on_free, program) < 0)
		end(program, 1);
}

static void begin_round(struct program *program)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = 2 << 20;
	if (hugepool_alloc_async(program->pool, &request, on_alloc, program) < 0)
		end(program, 1);
}

static void on_readable(evutil_socket_t fd, short what, void *userdata)
{
	struct program *program = userdata;

	(void)fd, (void)what;
	if (hugepool_dispatch(program->pool, 0) < 0)
		end(program, 1);
}

/* Somebody waits for room: here a program would give back what it can spare. */
static void on_pressure(void *userdata, const char *zone)
{
	(void)userdata;
	printf("somebody waits for room in zone %s\n", zone);
}

int main(int argc, char **argv)
{
	struct program program = {.left = argc > 1 ? strtol(argv[1], NULL, 10) : 1, .status = 1};
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;
	struct event *event;
	int fd;

	program.base = event_base_new();
	if (!program.base || hugepool_open(&program.pool, NULL) < 0)
		return 1;
	callbacks.userdata = &program;
	callbacks.pressure = on_pressure;
	fd = hugepool_get_fd(program.pool);
	if (fd < 0 || hugepool_set_callbacks(program.pool, &callbacks) < 0)
		return 1;

	/* One event for as long as the handle lives: the descriptor stays the same. */
	event = event_new(program.base, fd, EV_READ | EV_PERSIST, on_readable, &program);
	event_add(event, NULL);
	begin_round(&program);
	event_base_dispatch(program.base);

	event_free(event);
	hugepool_close(program.pool);
	event_base_free(program.base);
	return program.status;
}
