/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks the protocol and nothing else: it says what a test wants to say, right or
 * wrong, and checks of the answers only what the protocol promises for all of them. Fails the test
 * instead of returning errors, except where the name says try.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/message.h"

#define PEER_FDS_MAX 2048

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name
#define WHAT(name) HUGEPOOL__V1__LIST_WHAT__LIST_WHAT_##name

struct peer {
	int fd;
	struct hp_arena *arena; /* the last message received */
	uint8_t input[2 * HP_FRAME_MAX];
	size_t have, used;
	int fds[PEER_FDS_MAX]; /* received with BLOCKS, in order */
	size_t nr_fds;
	size_t named, brought; /* blocks by BLOCKS, and descriptors, in all */
	struct hp_frame frame; /* the last one received */
};

/* fd is consumed. */
struct peer *peer_new(int fd);
struct peer *peer_connect(const char *path);
struct peer *peer_free(struct peer *peer); /* closes it and its descriptors; NULL is fine */

void peer_send_bytes(struct peer *peer, const void *bytes, size_t n);
void peer_send(struct peer *peer, uint8_t type, uint16_t tag, const ProtobufCMessage *message);

/*
 * The next frame, its message unpacked; NULL at the end of the stream. Descriptors gather in
 * peer->fds, and a frame of BLOCKS has brought as many as it names. Waits at most 10 s.
 */
const ProtobufCMessage *peer_recv(struct peer *peer);

/* The next frame but for those that come unasked, which has to be the reply of this type and tag.
 */
const void *peer_expect(struct peer *peer, uint8_t type, uint16_t tag);

/* The stream ends, perhaps after more frames. */
void peer_expect_end(struct peer *peer);

/* Nothing comes for this long but PRESSURE, which asks for nothing in particular. */
void peer_expect_silence(struct peer *peer, int ms);

/* HELLO and its WELCOME. */
const Hugepool__V1__Welcome *peer_hello(struct peer *peer);

/* As that, whatever comes: WELCOME, ERROR (then with its code), or 0 at the end of the stream. */
uint8_t peer_try_hello(struct peer *peer, Hugepool__V1__Code *ret_code);

/* Sends one request and expects an ERROR of this code, with a sentence. */
const Hugepool__V1__Error *peer_refused(struct peer *peer, uint8_t type,
					const ProtobufCMessage *message, Hugepool__V1__Code code);

struct peer_range {
	uint64_t words[HP_WIRE_RANGE_WORDS];
};

/* count ranges of this zone ("": the first), granted. */
void peer_alloc(struct peer *peer, const char *zone, uint32_t pages, uint32_t count,
		struct peer_range *ret);
void peer_free_ranges(struct peer *peer, const struct peer_range *ranges, size_t n);
const Hugepool__V1__Error *peer_free_refused(struct peer *peer, const struct peer_range *ranges,
					     size_t n, Hugepool__V1__Code code);
struct hp_wire_range peer_range(const struct peer_range *range);

/* Zone by its number, as LIST tells it. Valid until the next message. */
Hugepool__V1__Zone peer_zone(struct peer *peer, uint32_t id);

/* On the admin socket: the zones' invariants hold. */
void peer_check(struct peer *admin);

ProtobufCBinaryData peer_text(const char *text);
