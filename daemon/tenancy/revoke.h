/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations: an operator wants memory back that is leased. The holders are asked, and have until
 * a deadline; with force, what they have not given back by then is taken, by whole blocks.
 *
 * A revocation is moved on by whoever has made it, in any one thread, who looks when he is told to.
 * Its targets are the leases that there are when it is made, not those that come later: whoever
 * wants no new ones sees to that himself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/pool/pool.h"
#include "daemon/tenancy/lease.h"
#include "daemon/tenancy/slot.h"

struct revokes;
struct revocation;

/* There are notices for sessions. Any thread. */
typedef void (*revokes_tell_fn)(void *userdata);

/* All are borrowed. Return: 0 or -ENOMEM. */
int revokes_new(struct revokes **ret, struct pool *pool, struct slots *slots,
		const struct leases *leases, revokes_tell_fn tell, void *userdata);
struct revokes *revokes_free(struct revokes *revokes); /* NULL is fine; returns NULL */

enum revoke_by {
	REVOKE_RANGES,	/* these leases, exactly */
	REVOKE_SESSION, /* all of this holder */
	REVOKE_OWNER,	/* all of this tenant's holders */
	REVOKE_BLOCKS,	/* all that touch these blocks */
};

struct revoke_block {
	uint32_t index;
	uint64_t generation; /* 0: whichever it is */
};

struct revoke_what {
	enum revoke_by by;
	uint64_t session; /* its number */
	uint32_t owner;
	const struct pool_zone *zone; /* REVOKE_BLOCKS */
	const struct hp_range *ranges;
	const struct revoke_block *blocks;
	size_t n; /* ranges or blocks */
};

enum revoke_condition {
	REVOKE_NO_LEASE = 1, /* ret_bad: which of the ranges is leased by nobody */
	REVOKE_NO_BLOCK,     /* ret_bad: which of the blocks there is not, or not in that life */
	REVOKE_NO_SESSION,
};

/*
 * Finds the leases and asks their holders; what is borrowed for the call. deadline_ms: from now; 0
 * with force: takes at the first look, without having asked. Return: 0, a condition, or -ENOMEM.
 */
int revocation_new(struct revocation **ret, struct revokes *revokes, const struct revoke_what *what,
		   uint32_t deadline_ms, bool force, size_t *ret_bad);

/* NULL is fine; returns NULL. What has been asked for and taken stays so. */
struct revocation *revocation_free(struct revocation *revocation);

/*
 * Looks how far it is, and takes some blocks if the time has come: a few at a time, so that an event
 * loop may call it. Return: 0: it is over; or in how many ms to look again, at least 1.
 */
uint32_t revocation_step(struct revocation *revocation);

#define REVOCATION_ROWS_MAX 64

struct revocation_row {
	struct hp_range range;
	uint64_t session, age_ms;
};

/* So far, or in the end. */
struct revocation_result {
	uint64_t acknowledged_pages; /* given back */
	uint64_t forced_pages;	     /* taken */
	uint64_t left_pages;	     /* neither */
	uint32_t nr_hit, nr_left;
	struct revocation_row hit[REVOCATION_ROWS_MAX];	 /* other leases that lost pages */
	struct revocation_row left[REVOCATION_ROWS_MAX]; /* the first of what is left */
};
void revocation_get_result(struct revocation *revocation, struct revocation_result *ret);
