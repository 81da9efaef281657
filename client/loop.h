/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One descriptor for the program's event loop: an epoll set that outlives every connection, with the
 * present socket and a timer in it. It is made when it is first wanted, so that a handle which is
 * never dispatched costs no descriptors. The caller has the handle's mutex.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hugepool;

struct loop {
	int epoll;	  /* -1: not made */
	int timer;	  /* armed for wake_ns */
	int socket;	  /* that is in the set; -1: none */
	bool writing;	  /* it is watched for room to write, too */
	uint64_t wake_ns; /* CLOCK_MONOTONIC; UINT64_MAX: never */
};

void loop_init(struct loop *loop);

/* In a child of fork() as well: the set itself, which is its parent's, is left as it is. */
void loop_deinit(struct loop *loop);

/* The connection has a (new) socket: it is watched from now on, if there is a set. */
void loop_watch(struct hugepool *pool);

/* It is about to be closed, or has nothing to say any more. */
void loop_unwatch(struct hugepool *pool);

/*
 * Takes in what the daemon has sent, without waiting, also for other threads; it is told later.
 * Without the mutex.
 */
void loop_glance(struct hugepool *pool);

/* Whether to dispatch as soon as the socket takes more. */
void loop_want_write(struct hugepool *pool, bool want);

/* hugepool_dispatch() has something to do now, or at that time at the latest. */
void loop_wake(struct hugepool *pool);
void loop_wake_at(struct hugepool *pool, uint64_t ns);
