/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator's revocation means for a holder: asked to let go of a lease, or a block of it was
 * taken. Posted to the slot from any thread, as a stack that needs no lock and no memory, since a
 * block is taken under the lock of its zone; the worker of the slot's session takes them off.
 *
 * One that tells of something taken lives on in slot->revoked until the holder has acknowledged: it
 * remembers the lease as the holder knows it, and which word of it is left.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "alloc/types.h"
#include "daemon/tenancy/slot.h"

enum notice_kind { NOTICE_ASKED, NOTICE_TAKEN };

struct notice {
	struct notice *next;
	enum notice_kind kind;
	struct hp_range range; /* the lease; NOTICE_TAKEN: the word as it was */
	/* NOTICE_ASKED */
	uint64_t deadline_ms; /* CLOCK_MONOTONIC */
	bool force;	      /* it is taken then */
	/* NOTICE_TAKEN */
	uint32_t block;
	uint64_t generation; /* of the life that has ended */
	uint32_t
		taken_pages; /* of the word; 0: another notice has told of them (two parts are left) */
	bool again;	     /* a block was taken from this lease before */
	struct hp_range part; /* what is left of the word, revoked; pages 0: nothing */
	struct hp_range name; /* the lease as its holder knows it: filled in when it is taken off */
};

/* Consumes it. From any thread. */
void notice_post(struct slot *slot, struct notice *notice);

/* All of them, in the order in which they came, now the caller's. NULL: none. */
struct notice *notice_take_all(struct slot *slot);

/* Frees a list; NULL is fine. Returns NULL. */
struct notice *notice_free_all(struct notice *notice);

bool range_equal(const struct hp_range *a, const struct hp_range *b);
