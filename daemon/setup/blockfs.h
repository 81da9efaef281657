/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system of one block: a hugetlbfs of exactly its size, every page of which the kernel
 * reserves when it is made.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HUGETLBFS_SUPER_MAGIC 0x958458f6

/*
 * Makes one that belongs to uid, attached to no place. Return: the descriptor of the mount (O_PATH),
 * which holds it; -ENOMEM if the kernel has not enough free pages; -errno.
 */
int blockfs_new(uint64_t page_bytes, uint64_t block_bytes, uid_t uid);

/* Attaches it to a directory, named relative to dirfd. Return: 0 or -errno. */
int blockfs_attach(int mount_fd, int dirfd, const char *path);

/* A new open file description of its root directory, fit to be handed out. Return: it or -errno. */
int blockfs_open(int dirfd, const char *path);

/* What it is; -ENOTTY if this is no hugetlbfs. Never waits. */
struct blockfs_info {
	uint64_t page_bytes;
	uint64_t pages, free_pages;
	uid_t uid;
};
int blockfs_info(int fd, struct blockfs_info *ret);

/*
 * Whether a daemon works with it: a lock on the directory, taken by hugepoold on what it is handed.
 * fd: from blockfs_open(). Return: 1, 0 or -errno.
 */
int blockfs_in_use(int fd);

/*
 * Keeps daemons from working with it until fd, of blockfs_open(), is closed. Return: 0, -errno, or 1: a
 * daemon works with it, or somebody looks whether one does.
 */
int blockfs_keep(int fd);

/* Does no daemon work with it, and is no file in it? fd: of blockfs_open(). Return: 1, 0 or -errno. */
int blockfs_is_spare(int fd);

/*
 * Whether a process has a descriptor or a mapping of a file in it: somebody's memory. fd: from
 * blockfs_open(). Return: 1, 0 or -errno.
 */
int blockfs_held(int fd);

/*
 * The same of one file. fd: a description that nobody else has, open for writing; ours or with
 * CAP_LEASE. Return: 1, 0 or -errno.
 */
int blockfs_file_held(int fd);

/* Takes every page out of a file. Twice: a fault that races with the first can leave one behind. */
int blockfs_empty_file(int fd);

/*
 * Takes every page out of every file (mappings of them give SIGBUS) and removes the files. fd: from
 * blockfs_open(). May wait for holders of a file's lock. Return: 0 or the first -errno.
 */
int blockfs_wipe(int fd);
