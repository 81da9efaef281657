/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf-c allocates for everything a peer puts into a payload: a row of two bytes may become a
 * struct of hundreds, an unknown field an entry in a table. So it is given an arena that simply
 * ends; freeing does nothing. Memory is zero when it is handed out, because protobuf-c's clean-up
 * after a failure looks at what it had not come to fill.
 *
 * The messages are kept to what protobuf-c does well: no message contains itself (it would recurse
 * as deep as a peer likes), no field is a single submessage or oneof (repeated on the wire, they
 * are merged, which is the most fragile code there is in it), and no field is a string (that check
 * for nothing and hide zero bytes).
 *
 * Packing writes straight into the frame. Flat messages are appended piece by piece to a buffer
 * that refuses what is too much; for those with rows protobuf-c would collect each row in memory of
 * its own (and truncate it silently if there is none), so they are measured first.
 */
#include "proto/message.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(PROTOBUF_C_VERSION_NUMBER >= 1004001, "earlier ones read uninitialised memory");

/* --- arena ------------------------------------------------------------------------------------ */

#define ARENA_ALIGN alignof(max_align_t)

struct hp_arena {
	ProtobufCAllocator allocator;
	size_t used;
	bool exhausted; /* something did not fit */
	alignas(max_align_t) uint8_t bytes[HP_ARENA_BYTES];
};

static void *arena_alloc(void *userdata, size_t size)
{
	struct hp_arena *arena = userdata;
	void *p = arena->bytes + arena->used;

	if (size > HP_ARENA_BYTES - arena->used) {
		arena->exhausted = true;
		return NULL;
	}
	/* The arena's size is a multiple of the alignment: rounding up stays inside. */
	arena->used += (size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
	return p;
}

static void arena_free(void *userdata, void *pointer)
{
	(void)userdata;
	(void)pointer;
}

static void arena_reset(struct hp_arena *arena)
{
	memset(arena->bytes, 0, arena->used);
	arena->used = 0;
	arena->exhausted = false;
}

int hp_arena_new(struct hp_arena **ret)
{
	struct hp_arena *arena = calloc(1, sizeof(*arena));

	_Static_assert(HP_ARENA_BYTES % ARENA_ALIGN == 0, "");
	if (!arena)
		return -ENOMEM;
	arena->allocator = (ProtobufCAllocator){
		.alloc = arena_alloc,
		.free = arena_free,
		.allocator_data = arena,
	};
	*ret = arena;
	return 0;
}

struct hp_arena *hp_arena_free(struct hp_arena *arena)
{
	free(arena);
	return NULL;
}

int hp_message_unpack(struct hp_arena *arena, const ProtobufCMessageDescriptor *descriptor,
		      const struct hp_frame *frame, const ProtobufCMessage **ret)
{
	const ProtobufCMessage *message;

	arena_reset(arena);
	message = protobuf_c_message_unpack(descriptor, &arena->allocator, frame->length,
					    frame->payload);
	if (!message)
		return arena->exhausted ? -E2BIG : -EBADMSG;
	*ret = message;
	return 0;
}

/* --- types ------------------------------------------------------------------------------------ */

#define TYPE(upper, lower, message)                  \
	[HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_## \
		upper] = {lower, &hugepool__v1__##message##__descriptor}

static const struct {
	const char *name;
	const ProtobufCMessageDescriptor *descriptor;
} types[] = {
	TYPE(HELLO, "hello", hello),
	TYPE(GOODBYE, "goodbye", empty),
	TYPE(RESUME, "resume", resume),
	TYPE(ALLOC, "alloc", alloc),
	TYPE(FREE, "free", ranges),
	TYPE(FREE_PART, "free_part", free_part),
	TYPE(RELEASE_BLOCK, "release_block", blocks),
	TYPE(CANCEL, "cancel", cancel),
	TYPE(SHARE, "share", share),
	TYPE(ATTACH, "attach", attach),
	TYPE(DETACH, "detach", ranges),
	TYPE(ACK, "ack", ranges),
	TYPE(STATS, "stats", empty),
	TYPE(LIST, "list", list),
	TYPE(CHECK, "check", empty),
	TYPE(FLUSH, "flush", empty),
	TYPE(REVOKE, "revoke", revoke),
	TYPE(QUOTA, "quota", quota),
	TYPE(TENANT_CREATE, "tenant_create", tenant_create),
	TYPE(TENANT_DELETE, "tenant_delete", tenant_delete),
	TYPE(ADOPT, "adopt", resize),
	TYPE(OFFLINE, "offline", resize),
	TYPE(RELOAD, "reload", empty),
	TYPE(ERROR, "error", error),
	TYPE(DONE, "done", empty),
	TYPE(WELCOME, "welcome", welcome),
	TYPE(GRANT, "grant", ranges),
	TYPE(STATS_REPLY, "stats_reply", stats_reply),
	TYPE(LIST_REPLY, "list_reply", list_reply),
	TYPE(CHECK_REPLY, "check_reply", check_reply),
	TYPE(RESUMED, "resumed", ranges),
	TYPE(REVOKE_REPLY, "revoke_reply", revoke_reply),
	TYPE(TENANT_CREATED, "tenant_created", tenant_created),
	TYPE(RESIZED, "resized", resized),
	TYPE(RELOADED, "reloaded", reloaded),
	TYPE(BLOCKS, "blocks", blocks),
	TYPE(BLOCK_RETIRED, "block_retired", blocks),
	TYPE(REVOKED, "revoked", revoked),
	TYPE(PRESSURE, "pressure", pressure),
};

#define CODE(upper, lower) [HUGEPOOL__V1__CODE__CODE_##upper] = lower

static const char *const codes[] = {
	CODE(UNSPECIFIED, "unspecified"),
	CODE(MALFORMED, "malformed"),
	CODE(UNKNOWN_TYPE, "unknown_type"),
	CODE(NOT_SUPPORTED, "not_supported"),
	CODE(HELLO_REQUIRED, "hello_required"),
	CODE(VERSION, "version"),
	CODE(NO_ZONE, "no_zone"),
	CODE(NO_MEMORY, "no_memory"),
	CODE(OVER_LIMIT, "over_limit"),
	CODE(INVALID, "invalid"),
	CODE(TOO_MANY, "too_many"),
	CODE(OUT_OF_RANGE, "out_of_range"),
	CODE(NOT_LEASED, "not_leased"),
	CODE(WRONG_HOLDER, "wrong_holder"),
	CODE(WRONG_LENGTH, "wrong_length"),
	CODE(STALE, "stale"),
	CODE(REVOKED, "revoked"),
	CODE(BUSY, "busy"),
	CODE(PERMISSION, "permission"),
	CODE(TIMED_OUT, "timed_out"),
	CODE(CANCELLED, "cancelled"),
	CODE(SHUTTING_DOWN, "shutting_down"),
	CODE(INTERNAL, "internal"),
	CODE(NO_SHARE, "no_share"),
	CODE(NO_SESSION, "no_session"),
};

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

const ProtobufCMessageDescriptor *hp_message_descriptor(uint8_t type)
{
	return type < ARRAY_SIZE(types) ? types[type].descriptor : NULL;
}

const char *hp_message_type_name(uint8_t type)
{
	return type < ARRAY_SIZE(types) && types[type].name ? types[type].name : "unknown";
}

const char *hp_message_code_name(Hugepool__V1__Code code)
{
	return (size_t)code < ARRAY_SIZE(codes) ? codes[code] : "unknown";
}

/* --- packing ---------------------------------------------------------------------------------- */

struct payload_buffer {
	ProtobufCBuffer base;
	uint8_t *bytes;
	size_t used;
	bool overflow;
};

static void payload_append(ProtobufCBuffer *base, size_t n, const uint8_t *data)
{
	struct payload_buffer *buffer = (struct payload_buffer *)base;

	if (n > HP_FRAME_PAYLOAD_MAX - buffer->used) {
		buffer->overflow = true;
		return;
	}
	memcpy(buffer->bytes + buffer->used, data, n);
	buffer->used += n;
}

static bool has_rows(const ProtobufCMessageDescriptor *descriptor)
{
	for (unsigned i = 0; i < descriptor->n_fields; i++)
		if (descriptor->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			return true;
	return false;
}

int hp_message_pack(uint8_t *buffer, uint8_t type, uint16_t tag, const ProtobufCMessage *message)
{
	struct payload_buffer payload = {
		.base.append = payload_append,
		.bytes = buffer + HP_FRAME_HEADER_BYTES,
	};

	assert(message->descriptor == hp_message_descriptor(type));

	if (has_rows(message->descriptor)) {
		if (protobuf_c_message_get_packed_size(message) > HP_FRAME_PAYLOAD_MAX)
			return -EMSGSIZE;
		payload.used = protobuf_c_message_pack(message, payload.bytes);
	} else {
		protobuf_c_message_pack_to_buffer(message, &payload.base);
		if (payload.overflow)
			return -EMSGSIZE;
	}
	hp_frame_put_header(buffer, type, tag, (uint32_t)payload.used);
	return (int)(HP_FRAME_HEADER_BYTES + payload.used);
}

/* --- words ------------------------------------------------------------------------------------ */

#define PAGES_BITS	      20
#define RANGE_GENERATION_BITS 24
#define ZEROED_BIT	      (PAGES_BITS + RANGE_GENERATION_BITS)
#define ZONE_SHIFT	      32
#define ZONE_BITS	      8
#define BLOCK_GENERATION_BITS 40
#define BLOCK_INDEX_BITS      24

#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)

void hp_wire_put_range(uint64_t words[HP_WIRE_RANGE_WORDS], const struct hp_wire_range *range)
{
	assert(range->pages > 0 && range->pages <= MASK(PAGES_BITS));
	assert(range->generation <= MASK(RANGE_GENERATION_BITS));

	words[0] = (uint64_t)range->zone << ZONE_SHIFT | range->page;
	words[1] = (uint64_t)range->zeroed << ZEROED_BIT |
		   (uint64_t)range->generation << PAGES_BITS | range->pages;
}

int hp_wire_get_range(const uint64_t words[HP_WIRE_RANGE_WORDS], struct hp_wire_range *ret)
{
	if (words[0] >> (ZONE_SHIFT + ZONE_BITS) || words[1] >> (ZEROED_BIT + 1) ||
	    (words[1] & MASK(PAGES_BITS)) == 0)
		return -EBADMSG;
	*ret = (struct hp_wire_range){
		.page = (uint32_t)words[0],
		.pages = (uint32_t)(words[1] & MASK(PAGES_BITS)),
		.generation = (uint32_t)(words[1] >> PAGES_BITS & MASK(RANGE_GENERATION_BITS)),
		.zone = (uint8_t)(words[0] >> ZONE_SHIFT),
		.zeroed = words[1] >> ZEROED_BIT & 1,
	};
	return 0;
}

uint64_t hp_wire_put_block(struct hp_wire_block block)
{
	assert(block.index <= MASK(BLOCK_INDEX_BITS));
	assert(block.generation <= MASK(BLOCK_GENERATION_BITS));

	return (uint64_t)block.index << BLOCK_GENERATION_BITS | block.generation;
}

struct hp_wire_block hp_wire_get_block(uint64_t word)
{
	return (struct hp_wire_block){
		.index = (uint32_t)(word >> BLOCK_GENERATION_BITS),
		.generation = word & MASK(BLOCK_GENERATION_BITS),
	};
}
