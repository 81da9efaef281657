/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl resize: two programs that do not trust each other have to agree. What grows is made by
 * hugepool-setup, as root, and then taken in by the daemon; what shrinks is given up by the daemon
 * first, and then taken away. Where the daemon has made its memory by itself it does both. Each step
 * may fall short, or be killed: the same command again goes on from there.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

#define SETUP_PROGRAM "hugepool-setup"
#define TIMEOUT_MS    (10 * 60 * 1000) /* the kernel may look for pages for long */

extern char **environ;

struct wish {
	const Hugepool__V1__Zone *zone;
	char name[HP_NAME_MAX + 1];
	uint32_t now, blocks; /* with memory; wanted */
};

/* --- what is wanted --------------------------------------------------------------------------- */

int verb_resize_check(struct cli *cli, int given)
{
	const char *size = cli->arguments[1];
	uint64_t bytes;

	(void)given;
	if (cli_parse_size(size + (*size == '+' || *size == '-'), &bytes) == 0)
		return 0;
	return cli_usage_error("resize: '%s' is not a size like 4G, +512M or -512M", size);
}

/* Return: 0 or the exit status. */
static int read_size(const char *text, struct wish *wish)
{
	uint64_t block = wish->zone->block_size, bytes = 0, blocks;
	char size[CLI_SIZE_MAX];

	if (cli_parse_size(text + (*text == '+' || *text == '-'), &bytes) < 0 || bytes % block)
		return cli_usage_error("resize: '%s' is not whole blocks of zone %s, which are %s",
				       text, wish->name, cli_size(size, block));
	blocks = bytes / block;
	if (*text == '-' && blocks > wish->now)
		return cli_usage_error("resize: zone %s has %u blocks of %s, '%s' is more",
				       wish->name, wish->now, cli_size(size, block), text);
	blocks = *text == '+' ? wish->now + blocks : *text == '-' ? wish->now - blocks : blocks;
	if (blocks > UINT32_MAX)
		return cli_usage_error("resize: '%s' is more than any zone may have", text);
	wish->blocks = (uint32_t)blocks;
	return 0;
}

/* --- hugepool-setup --------------------------------------------------------------------------- */

/* Beside this program, or wherever PATH says. */
static void find_setup(char path[static PATH_MAX])
{
	const char *given = secure_getenv("HUGEPOOL_SETUP");
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - sizeof(SETUP_PROGRAM));
	char *slash;

	if (given && *given == '/') {
		(void)snprintf(path, PATH_MAX, "%s", given);
		return;
	}
	if (n > 0) {
		path[n] = '\0';
		slash = strrchr(path, '/');
		memcpy(slash ? slash + 1 : path, SETUP_PROGRAM, sizeof(SETUP_PROGRAM));
		if (access(path, X_OK) == 0)
			return;
	}
	memcpy(path, SETUP_PROGRAM, sizeof(SETUP_PROGRAM));
}

/* What it says goes to stderr: ours is the answer. Return: 0 or the exit status, which is said. */
static int run_setup(const struct cli *cli, const char *command, const struct wish *wish,
		     uint32_t blocks)
{
	char program[PATH_MAX], bytes[32];
	char *arguments[8];
	posix_spawn_file_actions_t actions;
	int n = 0, r, status;
	pid_t pid;

	find_setup(program);
	(void)snprintf(bytes, sizeof(bytes), "%" PRIu64, blocks * wish->zone->block_size);
	arguments[n++] = program;
	if (cli->config) {
		arguments[n++] = (char *)(uintptr_t) "--config";
		arguments[n++] = (char *)(uintptr_t)cli->config;
	}
	arguments[n++] = (char *)(uintptr_t)command;
	arguments[n++] = (char *)(uintptr_t)wish->name;
	arguments[n++] = bytes;
	arguments[n] = NULL;
	if (geteuid() != 0) {
		(void)fprintf(stderr,
			      "hugepoolctl: the memory of zone %s is set up: as root, \"%s %s %s "
			      "%s\" is the next step\n",
			      wish->name, SETUP_PROGRAM, command, wish->name, bytes);
		return EXIT_FAILED;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	r = posix_spawnp(&pid, program, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r) {
		(void)fprintf(stderr, "hugepoolctl: %s cannot be run: %s\n", program, strerror(r));
		return EXIT_FAILED;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_FAILED;
	if (status)
		(void)fprintf(stderr, "hugepoolctl: %s %s has failed\n", SETUP_PROGRAM, command);
	return status ? EXIT_FAILED : 0;
}

/* --- the steps -------------------------------------------------------------------------------- */

/* What is kept of the answer, which is gone with the next one. */
struct outcome {
	uint32_t before, after;
	bool set_up;
	char reason[CLI_TEXT_MAX];
};

static int ask(struct cli *cli, uint8_t type, const struct wish *wish, struct outcome *ret)
{
	Hugepool__V1__Resize request = HUGEPOOL__V1__RESIZE__INIT;
	const Hugepool__V1__Resized *reply;
	const ProtobufCMessage *message;
	int r;

	request.zone.data = (uint8_t *)(uintptr_t)wish->name;
	request.zone.len = strlen(wish->name);
	request.blocks = wish->blocks;
	cli_expect_wait(cli, TIMEOUT_MS);
	r = cli_ask(cli, type, &request.base, TYPE(RESIZED), &message);
	if (r < 0)
		return r;
	reply = (const Hugepool__V1__Resized *)message;
	ret->before = reply->before_blocks;
	ret->after = reply->after_blocks;
	ret->set_up = reply->set_up;
	cli_text(ret->reason, reply->reason);
	return 0;
}

/* Return: 0, the exit status, or -errno. */
static int grow(struct cli *cli, const struct wish *wish, struct outcome *ret)
{
	uint32_t before;
	int r = ask(cli, TYPE(ADOPT), wish, ret), status;

	if (r < 0 || !ret->set_up || ret->after >= wish->blocks)
		return r;
	before = ret->before;
	status = run_setup(cli, "grow", wish, wish->blocks);
	if (status)
		return status;
	r = ask(cli, TYPE(ADOPT), wish, ret);
	ret->before = before;
	return r;
}

/* Blocks that were given up earlier, and not taken away, go as well. */
static int shrink(struct cli *cli, const struct wish *wish, struct outcome *ret)
{
	int r = ask(cli, TYPE(OFFLINE), wish, ret);

	if (r < 0 || !ret->set_up)
		return r;
	return run_setup(cli, "shrink", wish, ret->after);
}

static int show(const struct cli *cli, const struct wish *wish, const struct outcome *outcome)
{
	char now[CLI_SIZE_MAX], before[CLI_SIZE_MAX], wanted[CLI_SIZE_MAX];
	uint64_t block = wish->zone->block_size;
	bool done = outcome->after == wish->blocks;

	if (cli->json) {
		(void)cli_print_json(json_pack("{s:s, s:i, s:i, s:i, s:I, s:b, s:s}", "zone",
					       wish->name, "before_blocks", (int)outcome->before,
					       "after_blocks", (int)outcome->after, "wanted_blocks",
					       (int)wish->blocks, "block_size", (json_int_t)block,
					       "done", done, "reason", outcome->reason));
		return done ? 0 : EXIT_FAILED;
	}
	printf("zone %s: %s in %u blocks, before %s in %u\n", wish->name,
	       cli_size(now, outcome->after * block), outcome->after,
	       cli_size(before, outcome->before * block), outcome->before);
	if (done)
		return 0;
	(void)fprintf(stderr, "hugepoolctl: %s in %u blocks were asked for: %s\n",
		      cli_size(wanted, wish->blocks * block), wish->blocks, outcome->reason);
	return EXIT_FAILED;
}

int verb_resize(struct cli *cli)
{
	struct wish wish = {.zone = NULL};
	struct outcome outcome;
	struct cli_zones zones;
	size_t i = 0;
	int r = cli_zones_load(cli, &zones);

	if (r < 0)
		return cli_fail(cli, r);
	cli->zone = cli->arguments[0];
	while (i < zones.nr && !cli_is_wanted(cli, &zones.zones[i]))
		i++;
	if (i == zones.nr) {
		cli->error = (struct hugepool_error){.error = ENODEV};
		(void)snprintf(cli->error.message, sizeof(cli->error.message),
			       "there is no zone \"%.*s\"", HP_NAME_MAX, cli->zone);
		return cli_fail(cli, -ENODEV);
	}
	wish.zone = &zones.zones[i];
	wish.now = zones.zones[i].online_blocks;
	(void)snprintf(wish.name, sizeof(wish.name), "%s", cli->zone);
	r = read_size(cli->arguments[1], &wish);
	if (r)
		return r;
	r = wish.blocks > wish.now ? grow(cli, &wish, &outcome) : shrink(cli, &wish, &outcome);
	if (r < 0)
		return cli_fail(cli, r);
	return r ? r : show(cli, &wish, &outcome);
}
