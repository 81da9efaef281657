/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool for tests: made from the text of a configuration, with callbacks that count, and waits that
 * are bounded.
 */
#pragma once

#include "daemon/pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FIXTURE_TIMEOUT_MS 20000
#define FIXTURE_OWNERS	   16

struct fixture {
	char directory[64]; /* for sockets and configuration; removed at the end */
	struct config *config;
	struct pool *pool;
	struct pool_zone *zone; /* the first */

	/* Written by the callbacks; the details before the number that counts them. */
	atomic_uint clean, retired, owner_changed[FIXTURE_OWNERS], filled;
	_Atomic uint64_t online_bytes, configured_bytes, retired_generation;
	_Atomic uint32_t retired_block;
};

/* DIR in the text stands for the fixture's directory. Return: of pool_new(). */
int fixture_try(struct fixture *fixture, const char *config_text);

/* pool_new(), pool_start(), and waits until it is filled. */
void fixture_open(struct fixture *fixture, const char *config_text);
void fixture_close(struct fixture *fixture);

/* Until it holds, or fails the test. */
#define fixture_wait(condition)                                         \
	do {                                                            \
		unsigned fixture_ms_ = 0;                               \
                                                                        \
		while (!(condition)) {                                  \
			if (fixture_ms_++ > FIXTURE_TIMEOUT_MS)         \
				fail_msg("in vain for %s", #condition); \
			fixture_sleep_ms(1);                            \
		}                                                       \
	} while (0)
void fixture_sleep_ms(unsigned ms);

enum hp_block_state fixture_state(struct fixture *fixture, uint32_t block);
uint32_t fixture_clean_blocks(struct fixture *fixture);
struct hp_grant fixture_alloc(struct fixture *fixture, uint32_t owner, uint32_t pages);
void fixture_free(struct fixture *fixture, uint32_t owner, const struct hp_grant *grant);
uint32_t fixture_block(const struct fixture *fixture, const struct hp_grant *grant);
void fixture_check_zone(struct fixture *fixture); /* hp_zone_check() finds nothing */

/* The first byte of each page, and one in the middle, are what; returns the first page that is not. */
void fixture_fill(char *memory, size_t bytes, char what);
bool fixture_is_zero(const char *memory, size_t bytes);

/* Does reading there end in SIGBUS? */
bool fixture_is_dead(const volatile char *address);

/* Machine's figures of 2 MiB pages. */
uint64_t fixture_hugepages(const char *name);
void fixture_set_number(const char *name, uint64_t number);
void fixture_set_hugepages(uint64_t number);

/* Descriptors that this process has open. */
unsigned fixture_open_descriptors(void);
