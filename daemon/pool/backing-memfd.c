/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that needs no right and no set-up, each life a memfd: huge pages that happen to be free
 * (memfd), or ordinary memory (shmem), for development and for machines without huge pages.
 *
 * Nothing is guaranteed. The pages of a life that ends go to the whole machine, and the next one takes
 * what is free then: if there is nothing the block stays quarantined, which is shown, and is tried
 * again. A client may make his file longer and so take free huge pages of the machine, not of other
 * blocks: seals do not hold on files of huge pages.
 *
 * The description that memfd_create() returns is not counted among a file's writers by the kernel,
 * so the file is opened again by way of /proc and the first one closed: then the same lease tells
 * whether anybody else holds it. Clients get descriptions made in the same way. While one is made,
 * the number in that path must go on meaning this file: a lock keeps the end of a life away, and
 * the inode is looked at.
 */
#include "daemon/pool/internal.h"
#include "daemon/setup/blockfs.h"
#include "daemon/setup/hugepages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ordinary memory knows no such thing. */
static int no_surplus(struct pool_block *block, uint64_t *ret_pages)
{
	(void)block;
	*ret_pages = 0;
	return 0;
}

static int surplus(struct pool_block *block, uint64_t *ret_pages)
{
	const struct pool_zone *zone = &block->zone->public;
	struct hugepages_counts counts;
	int r;

	if (block->backing.fd < 0)
		return BACKING_BARE;
	r = hugepages_read(zone->page_bytes, zone->config->node, &counts);
	if (r == 0)
		*ret_pages = counts.surplus;
	return r;
}

static bool is_huge(const struct pool_block *block)
{
	return block->zone->backing == &backing_memfd;
}

static int reopen(int fd, int access)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, access | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

static int empty(struct pool_block *block)
{
	return block->backing.fd < 0 ? 0 : blockfs_empty_file(block->backing.fd);
}

static void end_life(struct pool_block *block)
{
	pthread_mutex_lock(&block->zone->open_lock);
	close(block->backing.fd);
	block->backing.fd = -1;
	pthread_mutex_unlock(&block->zone->open_lock);
}

static int release(struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	if (block->backing.fd < 0)
		return 0;
	if (fcntl(block->backing.fd, F_SETLEASE, F_WRLCK) < 0) {
		if (errno != EAGAIN)
			return -errno;
		(void)snprintf(reason, BACKING_REASON_MAX,
			       "the file of generation %" PRIu64 " is still open or mapped",
			       block->backing.generation);
		return BACKING_HELD;
	}
	end_life(block);
	return 0;
}

static int explain_no_memory(const struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	const struct pool_zone *zone = &block->zone->public;
	struct hugepages_counts counts = {0};

	if (is_huge(block) && hugepages_read(zone->page_bytes, -1, &counts) == 0)
		(void)snprintf(reason, BACKING_REASON_MAX,
			       "no huge pages: it takes %u, the machine has %" PRIu64
			       " free, %" PRIu64 " of them promised",
			       zone->block_pages, counts.free, counts.reserved);
	else
		(void)snprintf(reason, BACKING_REASON_MAX, "no memory");
	return BACKING_SHORT;
}

/* fallocate() of huge pages keeps a partial result; the file is thrown away then. */
static int allocate(const struct pool_block *block, int fd, char reason[BACKING_REASON_MAX])
{
	const struct pool_zone *zone = &block->zone->public;

	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)zone->block_bytes) < 0)
		return -errno;
	if (fallocate(fd, 0, 0, (off_t)zone->block_bytes) < 0)
		return errno == ENOSPC || errno == ENOMEM ? explain_no_memory(block, reason)
							  : -errno;
	if (!is_huge(block) || zone->config->node < 0)
		return 0;
	return backing_check_node(fd, zone->block_bytes, zone->page_bytes, zone->config->node,
				  reason);
}

static unsigned flags_of(const struct pool_block *block)
{
	unsigned order = (unsigned)__builtin_ctzll(block->zone->public.page_bytes);

	return MFD_CLOEXEC | (is_huge(block) ? MFD_HUGETLB | order << MFD_HUGE_SHIFT : 0);
}

static int make(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX])
{
	const struct pool_zone *zone = &block->zone->public;
	struct stat st;
	char name[64];
	int fd, first, r;

	(void)snprintf(name, sizeof(name), "hugepool:%.32s:%u:%" PRIu64, zone->name, block->index,
		       generation);
	first = memfd_create(name, flags_of(block));
	if (first < 0)
		return -errno;
	r = allocate(block, first, reason);
	fd = r ? r : reopen(first, O_RDWR);
	close(first);
	if (r || fd < 0)
		return r ? r : fd;
	if (fstat(fd, &st) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	pthread_mutex_lock(&block->zone->open_lock);
	block->backing.fd = fd;
	block->backing.inode = st.st_ino;
	pthread_mutex_unlock(&block->zone->open_lock);
	return 0;
}

static int open_life(struct pool_block *block, uint64_t generation, int access)
{
	struct stat st;
	int fd;

	(void)generation; /* there is one file at a time, and an ended life has size 0 */
	pthread_mutex_lock(&block->zone->open_lock);
	fd = block->backing.fd < 0 ? -ENOENT : reopen(block->backing.fd, access);
	if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_ino != block->backing.inode ||
			(uint64_t)st.st_size != block->zone->public.block_bytes)) {
		close(fd);
		fd = -ENOENT;
	}
	pthread_mutex_unlock(&block->zone->open_lock);
	return fd;
}

static void drop(struct pool_block *block)
{
	if (block->backing.fd < 0)
		return;
	(void)!ftruncate(block->backing.fd, 0);
	end_life(block);
}

/* Nothing of it is left of another daemon. */
static int adopt(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX])
{
	(void)block;
	(void)generation;
	(void)snprintf(reason, BACKING_REASON_MAX, "its memory ends with its daemon");
	return BACKING_SHORT;
}

const struct backing_ops backing_memfd = {
	.name = "memfd",
	.surplus = surplus,
	.empty = empty,
	.release = release,
	.make = make,
	.adopt = adopt,
	.open = open_life,
	.drop = drop,
	.leave = drop,
};

const struct backing_ops backing_shmem = {
	.name = "shmem",
	.surplus = no_surplus,
	.empty = empty,
	.release = release,
	.make = make,
	.adopt = adopt,
	.open = open_life,
	.drop = drop,
	.leave = drop,
};
