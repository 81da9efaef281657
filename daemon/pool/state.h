/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state file: what a daemon leaves to the next one, right after a kill at any instruction.
 *
 * One mapping of 64-bit words, shared with a file where one is configured, private memory otherwise;
 * nobody above has to know which. In it, each from a page of its own on:
 *
 *   header       magic, version, boot id, geometry of every zone and table; written once
 *   zones        the durable words of each zone of the allocator: alloc/durable.h
 *   owners       who stands behind an owner number           one record for each number
 *   sessions     who stands behind a slot of a lease word    one record for each slot
 *   shares       ranges that were published
 *   attachments  who has them
 *
 * Invariants, at every moment at which the daemon may be killed:
 *
 *   - Each store is a release store of one word. A record's state word is stored behind its fields, so
 *     what is not free is whole: its check word fits its fixed fields. Fields behind those are words
 *     that mean something each by itself, and change one at a time.
 *   - A lease word names a slot in use, or a block that is quarantined by the next daemon.
 *   - A session, share or block word in use names an owner in use: owner records are made before and
 *     freed behind everything that names them.
 *   - Block words tell whose a block is before any descriptor of it leaves the daemon.
 *
 * The order of stores of each operation is its commit protocol; it is kept by whoever performs it:
 * alloc/ for its words, tenancy for the tables.
 *
 * A file is taken over only if it is of this boot, this version and this geometry, and of its full
 * size; what does not fit is reported line by line and the file begins afresh: every block then goes
 * through recycling before anybody gets it. A record that is damaged is as one of nobody: leases that
 * name it cost the blocks they lie in.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/durable.h"
#include "daemon/config.h"
#include "proto/limits.h"

struct state;

#define STATE_VERSION 1

/* --- the format ------------------------------------------------------------------------------- */

#define STATE_NAME_WORDS ((HP_NAME_MAX + 8) / 8) /* of a name and its end */
#define STATE_UIDS_MAX	 64			 /* who may attach to a share */

enum state_table {
	STATE_OWNERS,
	STATE_SESSIONS,
	STATE_SHARES,
	STATE_ATTACHMENTS,
	STATE_TABLES,
};

/* Numbers are part of the format. Each table has states of its own above these. */
enum { STATE_FREE = 0, STATE_IN_USE = 1 };

/* Every record begins with these two words. */
struct state_head {
	hp_word_t state; /* state_encode() */
	hp_word_t check; /* of the fixed fields */
};

/* Index: the owner number. state: STATE_IN_USE. Who it is; the configuration may know him better. */
struct state_owner {
	struct state_head head;
	uint64_t origin; /* enum tenant_origin */
	uint64_t uid;	 /* and flags above it, as tenancy codes them */
	uint64_t name[STATE_NAME_WORDS];
	/* words of their own */
	hp_word_t tenant_state;
	hp_word_t sessions_max;
	hp_word_t set_zones;	       /* zones, as bits, whose quota was set at run time */
	hp_word_t quota[HP_ZONES_MAX]; /* limit << 32 | guarantee */
};

/* Index: the slot. state: enum slot_state. */
struct state_session {
	struct state_head head;
	uint64_t owner;
	uint64_t number;      /* for people */
	uint64_t pid_uid;     /* pid << 32 | uid */
	uint64_t start_ticks; /* of the process, since boot */
	uint64_t pidfd_inode; /* of the process; 0: not known */
	uint64_t opened_ms;   /* CLOCK_MONOTONIC, which is of this boot as well */
	uint64_t token[2];
	uint64_t command[2];
	uint64_t name[STATE_NAME_WORDS];
};

/* Share i has owner number HP_TENANTS_MAX + i. state: as tenancy numbers them. */
struct state_share {
	struct state_head head;
	uint64_t account;   /* owner number of the tenant that it is charged to */
	uint64_t zone;	    /* its number */
	uint64_t publisher; /* uid */
	/* words of their own */
	hp_word_t published; /* 1, or what follows means nothing */
	hp_word_t terms;     /* as tenancy codes them */
	hp_word_t name[STATE_NAME_WORDS];
	hp_word_t uids[STATE_UIDS_MAX / 2];
};

/* Index: chosen by tenancy. state: STATE_IN_USE. */
struct state_attachment {
	struct state_head head;
	uint64_t share; /* index */
	uint64_t slot;	/* of the session that has it */
	uint64_t access;
};

/* A state as its word: eight times the same byte, so that damage of a byte is seen. */
static inline uint64_t state_encode(uint32_t state)
{
	return state * UINT64_C(0x0101010101010101);
}

/* --- the file --------------------------------------------------------------------------------- */

struct state_zone {
	const char *name;
	uint64_t page_bytes, block_bytes;
	uint32_t nr_pages, nr_blocks;
	size_t durable_bytes;
};

struct state_options {
	const char *path; /* NULL: private memory */
	const struct state_zone *zones;
	size_t nr_zones;
	/* The memory that the words tell of is as the last daemon left it; otherwise begin afresh. */
	bool memory_survives;
};

/*
 * Takes the file over or begins it afresh, at its full size, locked against other daemons. Logs what
 * did not fit. Return: 0; -EBUSY: another daemon has it; -errno (logged).
 */
int state_open(struct state **ret, const struct state_options *options);
struct state *state_close(struct state *state); /* leaves the file; NULL is fine; returns NULL */

/* Is there a file: does what is in it outlive the daemon? */
bool state_is_durable(const struct state *state);

/* Was it taken over from another daemon? Otherwise all of it is 0. */
bool state_is_adopted(const struct state *state);

/* The durable words of a zone, in the order of the options. */
void *state_zone_words(struct state *state, size_t zone);

/* --- records ---------------------------------------------------------------------------------- */

uint32_t state_count(enum state_table table); /* records of it; indices from 0 */
void *state_record(struct state *state, enum state_table table, uint32_t index);

/*
 * Fills a free record: fields and check word from *fields (whose head is ignored), then, as the
 * commit, the state word.
 */
void state_put(struct state *state, enum state_table table, uint32_t index, const void *fields,
	       uint32_t to);

/* Commits another state; STATE_FREE ends the record. */
void state_set(struct state *state, enum state_table table, uint32_t index, uint32_t to);

/* One of the words behind the fixed fields: hp_durable_store(&record->word, value) does as well. */

enum state_condition { STATE_DAMAGED = 1 };

/* The state of a record. Return: 0, or STATE_DAMAGED: it is not what anybody wrote. */
int state_get(struct state *state, enum state_table table, uint32_t index, uint32_t *ret_state);

/* Text into words of a record and back; to has room for 8 * n bytes and is always ended. */
void state_put_text(uint64_t *words, size_t n, const char *text);
void state_get_text(char *to, const uint64_t *words, size_t n);

/* The owner on whose behalf this slot holds ranges, sound or HP_OWNER_NONE. */
uint32_t state_owner_of_slot(struct state *state, uint32_t slot);
