/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the longest turn of an event loop was: from the moment it took up one event to the moment
 * it was done with it, all others waiting meanwhile.
 *
 * Counted is what the turn itself took: work, and sleep in a call that somebody holds up. Not counted
 * is time in which the thread was ready to run and the machine had no processor for it, which
 * says something about the machine and nothing about us. The kernel's account of that (schedstat)
 * costs a system call, so it is read at most once a millisecond, and else only after a turn that
 * was long: what a turn is credited with may lie up to that millisecond before it.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct turn {
	int schedstat;		     /* the thread's; -1: there is none, all time counts */
	uint64_t began_ns;	     /* CLOCK_MONOTONIC */
	uint64_t looked_ns;	     /* when waited_ns was read */
	uint64_t waited_ns;	     /* in all, ready to run */
	_Atomic uint64_t longest_ns; /* looked at by anybody */
};

/* Before the first turn, by the thread of the loop. */
void turn_init(struct turn *turn);
void turn_deinit(struct turn *turn);

/* Around the handling of each event. */
void turn_begin(struct turn *turn);
void turn_end(struct turn *turn);
