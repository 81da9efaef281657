/* SPDX-License-Identifier: Apache-2.0 */
/* What the client's tests share: one daemon and one handle for each, and a count of descriptors. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "client/include/hugepool/hugepool.h"
#include "tests/client/fake.h"

struct fixture {
	struct fake fake;
	struct hugepool *pool; /* NULL, or closed at the end */
	size_t open_before;
};

size_t count_open(void);

/* Lines of /proc/self/maps that mention the daemon's files: mapped blocks, or pieces of them. */
size_t count_mapped(void);

struct hugepool *open_pool(struct fixture *fixture, unsigned flags, int timeout_ms);

/* n pages. The returned range is good, or the test has failed. */
struct hugepool_range take(struct hugepool *pool, uint64_t n_pages, unsigned flags);
struct hugepool_request request_of(const struct fixture *fixture, uint64_t n_pages, unsigned flags);
struct hugepool_error error_of(struct hugepool *pool);

/* Page faults, of any kind, from writing to every 4 KiB of it. */
long faults_of_touching(const struct hugepool_range *range);

int fixture_setup(void **state);
int fixture_teardown(void **state);

#define FIXTURE_TEST(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
