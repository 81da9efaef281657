/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Written as bytes and not through protobuf-c, which would not write what is wrong. A spent dice
 * rolls 0: that is the likely choice everywhere, and ends what repeats.
 */
#include "tests/fuzz/phrase.h"

#include <string.h>

#define DEPTH_MAX    2 /* of messages in messages */
#define REPEATS	     6
#define REPEATS_MANY (HP_RANGES_MAX + 8) /* more than is allowed */

#define WIRE_VARINT  0
#define WIRE_FIXED64 1
#define WIRE_BYTES   2

struct phrase {
	struct dice *dice;
	const struct heard *heard;
	uint8_t *bytes;
	size_t n, room; /* what does not fit is left out */
};

static void put(struct phrase *phrase, const void *bytes, size_t n)
{
	if (n > phrase->room - phrase->n)
		n = phrase->room - phrase->n;
	memcpy(phrase->bytes + phrase->n, bytes, n);
	phrase->n += n;
}

static void put_varint(struct phrase *phrase, uint64_t value)
{
	uint8_t byte;

	do {
		byte = value & 0x7f;
		value >>= 7;
		byte |= value ? 0x80 : 0;
		put(phrase, &byte, 1);
	} while (value);
}

static uint64_t roll_raw(struct dice *dice)
{
	uint64_t word = 0;

	for (unsigned i = 0; i < sizeof(word); i++)
		word = word << 8 | dice_roll(dice, 256);
	return word;
}

/* --- values ----------------------------------------------------------------------------------- */

static uint64_t roll_number(struct phrase *phrase)
{
	struct dice *dice = phrase->dice;

	switch (dice_roll(dice, 8)) {
	case 0:
		return 1 + dice_roll(dice, 4);
	case 1:
		return dice_roll(dice, 64);
	case 2:
		return UINT64_C(1) << dice_roll(dice, 64);
	case 3:
		return (UINT64_C(1) << dice_roll(dice, 64)) - 1;
	case 4:
		return 4096;
	case 5:
		return phrase->heard->session;
	case 6:
		return HP_RANGES_MAX + dice_roll(dice, 2);
	default:
		return roll_raw(dice);
	}
}

static unsigned count_kept(unsigned in_all)
{
	return in_all < CALLER_WORDS_MAX ? in_all : CALLER_WORDS_MAX;
}

static void damage(struct phrase *phrase, void *bytes, size_t n)
{
	uint8_t *p = bytes;

	if (!n || !dice_one_in(phrase->dice, 8))
		return;
	p += dice_roll(phrase->dice, (uint32_t)n);
	*p = (uint8_t)(*p ^ 1u << dice_roll(phrase->dice, 8));
}

static void put_block(struct phrase *phrase)
{
	unsigned kept = count_kept(phrase->heard->nr_blocks);
	uint64_t word = kept ? phrase->heard->blocks[dice_roll(phrase->dice, kept)]
			     : roll_raw(phrase->dice);

	damage(phrase, &word, sizeof(word));
	put(phrase, &word, sizeof(word));
}

static void put_range(struct phrase *phrase)
{
	unsigned kept = count_kept(phrase->heard->nr_ranges);
	uint64_t words[HP_WIRE_RANGE_WORDS];

	if (kept) {
		memcpy(words, phrase->heard->ranges[dice_roll(phrase->dice, kept)], sizeof(words));
	} else {
		for (unsigned i = 0; i < HP_WIRE_RANGE_WORDS; i++)
			words[i] = roll_raw(phrase->dice);
	}
	damage(phrase, words, sizeof(words));
	put(phrase, words, dice_one_in(phrase->dice, 32) ? sizeof(words[0]) : sizeof(words));
}

static void put_name(struct phrase *phrase)
{
	static const char *const names[] = {"small", "large", "a", "", "default"};
	uint32_t choice = dice_roll(phrase->dice, 8);
	uint8_t raw[2 * HP_NAME_MAX];
	uint32_t n;

	if (choice < sizeof(names) / sizeof(names[0])) {
		n = (uint32_t)strlen(names[choice]);
		memcpy(raw, names[choice], n);
	} else if (choice == 5) {
		n = (uint32_t)phrase->heard->token_bytes;
		memcpy(raw, phrase->heard->token, n);
	} else {
		n = dice_roll(phrase->dice, sizeof(raw));
		for (uint32_t i = 0; i < n; i++)
			raw[i] = (uint8_t)dice_roll(phrase->dice, 256);
	}
	damage(phrase, raw, n);
	put_varint(phrase, n);
	put(phrase, raw, n);
}

/* --- messages --------------------------------------------------------------------------------- */

static void put_fields(struct phrase *phrase, const ProtobufCMessageDescriptor *message,
		       unsigned depth);

static uint32_t roll_repeats(struct dice *dice)
{
	return dice_one_in(dice, 16) ? REPEATS_MANY : dice_roll(dice, REPEATS);
}

static void put_words(struct phrase *phrase, const ProtobufCFieldDescriptor *field)
{
	uint8_t bytes[REPEATS_MANY * HP_WIRE_RANGE_WORDS * sizeof(uint64_t)];
	struct phrase list = *phrase;

	list.bytes = bytes;
	list.n = 0;
	list.room = sizeof(bytes);
	for (uint32_t n = 1 + roll_repeats(phrase->dice); n; n--) {
		if (strcmp(field->name, "blocks") == 0)
			put_block(&list);
		else
			put_range(&list);
	}
	put_varint(phrase, list.n);
	put(phrase, bytes, list.n);
}

static void put_submessage(struct phrase *phrase, const ProtobufCFieldDescriptor *field,
			   unsigned depth)
{
	uint8_t bytes[1024];
	struct phrase inner = *phrase;

	inner.bytes = bytes;
	inner.n = 0;
	inner.room = sizeof(bytes);
	if (depth < DEPTH_MAX)
		put_fields(&inner, field->descriptor, depth + 1);
	put_varint(phrase, inner.n);
	put(phrase, bytes, inner.n);
}

static void put_field(struct phrase *phrase, const ProtobufCFieldDescriptor *field, unsigned depth)
{
	uint64_t word;

	switch (field->type) {
	case PROTOBUF_C_TYPE_FIXED64:
		if (field->label == PROTOBUF_C_LABEL_REPEATED) {
			put_varint(phrase, field->id << 3 | WIRE_BYTES);
			put_words(phrase, field);
			break;
		}
		put_varint(phrase, field->id << 3 | WIRE_FIXED64);
		word = roll_raw(phrase->dice);
		put(phrase, &word, sizeof(word));
		break;
	case PROTOBUF_C_TYPE_BYTES:
		put_varint(phrase, field->id << 3 | WIRE_BYTES);
		put_name(phrase);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		put_varint(phrase, field->id << 3 | WIRE_BYTES);
		put_submessage(phrase, field, depth);
		break;
	default:
		put_varint(phrase, field->id << 3 | WIRE_VARINT);
		put_varint(phrase, roll_number(phrase));
	}
}

static void put_fields(struct phrase *phrase, const ProtobufCMessageDescriptor *message,
		       unsigned depth)
{
	for (unsigned i = 0; i < message->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->fields[i];
		uint32_t n = dice_roll(phrase->dice, 2);

		if (n && field->label == PROTOBUF_C_LABEL_REPEATED &&
		    field->type != PROTOBUF_C_TYPE_FIXED64)
			n = 1 + roll_repeats(phrase->dice);
		for (; n; n--)
			put_field(phrase, field, depth);
	}
}

size_t phrase_frame(uint8_t *frame, uint8_t type, struct dice *dice, const struct heard *heard)
{
	const ProtobufCMessageDescriptor *message = hp_message_descriptor(type);
	struct phrase phrase = {
		.dice = dice,
		.heard = heard,
		.bytes = frame + HP_FRAME_HEADER_BYTES,
		.room = HP_FRAME_PAYLOAD_MAX,
	};
	uint16_t tag = (uint16_t)dice_roll(dice, 4);

	if (message)
		put_fields(&phrase, message, 0);
	if (dice_one_in(dice, 16)) /* the end is missing */
		phrase.n = dice_roll(dice, (uint32_t)phrase.n + 1);
	for (uint32_t n = dice_one_in(dice, 8) ? 1 + dice_roll(dice, 4) : 0; n; n--)
		damage(&phrase, phrase.bytes, phrase.n);
	hp_frame_put_header(frame, type, tag, (uint32_t)phrase.n);
	if (dice_one_in(dice, 64))
		damage(&phrase, frame, HP_FRAME_HEADER_BYTES);
	return HP_FRAME_HEADER_BYTES + phrase.n;
}
