/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: split anywhere, one after the other, and what ends a session. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#include "proto/frame.h"

static void put(uint8_t *bytes, uint8_t type, uint16_t tag, const void *payload, uint32_t n)
{
	hp_frame_put_header(bytes, type, tag, n);
	memcpy(bytes + HP_FRAME_HEADER_BYTES, payload, n);
}

static void test_layout(void **state)
{
	uint8_t bytes[HP_FRAME_HEADER_BYTES];

	(void)state;
	hp_frame_put_header(bytes, 0x43, 0xbeef, 0x1234);
	assert_memory_equal(bytes, "\x34\x12\x00\x00\x43\x00\xef\xbe", sizeof(bytes));
}

/* A receiver sees a stream grow byte by byte, from any address. */
static void test_split_at_each_byte(void **state)
{
	uint8_t bytes[1 + 2 * (HP_FRAME_HEADER_BYTES + 5)], *stream = bytes + 1;
	size_t n = sizeof(bytes) - 1, half = n / 2;

	(void)state;
	put(stream, 5, 7, "hello", 5);
	put(stream + half, 65, 0xffff, "there", 5);

	for (size_t have = 0; have <= n; have++) {
		struct hp_frame frame = {.type = 99};
		size_t used = 99;
		/* A copy of exactly this size: reading beyond it is seen by the sanitizer. */
		uint8_t *copy = malloc(have ? have : 1);

		assert_non_null(copy);
		memcpy(copy, stream, have);
		if (have < half) {
			assert_int_equal(hp_frame_parse(copy, have, &frame, &used),
					 HP_FRAME_INCOMPLETE);
			assert_int_equal(frame.type, 99);
			assert_int_equal(used, 99);
			free(copy);
			continue;
		}
		assert_int_equal(hp_frame_parse(copy, have, &frame, &used), 0);
		assert_int_equal(used, half);
		assert_int_equal(frame.type, 5);
		assert_int_equal(frame.flags, 0);
		assert_int_equal(frame.tag, 7);
		assert_int_equal(frame.length, 5);
		assert_ptr_equal(frame.payload, copy + HP_FRAME_HEADER_BYTES);
		if (have == n) {
			assert_int_equal(hp_frame_parse(copy + used, have - used, &frame, &used),
					 0);
			assert_int_equal(frame.type, 65);
			assert_int_equal(frame.tag, 0xffff);
			assert_memory_equal(frame.payload, "there", 5);
		} else {
			assert_int_equal(hp_frame_parse(copy + used, have - used, &frame, &used),
					 HP_FRAME_INCOMPLETE);
		}
		free(copy);
	}
}

static void test_empty_payload(void **state)
{
	uint8_t bytes[HP_FRAME_HEADER_BYTES];
	struct hp_frame frame;
	size_t used;

	(void)state;
	hp_frame_put_header(bytes, 13, 1, 0);
	assert_int_equal(hp_frame_parse(bytes, sizeof(bytes), &frame, &used), 0);
	assert_int_equal(frame.length, 0);
	assert_int_equal(used, HP_FRAME_HEADER_BYTES);
}

static void test_longest(void **state)
{
	static uint8_t bytes[HP_FRAME_MAX];
	struct hp_frame frame;
	size_t used;

	(void)state;
	hp_frame_put_header(bytes, 4, 1, HP_FRAME_PAYLOAD_MAX);
	assert_int_equal(hp_frame_parse(bytes, HP_FRAME_MAX - 1, &frame, &used),
			 HP_FRAME_INCOMPLETE);
	assert_int_equal(hp_frame_parse(bytes, HP_FRAME_MAX, &frame, &used), 0);
	assert_int_equal(used, HP_FRAME_MAX);
}

/* Found out as soon as the header is there, whatever follows. */
static void test_too_long(void **state)
{
	static const uint32_t lengths[] = {
		HP_FRAME_PAYLOAD_MAX + 1, 65536, 1u << 24, 1u << 31, UINT32_MAX, UINT32_MAX - 7};
	struct hp_frame frame;
	size_t used;

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint8_t bytes[HP_FRAME_HEADER_BYTES] = {
			(uint8_t)lengths[i], (uint8_t)(lengths[i] >> 8),
			(uint8_t)(lengths[i] >> 16), (uint8_t)(lengths[i] >> 24), 4};

		assert_int_equal(hp_frame_parse(bytes, sizeof(bytes), &frame, &used),
				 HP_FRAME_TOO_LONG);
		assert_int_equal(hp_frame_parse(bytes, sizeof(bytes) - 1, &frame, &used),
				 HP_FRAME_INCOMPLETE);
	}
}

static void test_flags(void **state)
{
	struct hp_frame frame;
	size_t used;

	(void)state;
	for (int bit = 0; bit < 8; bit++) {
		uint8_t bytes[HP_FRAME_HEADER_BYTES] = {0, 0, 0, 0, 4, (uint8_t)(1 << bit)};

		assert_int_equal(hp_frame_parse(bytes, sizeof(bytes), &frame, &used),
				 HP_FRAME_BAD_FLAGS);
	}
}

static void test_words(void **state)
{
	(void)state;
	for (int i = 0; i <= HP_FRAME_BAD_FLAGS; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(hp_frame_strerror(i), hp_frame_strerror(j));
	assert_non_null(hp_frame_strerror(-1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),	      cmocka_unit_test(test_split_at_each_byte),
		cmocka_unit_test(test_empty_payload), cmocka_unit_test(test_longest),
		cmocka_unit_test(test_too_long),      cmocka_unit_test(test_flags),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
