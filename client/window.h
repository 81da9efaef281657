/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone as its client sees it: its shape, its blocks, and where they are in our address space.
 *
 * Pages are numbered as on the wire. No locks here, no socket: the handle has both.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

enum block_state {
	BLOCK_UNKNOWN, /* we have nothing of it; the daemon sends a descriptor when it is needed */
	BLOCK_ABSENT,  /* its descriptor was sent and we could not use it: .error tells why */
	BLOCK_MAPPED,  /* mapped, or (without a window) its descriptor is kept for mapping */
	BLOCK_TAKEN, /* taken from us; ordinary memory is in its place until its ranges are freed */
};

struct block {
	uint64_t generation;
	uint32_t ranges; /* of this handle that lie in it */
	int fd;		 /* -1: not kept */
	int error;	 /* of BLOCK_ABSENT, -errno */
	enum block_state state;
	bool read_only;	  /* its descriptor was */
	bool retired;	  /* to be let go of with its last range */
	uint16_t leaving; /* tag of the RELEASE_BLOCK that is under way for it; 0: none */
};

struct window {
	char name[HP_NAME_MAX + 1];
	uint8_t id; /* the zone's number in ranges */
	uint64_t page_bytes, block_bytes;
	uint32_t pages, block_pages, nr_blocks;
	uint64_t alignment; /* of base, bytes */
	uint8_t *base;	    /* where page 0 is; NULL: not reserved */
	bool per_range; /* there was no room for the whole zone: each range is mapped by itself */
	/* Caches of ranges of this zone are to give back what they have whenever it changes. */
	atomic_uint drains;
	bool inherit; /* children of fork() get the mappings */
	struct block *blocks;
};

/*
 * Takes the shape of a zone from the daemon's words. Return: 0; -EPROTO if they make no sense;
 * -ENOMEM. Needs window_deinit() only on success.
 */
int window_init(struct window *window, const Hugepool__V1__Zone *zone, bool inherit);

/*
 * Forgets everything. unmap: also the mappings (not in a child of fork(), whose address space may
 * have something else there).
 */
void window_deinit(struct window *window, bool unmap);

/* Ranges of this zone that caches keep are wanted, or are not what they were: any thread. */
static inline void window_drain_caches(struct window *window)
{
	atomic_fetch_add_explicit(&window->drains, 1, memory_order_relaxed);
}

/* Finds address space for the whole zone, once. If there is none, ranges are mapped one by one. */
void window_reserve(struct window *window);

/*
 * A block's descriptor has come; it is consumed, and closed unless keep_fd. What cannot be used
 * makes the block BLOCK_ABSENT. fd -1: it was lost on the way. Return: 0, or -EPROTO if ranges lie
 * in another life of the block.
 */
int window_add_block(struct window *window, struct hp_wire_block block, int fd, bool keep_fd);

/*
 * Lets go of a block that has no ranges: unmapped, closed, BLOCK_UNKNOWN. Return: 0; -ENOMEM if the
 * kernel cannot even do that, and nothing has changed.
 */
int window_drop_block(struct window *window, uint32_t index);

/*
 * The memory of a block is gone while ranges lie in it: puts ordinary memory in its place, so that
 * touching it is no signal. Without a window that is done range by range, by window_take_part(). It
 * stays until the last of its ranges is unmapped and the block is dropped. Return: 0 or -ENOMEM: then
 * it is as before.
 */
int window_take_block(struct window *window, uint32_t index);
int window_take_part(struct window *window, uint32_t index, uint32_t page, uint32_t pages,
		     void *address);

/*
 * Makes pages accessible, aligned to `alignment` bytes, and counts the range in its blocks. Return:
 * 0; -EAGAIN if a block's descriptor never came, or why a block is absent; -EBUSY if ranges of an
 * earlier life are in its place; -ENOMEM.
 */
int window_map_range(struct window *window, uint32_t page, uint32_t pages, uint64_t alignment,
		     void **ret);

/* Can all of these pages be written, by the descriptors of their blocks? */
bool window_is_writable(const struct window *window, uint32_t page, uint32_t pages);

/* The opposite. */
void window_unmap_range(struct window *window, uint32_t page, uint32_t pages, void *address);

/*
 * The opposite for n pages of a range, from page `offset` of it on. What is left, before and
 * behind, stays mapped where it is and counts as ranges of their own.
 */
void window_unmap_part(struct window *window, uint32_t page, uint32_t pages, void *address,
		       uint32_t offset, uint32_t n);
