/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: payloads to structs and back, in bounded memory.
 *
 * Unpacking allocates from a bump arena of fixed size that is zeroed and reset for each frame, so
 * what a peer sends cannot cost more than the arena, and nothing has to be freed. Words for ranges
 * and blocks are coded here and nowhere else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/hugepool.pb-c.h"
#include "proto/limits.h"

/* --- arena ------------------------------------------------------------------------------------ */

/* One per worker (or client handle); not for use by two threads. */
struct hp_arena;

/* Return: 0 or -ENOMEM. */
int hp_arena_new(struct hp_arena **ret);
struct hp_arena *hp_arena_free(struct hp_arena *arena); /* NULL is fine; returns NULL */

/*
 * Forgets all messages unpacked before and unpacks the payload of a frame as the message
 * `descriptor`. Borrowed from the arena until the next call. Return: 0; -EBADMSG if it does not
 * parse; -E2BIG if it would need more than HP_ARENA_BYTES.
 */
int hp_message_unpack(struct hp_arena *arena, const ProtobufCMessageDescriptor *descriptor,
		      const struct hp_frame *frame, const ProtobufCMessage **ret);

/*
 * The message a type's payload is, NULL for an unknown type. (Which side may send it is the
 * caller's business.)
 */
const ProtobufCMessageDescriptor *hp_message_descriptor(uint8_t type);

/* Name of a type and of a code, lower case, for logs and errors; never NULL. */
const char *hp_message_type_name(uint8_t type);
const char *hp_message_code_name(Hugepool__V1__Code code);

/*
 * Packs header and payload into buffer, which must have room for HP_FRAME_MAX bytes.
 * Return: bytes written; -EMSGSIZE if the payload is above HP_FRAME_PAYLOAD_MAX.
 */
int hp_message_pack(uint8_t *buffer, uint8_t type, uint16_t tag, const ProtobufCMessage *message);

/* --- words ------------------------------------------------------------------------------------ */

struct hp_wire_range {
	uint32_t page;	     /* first page */
	uint32_t pages;	     /* 20 bits */
	uint32_t generation; /* 24 bits */
	uint8_t zone;
	bool zeroed;
};

struct hp_wire_block {
	uint32_t index;	     /* 24 bits */
	uint64_t generation; /* 40 bits */
};

#define HP_WIRE_RANGE_WORDS 2

void hp_wire_put_range(uint64_t words[HP_WIRE_RANGE_WORDS], const struct hp_wire_range *range);

/* Return: 0, or -EBADMSG if a bit that must be 0 is set or pages is 0. */
int hp_wire_get_range(const uint64_t words[HP_WIRE_RANGE_WORDS], struct hp_wire_range *ret);

uint64_t hp_wire_put_block(struct hp_wire_block block);
struct hp_wire_block hp_wire_get_block(uint64_t word);
