/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request for ranges, in steps: what a call that waits does in one go is done piece by piece where
 * the answer comes later (pending.c). The caller has the handle's mutex, unless said otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/handle.h"

/* So often a grant in a block that we do not have is given back and asked for again. */
#define ALLOC_TRIES 2

/* A request in the daemon's words. */
struct wanted {
	struct window *window;
	uint64_t alignment; /* bytes */
	uint64_t bytes;	    /* asked for in all */
	uint32_t pages, align_pages;
	size_t count;
	bool zero, exclusive, shareable;
	uint64_t until_ns; /* it may wait, CLOCK_MONOTONIC; 0: not at all */
	uint32_t priority;
};

/* What is known of a range the moment it is granted. */
struct origin {
	bool zeroed; /* every byte is 0 */
	bool hot;    /* likely to be in a cache of the processor */
};

/* Return: 0, or -errno with the reason noted. */
int alloc_translate(struct hugepool *pool, const struct hugepool_request *theirs, size_t count,
		    struct wanted *ret);

/*
 * Makes room for the ranges, so that a grant of them cannot be lost, and lets go of blocks that are in
 * the way. Return: 0, or -ENOMEM with the reason noted.
 */
int alloc_prepare(struct hugepool *pool, const struct wanted *wanted);

/* The message, which borrows from *wanted. */
void alloc_put_message(const struct wanted *wanted, Hugepool__V1__Alloc *ret);

/*
 * Takes a grant: maps its ranges and writes them down, all or none; ret and ret_origin have room for
 * wanted->count. Return: 0; -EPROTO if it is not what was asked for, with the connection broken; or
 * why a block of it cannot be used (-EAGAIN: its descriptor never came), and it has to go back.
 */
int alloc_accept(struct hugepool *pool, const struct wanted *wanted,
		 const Hugepool__V1__Ranges *grant, struct hugepool_range *ret,
		 struct origin *ret_origin);

/* The request that gives a grant back. */
uint8_t alloc_free_type(const struct wanted *wanted);

/* Lets go of the blocks of a grant that could not be used and has been given back. */
void alloc_release_blocks(struct hugepool *pool, const struct wanted *wanted,
			  const Hugepool__V1__Ranges *grant);

/* As hugepool_alloc_bulk(), without zeroing anything. Takes the mutex itself. */
int alloc_take(struct hugepool *pool, const struct hugepool_request *request,
	       struct hugepool_range *ret, struct origin *ret_origin, size_t n);
