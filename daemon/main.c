/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoold: options, exit statuses, and what becomes of signals. From before anything is made until
 * the event loop takes them, the two that end it only pend: whatever was made by then is undone as
 * at any other end. Only waiting for a set-up, which may take long, is broken off by them.
 *
 * Exit 0: stopped by SIGTERM or SIGINT, everything given back; 1: could not run; 2: usage; 78: the
 * configuration cannot be used, and nothing was started or reserved.
 */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/service.h"

#define EXIT_USAGE 2

enum { OPTION_CHECK = 256, OPTION_VERSION };

struct options {
	const char *config_path;
	bool check_only;
};

static void print_usage(FILE *to)
{
	fprintf(to,
		"Usage: hugepoold [--config PATH] [--check-config] [--verbose]\n"
		"Owns huge pages and hands out ranges of them to other processes.\n"
		"\n"
		"  -c, --config PATH   configuration (default %s)\n"
		"      --check-config  check the configuration and exit: 0, or %d with file and line\n"
		"  -v, --verbose       log every session\n"
		"      --version       print the version and exit\n"
		"  -h, --help          print this and exit\n",
		CONFIG_DEFAULT_PATH, CONFIG_EXIT_STATUS);
}

/* Return: -1 to go on, otherwise the exit status. */
static int parse_options(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"config", required_argument, NULL, 'c'},
		{"check-config", no_argument, NULL, OPTION_CHECK},
		{"verbose", no_argument, NULL, 'v'},
		{"version", no_argument, NULL, OPTION_VERSION},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "c:vh", known, NULL)) != -1) {
		switch (option) {
		case 'c':
			options->config_path = optarg;
			break;
		case OPTION_CHECK:
			options->check_only = true;
			break;
		case 'v':
			log_set_max_level(LOG_DEBUG);
			break;
		case OPTION_VERSION:
			puts("hugepoold " HUGEPOOL_VERSION);
			return EXIT_SUCCESS;
		case 'h':
			print_usage(stdout);
			return EXIT_SUCCESS;
		default:
			print_usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "hugepoold: unexpected argument: %s\n", argv[optind]);
		print_usage(stderr);
		return EXIT_USAGE;
	}
	return -1;
}

static void report_mistake(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

static void log_libevent(int severity, const char *message)
{
	log_line(severity >= EVENT_LOG_ERR ? LOG_ERR : LOG_WARNING, "libevent: %s", message);
}

/*
 * A client that goes away is an error of write(), not the end of the daemon. A terminal that closes,
 * or a reload that is asked for, must not end it without giving back; and nor must whoever opens a
 * file of a block while the daemon tries whether anybody has it open, of which a lease tells by
 * SIGIO.
 */
static void ignore_signals(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGIO, SIG_IGN);
}

/* Until the server handles them. A mask that we were started with is not ours to keep. */
static void hold_signals(sigset_t *ret_before)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, ret_before);
}

static int run(const struct config *config)
{
	struct server *server = NULL;
	sigset_t before;
	int rc;

	mallopt(M_ARENA_MAX, 1); /* see worker_note_freed() */
	event_set_log_callback(log_libevent);
	ignore_signals();
	hold_signals(&before);
	rc = service_init();
	if (!rc)
		rc = server_new(&server, config);
	if (!rc)
		rc = server_handle_signals(server);
	if (!rc) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		rc = server_run(server);
	}
	server_free(server);
	libevent_global_shutdown();
	if (rc && rc != -ECANCELED)
		return EXIT_FAILURE;
	log_notice("stopped");
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct options options = {.config_path = CONFIG_DEFAULT_PATH};
	int status = parse_options(argc, argv, &options);
	struct config *config;

	if (status >= 0)
		return status;
	if (config_load(&config, options.config_path, report_mistake, NULL))
		return CONFIG_EXIT_STATUS;
	status = options.check_only ? EXIT_SUCCESS : run(config);
	config_free(config);
	return status;
}
