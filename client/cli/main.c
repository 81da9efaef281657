/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl: one table of verbs, one of options. What a verb does not take is a usage error, and so
 * is everything else that is found out before the daemon is asked.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SOCKET	     "/run/hugepool/hugepool.sock"
#define DEFAULT_GRACE_MS     30000
#define DEFAULT_DEADLINE_MS  10000
#define DEFAULT_ADMIN_SOCKET "/run/hugepool/admin.sock"

#define OPT_ADMIN_VERB (OPT_SOCKET | OPT_JSON)

static const struct verb verbs[] = {
	{"status", "the daemon, its memory, and what there is for you", NULL, 0, 0, OPT_QUERY,
	 false, verb_status, NULL},
	{"zones", "every figure of every zone, like /proc/zoneinfo", NULL, 0, 0,
	 OPT_QUERY | OPT_ZONE, false, verb_zones, NULL},
	{"buddyinfo", "free chunks by order, like /proc/buddyinfo", NULL, 0, 0,
	 OPT_QUERY | OPT_ZONE, false, verb_buddyinfo, NULL},
	{"blocks", "pageblocks: state, owner, what is free in them", NULL, 0, 0,
	 OPT_QUERY | OPT_ZONE, false, verb_blocks, NULL},
	{"caches", "page caches of the workers", NULL, 0, 0, OPT_QUERY | OPT_ZONE, false,
	 verb_caches, NULL},
	{"tenants", "who holds how much", NULL, 0, 0, OPT_QUERY, false, verb_tenants, NULL},
	{"sessions", "connections, and processes that broke theirs", NULL, 0, 0, OPT_QUERY, false,
	 verb_sessions, NULL},
	{"who", "who uses huge pages, of hugepool and of the whole machine", NULL, 0, 0, OPT_QUERY,
	 false, verb_who, NULL},
	{"leases", "ranges: where, whose, since when", NULL, 0, 0, OPT_QUERY, false, verb_leases,
	 NULL},
	{"alloc", "take memory and hold it until interrupted", "SIZE", 1, 1,
	 OPT_SOCKET | OPT_JSON | OPT_ZONE | OPT_PAGE_SIZE | OPT_ALIGN | OPT_COUNT | OPT_ZERO |
		 OPT_EXCLUSIVE | OPT_WAIT,
	 false, verb_alloc, NULL},
	{"share", "take memory, publish it, hold it until interrupted", "SIZE NAME", 2, 2,
	 OPT_SOCKET | OPT_JSON | OPT_ZONE | OPT_PAGE_SIZE | OPT_ALIGN | OPT_ZERO | OPT_WAIT |
		 OPT_FOR | OPT_READ_ONLY,
	 false, verb_share, verb_share_check},
	{"attach", "have what was published, hold it until interrupted", "NAME", 1, 1,
	 OPT_SOCKET | OPT_JSON | OPT_TENANT | OPT_READ_ONLY, false, verb_attach, NULL},
	{"tenant", "make a tenant and its socket; end one with all it holds", "create|delete NAME",
	 2, 2, OPT_ADMIN_VERB | OPT_LIMIT | OPT_GUARANTEE | OPT_USER | OPT_ANY_USER | OPT_GRACE,
	 true, verb_tenant, verb_tenant_check},
	{"quota", "show a tenant's limit and guarantee in a zone, or set them", "TENANT ZONE", 2, 2,
	 OPT_ADMIN_VERB | OPT_LIMIT | OPT_GUARANTEE, true, verb_quota, NULL},
	{"resize", "give a zone more memory, or take some away", "ZONE SIZE", 2, 2,
	 OPT_ADMIN_VERB | OPT_CONFIG, true, verb_resize, verb_resize_check},
	{"reload", "read the configuration again", NULL, 0, 0, OPT_ADMIN_VERB, true, verb_reload,
	 NULL},
	{"revoke", "have memory given back, or take it", NULL, 0, 0,
	 OPT_ADMIN_VERB | OPT_ZONE | OPT_TENANT | OPT_SESSION | OPT_LEASE | OPT_BLOCK |
		 OPT_DEADLINE | OPT_FORCE,
	 true, verb_revoke, verb_revoke_check},
	{"check", "have every invariant of the zones checked", NULL, 0, 0, OPT_QUERY, true,
	 verb_check, NULL},
	{"flush", "drain every page cache", NULL, 0, 0, OPT_QUERY, true, verb_flush, NULL},
};

static const struct {
	int bit;
	const char *name, *value, *summary;
} options[] = {
	{OPT_SOCKET, "socket", "PATH", "the daemon's socket"},
	{OPT_ADMIN, "admin", NULL, "ask on the admin socket, which shows everything"},
	{OPT_JSON, "json", NULL, "answer in JSON"},
	{OPT_ZONE, "zone", "NAME", "of this zone"},
	{OPT_PAGE_SIZE, "page-size", "SIZE", "of a zone with pages of this size"},
	{OPT_ALIGN, "align", "SIZE", "the address, to a power of two"},
	{OPT_COUNT, "count", "N", "as many ranges of SIZE, all or none"},
	{OPT_ZERO, "zero", NULL, "filled with zeros"},
	{OPT_EXCLUSIVE, "exclusive", NULL, "in pageblocks that hold nothing else"},
	{OPT_WAIT, "wait", "TIME", "for room, as long as this: 500ms, 30s, 5min, 2h"},
	{OPT_CONFIG, "config", "PATH", "that hugepool-setup is to read, if not the usual one"},
	{OPT_LIMIT, "limit", "[ZONE=]N", "never more: blocks, or a size that is whole blocks"},
	{OPT_GUARANTEE, "guarantee", "[ZONE=]N", "always obtainable: likewise"},
	{OPT_USER, "user", "USER", "who may use the tenant's socket; otherwise you"},
	{OPT_ANY_USER, "any-user", NULL, "whoever can reach it may"},
	{OPT_FOR, "for", "USERS", "who may attach besides you, with commas; otherwise everybody"},
	{OPT_READ_ONLY, "read-only", NULL, "share: nobody may attach to write; attach: to read"},
	{OPT_TENANT, "tenant", "NAME", "attach: that has published it; revoke: all that it holds"},
	{OPT_SESSION, "session", "N", "revoke: all that this session holds"},
	{OPT_LEASE, "lease", "PAGE", "revoke: the lease that begins there, with --zone"},
	{OPT_BLOCK, "block", "N", "revoke: all that touches this block, with --zone"},
	{OPT_DEADLINE, "deadline", "TIME", "for giving it back; otherwise 10s"},
	{OPT_FORCE, "force", NULL, "take then what is left, whole blocks with all that is in them"},
	{OPT_GRACE, "grace", "TIME", "before its sessions are ended; otherwise 30s"},
};

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static void print_usage(FILE *to)
{
	(void)fprintf(to, "usage: hugepoolctl [OPTION ...] VERB [ARGUMENT]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		const char *argument = verbs[i].arguments ? verbs[i].arguments : "";
		int width = 24 - (int)strlen(verbs[i].name);

		(void)fprintf(to, "  %s %-*s  %s%s\n", verbs[i].name, width, argument,
			      verbs[i].summary, verbs[i].needs_admin ? " (admin socket)" : "");
	}
	(void)fprintf(to, "\n");
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)fprintf(to, "  --%-9s %-8s  %s\n", options[i].name,
			      options[i].value ? options[i].value : "", options[i].summary);
	(void)fprintf(to, "  --%-9s %-8s  %s\n  --%-9s %-8s  %s\n", "help", "", "this", "version",
		      "", "of this program");
	(void)fprintf(
		to,
		"\nSizes: 2M, 2Mi, 2048kB, 1G; powers of 1024. Sockets: --socket, or HUGEPOOL_SOCKET and\nHUGEPOOL_ADMIN_SOCKET, or those below /run/hugepool.\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n");
}

int cli_usage_error(const char *format, ...)
{
	va_list args;

	(void)fprintf(stderr, "hugepoolctl: ");
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, "\nhugepoolctl --help tells what there is.\n");
	return EXIT_USAGE;
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static int take_size(const char *what, const char *text, uint64_t *ret)
{
	if (cli_parse_size(text, ret) < 0 || *ret == 0)
		return cli_usage_error("%s: '%s' is not a size like 2M or 1G", what, text);
	return 0;
}

static int take_time(const char *what, const char *text, uint64_t *ret_ms)
{
	if (cli_parse_duration(text, ret_ms) < 0)
		return cli_usage_error(
			"%s: '%s' is not a time like 500ms, 30s, 5min or 2h, at most 24h", what,
			text);
	return 0;
}

static int take_option(struct cli *cli, int bit, const char *value)
{
	char *end;

	switch (bit) {
	case OPT_SOCKET:
		cli->path = value;
		return 0;
	case OPT_ADMIN:
		cli->admin = true;
		return 0;
	case OPT_JSON:
		cli->json = true;
		return 0;
	case OPT_ZONE:
		cli->zone = value;
		return 0;
	case OPT_CONFIG:
		cli->config = value;
		return 0;
	case OPT_PAGE_SIZE:
		return take_size("--page-size", value, &cli->page_bytes);
	case OPT_ALIGN:
		if (cli_parse_size(value, &cli->alignment) < 0 || cli->alignment == 0 ||
		    cli->alignment & (cli->alignment - 1))
			return cli_usage_error("--align: '%s' is not a power of two", value);
		return 0;
	case OPT_COUNT:
		errno = 0;
		cli->count = strtoull(value, &end, 10);
		if (errno || end == value || *end || *value == '-' || cli->count < 1 ||
		    cli->count > HP_RANGES_MAX)
			return cli_usage_error("--count: '%s' is not a number from 1 to %d", value,
					       HP_RANGES_MAX);
		return 0;
	case OPT_WAIT:
		return take_time("--wait", value, &cli->wait_ms);
	case OPT_LIMIT:
	case OPT_GUARANTEE:
		if (cli->nr_amounts == CLI_AMOUNTS_MAX)
			return cli_usage_error("more than %d limits and guarantees",
					       CLI_AMOUNTS_MAX);
		cli->amounts[cli->nr_amounts++] = (struct cli_amount){bit, value};
		return 0;
	case OPT_GRACE:
		return take_time("--grace", value, &cli->grace_ms);
	case OPT_USER:
		cli->user = value;
		return 0;
	case OPT_ANY_USER:
		cli->any_user = true;
		return 0;
	case OPT_FOR:
		cli->users = value;
		return 0;
	case OPT_READ_ONLY:
		cli->read_only = true;
		return 0;
	case OPT_SESSION:
		cli->session = value;
		return 0;
	case OPT_LEASE:
		cli->lease = value;
		return 0;
	case OPT_BLOCK:
		cli->block = value;
		return 0;
	case OPT_DEADLINE:
		if (strcmp(value, "0") != 0)
			return take_time("--deadline", value, &cli->deadline_ms);
		cli->deadline_ms = 0;
		return 0;
	case OPT_FORCE:
		cli->force = true;
		return 0;
	case OPT_TENANT:
		cli->tenant = value;
		return 0;
	case OPT_ZERO:
		cli->zero = true;
		return 0;
	default:
		cli->exclusive = true;
		return 0;
	}
}

/* Return: 0 to go on, the exit status + 1 to end. given: bits of the options seen. */
static int parse(struct cli *cli, int argc, char **argv, int *given)
{
	struct option table[ARRAY_SIZE(options) + 3] = {
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
	};
	int c;

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		table[2 + i] = (struct option){
			.name = options[i].name,
			.has_arg = options[i].value ? required_argument : no_argument,
			.val = 256 + (int)i,
		};
	while ((c = getopt_long(argc, argv, ":h", table, NULL)) != -1) {
		int r;

		if (c == 'h') {
			print_usage(stdout);
			return 1;
		}
		if (c == 'V') {
			printf("hugepoolctl %s\n", hugepool_version());
			return 1;
		}
		if (c < 256)
			return 1 + cli_usage_error(
					   c == ':' ? "%s needs a value"
						    : "%s: no such option, or it takes no value",
					   argv[optind - 1]);
		*given |= options[c - 256].bit;
		r = take_option(cli, options[c - 256].bit, optarg);
		if (r)
			return 1 + r;
	}
	return 0;
}

static int check_fit(const struct verb *verb, int given, int nr_arguments)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (given & options[i].bit & ~verb->options)
			return cli_usage_error("%s takes no --%s", verb->name, options[i].name);
	if (nr_arguments >= verb->min_arguments && nr_arguments <= verb->max_arguments)
		return 0;
	if (verb->max_arguments == 0)
		return cli_usage_error("%s takes no argument", verb->name);
	return cli_usage_error("%s takes %s: %s", verb->name,
			       verb->max_arguments == 1 ? "one argument" : "two arguments",
			       verb->arguments);
}

static const char *default_path(bool admin)
{
	const char *path = getenv(admin ? "HUGEPOOL_ADMIN_SOCKET" : "HUGEPOOL_SOCKET");

	if (path && *path)
		return path;
	return admin ? DEFAULT_ADMIN_SOCKET : DEFAULT_SOCKET;
}

int main(int argc, char **argv)
{
	struct cli cli = {
		.count = 1, .grace_ms = DEFAULT_GRACE_MS, .deadline_ms = DEFAULT_DEADLINE_MS};
	const struct verb *verb;
	int given = 0, r;

	r = parse(&cli, argc, argv, &given);
	if (r)
		return r - 1;
	if (optind == argc) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	verb = find_verb(argv[optind]);
	if (!verb)
		return cli_usage_error("there is no verb '%s'", argv[optind]);
	r = check_fit(verb, given, argc - optind - 1);
	if (r == 0 && verb->run == verb_alloc)
		r = take_size(verb->name, argv[optind + 1], &cli.bytes);
	cli.arguments = argv + optind + 1;
	cli.nr_arguments = argc - optind - 1;
	if (r == 0 && verb->check)
		r = verb->check(&cli, given);
	if (r)
		return r;
	cli.admin |= verb->needs_admin;
	if (!cli.path)
		cli.path = default_path(cli.admin);
	r = cli_open(&cli);
	r = r < 0 ? cli_fail(&cli, r) : verb->run(&cli);
	cli.pool = hugepool_close(cli.pool);
	if (fflush(stdout) && r == 0) {
		(void)fprintf(stderr, "hugepoolctl: the output could not be written\n");
		r = EXIT_FAILED;
	}
	return r;
}
