/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going on after the connection broke, with the same daemon or the next one: connects again, tells
 * what is held, and the program has noticed a delay. The caller has the handle's mutex.
 *
 * Nothing is kept for this but who we are: what is held is in the handle's tables, and is sorted
 * when it is wanted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/message.h"

#define RESUME_TOKEN_MAX 32

struct hugepool;

struct resume {
	char *path; /* of the daemon's socket; NULL: not to be resumed */
	char name[HP_NAME_MAX + 1];
	int timeout_ms; /* the program's; 0: as long as the daemon waits, negative: never */
	uint8_t token[RESUME_TOKEN_MAX];
	size_t token_bytes; /* 0: there is nothing to go on with */
	uint32_t grace_ms;  /* how long the daemon waits for us */
	bool durable;	    /* leases outlive it */
	bool under_way;	    /* an attempt is being made */
	uint64_t until_ns;  /* CLOCK_MONOTONIC; 0: nothing is broken */
	uint64_t next_ns;   /* no attempt before */
	uint32_t delay_ms;  /* after the next one that fails */
};

/* Return: 0 or -ENOMEM. */
int resume_init(struct resume *resume, const char *path, const char *name, int timeout_ms);
void resume_deinit(struct resume *resume);

/* The daemon has said who we are. */
void resume_note_welcome(struct resume *resume, const Hugepool__V1__Welcome *welcome);

/* HELLO; the reply is borrowed until the next exchange. Return: as request_exchange(). */
int resume_say_hello(struct hugepool *pool, const Hugepool__V1__Welcome **ret);

/* The connection is broken in a way that it may be resumed from. */
bool resume_is_possible(const struct hugepool *pool);

/*
 * One attempt, if it is time for one. Return: 0: everything is as it was, and what was under way is
 * settled: ranges that were leaving are gone; -EAGAIN: not yet, see resume.next_ns; other -errno,
 * with the handle's error written: never more.
 */
int resume_try(struct hugepool *pool);

/* As that, until it has come to an end. */
int resume_wait(struct hugepool *pool);
