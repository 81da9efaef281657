/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl alloc: takes ranges as any program would, says what it got, and holds it until it is
 * told to end, or the daemon does.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const char *zone_name(const struct cli *cli, const struct hp_wire_range *wire)
{
	const struct window *window = handle_window(cli->pool, wire->zone);

	return window ? window->name : "?";
}

static int print_text(const struct cli *cli, const struct hugepool_range *ranges, size_t n)
{
	char size[CLI_SIZE_MAX], page_size[CLI_SIZE_MAX];

	for (size_t i = 0; i < n; i++) {
		struct hp_wire_range wire;

		if (hp_wire_get_range(ranges[i].lease, &wire) < 0)
			return -EPROTO;
		printf("%s at %p: zone %s, page %u, %u pages of %s\n",
		       cli_size(size, ranges[i].bytes), ranges[i].address, zone_name(cli, &wire),
		       wire.page, wire.pages, cli_size(page_size, ranges[i].page_size));
	}
	if (cli->shared)
		printf("shared as %s, to read%s\n", cli->shared,
		       cli->read_only ? " only" : " and write");
	return fflush(stdout) ? -errno : 0;
}

static json_t *json_range(const struct cli *cli, const struct hugepool_range *range)
{
	struct hp_wire_range wire;

	if (hp_wire_get_range(range->lease, &wire) < 0)
		return NULL;
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "zone", zone_name(cli, &wire),
			 "page", (json_int_t)wire.page, "pages", (json_int_t)wire.pages,
			 "generation", (json_int_t)wire.generation, "page_size",
			 (json_int_t)range->page_size, "bytes", (json_int_t)range->bytes, "address",
			 (json_int_t)(uintptr_t)range->address);
}

static int print_json(const struct cli *cli, const struct hugepool_range *ranges, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_array_append_new(array, json_range(cli, &ranges[i])) < 0)
			return json_decref(array), -ENOMEM;
	if (cli->shared)
		return cli_print_json(json_pack("{s:o, s:s, s:b}", "ranges", array, "name",
						cli->shared, "read_only", cli->read_only))
			       ? -EIO
			       : 0;
	return cli_print_json(json_pack("{s:o}", "ranges", array)) ? -EIO : 0;
}

static void on_resumed(void *userdata)
{
	(void)userdata;
	(void)fprintf(stderr, "hugepoolctl: the daemon was away and is back; everything is held\n");
}

static void on_revoked(void *userdata, const struct hugepool_range *range)
{
	char size[CLI_SIZE_MAX];

	(void)userdata;
	(void)fprintf(stderr, "hugepoolctl: the operator has taken %s at %p\n",
		      cli_size(size, range->bytes), range->address);
}

static void on_wanted(void *userdata, const struct hugepool_range *range, uint64_t deadline_ms,
		      int force)
{
	char size[CLI_SIZE_MAX];

	(void)userdata;
	(void)fprintf(stderr,
		      "hugepoolctl: the operator wants %s at %p back within %" PRIu64
		      " ms%s: interrupt to give it back\n",
		      cli_size(size, range->bytes), range->address, deadline_ms,
		      force ? ", or takes it" : "");
}

/*
 * Until a signal comes or the daemon goes for good: one that comes back knows what is held.
 * Return: 0 or -errno.
 */
static int hold(struct cli *cli, int signals)
{
	struct hugepool_callbacks callbacks = HUGEPOOL_CALLBACKS_INIT;
	struct pollfd p[] = {{.fd = signals, .events = POLLIN}, {.events = POLLIN}};
	int r;

	callbacks.resumed = on_resumed;
	callbacks.revoked = on_revoked;
	callbacks.wanted = on_wanted;
	r = hugepool_set_callbacks(cli->pool, &callbacks);
	if (r < 0)
		return r;
	p[1].fd = r = hugepool_get_fd(cli->pool);
	while (r >= 0) {
		r = poll(p, 2, -1) < 0 && errno != EINTR ? -errno : 0;
		if (r == 0 && p[0].revents)
			return 0;
		if (r == 0)
			r = hugepool_dispatch(cli->pool, 0);
		if (r == -EINTR)
			r = 0;
	}
	(void)snprintf(cli->error.message, sizeof(cli->error.message),
		       "the daemon has ended, and the memory with it");
	cli->error.error = -r;
	return r;
}

static void say_what_is_waited_for(const struct cli *cli)
{
	char time[CLI_AGE_MAX];

	(void)fprintf(stderr, "hugepoolctl: waiting for room in zone %s, at most %s\n",
		      cli->error.zone, cli_age(time, cli->wait_ms));
	cli_print_figures(&cli->error);
}

static int take(struct cli *cli, struct hugepool_request *request, struct hugepool_range *ret)
{
	int r = hugepool_alloc_bulk(cli->pool, request, ret, cli->count);

	/* Only when there is none it is told what there is, and what is waited for. */
	if (cli->wait_ms && (r == -ENOMEM || r == -EDQUOT)) {
		cli->error = cli->pool->error;
		if (isatty(STDERR_FILENO))
			say_what_is_waited_for(cli);
		request->deadline_ms = cli->wait_ms;
		r = hugepool_alloc_bulk(cli->pool, request, ret, cli->count);
	}
	if (r < 0)
		cli->error = cli->pool->error;
	return r;
}

/*
 * Blocked before anything is told, so that whoever reads it can end us in order. Before that, also
 * during a wait, a signal ends us at once, and the daemon takes back whatever was granted.
 */
static int block_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cli_tell_and_hold(struct cli *cli, const struct hugepool_range *ranges)
{
	int signals = block_signals(), r;

	if (signals < 0)
		return signals;
	r = cli->json ? print_json(cli, ranges, cli->count) : print_text(cli, ranges, cli->count);
	if (r == 0)
		r = hold(cli, signals);
	close(signals);
	return r;
}

int cli_take(struct cli *cli, unsigned flags, struct hugepool_range *ret)
{
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;

	request.bytes = cli->bytes;
	request.zone = cli->zone;
	request.page_size = cli->page_bytes;
	request.alignment = cli->alignment;
	request.flags = flags | (cli->zero ? HUGEPOOL_ZERO : 0);
	return take(cli, &request, ret);
}

int verb_alloc(struct cli *cli)
{
	struct hugepool_range ranges[HP_RANGES_MAX];
	int r = cli_take(cli, cli->exclusive ? HUGEPOOL_EXCLUSIVE : 0, ranges);

	if (r == 0)
		r = cli_tell_and_hold(cli, ranges);
	return r < 0 ? cli_fail(cli, r) : 0;
}
