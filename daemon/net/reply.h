/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What handlers say back. Only the session's worker calls these.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/net/session.h"
#include "proto/message.h"

void reply(struct session *session, uint8_t type, uint16_t tag, const ProtobufCMessage *message);
void reply_done(struct session *session, uint16_t tag);

/* n may be 0: nothing is left. */
void reply_grant(struct session *session, uint16_t tag, const struct hp_grant *grants, size_t n);

/* Unasked: the memory of this life of a block is going. */
void reply_retired(struct session *session, const struct pool_zone *zone, uint32_t block,
		   uint64_t generation);

/* Unasked: somebody waits for room in this zone. */
void reply_pressure(struct session *session, uint32_t zone_id);

/* As the wire names it. */
Hugepool__V1__Backing reply_backing(const struct pool_zone *zone);

/* An ERROR reply. With a zone the figures of the asking tenant are filled in. */
struct refusal {
	Hugepool__V1__Code code;
	const struct pool_zone *zone; /* or NULL */
	uint64_t asked_pages;
	uint32_t index;
	uint64_t limit;
};

/* The sentence says what was asked, what there was, what to do; cut at HP_MESSAGE_MAX. */
void refuse(struct session *session, uint16_t tag, const struct refusal *refusal,
	    const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * An ERROR frame with tag 0 for a connection that does not become a session, straight into its
 * socket, which is new and has room. fd is borrowed.
 */
void refuse_connection(int fd, Hugepool__V1__Code code, uint64_t limit, const char *sentence);
