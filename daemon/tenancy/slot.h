/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: who holds leases. A lease word names its holder by slot number; the slot tells who that
 * is, for as long as any word names it.
 *
 *   open        connected
 *   orphaned    connected, but the process that connected is gone: a child has the socket
 *   condemned   the connection is gone without a goodbye and its process lives: what it held stays
 *               charged and is nobody else's until the process is gone
 *   closing     its leases are being freed
 *
 * Order of stores: the fields, then the state; and at the end closing, then the lease words, then
 * free. The lock is the table's; counters may be read by anybody at any time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/types.h"
#include "daemon/tenancy/process.h"
#include "daemon/tenancy/tenant.h"

#define SLOT_TOKEN_BYTES 16

enum slot_state {
	SLOT_FREE,
	SLOT_OPEN,
	SLOT_CONDEMNED,
	SLOT_ORPHANED,
	SLOT_CLOSING,
	SLOT_STATES,
};

struct slot {
	/* Set by slots_open(), constant until the slot is free again. */
	uint32_t number;  /* 1 .. HP_SLOTS_MAX: in lease words */
	uint64_t session; /* its number for people, never used twice */
	struct tenant *tenant;
	struct process process;
	uint8_t token[SLOT_TOKEN_BYTES]; /* unguessable: whoever knows it may resume */
	char name[HP_NAME_MAX + 1];	 /* as the client said */
	uint64_t opened_ms;		 /* CLOCK_MONOTONIC */

	_Atomic uint32_t state; /* enum slot_state; slots_set_state() */

	/* Of the table, under its lock. */
	bool connected; /* a connection speaks for it */
	bool expired;	/* nobody may resume it any more */
	uint32_t turn;	/* counts who has spoken for it: see slots_take() */
	unsigned keeper_worker;
	void *keeper; /* the broken session that waits for the end of its process, of that worker */

	/* Written by the session's worker alone. */
	_Atomic uint64_t leases;
	_Atomic uint64_t pages[HP_ZONES_MAX];	      /* leased, per zone; without shares */
	_Atomic uint64_t attached_bytes;	      /* of shares, each counted among the leases */
	_Atomic uint64_t revoked_pages[HP_ZONES_MAX]; /* taken from a lease, and not let go of */

	/* Of notice.h. The first is anybody's to add to; the second is the worker's alone. */
	struct notice
		*_Atomic notices; /* that nobody has told the session of, the last one first */
	struct notice *revoked;	  /* leases that were taken, and not acknowledged */
};

struct slots;

/*
 * tenants and pool, in whose state the records of slots are, are borrowed. What another daemon left
 * there comes back by slots_restore(). Return: 0 or -ENOMEM.
 */
int slots_new(struct slots **ret, struct tenants *tenants, struct pool *pool);
struct slots *slots_free(struct slots *slots); /* NULL is fine; returns NULL */

enum slot_condition {
	SLOT_TOO_MANY = 1,	 /* HP_SLOTS_MAX */
	SLOT_TOO_MANY_OF_TENANT, /* HP_SLOTS_PER_TENANT_MAX */
	SLOT_UNKNOWN,		 /* there is no such slot, or not for this process */
	SLOT_EXPIRED,		 /* too late */
	SLOT_CONNECTED,		 /* its connection is still there */
};

/*
 * A slot for a new session, open; the tenant is held until slots_close(). name: NUL-terminated.
 * Return: 0, a condition, -errno if the kernel has no random bytes.
 */
int slots_open(struct slots *slots, struct tenant *tenant, const struct process *process,
	       const char *name, struct slot **ret);

/* The one way for a slot to change: a transition that is not allowed is our own bug. */
void slots_set_state(struct slots *slots, struct slot *slot, enum slot_state state);

/*
 * Before anything is served: takes back the slots of another daemon, as condemned or orphaned ones
 * without a connection, or closing where their end had begun. Their sums are leases_restore()'s.
 */
void slots_restore(struct slots *slots);

/* The slot of this number, in use; NULL otherwise. */
struct slot *slots_find(struct slots *slots, uint32_t number);

/* The connection is gone: whoever keeps the slot waits for its process, or for somebody to resume it. */
void slots_break(struct slots *slots, struct slot *slot, unsigned worker, void *keeper);

/*
 * A new connection of this process speaks for the slot of the token from now on, open again. ret_worker,
 * ret_keeper: who kept it until now. Return: 0; SLOT_UNKNOWN, SLOT_EXPIRED, SLOT_CONNECTED.
 */
int slots_resume(struct slots *slots, const uint8_t token[SLOT_TOKEN_BYTES],
		 const struct tenant *tenant, const struct process *process, struct slot **ret,
		 unsigned *ret_worker, void **ret_keeper);

/*
 * Whoever kept the slot since `turn` ends it: it is closing. False: another connection speaks for it by
 * now, or it is another session's.
 */
bool slots_take(struct slots *slots, struct slot *slot, uint32_t turn);

/* The same way: nobody may resume it any more. */
bool slots_expire(struct slots *slots, struct slot *slot, uint32_t turn);

/* Does the slot still belong to whoever has it since `turn`? */
bool slots_is_turn(struct slots *slots, const struct slot *slot, uint32_t turn);

/* From closing to free, when no lease word names it any more. */
void slots_close(struct slots *slots, struct slot *slot);

/* The slot of this number, 1 .. HP_SLOTS_MAX: for who knows that a lease word names it. */
struct slot *slots_get(struct slots *slots, uint32_t number);

/* How many slots are in this state. */
uint32_t slots_count(struct slots *slots, enum slot_state state);

/* Pages of a zone that condemned slots hold. */
uint64_t slots_condemned_pages(struct slots *slots, size_t zone_id);

/*
 * Looks at the slots in use from number `from` on, in order, until fn returns nonzero, which is
 * passed on. The table is locked meanwhile: fn must not call back into it.
 */
typedef int (*slot_look_fn)(void *userdata, const struct slot *slot);
int slots_look(struct slots *slots, uint32_t from, slot_look_fn fn, void *userdata);

/* The slot of this number if it is in use, with fn as above; otherwise 0. */
int slots_look_one(struct slots *slots, uint32_t number, slot_look_fn fn, void *userdata);

const char *slot_state_name(enum slot_state state);
