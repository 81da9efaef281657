/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hugepool-setup has done to the machine's numbers of huge pages and for whom: beside the pin,
 * so that "down", perhaps of another process after a kill, takes off exactly what was added.
 *
 * Each change is written down as an intention before it is made. If the process dies in between, the
 * next one looks at how far the kernel's number has moved towards what was intended, and books that.
 */
#pragma once

#include "daemon/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SETUP_RECORD_NAME "setup.json"
#define SETUP_CHANGES_MAX 64

struct setup_change {
	uint64_t page_bytes;
	int node;	/* -1: the machine's number */
	uint64_t added; /* by us, in pages */
	bool pending;	/* a change from -> to was about to be made */
	uint64_t from, to;
};

/*
 * A resize under way: how things stood before. What was added since, and is not in blocks that came
 * since, goes back: see resize_settle().
 */
struct setup_resize {
	bool pending;
	char zone[CONFIG_NAME_MAX + 1];
	uint64_t page_bytes, added_pages;
	int node;
	uint32_t block_pages, blocks;
};

struct setup_record {
	int dirfd; /* borrowed; -1: kept in memory only (a guard) */
	uid_t uid; /* whose the blocks are */
	uint32_t nr;
	struct setup_change changes[SETUP_CHANGES_MAX];
	struct setup_resize resize;
};

void setup_record_init(struct setup_record *record, int dirfd, uid_t uid);

/*
 * Reads the record, if there is one of this boot. Return: 1; 0 if there is none (record as after
 * init); -errno (-EBADMSG: not readable as a record).
 */
int setup_record_load(struct setup_record *record);

/* Books a change that was interrupted. The directory is locked. Return: 0 or -errno. */
int setup_record_recover(struct setup_record *record);

/* Atomically. Return: 0 or -errno. */
int setup_record_save(const struct setup_record *record);
int setup_record_remove(const struct setup_record *record);

/*
 * Changes the number of pages by so many, up or down, as far as the kernel goes along; the lock of
 * hugepages.h is held. ret_moved: by how many it did. Return: 0 or -errno.
 */
int setup_record_change(struct setup_record *record, uint64_t page_bytes, int node, int64_t by,
			int64_t *ret_moved);

/* What was added by us so far, in pages. */
uint64_t setup_record_added(const struct setup_record *record, uint64_t page_bytes, int node);

/* Takes off all that was added. The last step of "down". Return: 0 or the first -errno. */
int setup_record_take_off(struct setup_record *record);
