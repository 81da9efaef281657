/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol describes its own messages, so one function turns any of them into JSON: a field that
 * is added to the .proto is in the output without a line here. Names are the protocol's; enums lose
 * their prefix, ranges and blocks are taken out of their words.
 */
#include "client/cli/cli.h"

#include <ctype.h>
#include <string.h>

static json_t *text(ProtobufCBinaryData bytes)
{
	char buffer[CLI_TEXT_MAX];
	json_t *json = json_string(cli_text(buffer, bytes));

	/* A name that is no UTF-8. */
	return json ? json : json_string("?");
}

/* BLOCK_STATE_LIVE of BlockState becomes "live". */
static json_t *enum_name(const ProtobufCEnumDescriptor *descriptor, int value)
{
	const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(descriptor, value);
	const ProtobufCEnumValue *zero = protobuf_c_enum_descriptor_get_value(descriptor, 0);
	size_t prefix = zero ? strlen(zero->name) - strlen("UNSPECIFIED") : 0;
	char name[64];
	size_t i;

	if (!found)
		return json_integer(value);
	for (i = 0; found->name[prefix + i] && i < sizeof(name) - 1; i++)
		name[i] = (char)tolower(found->name[prefix + i]);
	name[i] = '\0';
	return json_string(name);
}

static json_t *block(uint64_t word)
{
	struct hp_wire_block block = hp_wire_get_block(word);

	return json_pack("{s:I, s:I}", "index", (json_int_t)block.index, "generation",
			 (json_int_t)block.generation);
}

/* One element of a field. */
static json_t *element(const ProtobufCFieldDescriptor *field, const void *p)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)p);
	case PROTOBUF_C_TYPE_UINT32:
		return json_integer(*(const uint32_t *)p);
	case PROTOBUF_C_TYPE_SINT32:
		return json_integer(*(const int32_t *)p);
	case PROTOBUF_C_TYPE_UINT64:
		return json_integer((json_int_t) * (const uint64_t *)p);
	case PROTOBUF_C_TYPE_FIXED64:
		return block(*(const uint64_t *)p);
	case PROTOBUF_C_TYPE_ENUM:
		return enum_name(field->descriptor, *(const int *)p);
	case PROTOBUF_C_TYPE_BYTES:
		return text(*(const ProtobufCBinaryData *)p);
	case PROTOBUF_C_TYPE_MESSAGE:
		return cli_json_message(*(ProtobufCMessage *const *)p);
	default:
		return json_null();
	}
}

static size_t element_bytes(const ProtobufCFieldDescriptor *field)
{
	switch (field->type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(ProtobufCMessage *);
	default:
		return sizeof(uint32_t);
	}
}

/* Words are of ranges, in pairs, or of blocks; the field's name tells. */
static bool holds_ranges(const ProtobufCFieldDescriptor *field)
{
	return field->type == PROTOBUF_C_TYPE_FIXED64 && strncmp(field->name, "range", 5) == 0;
}

static json_t *range(const uint64_t *words)
{
	struct hp_wire_range range;

	if (hp_wire_get_range(words, &range) < 0)
		return json_null();
	return json_pack("{s:i, s:I, s:I, s:I}", "zone", range.zone, "page", (json_int_t)range.page,
			 "pages", (json_int_t)range.pages, "generation",
			 (json_int_t)range.generation);
}

static json_t *repeated(const ProtobufCFieldDescriptor *field, const void *elements, size_t n)
{
	size_t step = holds_ranges(field) ? HP_WIRE_RANGE_WORDS : 1;
	json_t *array = json_array();

	for (size_t i = 0; array && i + step <= n; i += step) {
		const char *p = (const char *)elements + i * element_bytes(field);
		json_t *value =
			holds_ranges(field) ? range((const uint64_t *)p) : element(field, p);

		if (json_array_append_new(array, value) < 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

json_t *cli_json_message(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *descriptor = message->descriptor;
	json_t *object = json_object();

	for (unsigned i = 0; object && i < descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
		const char *p = (const char *)message + field->offset;
		json_t *value;

		if (field->label == PROTOBUF_C_LABEL_REPEATED)
			value = repeated(field, *(void *const *)p,
					 *(const size_t *)((const char *)message +
							   field->quantifier_offset));
		else
			value = element(field, p);
		if (json_object_set_new(object, field->name, value) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

json_t *cli_json_error(const struct hugepool_error *error)
{
	return json_pack(
		"{s:{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I}}", "error", "errno", error->error,
		"message", error->message, "zone", error->zone, "asked_bytes",
		(json_int_t)error->asked_bytes, "free_bytes", (json_int_t)error->free_bytes,
		"leasable_bytes", (json_int_t)error->leasable_bytes, "limit_bytes",
		(json_int_t)error->limit_bytes, "largest_bytes", (json_int_t)error->largest_bytes);
}
