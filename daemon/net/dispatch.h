/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames to handlers: one table, and the rules that hold for every request.
 */
#pragma once

#include "daemon/net/session.h"
#include "proto/frame.h"
#include "proto/message.h"

/* Handles one frame; the reply, or replies, are in the session's output. */
void dispatch(struct session *session, const struct hp_frame *frame);

/* What a request of its type does. message: unpacked, as hp_message_descriptor() names it. */
typedef void (*request_fn)(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* hello.c */
void request_hello(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_goodbye(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* alloc.c, free.c, blocks.c */
void request_alloc(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_resume(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_free(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_free_part(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_release_block(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* share.c */
void request_share(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_attach(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_detach(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* park.c */
void request_cancel(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* order.c: done by the main thread */
void request_quota(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_tenant_create(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_tenant_delete(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_adopt(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_offline(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_reload(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* revoke.c */
void request_revoke(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/* look.c */
void request_stats(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_list(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_check(struct session *session, uint16_t tag, const ProtobufCMessage *message);
void request_flush(struct session *session, uint16_t tag, const ProtobufCMessage *message);

/*
 * What is answered by looking at everything below, which is what ops/ does: the server passes its
 * functions down. Each packs a whole reply into frame (room for HP_FRAME_MAX bytes). viewer: the
 * asking tenant, NULL for the admin. Return: bytes; -ENODEV (no such zone), -EINVAL (no such list).
 * Called by any worker.
 */
struct looks {
	int (*stats)(void *userdata, const struct tenant *viewer, uint16_t tag, uint8_t *frame);
	int (*list)(void *userdata, const struct tenant *viewer, const Hugepool__V1__List *request,
		    uint16_t tag, uint8_t *frame);
	int (*check)(void *userdata, uint16_t tag, uint8_t *frame);
	void *userdata;
};
