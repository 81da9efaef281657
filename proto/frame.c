/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header is read and written byte by byte: it may lie at any address of a receive buffer, and
 * its byte order does not depend on the machine's. Length and flags are judged as soon as the
 * header is there, so that a peer which announces too much is found out before it has sent it.
 */
#include "proto/frame.h"

#include <assert.h>

int hp_frame_parse(const uint8_t *bytes, size_t n, struct hp_frame *ret, size_t *ret_used)
{
	uint32_t length;

	if (n < HP_FRAME_HEADER_BYTES)
		return HP_FRAME_INCOMPLETE;

	length = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
		 (uint32_t)bytes[3] << 24;
	if (length > HP_FRAME_PAYLOAD_MAX)
		return HP_FRAME_TOO_LONG;
	if (bytes[5] != 0)
		return HP_FRAME_BAD_FLAGS;
	if (n - HP_FRAME_HEADER_BYTES < length)
		return HP_FRAME_INCOMPLETE;

	*ret = (struct hp_frame){
		.type = bytes[4],
		.flags = bytes[5],
		.tag = (uint16_t)(bytes[6] | bytes[7] << 8),
		.length = length,
		.payload = bytes + HP_FRAME_HEADER_BYTES,
	};
	*ret_used = HP_FRAME_HEADER_BYTES + (size_t)length;
	return 0;
}

void hp_frame_put_header(uint8_t *bytes, uint8_t type, uint16_t tag, uint32_t length)
{
	assert(length <= HP_FRAME_PAYLOAD_MAX);

	bytes[0] = (uint8_t)length;
	bytes[1] = (uint8_t)(length >> 8);
	bytes[2] = (uint8_t)(length >> 16);
	bytes[3] = (uint8_t)(length >> 24);
	bytes[4] = type;
	bytes[5] = 0;
	bytes[6] = (uint8_t)tag;
	bytes[7] = (uint8_t)(tag >> 8);
}

const char *hp_frame_strerror(int condition)
{
	switch (condition) {
	case 0:
		return "complete frame";
	case HP_FRAME_INCOMPLETE:
		return "incomplete frame";
	case HP_FRAME_TOO_LONG:
		return "frame longer than the protocol allows";
	case HP_FRAME_BAD_FLAGS:
		return "frame with unknown flags";
	default:
		return "unknown condition";
	}
}
