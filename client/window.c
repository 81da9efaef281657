/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole zone gets one piece of address space, so that a page's address follows from its number:
 * ranges over several blocks are contiguous, and a range in a block that is mapped costs nothing.
 * Address space is not memory; only where a limit denies it (RLIMIT_AS) is every range mapped by
 * itself, from descriptors that are then kept.
 *
 * A block is populated as a whole when its descriptor comes. MADV_POPULATE_WRITE says whether that
 * worked; MAP_POPULATE would not, and a touch would be a signal.
 *
 * Between unmapping and mapping, a place in the window always belongs to us: PROT_NONE memory is
 * put over it rather than nothing, or another thread's mmap() would land there.
 */
#include "client/window.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE_BYTES_MIN	   4096u
#define ZONE_BYTES_MAX	   (UINT64_C(1) << 46) /* 64 TiB: half of what a process can address */
#define GENEROUS_ALIGNMENT (UINT64_C(1) << 30) /* of a window, where there is room for it */

#define RESERVE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static bool is_power_of_two(uint64_t n)
{
	return n && (n & (n - 1)) == 0;
}

static bool shape_makes_sense(const Hugepool__V1__Zone *zone)
{
	return zone->id <= UINT8_MAX && zone->name.len > 0 && zone->name.len <= HP_NAME_MAX &&
	       !memchr(zone->name.data, 0, zone->name.len) && is_power_of_two(zone->page_size) &&
	       zone->page_size >= PAGE_BYTES_MIN && is_power_of_two(zone->block_size) &&
	       zone->block_size >= zone->page_size && zone->block_size <= ZONE_BYTES_MAX &&
	       zone->blocks > 0 && zone->blocks <= HP_ZONE_BLOCKS_MAX &&
	       zone->blocks <= ZONE_BYTES_MAX / zone->block_size &&
	       zone->block_size / zone->page_size <= UINT32_MAX / zone->blocks &&
	       zone->pages == zone->block_size / zone->page_size * zone->blocks;
}

int window_init(struct window *window, const Hugepool__V1__Zone *zone, bool inherit)
{
	if (!shape_makes_sense(zone))
		return -EPROTO;

	*window = (struct window){
		.id = (uint8_t)zone->id,
		.page_bytes = zone->page_size,
		.block_bytes = zone->block_size,
		.pages = (uint32_t)zone->pages,
		.block_pages = (uint32_t)(zone->block_size / zone->page_size),
		.nr_blocks = zone->blocks,
		.inherit = inherit,
	};
	memcpy(window->name, zone->name.data, zone->name.len);
	window->blocks = calloc(window->nr_blocks, sizeof(*window->blocks));
	if (!window->blocks)
		return -ENOMEM;
	for (uint32_t i = 0; i < window->nr_blocks; i++)
		window->blocks[i].fd = -1;
	return 0;
}

void window_deinit(struct window *window, bool unmap)
{
	for (uint32_t i = 0; i < window->nr_blocks; i++)
		if (window->blocks[i].fd >= 0)
			close(window->blocks[i].fd);
	if (window->base && unmap)
		munmap(window->base, window->block_bytes * window->nr_blocks);
	free(window->blocks);
	*window = (struct window){.name = ""};
}

/* --- address space ---------------------------------------------------------------------------- */

/* Address space of `bytes` aligned to `alignment`. NULL: there is none. */
static uint8_t *reserve(uint64_t bytes, uint64_t alignment, bool inherit)
{
	uint64_t slack = alignment - PAGE_BYTES_MIN, before;
	uint8_t *p;

	p = mmap(NULL, bytes + slack, PROT_NONE, RESERVE_FLAGS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)p & (alignment - 1);
	if (before)
		munmap(p, before);
	if (slack - before)
		munmap(p + before + bytes, slack - before);
	if (!inherit)
		madvise(p + before, bytes, MADV_DONTFORK);
	return p + before;
}

void window_reserve(struct window *window)
{
	uint64_t bytes = window->block_bytes * window->nr_blocks;
	uint64_t alignments[] = {GENEROUS_ALIGNMENT, window->block_bytes};

	if (window->base || window->per_range)
		return;
	for (int i = window->block_bytes >= GENEROUS_ALIGNMENT; i < 2 && !window->base; i++) {
		window->alignment = alignments[i];
		window->base = reserve(bytes, alignments[i], window->inherit);
	}
	window->per_range = !window->base;
}

/* Puts PROT_NONE memory there again. */
static int reserve_again(uint8_t *p, uint64_t bytes, int flags, bool inherit)
{
	if (mmap(p, bytes, PROT_NONE, RESERVE_FLAGS | flags, -1, 0) == MAP_FAILED)
		return -errno;
	if (!inherit)
		madvise(p, bytes, MADV_DONTFORK);
	return 0;
}

static bool is_read_only(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
}

/*
 * Maps part of a file over reserved address space, populated, as its descriptor was opened: one that
 * may only be read stays so. On failure the place is reserved again.
 */
static int map_file(uint8_t *p, uint64_t bytes, int fd, uint64_t offset, bool inherit)
{
	const int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
	bool read_only = is_read_only(fd);
	int prot = read_only ? PROT_READ : PROT_READ | PROT_WRITE, r;

	if (mmap(p, bytes, prot, flags, fd, (off_t)offset) == MAP_FAILED) {
		r = -errno;
		/* Older kernels may have taken the old mapping away before they failed. */
		reserve_again(p, bytes, MAP_FIXED_NOREPLACE, inherit);
		return r;
	}
	if (!inherit && madvise(p, bytes, MADV_DONTFORK)) {
		r = -errno;
		goto fail;
	}
	if (madvise(p, bytes, read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE) == 0)
		return 0;
	r = -errno;
	/* A kernel before 5.14: the file is known to have its pages, this only maps them early. */
	if (r == -EINVAL &&
	    mmap(p, bytes, prot, flags | MAP_POPULATE, fd, (off_t)offset) != MAP_FAILED) {
		if (inherit || madvise(p, bytes, MADV_DONTFORK) == 0)
			return 0;
		r = -errno;
	}
fail:
	reserve_again(p, bytes, MAP_FIXED, inherit);
	return r;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Whether a file can be a block: what is mapped beyond its end, or is not there, is a signal. */
static int check_file(const struct window *window, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < window->block_bytes ||
	    (uint64_t)st.st_blocks * 512 < window->block_bytes)
		return -EBADMSG;
	return 0;
}

static int use_file(struct window *window, uint32_t index, int fd)
{
	int r = check_file(window, fd);

	if (r < 0 || window->per_range)
		return r;
	return map_file(window->base + index * window->block_bytes, window->block_bytes, fd, 0,
			window->inherit);
}

int window_add_block(struct window *window, struct hp_wire_block wire, int fd, bool keep_fd)
{
	struct block *block = &window->blocks[wire.index];
	bool read_only;
	int r;

	assert(wire.index < window->nr_blocks);
	window_reserve(window);

	if (block->state == BLOCK_MAPPED && block->generation == wire.generation &&
	    (block->ranges || fd < 0 || block->read_only == is_read_only(fd))) {
		/* Sent twice: what we have is as good. */
		if (keep_fd && block->fd < 0)
			block->fd = fd;
		else if (fd >= 0)
			close(fd);
		return 0;
	}
	if (block->state == BLOCK_TAKEN) {
		if (fd >= 0)
			close(fd);
		block->generation = wire.generation; /* that is what there is to let go of */
		return 0;
	}
	if (block->state == BLOCK_MAPPED) {
		r = block->ranges ? -EPROTO : window_drop_block(window, wire.index);
		if (r < 0) {
			if (fd >= 0)
				close(fd);
			return r;
		}
	}

	r = fd < 0 ? -EMFILE : use_file(window, wire.index, fd);
	read_only = r == 0 && is_read_only(fd);
	if (fd >= 0 && (r < 0 || !(keep_fd || window->per_range))) {
		close(fd);
		fd = -1;
	}
	*block = (struct block){
		.generation = wire.generation,
		.fd = fd,
		.error = r,
		.read_only = read_only,
		.state = r < 0 ? BLOCK_ABSENT : BLOCK_MAPPED,
	};
	return 0;
}

int window_drop_block(struct window *window, uint32_t index)
{
	struct block *block = &window->blocks[index];
	int r;

	assert(block->ranges == 0);
	if ((block->state == BLOCK_MAPPED || block->state == BLOCK_TAKEN) && !window->per_range) {
		r = reserve_again(window->base + index * window->block_bytes, window->block_bytes,
				  MAP_FIXED, window->inherit);
		if (r < 0)
			return r;
	}
	if (block->fd >= 0)
		close(block->fd);
	*block = (struct block){.fd = -1, .state = BLOCK_UNKNOWN};
	return 0;
}

static int put_ordinary_memory(const struct window *window, void *p, uint64_t bytes)
{
	if (mmap(p, bytes, PROT_READ | PROT_WRITE, RESERVE_FLAGS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	if (!window->inherit)
		madvise(p, bytes, MADV_DONTFORK);
	return 0;
}

int window_take_block(struct window *window, uint32_t index)
{
	struct block *block = &window->blocks[index];
	int r = 0;

	assert(block->state == BLOCK_MAPPED && block->ranges > 0);
	if (!window->per_range)
		r = put_ordinary_memory(window, window->base + index * window->block_bytes,
					window->block_bytes);
	if (r < 0)
		return r;
	if (block->fd >= 0)
		close(block->fd);
	block->fd = -1;
	block->state = BLOCK_TAKEN;
	return 0;
}

int window_take_part(struct window *window, uint32_t index, uint32_t page, uint32_t pages,
		     void *address)
{
	uint32_t from = index * window->block_pages, to = from + window->block_pages;

	if (!window->per_range)
		return 0;
	if (from < page)
		from = page;
	if (to > page + pages)
		to = page + pages;
	return from < to ? put_ordinary_memory(
				   window, (uint8_t *)address + (from - page) * window->page_bytes,
				   (to - from) * window->page_bytes)
			 : 0;
}

/* --- ranges ----------------------------------------------------------------------------------- */

/* Maps a range by itself, piece by piece from the blocks it lies in. */
static int map_pieces(struct window *window, uint32_t page, uint32_t pages, uint64_t alignment,
		      void **ret)
{
	uint64_t bytes = pages * window->page_bytes;
	uint8_t *p;

	if (alignment < window->page_bytes)
		alignment = window->page_bytes;
	p = reserve(bytes, alignment, window->inherit);
	if (!p)
		return -ENOMEM;
	for (uint64_t done = 0, n; done < bytes; done += n) {
		uint64_t at = page * window->page_bytes + done;
		uint64_t offset = at % window->block_bytes;
		int r;

		n = window->block_bytes - offset;
		if (n > bytes - done)
			n = bytes - done;
		r = map_file(p + done, n, window->blocks[at / window->block_bytes].fd, offset,
			     window->inherit);
		if (r < 0) {
			munmap(p, bytes);
			return r;
		}
	}
	*ret = p;
	return 0;
}

static void count_range(struct window *window, uint32_t page, uint32_t pages, int by)
{
	for (uint32_t i = page / window->block_pages; i <= (page + pages - 1) / window->block_pages;
	     i++)
		window->blocks[i].ranges += (uint32_t)by;
}

int window_map_range(struct window *window, uint32_t page, uint32_t pages, uint64_t alignment,
		     void **ret)
{
	assert(pages > 0 && pages <= window->pages && page <= window->pages - pages);

	for (uint32_t i = page / window->block_pages; i <= (page + pages - 1) / window->block_pages;
	     i++) {
		if (window->blocks[i].state == BLOCK_UNKNOWN)
			return -EAGAIN;
		if (window->blocks[i].state == BLOCK_ABSENT)
			return window->blocks[i].error;
		if (window->blocks[i].state == BLOCK_TAKEN)
			return -EBUSY;
	}
	if (window->per_range) {
		int r = map_pieces(window, page, pages, alignment, ret);

		if (r < 0)
			return r;
	} else {
		*ret = window->base + page * window->page_bytes;
	}
	count_range(window, page, pages, 1);
	return 0;
}

bool window_is_writable(const struct window *window, uint32_t page, uint32_t pages)
{
	uint32_t last = (page + pages - 1) / window->block_pages;

	for (uint32_t i = page / window->block_pages; i <= last; i++)
		if (window->blocks[i].read_only)
			return false;
	return true;
}

void window_unmap_range(struct window *window, uint32_t page, uint32_t pages, void *address)
{
	if (window->per_range)
		munmap(address, pages * window->page_bytes);
	count_range(window, page, pages, -1);
}

void window_unmap_part(struct window *window, uint32_t page, uint32_t pages, void *address,
		       uint32_t offset, uint32_t n)
{
	uint32_t behind = offset + n;

	assert(n > 0 && offset < pages && n <= pages - offset);

	/* Where the kernel has no room for one more mapping the part stays, until the process ends. */
	if (window->per_range)
		munmap((uint8_t *)address + offset * window->page_bytes, n * window->page_bytes);
	count_range(window, page, pages, -1);
	if (offset > 0)
		count_range(window, page, offset, 1);
	if (behind < pages)
		count_range(window, page + behind, pages - behind, 1);
}
