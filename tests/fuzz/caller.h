/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client whose bytes come from a fuzzer: it never waits, and of what it is answered it checks what
 * the protocol promises whatever was sent, and keeps the words and tokens to send them back.
 *
 * For one thread, with a rig that is turned by hand.
 */
#pragma once

#include "tests/daemon/rig.h"
#include "tests/model/dice.h"

#define CALLER_WORDS_MAX 64

/* What the callers of one input were told; once it is full the oldest goes. */
struct heard {
	uint64_t ranges[CALLER_WORDS_MAX][HP_WIRE_RANGE_WORDS];
	uint64_t blocks[CALLER_WORDS_MAX];
	uint64_t session;
	uint8_t token[HP_NAME_MAX];
	unsigned nr_ranges, nr_blocks; /* in all */
	size_t token_bytes;
};

struct caller {
	struct rig *rig;
	struct peer *peer; /* NULL: it has hung up */
	struct heard *heard;
	bool deaf; /* does not read */
};

/* Ends the process with a sentence where the daemon broke a promise, as a fuzzer wants it. */
#define FUZZ_CHECK(condition) \
	((condition) ? (void)0 : caller_give_up(__FILE__, __LINE__, #condition))
void caller_give_up(const char *file, int line, const char *what) __attribute__((noreturn));

/*
 * The daemon that an input meets: with one worker, nobody connected, nothing leased. Some inputs
 * meet the same one after each other, and then its descriptors and memory have to be back as well.
 */
struct rig *caller_rig(void);

/* What the main thread would do: each order is done, or refused. */
void caller_answer_orders(struct rig *rig, struct dice *dice);

/* Ends all sessions: the zones have to be consistent, and nothing of anybody may be left. */
void caller_rig_done(struct rig *rig);

void caller_connect(struct caller *caller, struct rig *rig, enum socket_kind kind,
		    struct heard *heard);
void caller_hang_up(struct caller *caller);

/* Sends, lets the daemon work, and reads what it says; the rest is lost where the daemon does not
 * take more. */
void caller_send(struct caller *caller, const uint8_t *bytes, size_t n);
void caller_hello(struct caller *caller);

/* Reads what there is. */
void caller_listen(struct caller *caller);
