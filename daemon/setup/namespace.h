/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount namespace of the blocks, pinned at a path so that it outlives whoever made it. In it the
 * directory of the pin is covered by a file system of our own, with one directory for each zone and
 * in it one for each block, named by its number.
 */
#pragma once

#include <limits.h>

struct setup_namespace {
	char pin[PATH_MAX], directory[PATH_MAX];
	int dirfd; /* the host's directory of the pin, where the record and the lock are */
	int lock;  /* see lock_setup(); -1: none is held */
	int home;  /* the namespace we came from, while inside; -1: outside */
};

enum namespace_use {
	NAMESPACE_LOOK,	  /* whatever others do to it */
	NAMESPACE_USE,	  /* it stays as it is meanwhile; many can */
	NAMESPACE_CHANGE, /* alone */
	NAMESPACE_CREATE, /* alone, and its directory is made if it is missing */
};

/*
 * Opens the directory of the pin. Return: 0; -ENOENT: there is none; -EBUSY: another hugepool-setup is
 * at work on it; -errno.
 */
int namespace_open(struct setup_namespace *ret, const char *pin, enum namespace_use use);
void namespace_close(struct setup_namespace *ns);

/* Return: 1, 0 or -errno. */
int namespace_is_pinned(const struct setup_namespace *ns);

/* Makes and pins it. Return: 0 or -errno, and then it is not pinned. */
int namespace_create(const struct setup_namespace *ns);

/*
 * Takes the calling process, which must have one thread, into it; the current directory is then that
 * of the zones. And back. Return: 0 or -errno, of namespace_enter() with everything as it was.
 */
int namespace_enter(struct setup_namespace *ns);
int namespace_leave(struct setup_namespace *ns);

/* Lets go of it: its mounts vanish when nobody uses them. Fine if it is not pinned. */
int namespace_unpin(const struct setup_namespace *ns);

/*
 * Calls fn for each block that is mounted, in order, from inside; fd is a new open file description
 * of its directory and belongs to fn. A value other than 0 ends it and is returned.
 */
typedef int (*namespace_block_fn)(void *userdata, const char *zone, unsigned block, int fd);
int namespace_for_each_block(namespace_block_fn fn, void *userdata);
