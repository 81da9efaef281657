/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people read, and what they type. Sizes are exact in both directions: whoever copies a size
 * from the output gets the same number of bytes.
 */
#include "client/cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char units[] = "KMGTPE";

const char *cli_size(char buffer[CLI_SIZE_MAX], uint64_t bytes)
{
	int unit = -1;

	while (bytes && bytes % 1024 == 0 && units[unit + 1]) {
		bytes /= 1024;
		unit++;
	}
	if (unit < 0)
		(void)snprintf(buffer, CLI_SIZE_MAX, "%" PRIu64, bytes);
	else
		(void)snprintf(buffer, CLI_SIZE_MAX, "%" PRIu64 " %ciB", bytes, units[unit]);
	return buffer;
}

/* Return: 0, -EINVAL, -ERANGE. ret_suffix: what comes behind the number and a space. */
static int parse_number(const char *text, uint64_t *ret, const char **ret_suffix)
{
	const char *suffix = text + strspn(text, "0123456789");
	uint64_t n = 0;

	if (suffix == text)
		return -EINVAL;
	for (; text < suffix; text++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return -ERANGE;
	*ret = n;
	*ret_suffix = suffix + (*suffix == ' ');
	return 0;
}

int cli_parse_size(const char *text, uint64_t *ret)
{
	const char *suffix, *unit;
	uint64_t n, factor = 1;
	int r = parse_number(text, &n, &suffix);

	if (r < 0)
		return r;
	if (*suffix && strcasecmp(suffix, "B") != 0) {
		unit = strchr(units, *suffix >= 'a' ? *suffix - 'a' + 'A' : *suffix);
		if (!unit ||
		    (suffix[1] && strcasecmp(suffix + 1, "B") != 0 &&
		     strcasecmp(suffix + 1, "i") != 0 && strcasecmp(suffix + 1, "iB") != 0))
			return -EINVAL;
		factor = UINT64_C(1) << 10 * (unit - units + 1);
	}
	return __builtin_mul_overflow(n, factor, ret) ? -ERANGE : 0;
}

int cli_parse_duration(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} known[] = {{"ms", 1}, {"", 1000}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};
	const char *unit;
	uint64_t n;
	int r = parse_number(text, &n, &unit);

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(unit, known[i].unit) != 0)
			continue;
		if (n > HP_DEADLINE_MAX_MS / known[i].ms)
			return -ERANGE;
		*ret_ms = n * known[i].ms;
		return 0;
	}
	return -EINVAL;
}

const char *cli_age(char buffer[CLI_AGE_MAX], uint64_t ms)
{
	uint64_t s = ms / 1000, min = s / 60, h = min / 60, d = h / 24;

	if (d)
		(void)snprintf(buffer, CLI_AGE_MAX, "%" PRIu64 " d %" PRIu64 " h", d, h % 24);
	else if (h)
		(void)snprintf(buffer, CLI_AGE_MAX, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
	else if (min)
		(void)snprintf(buffer, CLI_AGE_MAX, "%" PRIu64 " min %" PRIu64 " s", min, s % 60);
	else if (s)
		(void)snprintf(buffer, CLI_AGE_MAX, "%" PRIu64 " s", s);
	else
		(void)snprintf(buffer, CLI_AGE_MAX, "%" PRIu64 " ms", ms);
	return buffer;
}

const char *cli_node(char buffer[16], int node)
{
	if (node < 0)
		return "any";
	(void)snprintf(buffer, 16, "%d", node);
	return buffer;
}

const char *cli_text(char buffer[CLI_TEXT_MAX], ProtobufCBinaryData bytes)
{
	size_t n = bytes.len < CLI_TEXT_MAX - 1 ? bytes.len : CLI_TEXT_MAX - 1;

	for (size_t i = 0; i < n; i++)
		buffer[i] =
			bytes.data[i] < ' ' || bytes.data[i] == 0x7f ? '?' : (char)bytes.data[i];
	buffer[n] = '\0';
	return buffer;
}

int cli_print_json(json_t *json)
{
	int r = json ? json_dumpf(json, stdout, JSON_INDENT(2)) : -1;

	json_decref(json);
	if (r < 0 || printf("\n") < 0 || fflush(stdout)) {
		(void)fprintf(stderr, "hugepoolctl: the output could not be written\n");
		return EXIT_FAILED;
	}
	return 0;
}

/* --- failures --------------------------------------------------------------------------------- */

void cli_print_figures(const struct hugepool_error *error)
{
	const struct {
		const char *name;
		uint64_t bytes;
	} figures[] = {
		{"asked", error->asked_bytes},		{"free", error->free_bytes},
		{"leasable", error->leasable_bytes},	{"limit", error->limit_bytes},
		{"largest hole", error->largest_bytes},
	};
	char size[CLI_SIZE_MAX];

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		(void)fprintf(stderr, "  %-12s  %s\n", figures[i].name,
			      cli_size(size, figures[i].bytes));
}

/* What to do next. */
static const char *advice(const struct cli *cli, int error)
{
	switch (error) {
	case -ENOENT:
	case -ECONNREFUSED:
		return "Start hugepoold, or name its socket with --socket or HUGEPOOL_SOCKET (HUGEPOOL_ADMIN_SOCKET with --admin).";
	case -EACCES:
		if (cli->pool) /* it was the daemon who refused, and said why */
			return NULL;
		return cli->admin
			       ? "The admin socket is for root and the service's own user: try sudo."
			       : "Ask the operator to put you in the group of the socket, and to give you a tenant that may connect.";
	case -ENOMEM:
		return cli->error.largest_bytes
			       ? "Ask for no more than the largest hole at once; `hugepoolctl tenants` and `hugepoolctl blocks` show who has the rest."
			       : "Free something, or have the zone or your limit made larger; `hugepoolctl tenants` shows who has what.";
	case -EDQUOT:
		return "Free something (whole blocks count), or have your limit raised.";
	case -ENODEV:
		return "`hugepoolctl zones` lists the zones there are for you.";
	case -EUSERS:
		return "Close connections that are not needed; `hugepoolctl sessions` lists them.";
	case -EOPNOTSUPP:
		return "This daemon does not serve that, or only on its admin socket (--admin).";
	case -EPROTO:
		return "Is it hugepoold's socket, and of the same version? `hugepoolctl --version` tells ours.";
	case -ETIMEDOUT:
		if (cli->error.asked_bytes)
			return "Wait longer, ask for less, or have somebody give something back; `hugepoolctl tenants` shows who has what.";
		/* fall through */
	case -ECONNRESET:
	case -ESHUTDOWN:
		return "The daemon's log tells why; try again when it is up.";
	default:
		return NULL;
	}
}

int cli_fail(struct cli *cli, int error)
{
	const char *next = advice(cli, error);

	(void)fflush(stdout);
	(void)fprintf(stderr, "hugepoolctl: %s\n",
		      cli->error.message[0] ? cli->error.message : strerror(-error));
	if (error == -ENOMEM || error == -EDQUOT || (error == -ETIMEDOUT && cli->error.asked_bytes))
		cli_print_figures(&cli->error);
	if (next)
		(void)fprintf(stderr, "%s\n", next);
	if (cli->json)
		cli_print_json(cli_json_error(&cli->error));
	return EXIT_FAILED;
}
