/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepool-setup, the only privileged part of hugepool: makes the file systems that hold the huge
 * pages, hands them to the daemon, takes them down. It does its work and ends; nothing of it listens
 * to clients.
 */
#include "daemon/setup/commands.h"

#include <getopt.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2

static const struct command {
	const char *name;
	int (*run)(const struct setup_options *options);
	bool takes_size; /* arguments ZONE SIZE */
} commands[] = {
	{"up", setup_up, false},    {"down", setup_down, false},
	{"grow", setup_grow, true}, {"shrink", setup_shrink, true},
	{"fds", setup_fds, false},  {"status", setup_status, false},
};

static const char usage_text[] =
	"Usage: hugepool-setup [OPTION]... COMMAND [ARGUMENT]...\n"
	"\n"
	"Commands:\n"
	"  up       make what the configuration asks for: huge pages, namespace, one file\n"
	"           system for each block; adds what is missing, may be repeated\n"
	"  down     take it down and take off the huge pages that were added\n"
	"  grow ZONE SIZE    add blocks until the zone has this size, and the huge pages that\n"
	"           are missing\n"
	"  shrink ZONE SIZE  take away blocks that hugepoold has given up, down to this size,\n"
	"           and the huge pages that were added for them; \"hugepoolctl resize\" runs both\n"
	"  fds      hand the blocks to hugepoold: serve its requests on a socket\n"
	"  status   tell what is set up\n"
	"  guard    set up for one daemon, started by it (socket on descriptor 0)\n"
	"\n"
	"Options:\n"
	"  --config FILE   instead of " CONFIG_DEFAULT_PATH "\n"
	"  --user USER     up: the user hugepoold runs as, name or number (default root)\n"
	"  --force         down: also while a daemon uses it\n"
	"  --listen PATH   fds: instead of the configured setup-socket\n"
	"  --json          status: as JSON\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 done (also if there were fewer huge pages than asked for), 1 failed,\n"
	"2 wrong usage, 78 wrong configuration.\n";

int setup_fail(const char *format, ...)
{
	va_list args;

	(void)fputs("hugepool-setup: ", stderr);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fputc('\n', stderr);
	return 1;
}

void setup_warn(const char *format, ...)
{
	va_list args;

	(void)fputs("hugepool-setup: warning: ", stderr);
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fputc('\n', stderr);
}

static int usage_error(void)
{
	(void)fputs("Try \"hugepool-setup --help\".\n", stderr);
	return EXIT_USAGE;
}

static int parse_user(const char *text, uid_t *ret)
{
	const struct passwd *entry = getpwnam(text);
	char *end;
	unsigned long uid = strtoul(text, &end, 10);

	if (*text >= '0' && *text <= '9' && *end == '\0' && uid < UINT32_MAX) {
		*ret = (uid_t)uid;
		return 0;
	}
	if (!entry)
		return -1;
	*ret = entry->pw_uid;
	return 0;
}

static void report_mistake(void *userdata, const char *message)
{
	(void)userdata;
	setup_fail("%s", message);
}

/* nr: how many arguments there are. Return: 0 or the exit status. */
static int take_arguments(const struct command *command, char **arguments, int nr,
			  struct setup_options *options)
{
	if (nr != (command->takes_size ? 2 : 0))
		return usage_error();
	if (!command->takes_size)
		return 0;
	options->zone = arguments[0];
	if (config_parse_size(arguments[1], &options->size_bytes) < 0) {
		setup_fail("%s: expected a size such as 2M or 1G", arguments[1]);
		return usage_error();
	}
	return 0;
}

static int run(char **arguments, int nr, struct setup_options *options, const char *config_path)
{
	const char *name = arguments[0];
	struct config *config = NULL;
	int status;

	if (strcmp(name, "guard") == 0)
		return nr == 1 ? setup_guard() : usage_error();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		status = take_arguments(&commands[i], arguments + 1, nr - 1, options);
		if (status)
			return status;
		if (config_load(&config, config_path, report_mistake, NULL) < 0)
			return CONFIG_EXIT_STATUS;
		if (geteuid() != 0) {
			config_free(config);
			return setup_fail("%s: must be run by root", name);
		}
		options->config = config;
		status = commands[i].run(options);
		config_free(config);
		return status;
	}
	setup_fail("%s: unknown command", name);
	return usage_error();
}

int main(int argc, char **argv)
{
	enum {
		OPTION_CONFIG = 256,
		OPTION_USER,
		OPTION_FORCE,
		OPTION_LISTEN,
		OPTION_JSON,
		OPTION_HELP,
		OPTION_VERSION
	};
	static const struct option long_options[] = {
		{"config", required_argument, NULL, OPTION_CONFIG},
		{"user", required_argument, NULL, OPTION_USER},
		{"force", no_argument, NULL, OPTION_FORCE},
		{"listen", required_argument, NULL, OPTION_LISTEN},
		{"json", no_argument, NULL, OPTION_JSON},
		{"help", no_argument, NULL, OPTION_HELP},
		{"version", no_argument, NULL, OPTION_VERSION},
		{NULL, 0, NULL, 0}};
	const char *config_path = CONFIG_DEFAULT_PATH;
	struct setup_options options = {0};
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case OPTION_CONFIG:
			config_path = optarg;
			break;
		case OPTION_USER:
			if (parse_user(optarg, &options.uid) < 0) {
				setup_fail("--user %s: no such user", optarg);
				return usage_error();
			}
			break;
		case OPTION_FORCE:
			options.force = true;
			break;
		case OPTION_LISTEN:
			options.listen = optarg;
			break;
		case OPTION_JSON:
			options.json = true;
			break;
		case OPTION_HELP:
			(void)fputs(usage_text, stdout);
			return 0;
		case OPTION_VERSION:
			(void)puts("hugepool-setup " HUGEPOOL_VERSION);
			return 0;
		default:
			return usage_error();
		}
	}
	if (optind == argc)
		return usage_error();
	return run(argv + optind, argc - optind, &options, config_path);
}
