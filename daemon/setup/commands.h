/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of hugepool-setup, one file each. Each returns an exit status and has said on stderr
 * why, if it is not 0.
 */
#pragma once

#include "daemon/config.h"

struct setup_options {
	const struct config *config;
	uid_t uid; /* --user: whose the blocks are to be */
	bool json, force;
	const char *listen; /* NULL: that of the configuration */
	const char *zone;   /* grow, shrink: which, and to what */
	uint64_t size_bytes;
};

int setup_up(const struct setup_options *options);
int setup_down(const struct setup_options *options);
int setup_fds(const struct setup_options *options);
int setup_grow(const struct setup_options *options);
int setup_shrink(const struct setup_options *options);
int setup_status(const struct setup_options *options);

/* Needs no configuration: serves the daemon at the other end of the socket on descriptor 0. */
int setup_guard(void);

/* "hugepool-setup: ..." on stderr. Return: 1, the exit status of a failure. */
int setup_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void setup_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
