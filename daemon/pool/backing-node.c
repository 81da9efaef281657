/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NUMA nodes, by the system calls themselves: three of them do not make it worth depending on libnuma.
 */
#include "daemon/pool/backing.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MAX  1024
#define LONG_BITS  (8 * sizeof(unsigned long))
#define PAGES_STEP 512 /* asked for at one time */

int backing_bind_node(int node)
{
	unsigned long mask[NODES_MAX / LONG_BITS] = {0};

	if (node >= NODES_MAX)
		return -EINVAL;
	if (node < 0)
		return syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0) < 0 ? -errno : 0;
	mask[(size_t)node / LONG_BITS] = 1ul << ((size_t)node % LONG_BITS);
	return syscall(SYS_set_mempolicy, MPOL_BIND, mask, NODES_MAX + 1) < 0 ? -errno : 0;
}

static int check_pages(char *memory, uint64_t nr_pages, uint64_t page_bytes, int node,
		       char reason[BACKING_REASON_MAX])
{
	void *pages[PAGES_STEP];
	int status[PAGES_STEP];

	for (uint64_t first = 0; first < nr_pages; first += PAGES_STEP) {
		uint64_t n = nr_pages - first < PAGES_STEP ? nr_pages - first : PAGES_STEP;

		for (uint64_t i = 0; i < n; i++)
			pages[i] = memory + (first + i) * page_bytes;
		if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0) < 0)
			return -errno;
		for (uint64_t i = 0; i < n; i++) {
			if (status[i] == node)
				continue;
			(void)snprintf(reason, BACKING_REASON_MAX, "page %d is on node %d, not %d",
				       (int)(first + i), status[i], node);
			return BACKING_SHORT;
		}
	}
	return 0;
}

/*
 * The one time that the daemon maps a file: before anybody else has seen it, so that nobody can
 * truncate it under us, and read-only, so that no page is allocated by it.
 */
int backing_check_node(int fd, uint64_t bytes, uint64_t page_bytes, int node,
		       char reason[BACKING_REASON_MAX])
{
	char *memory;
	int r;

	memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	r = check_pages(memory, bytes / page_bytes, page_bytes, node, reason);
	munmap(memory, bytes);
	return r;
}
