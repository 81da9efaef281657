/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses libhugepool, as a child process of any uid that does what it is told. It can
 * be killed, lose its connection, or leave it to a child of its own, as programs do.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/hugepool/hugepool.h"

#define CLIENT_RANGES_MAX 256

struct client {
	pid_t pid;  /* 0: gone */
	int socket; /* for what it is told */
};

/* Starts it as this uid and connects it. */
struct client *client_new(const char *socket, uid_t uid);

/* Ends it by closing its handle and exiting; NULL is fine; returns NULL. */
struct client *client_free(struct client *client);

/* SIGKILL, and it is gone when this returns. */
void client_kill(struct client *client);

/* Takes a range, kept under this number. error: NULL, or the numbers of a failure. Return: as
 * hugepool_alloc(). */
int client_take(struct client *client, size_t number, const char *zone, uint64_t bytes,
		unsigned flags, struct hugepool_error *error);

/*
 * The same with a deadline, in two: the program asks, and others can be told things until the end
 * of it is waited for here. In between it cannot be told anything.
 */
void client_begin_take(struct client *client, size_t number, const char *zone, uint64_t bytes,
		       uint64_t deadline_ms);
int client_end_take(struct client *client, struct hugepool_error *error);

/* As hugepool_free_part(); what is left behind a hole gets the number `rest`. */
int client_give_part(struct client *client, size_t number, uint64_t offset_bytes,
		     uint64_t length_bytes, size_t rest);

/* As hugepool_free(). */
int client_give(struct client *client, size_t number);

/* Gives a range of this number that it made up, or was told by somebody: as hugepool_free(). */
int client_give_foreign(struct client *client, const struct hugepool_range *range);
struct hugepool_range client_range(struct client *client, size_t number);

/*
 * Writes a pattern made of this seed; looks whether it is (still) there, in what lay `offset_bytes`
 * behind its beginning then; whether all is zero.
 */
void client_fill(struct client *client, size_t number, uint64_t seed);
bool client_is_filled(struct client *client, size_t number, uint64_t seed);
bool client_is_filled_from(struct client *client, size_t number, uint64_t seed,
			   uint64_t offset_bytes);
bool client_is_zero(struct client *client, size_t number);

/*
 * Anything else, in its process: fn with its handle, the range of this number, and a text, which is
 * copied. It is a fork of the test, so functions are where they are. In two, as above, or in one.
 * Return: what fn returned.
 */
typedef int (*client_fn)(struct hugepool *pool, struct hugepool_range *range, const char *text);
void client_begin_run(struct client *client, size_t number, client_fn fn, const char *text);
int client_end_run(struct client *client);
int client_run(struct client *client, size_t number, client_fn fn, const char *text);

/* Its connection breaks without a goodbye; it lives and has its memory. */
void client_break(struct client *client);

/* It forks a child that has the connection and does nothing. Return: the child's pid. */
pid_t client_fork(struct client *client);
