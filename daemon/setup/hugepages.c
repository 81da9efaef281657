/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of sysfs, not of /proc/sys/vm: those know only the default page size.
 */
#include "daemon/setup/hugepages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_number(uint64_t page_bytes, int node, const char *name, int flags)
{
	char path[128];
	int fd;

	if (node < 0)
		(void)snprintf(path, sizeof(path),
			       "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s",
			       page_bytes / 1024, name);
	else
		(void)snprintf(path, sizeof(path),
			       "/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64
			       "kB/%s",
			       node, page_bytes / 1024, name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int read_number(uint64_t page_bytes, int node, const char *name, uint64_t *ret)
{
	char text[32], *end;
	ssize_t n;
	int fd;

	fd = open_number(page_bytes, node, name, O_RDONLY);
	if (fd < 0)
		return fd;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0) {
		n = -errno;
		close(fd);
		return (int)n;
	}
	close(fd);
	text[n] = '\0';
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || end == text ? -EIO : 0;
}

int hugepages_read(uint64_t page_bytes, int node, struct hugepages_counts *ret)
{
	struct hugepages_counts counts;
	int r;

	r = read_number(page_bytes, node, "nr_hugepages", &counts.total);
	if (r == 0)
		r = read_number(page_bytes, node, "free_hugepages", &counts.free);
	if (r == 0)
		r = read_number(page_bytes, -1, "resv_hugepages", &counts.reserved);
	if (r == 0)
		r = read_number(page_bytes, node, "surplus_hugepages", &counts.surplus);
	if (r == 0)
		*ret = counts;
	return r;
}

int hugepages_set(uint64_t page_bytes, int node, uint64_t persistent, uint64_t *ret_persistent)
{
	struct hugepages_counts counts;
	char text[32];
	int fd, r = 0;

	fd = open_number(page_bytes, node, "nr_hugepages", O_WRONLY);
	if (fd < 0)
		return fd;
	(void)snprintf(text, sizeof(text), "%" PRIu64, persistent);
	if (write(fd, text, strlen(text)) < 0)
		r = -errno;
	close(fd);
	if (r == 0)
		r = hugepages_read(page_bytes, node, &counts);
	if (r == 0)
		*ret_persistent = counts.total - counts.surplus;
	return r;
}
