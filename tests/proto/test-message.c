/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: words, types, what fits a frame, and what a hostile payload can cost. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#include "proto/message.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Room for a longer name than any, so that limits are met and not buffers. */
static uint8_t filler[HP_FRAME_PAYLOAD_MAX + 1];

static int setup(void **state)
{
	struct hp_arena *arena;

	memset(filler, 'x', sizeof(filler));
	if (hp_arena_new(&arena))
		return -1;
	*state = arena;
	return 0;
}

static int teardown(void **state)
{
	return hp_arena_free(*state) ? -1 : 0;
}

static ProtobufCBinaryData bytes_of(size_t n)
{
	return (ProtobufCBinaryData){.len = n, .data = filler};
}

static int unpack(struct hp_arena *arena, uint8_t type, const void *payload, size_t n,
		  const ProtobufCMessage **ret)
{
	const struct hp_frame frame = {.type = type, .length = (uint32_t)n, .payload = payload};

	return hp_message_unpack(arena, hp_message_descriptor(type), &frame, ret);
}

/* --- words ------------------------------------------------------------------------------------ */

static void check_range(struct hp_wire_range range)
{
	uint64_t words[HP_WIRE_RANGE_WORDS];
	struct hp_wire_range back;

	hp_wire_put_range(words, &range);
	assert_int_equal(hp_wire_get_range(words, &back), 0);
	assert_int_equal(back.page, range.page);
	assert_int_equal(back.pages, range.pages);
	assert_int_equal(back.generation, range.generation);
	assert_int_equal(back.zone, range.zone);
	assert_int_equal(back.zeroed, range.zeroed);
}

static void test_range_words(void **state)
{
	static const uint32_t pages[] = {1, 2, 0x80000, 0xfffff};
	static const uint32_t firsts[] = {0, 1, 0x80000000, UINT32_MAX};
	static const uint32_t generations[] = {0, 1, 0x800000, 0xffffff};
	static const uint8_t zones[] = {0, 1, 0x80, 0xff};

	(void)state;
	for (int i = 0; i < 4 * 4 * 4 * 4 * 2; i++)
		check_range((struct hp_wire_range){.page = firsts[i % 4],
						   .pages = pages[i / 4 % 4],
						   .generation = generations[i / 16 % 4],
						   .zone = zones[i / 64 % 4],
						   .zeroed = i / 256});
}

static void test_range_layout(void **state)
{
	uint64_t words[HP_WIRE_RANGE_WORDS];
	const struct hp_wire_range range = {.page = 0x12345678,
					    .pages = 0xabcde,
					    .generation = 0x654321,
					    .zone = 0x9f,
					    .zeroed = true};

	(void)state;
	hp_wire_put_range(words, &range);
	assert_int_equal(words[0], UINT64_C(0x9f12345678));
	assert_int_equal(words[1], UINT64_C(0x1654321abcde));
}

/* Every bit that must be 0 is looked at; every other is not complained about. */
static void test_range_reserved_bits(void **state)
{
	struct hp_wire_range back = {.pages = 99};

	(void)state;
	for (int bit = 0; bit < 64; bit++) {
		const uint64_t first[] = {UINT64_C(1) << bit, 1};
		const uint64_t second[] = {0, UINT64_C(1) << bit | 1};

		assert_int_equal(hp_wire_get_range(first, &back), bit >= 40 ? -EBADMSG : 0);
		assert_int_equal(hp_wire_get_range(second, &back), bit >= 45 ? -EBADMSG : 0);
	}
	back.pages = 99;
	assert_int_equal(hp_wire_get_range((const uint64_t[]){7, UINT64_C(5) << 20}, &back),
			 -EBADMSG);
	assert_int_equal(back.pages, 99);
}

static void test_block_words(void **state)
{
	static const uint32_t indices[] = {0, 1, 0x800000, 0xffffff};
	static const uint64_t generations[] = {0, 1, UINT64_C(1) << 39, (UINT64_C(1) << 40) - 1};

	(void)state;
	for (int i = 0; i < 16; i++) {
		const struct hp_wire_block block = {.index = indices[i % 4],
						    .generation = generations[i / 4]};
		struct hp_wire_block back = hp_wire_get_block(hp_wire_put_block(block));

		assert_int_equal(back.index, block.index);
		assert_int_equal(back.generation, block.generation);
	}
	assert_int_equal(hp_wire_put_block((struct hp_wire_block){
				 .index = 0x123456, .generation = UINT64_C(0x789abcdef0)}),
			 UINT64_C(0x123456789abcdef0));
}

/* --- types ------------------------------------------------------------------------------------ */

static bool same_name(const char *upper, const char *prefix, const char *lower)
{
	if (strncmp(upper, prefix, strlen(prefix)) != 0)
		return false;
	for (upper += strlen(prefix); *upper && *lower; upper++, lower++)
		if (tolower(*upper) != *lower)
			return false;
	return *upper == *lower;
}

static void test_type_table(void **state)
{
	const ProtobufCEnumDescriptor *e = &hugepool__v1__message_type__descriptor;

	(void)state;
	for (unsigned type = 0; type <= UINT8_MAX; type++) {
		const ProtobufCEnumValue *value =
			protobuf_c_enum_descriptor_get_value(e, (int)type);

		if (value && type != 0) {
			assert_non_null(hp_message_descriptor((uint8_t)type));
			assert_true(same_name(value->name, "MESSAGE_TYPE_",
					      hp_message_type_name((uint8_t)type)));
		} else {
			assert_null(hp_message_descriptor((uint8_t)type));
			assert_string_equal(hp_message_type_name((uint8_t)type), "unknown");
		}
	}
}

static void test_code_table(void **state)
{
	const ProtobufCEnumDescriptor *e = &hugepool__v1__code__descriptor;

	(void)state;
	for (int code = -2; code < 300; code++) {
		const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(e, code);
		const char *name = hp_message_code_name((Hugepool__V1__Code)code);

		if (value)
			assert_true(same_name(value->name, "CODE_", name));
		else
			assert_string_equal(name, "unknown");
	}
}

/* What message.c counts on: nothing recursive, no single submessage, no oneof, no string. */
static void check_descriptor(const ProtobufCMessageDescriptor *d, int depth)
{
	assert_in_range(depth, 0, 1);
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &d->fields[i];

		assert_int_not_equal(field->type, PROTOBUF_C_TYPE_STRING);
		assert_int_equal(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF, 0);
		if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
			assert_int_equal(field->label, PROTOBUF_C_LABEL_REPEATED);
			check_descriptor(field->descriptor, depth + 1);
		}
	}
}

static void test_shape_of_messages(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= UINT8_MAX; type++)
		if (hp_message_descriptor((uint8_t)type))
			check_descriptor(hp_message_descriptor((uint8_t)type), 0);
}

/* --- what fits -------------------------------------------------------------------------------- */

/* Packs, and unpacks what was packed; the caller looks at the copy. */
static const void *round_trip(struct hp_arena *arena, uint8_t type, const ProtobufCMessage *message,
			      size_t *ret_bytes)
{
	static uint8_t buffer[HP_FRAME_MAX];
	const ProtobufCMessage *back;
	struct hp_frame frame;
	size_t used;
	int n = hp_message_pack(buffer, type, 0x1234, message);

	assert_true(n >= HP_FRAME_HEADER_BYTES);
	assert_int_equal(hp_frame_parse(buffer, (size_t)n, &frame, &used), 0);
	assert_int_equal(used, n);
	assert_int_equal(frame.type, type);
	assert_int_equal(frame.tag, 0x1234);
	assert_int_equal(frame.length, protobuf_c_message_get_packed_size(message));
	assert_int_equal(hp_message_unpack(arena, message->descriptor, &frame, &back), 0);
	if (ret_bytes)
		*ret_bytes = (size_t)n;
	return back;
}

static void test_ranges_at_their_limit(void **state)
{
	static uint64_t words[HP_WIRE_RANGE_WORDS * HP_RANGES_MAX];
	Hugepool__V1__Ranges ranges = HUGEPOOL__V1__RANGES__INIT;
	const Hugepool__V1__Ranges *back;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = UINT64_C(0x9e3779b97f4a7c15) * (i + 1);
	ranges.n_ranges = ARRAY_SIZE(words);
	ranges.ranges = words;
	back = round_trip(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_GRANT, &ranges.base,
			  NULL);
	assert_int_equal(back->n_ranges, ARRAY_SIZE(words));
	assert_memory_equal(back->ranges, words, sizeof(words));
}

static void test_blocks_at_their_limit(void **state)
{
	static uint64_t words[HP_BLOCKS_MAX];
	Hugepool__V1__Blocks blocks = HUGEPOOL__V1__BLOCKS__INIT;
	const Hugepool__V1__Blocks *back;

	memset(words, 0xff, sizeof(words));
	blocks.zone = UINT32_MAX;
	blocks.n_blocks = ARRAY_SIZE(words);
	blocks.blocks = words;
	back = round_trip(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_BLOCKS, &blocks.base,
			  NULL);
	assert_int_equal(back->n_blocks, ARRAY_SIZE(words));
}

static void test_error_at_its_limit(void **state)
{
	Hugepool__V1__Error error = HUGEPOOL__V1__ERROR__INIT;
	const Hugepool__V1__Error *back;

	error.code = HUGEPOOL__V1__CODE__CODE_INTERNAL;
	error.message = bytes_of(HP_MESSAGE_MAX);
	error.zone = bytes_of(HP_NAME_MAX);
	error.asked_pages = error.free_pages = error.leasable_pages = UINT64_MAX;
	error.limit_pages = error.largest_pages = error.limit = UINT64_MAX;
	error.index = UINT32_MAX;
	back = round_trip(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ERROR, &error.base,
			  NULL);
	assert_int_equal(back->code, error.code);
	assert_int_equal(back->message.len, HP_MESSAGE_MAX);
	assert_int_equal(back->limit, UINT64_MAX);
}

/* All zones a daemon may have, as WELCOME shows them, with the largest figures there can be. */
static void test_welcome_at_its_limit(void **state)
{
	Hugepool__V1__Zone zones[HP_ZONES_MAX], *rows[HP_ZONES_MAX];
	Hugepool__V1__Welcome welcome = HUGEPOOL__V1__WELCOME__INIT;
	const Hugepool__V1__Welcome *back;

	for (unsigned i = 0; i < HP_ZONES_MAX; i++) {
		zones[i] = (Hugepool__V1__Zone)HUGEPOOL__V1__ZONE__INIT;
		zones[i].id = UINT8_MAX;
		zones[i].name = bytes_of(HP_NAME_MAX);
		zones[i].page_size = zones[i].block_size = UINT64_C(1) << 63;
		zones[i].node = INT32_MIN;
		zones[i].backing = HUGEPOOL__V1__BACKING__BACKING_SHMEM;
		zones[i].pages = zones[i].leasable = zones[i].largest = UINT32_MAX;
		zones[i].blocks = zones[i].limit_blocks = HP_ZONE_BLOCKS_MAX;
		zones[i].guarantee_blocks = zones[i].held_blocks = HP_ZONE_BLOCKS_MAX;
		rows[i] = &zones[i];
	}
	welcome.server = welcome.tenant = welcome.token = bytes_of(HP_NAME_MAX);
	welcome.session = UINT64_MAX;
	welcome.protocol = welcome.max_ranges = welcome.max_frame = UINT32_MAX;
	welcome.n_zones = HP_ZONES_MAX;
	welcome.zones = rows;
	back = round_trip(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_WELCOME, &welcome.base,
			  NULL);
	assert_int_equal(back->n_zones, HP_ZONES_MAX);
	assert_int_equal(back->zones[HP_ZONES_MAX - 1]->node, INT32_MIN);
}

/* A full page of the rows with the longest text. */
static void test_rows_at_their_limit(void **state)
{
	Hugepool__V1__Block block = HUGEPOOL__V1__BLOCK__INIT, *blocks[HP_LIST_ROWS_MAX];
	Hugepool__V1__ListReply list = HUGEPOOL__V1__LIST_REPLY__INIT;
	const Hugepool__V1__ListReply *back;

	block.index = HP_ZONE_BLOCKS_MAX;
	block.state = HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_LENT;
	block.generation = UINT64_C(1) << 40;
	block.owner = UINT16_MAX;
	block.pages = block.free_pages = 1u << 24;
	block.reason = bytes_of(HP_NAME_MAX);
	block.age_ms = UINT32_MAX;
	for (size_t i = 0; i < HP_LIST_ROWS_MAX; i++)
		blocks[i] = &block;
	list.n_blocks = HP_LIST_ROWS_MAX;
	list.blocks = blocks;
	list.next = UINT64_MAX;
	back = round_trip(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_LIST_REPLY, &list.base,
			  NULL);
	assert_int_equal(back->n_blocks, HP_LIST_ROWS_MAX);
	assert_int_equal(back->blocks[63]->reason.len, HP_NAME_MAX);
}

/*
 * The first field of each message that can grow is made to fill the frame exactly, and then to be
 * one byte or element too much.
 */
static void check_pack_limit(uint8_t type, const ProtobufCFieldDescriptor *field,
			     const ProtobufCMessageDescriptor *descriptor)
{
	static uint8_t buffer[HP_FRAME_MAX + 16];
	static uint64_t words[HP_FRAME_PAYLOAD_MAX];
	union {
		ProtobufCMessage base;
		uint8_t bytes[512];
	} message;
	size_t longest = 0;

	assert_true(descriptor->sizeof_message <= sizeof(message));
	memset(words, 0xff, sizeof(words));
	for (size_t n = 0; n <= HP_FRAME_PAYLOAD_MAX; n++) {
		int packed;

		protobuf_c_message_init(descriptor, &message.base);
		if (field->type == PROTOBUF_C_TYPE_BYTES &&
		    field->label != PROTOBUF_C_LABEL_REPEATED) {
			ProtobufCBinaryData data = bytes_of(n);
			memcpy(message.bytes + field->offset, &data, sizeof(data));
		} else {
			void *p = words;
			memcpy(message.bytes + field->quantifier_offset, &n, sizeof(n));
			memcpy(message.bytes + field->offset, &p, sizeof(p));
		}
		memset(buffer + HP_FRAME_MAX, 0xa5, 16);
		packed = hp_message_pack(buffer, type, 1, &message.base);
		for (int i = 0; i < 16; i++)
			assert_int_equal(buffer[HP_FRAME_MAX + i], 0xa5);
		if (protobuf_c_message_get_packed_size(&message.base) > HP_FRAME_PAYLOAD_MAX) {
			assert_int_equal(packed, -EMSGSIZE);
			break;
		}
		assert_int_equal(packed, HP_FRAME_HEADER_BYTES +
						 protobuf_c_message_get_packed_size(&message.base));
		longest = (size_t)packed;
	}
	/* The limit was met, and not by far. */
	assert_true(longest > HP_FRAME_MAX - 16);
}

static void test_pack_limits(void **state)
{
	int checked = 0;

	(void)state;
	for (unsigned type = 0; type <= UINT8_MAX; type++) {
		const ProtobufCMessageDescriptor *d = hp_message_descriptor((uint8_t)type);

		for (unsigned i = 0; d && i < d->n_fields; i++) {
			const ProtobufCFieldDescriptor *f = &d->fields[i];

			if ((f->type == PROTOBUF_C_TYPE_BYTES &&
			     f->label != PROTOBUF_C_LABEL_REPEATED) ||
			    (f->type == PROTOBUF_C_TYPE_FIXED64 &&
			     f->label == PROTOBUF_C_LABEL_REPEATED)) {
				check_pack_limit((uint8_t)type, f, d);
				checked++;
				break;
			}
		}
	}
	assert_in_range(checked, 15, UINT8_MAX);
}

/* Rows are measured as well. */
static void test_pack_limit_of_rows(void **state)
{
	static uint8_t buffer[HP_FRAME_MAX];
	Hugepool__V1__Block block = HUGEPOOL__V1__BLOCK__INIT, *blocks[200];
	Hugepool__V1__ListReply list = HUGEPOOL__V1__LIST_REPLY__INIT;

	(void)state;
	block.reason = bytes_of(100);
	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++)
		blocks[i] = &block;
	list.blocks = blocks;
	list.n_blocks = 8192 / 104;
	assert_true(hp_message_pack(buffer, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_LIST_REPLY, 1,
				    &list.base) > 8000);
	list.n_blocks++;
	assert_int_equal(hp_message_pack(buffer,
					 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_LIST_REPLY, 1,
					 &list.base),
			 -EMSGSIZE);
}

/* --- hostile payloads ------------------------------------------------------------------------- */

static void repeat(uint8_t *payload, size_t size, const void *piece, size_t n)
{
	for (size_t at = 0; at + n <= size; at += n)
		memcpy(payload + at, piece, n);
}

/* Whatever comes in, nothing is taken from malloc, and the arena works for the next frame. */
static int unpack_hostile(struct hp_arena *arena, uint8_t type, const void *payload, size_t n)
{
	static const uint8_t good[] = {0x0a, 0x01, 'z', 0x28, 0x07}; /* zone = "z", pages = 7 */
	const ProtobufCMessage *message;
	size_t before = mallinfo2().uordblks, after;
	int r = unpack(arena, type, payload, n, &message);

	after = mallinfo2().uordblks;
	assert_int_equal(before, after);

	assert_int_equal(unpack(arena, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC, good,
				sizeof(good), &message),
			 0);
	const Hugepool__V1__Alloc *alloc = (const Hugepool__V1__Alloc *)message;
	assert_int_equal(alloc->pages, 7);
	assert_int_equal(alloc->zone.len, 1);
	assert_int_equal(alloc->n_nodes, 0);
	assert_null(alloc->nodes);
	return r;
}

static void test_amplification(void **state)
{
	static uint8_t payload[HP_FRAME_PAYLOAD_MAX];
	static const struct {
		const char *what;
		uint8_t type;
		uint8_t piece[4];
		size_t n;
		int expected;
	} cases[] = {
		{"empty rows",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_LIST_REPLY,
		 {0x12, 0},
		 2,
		 -E2BIG},
		{"empty zones",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_WELCOME,
		 {0x42, 0},
		 2,
		 -E2BIG},
		{"unknown fields",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_GOODBYE,
		 {0x08, 0},
		 2,
		 -E2BIG},
		{"unknown empty strings",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC,
		 {0xfa, 0x01, 0},
		 3,
		 -E2BIG},
		{"one field again and again",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC,
		 {0x28, 1},
		 2,
		 -E2BIG},
		{"not packed",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC,
		 {0x20, 1},
		 2,
		 -E2BIG},
		{"empty names",
		 HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_CHECK_REPLY,
		 {0x12, 0},
		 2,
		 -E2BIG},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		repeat(payload, sizeof(payload), cases[i].piece, cases[i].n);
		assert_int_equal(unpack_hostile(*state, cases[i].type, payload,
						sizeof(payload) - sizeof(payload) % cases[i].n),
				 cases[i].expected);
	}
}

static void test_malformed(void **state)
{
	static const struct {
		uint8_t bytes[12];
		size_t n;
	} cases[] = {
		{{0x08}, 1},				   /* a tag and nothing */
		{{0x0a, 0x05, 'a'}, 3},			   /* shorter than it says */
		{{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, 6}, /* 4 GiB, it says */
		{{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11},
		{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 11},
		{{0x00, 0x00}, 2},	 /* field 0 */
		{{0x0b, 0x0c}, 2},	 /* groups */
		{{0x0d, 0, 0, 0, 0}, 5}, /* bytes as a fixed32 */
		{{0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 12},
		{{0x22, 0x01, 0x80}, 3}, /* packed, cut inside an element */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(unpack_hostile(*state,
						HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC,
						cases[i].bytes, cases[i].n),
				 -EBADMSG);
}

/* Each prefix of a good payload is either parsed or refused; nothing beyond it is read. */
static void test_truncated(void **state)
{
	uint8_t buffer[HP_FRAME_MAX];
	Hugepool__V1__Error error = HUGEPOOL__V1__ERROR__INIT;
	int n;

	error.code = HUGEPOOL__V1__CODE__CODE_NO_MEMORY;
	error.message = bytes_of(40);
	error.asked_pages = UINT64_MAX;
	error.zone = bytes_of(5);
	n = hp_message_pack(buffer, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ERROR, 1, &error.base);
	assert_true(n > 0);
	for (size_t have = 0; have < (size_t)n - HP_FRAME_HEADER_BYTES; have++) {
		uint8_t *copy = malloc(have ? have : 1);
		int r;

		assert_non_null(copy);
		memcpy(copy, buffer + HP_FRAME_HEADER_BYTES, have);
		r = unpack_hostile(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ERROR, copy,
				   have);
		assert_true(r == 0 || r == -EBADMSG);
		free(copy);
	}
}

/* Unknown fields of a newer peer are ignored. */
static void test_unknown_fields(void **state)
{
	static const uint8_t payload[] = {0x28, 7,			    /* pages */
					  0xf8, 0x07, 0x85, 0x01,	    /* 127: varint */
					  0xfa, 0x07, 0x03, 'a',  'b', 'c', /* 127: bytes */
					  0xfd, 0x07, 1,    2,	  3,   4,   /* 127: fixed32 */
					  0xf9, 0x07, 1,    2,	  3,   4,
					  5,	6,    7,    8, /* 127: fixed64 */
					  0x40, 1};	       /* zero */
	const ProtobufCMessage *message;

	assert_int_equal(unpack(*state, HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_ALLOC, payload,
				sizeof(payload), &message),
			 0);
	assert_int_equal(((const Hugepool__V1__Alloc *)message)->pages, 7);
	assert_true(((const Hugepool__V1__Alloc *)message)->zero);
}

/* Bytes from a seeded generator, as every type. */
static void test_noise(void **state)
{
	static uint8_t payload[HP_FRAME_PAYLOAD_MAX];
	uint64_t seed = 0x5eed;

	for (int round = 0; round < 20000; round++) {
		uint8_t type;
		size_t n;

		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		type = (uint8_t)(seed >> 33) % 100;
		n = (size_t)(seed >> 41) % 200;
		for (size_t i = 0; i < n; i++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
			/* Small numbers more often: they are field tags and lengths. */
			payload[i] = (uint8_t)(seed >> 56 & (seed >> 40 & 1 ? 0x1f : 0xff));
		}
		if (hp_message_descriptor(type)) {
			int r = unpack_hostile(*state, type, payload, n);

			assert_true(r == 0 || r == -EBADMSG || r == -E2BIG);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range_words),
		cmocka_unit_test(test_range_layout),
		cmocka_unit_test(test_range_reserved_bits),
		cmocka_unit_test(test_block_words),
		cmocka_unit_test(test_type_table),
		cmocka_unit_test(test_code_table),
		cmocka_unit_test(test_shape_of_messages),
		cmocka_unit_test(test_ranges_at_their_limit),
		cmocka_unit_test(test_blocks_at_their_limit),
		cmocka_unit_test(test_error_at_its_limit),
		cmocka_unit_test(test_welcome_at_its_limit),
		cmocka_unit_test(test_rows_at_their_limit),
		cmocka_unit_test(test_pack_limits),
		cmocka_unit_test(test_pack_limit_of_rows),
		cmocka_unit_test(test_amplification),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_unknown_fields),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
