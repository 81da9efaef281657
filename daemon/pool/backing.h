/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block's memory is made of: one table of operations for each kind.
 *
 * A block lives many lives; each is one file that is made whole, handed out, emptied and let go. Only
 * one recycler at a time works on a block; open() alone is called beside it, by event loops. Nothing
 * here knows of zones' words, owners or time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BACKING_REASON_MAX 128

struct bound_zone;
struct pool_block;

/* The part of a block that belongs to its backing. */
struct backing_block {
	int fd;		     /* hugetlb: its directory; otherwise the file of this life; -1: none */
	ino_t inode;	     /* of that file */
	uint64_t generation; /* of the latest life: the name of its file */
};

enum backing_condition {
	BACKING_HELD = 1, /* somebody still has an old file open or mapped */
	BACKING_SHORT,	  /* not all pages are there */
	BACKING_BARE,	  /* there is no file, and so nothing to lose */
};

struct backing_ops {
	const char *name;

	/*
	 * Pages above the number asked for, where this block has its own: those would be lost if they
	 * were truncated now. Return: 0; BACKING_BARE; -errno.
	 */
	int (*surplus)(struct pool_block *block, uint64_t *ret_pages);

	/*
	 * Takes every page out of every file of the block, so that all mappings of them are dead.
	 * May wait for whoever holds a file's lock. Learns the generation of files that it finds.
	 * Return: 0 or -errno.
	 */
	int (*empty)(struct pool_block *block);

	/*
	 * Removes every file that nobody holds any more. Return: 0: none is left; BACKING_HELD,
	 * with the reason; -errno.
	 */
	int (*release)(struct pool_block *block, char reason[BACKING_REASON_MAX]);

	/*
	 * Makes the file of a new life, all its pages allocated and zero, on the node of the zone.
	 * There is no other file. Return: 0; BACKING_SHORT, with the reason; -errno. No file is
	 * left where it is not 0.
	 */
	int (*make)(struct pool_block *block, uint64_t generation, char reason[BACKING_REASON_MAX]);

	/*
	 * Is the file of this life there and whole, as another daemon left it? Other files are of no
	 * account: a whole one has all the pages. Return: 0; BACKING_SHORT, with the reason; -errno.
	 */
	int (*adopt)(struct pool_block *block, uint64_t generation,
		     char reason[BACKING_REASON_MAX]);

	/*
	 * A new open file description of the file of this life; access: O_RDWR or O_RDONLY. Never
	 * waits. Return: it, -errno.
	 */
	int (*open)(struct pool_block *block, uint64_t generation, int access);

	/* Empties and removes every file, whoever holds it, and lets go of the block's memory. */
	void (*drop)(struct pool_block *block);

	/* Lets go of the block's memory and leaves the files as they are. */
	void (*leave)(struct pool_block *block);
};

extern const struct backing_ops backing_hugetlb, backing_memfd, backing_shmem;

/* The calling thread allocates on this node from now on; -1: anywhere. Return: 0 or -errno. */
int backing_bind_node(int node);

/*
 * Are all pages of a file that nobody else has seen on this node? Return: 0, BACKING_SHORT with the
 * reason, or -errno.
 */
int backing_check_node(int fd, uint64_t bytes, uint64_t page_bytes, int node,
		       char reason[BACKING_REASON_MAX]);
