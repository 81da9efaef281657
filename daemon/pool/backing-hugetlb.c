/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Huge pages: each block is a hugetlbfs of its own, known by a descriptor of its directory; the file
 * of a life is named by its generation.
 *
 * Whether somebody still holds a file is asked by a write lease on a description of our own: the
 * kernel grants it only if no other open file description of that file exists, be it in a
 * descriptor, a mapping or a message on its way. That holds because every client is given a
 * description of his own. It is not seen by this that pages are pinned for I/O; the file system's
 * count of free pages tells that.
 */
#include "daemon/pool/internal.h"
#include "daemon/setup/blockfs.h"
#include "daemon/setup/hugepages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 24

static char *file_name(uint64_t generation, char name[static NAME_BYTES])
{
	(void)snprintf(name, NAME_BYTES, "%" PRIu64, generation);
	return name;
}

/* Calls fn for each file of the directory until one does not return 0. */
typedef int (*file_fn)(void *userdata, struct pool_block *block, const char *name);

static int for_each_file(struct pool_block *block, file_fn fn, void *userdata)
{
	struct dirent *entry;
	DIR *files;
	int fd, r = 0;

	fd = blockfs_open(block->backing.fd, "."); /* with a position of its own */
	if (fd < 0)
		return fd;
	files = fdopendir(fd);
	if (!files) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(files)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = fn(userdata, block, entry->d_name);
	closedir(files);
	return r;
}

static int open_as(const struct pool_block *block, const char *name, int access)
{
	int fd = openat(block->backing.fd, name, access | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int open_file(const struct pool_block *block, const char *name)
{
	return open_as(block, name, O_RDWR);
}

static int empty_file(void *userdata, struct pool_block *block, const char *name)
{
	uint64_t generation = strtoull(name, NULL, 10);
	int fd, r;

	(void)userdata;
	fd = open_file(block, name);
	if (fd < 0)
		return fd;
	r = blockfs_empty_file(fd);
	close(fd);
	if (generation > block->backing.generation && generation <= HP_BLOCK_GENERATION_MAX)
		block->backing.generation = generation;
	return r;
}

static int empty(struct pool_block *block)
{
	return for_each_file(block, empty_file, NULL);
}

static int find_file(void *userdata, struct pool_block *block, const char *name)
{
	(void)userdata;
	(void)block;
	(void)name;
	return 1;
}

/* The kernel takes surplus pages off where they are: on the node, of a zone that has one. */
static int surplus(struct pool_block *block, uint64_t *ret_pages)
{
	const struct pool_zone *zone = &block->zone->public;
	struct hugepages_counts counts;
	int r;

	r = for_each_file(block, find_file, NULL);
	if (r <= 0)
		return r < 0 ? r : BACKING_BARE;
	r = hugepages_read(zone->page_bytes, zone->config->node, &counts);
	if (r == 0)
		*ret_pages = counts.surplus;
	return r;
}

/* A last holder may have grown the file since it was emptied: once more, now that there is none. */
static int release_file(void *userdata, struct pool_block *block, const char *name)
{
	char *reason = userdata;
	int fd, r;

	fd = open_file(block, name);
	if (fd < 0)
		return fd;
	r = blockfs_file_held(fd);
	if (r == 1)
		r = BACKING_HELD;
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	if (r == 0 && unlinkat(block->backing.fd, name, 0) < 0)
		r = -errno;
	close(fd);
	if (r == BACKING_HELD)
		(void)snprintf(reason, BACKING_REASON_MAX,
			       "the file of generation %.20s is still open or mapped", name);
	return r;
}

static int release(struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	return for_each_file(block, release_file, reason);
}

/* Without a file, every page of the file system should be free. */
static int check_whole(const struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	struct blockfs_info info;
	int r = blockfs_info(block->backing.fd, &info);

	if (r < 0 || info.free_pages == info.pages)
		return r;
	(void)snprintf(reason, BACKING_REASON_MAX,
		       "%" PRIu64 " of %" PRIu64 " pages have not come back: pinned, or lost",
		       info.pages - info.free_pages, info.pages);
	return BACKING_SHORT;
}

/* The kernel said that there is no space: is that so? */
static int explain_no_space(const struct pool_block *block, char reason[BACKING_REASON_MAX])
{
	struct blockfs_info info;
	int r = blockfs_info(block->backing.fd, &info);

	if (r < 0)
		return r;
	(void)snprintf(reason, BACKING_REASON_MAX,
		       "the kernel has no page for it though %" PRIu64
		       " of the block are free: reservation lost",
		       info.free_pages);
	return BACKING_SHORT;
}

static int allocate(const struct pool_block *block, int fd, char reason[BACKING_REASON_MAX])
{
	const struct pool_zone *zone = &block->zone->public;
	struct stat st;

	if (fallocate(fd, 0, 0, (off_t)zone->block_bytes) < 0)
		return errno == ENOSPC || errno == ENOMEM ? explain_no_space(block, reason)
							  : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_blocks * 512 != zone->block_bytes) {
		(void)snprintf(reason, BACKING_REASON_MAX,
			       "%" PRIu64 " of %" PRIu64 " bytes allocated",
			       (uint64_t)st.st_blocks * 512, zone->block_bytes);
		return BACKING_SHORT;
	}
	if (zone->config->node < 0)
		return 0;
	return backing_check_node(fd, zone->block_bytes, zone->page_bytes, zone->config->node,
				  reason);
}

static int make(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX])
{
	char name[NAME_BYTES];
	int fd, r;

	r = check_whole(block, reason);
	if (r)
		return r;
	fd = openat(block->backing.fd, file_name(generation, name),
		    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = allocate(block, fd, reason);
	if (r) {
		(void)!ftruncate(fd, 0);
		unlinkat(block->backing.fd, name, 0);
	}
	close(fd);
	return r;
}

static int adopt(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX])
{
	uint64_t bytes = block->zone->public.block_bytes;
	char name[NAME_BYTES];
	struct stat st;
	int fd, r;

	fd = open_file(block, file_name(generation, name));
	if (fd == -ENOENT) {
		(void)snprintf(reason, BACKING_REASON_MAX, "there is no file of that generation");
		return BACKING_SHORT;
	}
	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	close(fd);
	if (r < 0)
		return r;
	if ((uint64_t)st.st_size == bytes && (uint64_t)st.st_blocks * 512 == bytes)
		return 0;
	(void)snprintf(reason, BACKING_REASON_MAX,
		       "its file is %" PRIu64 " bytes long and has %" PRIu64 " of %" PRIu64
		       " bytes of pages",
		       (uint64_t)st.st_size, (uint64_t)st.st_blocks * 512, bytes);
	return BACKING_SHORT;
}

static int open_life(struct pool_block *block, uint64_t generation, int access)
{
	const struct pool_zone *zone = &block->zone->public;
	char name[NAME_BYTES];
	struct stat st;
	int fd;

	if (block->backing.fd < 0)
		return -ENOENT;
	fd = open_as(block, file_name(generation, name), access);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != zone->block_bytes) {
		close(fd);
		return -ENOENT;
	}
	return fd;
}

static void leave(struct pool_block *block)
{
	if (block->backing.fd < 0)
		return;
	close(block->backing.fd);
	block->backing.fd = -1;
}

static void drop(struct pool_block *block)
{
	if (block->backing.fd >= 0)
		blockfs_wipe(block->backing.fd);
	leave(block);
}

const struct backing_ops backing_hugetlb = {
	.name = "hugetlb",
	.surplus = surplus,
	.empty = empty,
	.release = release,
	.make = make,
	.adopt = adopt,
	.open = open_life,
	.drop = drop,
	.leave = leave,
};
