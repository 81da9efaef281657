/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts to values. Each function accepts one way of writing a thing and says in one phrase what it
 * would have accepted, so that a message never leaves its reader guessing. Nothing here rounds,
 * clips or falls back: a text that is not fully understood is refused.
 */
#include "daemon/config-internal.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define DURATION_MAX_MS (24u * 3600 * 1000)
#define NODE_MAX	1023

/* A decimal number and where it ends; no sign, no blanks. */
static int parse_number(const char *text, uint64_t *ret, const char **ret_end)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	*ret = value;
	*ret_end = end;
	return 0;
}

static int unit_shift(const char *unit)
{
	static const char letters[] = "KMGTP";
	const char *letter;

	if (*unit == '\0' || strcasecmp(unit, "B") == 0)
		return 0;
	letter = strchr(letters, *unit == 'k' ? 'K' : *unit);
	if (!letter)
		return -EINVAL;
	unit++;
	if (*unit != '\0' && strcmp(unit, "i") != 0 && strcmp(unit, "B") != 0 &&
	    strcmp(unit, "iB") != 0)
		return -EINVAL;
	return (int)(letter - letters + 1) * 10;
}

int config_parse_size(const char *text, uint64_t *ret_bytes)
{
	const char *unit;
	uint64_t value;
	int r, shift;

	r = parse_number(text, &value, &unit);
	if (r < 0)
		return r;
	shift = unit_shift(unit);
	if (shift < 0)
		return shift;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = value << shift;
	return 0;
}

char *config_format_size(uint64_t bytes, char buffer[CONFIG_SIZE_TEXT_MAX])
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P"};
	size_t unit = 0;

	while (bytes && bytes % 1024 == 0 && unit < sizeof(units) / sizeof(units[0]) - 1) {
		bytes /= 1024;
		unit++;
	}
	(void)snprintf(buffer, CONFIG_SIZE_TEXT_MAX, "%" PRIu64 "%s", bytes, units[unit]);
	return buffer;
}

const char *config_value_size(const char *text, uint64_t *ret)
{
	return config_parse_size(text, ret) < 0 ? "a size such as 2M, 64MiB or 1G" : NULL;
}

const char *config_value_amount(const char *text, struct config_amount *ret)
{
	const char *end;
	uint64_t value;

	if (parse_number(text, &value, &end) == 0 && *end == '\0') {
		ret->in_bytes = false;
		ret->value = value;
		return NULL;
	}
	if (config_parse_size(text, &value) < 0)
		return "a number of blocks such as 4, or a size such as 256M";
	ret->in_bytes = true;
	ret->value = value;
	return NULL;
}

const char *config_value_bool(const char *text, bool *ret)
{
	if (strcmp(text, "yes") == 0)
		*ret = true;
	else if (strcmp(text, "no") == 0)
		*ret = false;
	else
		return "yes or no";
	return NULL;
}

const char *config_value_duration(const char *text, unsigned *ret_ms)
{
	static const char expected[] = "a time such as 500ms, 10s or 5min, at most 24h";
	static const struct {
		const char *unit;
		unsigned ms;
	} units[] = {{"ms", 1}, {"", 1000}, {"s", 1000}, {"min", 60000}, {"h", 3600000}};
	const char *unit;
	uint64_t value;

	if (parse_number(text, &value, &unit) < 0)
		return expected;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(unit, units[i].unit) != 0)
			continue;
		if (value > DURATION_MAX_MS / units[i].ms)
			return expected;
		*ret_ms = (unsigned)value * units[i].ms;
		return NULL;
	}
	return expected;
}

const char *config_value_mode(const char *text, mode_t *ret)
{
	char *end;
	unsigned long mode;

	if (*text < '0' || *text > '7')
		return "an octal mode such as 0660";
	mode = strtoul(text, &end, 8);
	if (*end != '\0' || mode > 0777)
		return "an octal mode such as 0660";
	*ret = (mode_t)mode;
	return NULL;
}

const char *config_value_policy(const char *text, enum config_policy *ret)
{
	if (strcmp(text, "uid") == 0)
		*ret = CONFIG_POLICY_UID;
	else if (strcmp(text, "session") == 0)
		*ret = CONFIG_POLICY_SESSION;
	else
		return "uid or session (a tenant gets a socket of its own by socket in its section)";
	return NULL;
}

const char *config_value_backing(const char *text, enum config_backing *ret)
{
	if (strcmp(text, "hugetlb") == 0)
		*ret = CONFIG_BACKING_HUGETLB;
	else if (strcmp(text, "memfd") == 0)
		*ret = CONFIG_BACKING_MEMFD;
	else if (strcmp(text, "shmem") == 0)
		*ret = CONFIG_BACKING_SHMEM;
	else
		return "hugetlb, memfd or shmem";
	return NULL;
}

const char *config_value_node(const char *text, int *ret)
{
	const char *end;
	uint64_t value;

	if (strcmp(text, "any") == 0) {
		*ret = -1;
		return NULL;
	}
	if (parse_number(text, &value, &end) < 0 || *end != '\0' || value > NODE_MAX)
		return "the number of a NUMA node, or any";
	*ret = (int)value;
	return NULL;
}

const char *config_value_uid(const char *text, uid_t *ret)
{
	const struct passwd *entry;
	const char *end;
	uint64_t value;

	/* (uid_t)-1 is nobody's: the kernel uses it for "unchanged". */
	if (parse_number(text, &value, &end) == 0 && *end == '\0' && value < UINT32_MAX) {
		*ret = (uid_t)value;
		return NULL;
	}
	entry = getpwnam(text);
	if (!entry)
		return "the number or the name of a user of this machine";
	*ret = entry->pw_uid;
	return NULL;
}

static const char *replace(char **ret, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return "memory for it";
	free(*ret);
	*ret = copy;
	return NULL;
}

const char *config_value_path(const char *text, char **ret)
{
	return *text == '/' ? replace(ret, text) : "an absolute path";
}

const char *config_value_socket_path(const char *text, char **ret)
{
	if (*text != '/' || strlen(text) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return "an absolute path of at most 107 characters";
	return replace(ret, text);
}

const char *config_value_group(const char *text, char **ret)
{
	const char *end;
	uint64_t value;

	if (!(parse_number(text, &value, &end) == 0 && *end == '\0' && value < UINT32_MAX) &&
	    !getgrnam(text))
		return "the number or the name of a group of this machine";
	return replace(ret, text);
}

int config_value_count(const char *text, uint64_t min, uint64_t max, unsigned *ret)
{
	const char *end;
	uint64_t value;

	if (parse_number(text, &value, &end) < 0 || *end != '\0' || value < min || value > max)
		return -EINVAL;
	*ret = (unsigned)value;
	return 0;
}

bool config_is_name(const char *text)
{
	size_t length =
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

	return length > 0 && length <= CONFIG_NAME_MAX && text[length] == '\0' && *text != '.';
}
