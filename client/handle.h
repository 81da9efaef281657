/* SPDX-License-Identifier: Apache-2.0 */
/* What a handle is made of. For client/ and its tools only. */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "client/connection.h"
#include "client/event.h"
#include "client/include/hugepool/hugepool.h"
#include "client/loop.h"
#include "client/pending.h"
#include "client/range.h"
#include "client/resume.h"
#include "client/window.h"
#include "client/zero.h"

struct hugepool {
	pthread_mutex_t mutex; /* guards everything below but pid and flags */
	pid_t pid;	       /* whoever opened it; a child of fork() is not */
	unsigned flags;	       /* enum hugepool_flags */
	bool keep_fds;	       /* of blocks that come now: the request asks for exclusive ones */
	bool break_logged;     /* why the connection is broken */
	bool asking;	       /* a call waits for a GRANT */
	bool closing;	       /* it has nothing any more: only the daemon's DONE counts */
	uint16_t last_tag;     /* of requests */
	uint16_t last_release; /* tag, of blocks that are let go of while there may be a GRANT */
	struct connection connection;
	struct window windows[HP_ZONES_MAX];
	size_t nr_windows;
	struct range_table ranges;
	struct recency recency;
	struct events events;
	struct loop loop;
	struct pendings pendings;
	struct resume resume;
	struct hugepool_error error;
};

/* As hugepool_open(); on failure ret_error, if not NULL, tells what hugepool_get_error() would. */
int handle_open(struct hugepool **ret, const struct hugepool_options *options,
		struct hugepool_error *ret_error);

/* NULL: no such zone. */
struct window *handle_window(struct hugepool *pool, uint32_t zone);

/* What the program calls a range that is held. */
struct hugepool_range handle_name_range(struct hugepool *pool, const struct held_range *held);

/* Writes the last error down, with its message. error: -errno. */
void handle_note(struct hugepool *pool, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same as an expression whose value is the error: compilers see that it is not 0. */
#define handle_fail(pool, error, ...) (handle_note(pool, error, __VA_ARGS__), (error))

/* Takes the mutex. Return: 0, or -ECHILD in a child of fork(), without it. */
int handle_enter(struct hugepool *pool);

/* Lets go of it. Return: r. */
int handle_leave(struct hugepool *pool, int r);

/* The size of a struct that we are to fill. Return: 0, or -EINVAL if it is none. */
int handle_check_size(size_t size);

/*
 * Copies a struct of the caller's, which begins with its size. first: the size of its first
 * version; what later ones have added and he does not have is 0. What we do not know of, because
 * his header is newer, has to be 0. Return: 0; -EINVAL: smaller than its first version, or no size;
 * -E2BIG: he asks for what we do not know.
 */
int handle_take_struct(void *ret, size_t size, size_t first, const void *theirs);
