/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: an 8-byte header and a payload (hugepool.proto has the layout). Bytes in, frames out;
 * nothing here reads or writes a descriptor.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

struct hp_frame {
	uint8_t type;  /* HUGEPOOL__V1__MESSAGE_TYPE__... */
	uint8_t flags; /* 0 */
	uint16_t tag;
	uint32_t length;	/* of the payload, bytes */
	const uint8_t *payload; /* borrowed from the buffer it was parsed from */
};

/* What hp_frame_parse() found; positive values are conditions, all of them end the session. */
enum hp_frame_condition {
	HP_FRAME_INCOMPLETE = 1, /* more bytes are needed: not an error */
	HP_FRAME_TOO_LONG,	 /* length above HP_FRAME_PAYLOAD_MAX */
	HP_FRAME_BAD_FLAGS,
};

/*
 * Takes the first frame of a buffer. ret_used: bytes of it, header included.
 * Return: 0 or a condition; outputs are written only on 0.
 */
int hp_frame_parse(const uint8_t *bytes, size_t n, struct hp_frame *ret, size_t *ret_used);

/* Writes a header of HP_FRAME_HEADER_BYTES. */
void hp_frame_put_header(uint8_t *bytes, uint8_t type, uint16_t tag, uint32_t length);

/* A condition in words, for logs. */
const char *hp_frame_strerror(int condition);
