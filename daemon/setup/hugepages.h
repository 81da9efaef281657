/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's numbers of huge pages, of the machine or of one NUMA node. hugepoold reads them;
 * only hugepool-setup writes.
 */
#pragma once

#include <stdint.h>

struct hugepages_counts {
	uint64_t total;	   /* surplus included */
	uint64_t free;	   /* reserved ones included */
	uint64_t reserved; /* promised and not allocated yet; kept for the whole machine only */
	uint64_t surplus;  /* above the number asked for: they vanish as soon as they are free */
};

/* node: -1 for the machine. Return: 0 or -errno (-ENOENT: no such page size or node). */
int hugepages_read(uint64_t page_bytes, int node, struct hugepages_counts *ret);

/*
 * Asks the kernel for this many persistent (not surplus) pages and reads back what it did: the
 * kernel takes a number it cannot reach without a word. lock_page_size() is held, since two who read,
 * add and write at once lose one of the two changes. Return: 0 or -errno.
 */
int hugepages_set(uint64_t page_bytes, int node, uint64_t persistent, uint64_t *ret_persistent);
