/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What STATS, LIST and CHECK answer.
 *
 * On the data socket everybody sees the figures of all tenants (they say why there is no room), but
 * names and processes only of his own tenant; the admin sees everything. May be called from any
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/net/dispatch.h"

/* What is looked at; filled in by the server. */
struct ops {
	const struct net *net;
	struct worker *const *workers;
	size_t nr_workers;
	uint64_t started_ms;		   /* CLOCK_MONOTONIC */
	_Atomic uint64_t configured_bytes; /* zones may be resized */
	_Atomic bool ready;		   /* the configured size is there */
};

/* The functions of this module over ops, which is borrowed. */
struct looks ops_looks(struct ops *ops);
