/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules that hold for all requests (known, on this socket, served, HELLO first, parses) are
 * here once, in the order in which a client would want to hear about them; a handler sees only
 * messages that may be handled.
 */
#include "daemon/net/dispatch.h"

#include <errno.h>

#include "daemon/net/reply.h"
#include "daemon/net/resume.h"

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name
#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

#define BOTH (SOCKET_DATA | SOCKET_ADMIN)

struct request {
	unsigned sockets;  /* enum socket_kind; 0: no request at all */
	request_fn handle; /* NULL: in the protocol, not served */
};

static const struct request requests[] = {
	[TYPE(HELLO)] = {BOTH, request_hello},
	[TYPE(GOODBYE)] = {BOTH, request_goodbye},
	[TYPE(RESUME)] = {SOCKET_DATA, request_resume},
	[TYPE(ALLOC)] = {SOCKET_DATA, request_alloc},
	[TYPE(FREE)] = {SOCKET_DATA, request_free},
	[TYPE(FREE_PART)] = {SOCKET_DATA, request_free_part},
	[TYPE(RELEASE_BLOCK)] = {SOCKET_DATA, request_release_block},
	[TYPE(CANCEL)] = {SOCKET_DATA, request_cancel},
	[TYPE(SHARE)] = {SOCKET_DATA, request_share},
	[TYPE(ATTACH)] = {SOCKET_DATA, request_attach},
	[TYPE(DETACH)] = {SOCKET_DATA, request_detach},
	[TYPE(ACK)] = {SOCKET_DATA, request_free},
	[TYPE(STATS)] = {BOTH, request_stats},
	[TYPE(LIST)] = {BOTH, request_list},
	[TYPE(CHECK)] = {SOCKET_ADMIN, request_check},
	[TYPE(FLUSH)] = {SOCKET_ADMIN, request_flush},
	[TYPE(REVOKE)] = {SOCKET_ADMIN, request_revoke},
	[TYPE(QUOTA)] = {SOCKET_ADMIN, request_quota},
	[TYPE(TENANT_CREATE)] = {SOCKET_ADMIN, request_tenant_create},
	[TYPE(TENANT_DELETE)] = {SOCKET_ADMIN, request_tenant_delete},
	[TYPE(ADOPT)] = {SOCKET_ADMIN, request_adopt},
	[TYPE(OFFLINE)] = {SOCKET_ADMIN, request_offline},
	[TYPE(RELOAD)] = {SOCKET_ADMIN, request_reload},
};

#define NR_REQUESTS (sizeof(requests) / sizeof(requests[0]))

void dispatch(struct session *session, const struct hp_frame *frame)
{
	const char *name = hp_message_type_name(frame->type);
	const ProtobufCMessage *message;
	const struct request *request;
	int rc;

	worker_count(&session->worker->counters.requests);
	if (frame->type >= NR_REQUESTS || !(requests[frame->type].sockets & session->kind)) {
		refuse(session, frame->tag, &(struct refusal){.code = CODE(UNKNOWN_TYPE)},
		       "%s (type %u) is no request on the %s socket", name, frame->type,
		       session->kind == SOCKET_ADMIN ? "admin" : "data");
		return;
	}
	request = &requests[frame->type];
	if (!request->handle) {
		refuse(session, frame->tag, &(struct refusal){.code = CODE(NOT_SUPPORTED)},
		       "%s is in the protocol, but not served by this daemon", name);
		return;
	}
	if ((session->phase == SESSION_SILENT) != (frame->type == TYPE(HELLO))) {
		refuse(session, frame->tag, &(struct refusal){.code = CODE(HELLO_REQUIRED)},
		       session->phase == SESSION_SILENT ? "%s came before hello"
							: "%s has been said already",
		       name);
		return;
	}
	if (resume_is_under_way(session) && frame->type != TYPE(RESUME) &&
	    frame->type != TYPE(GOODBYE)) {
		refuse(session, frame->tag, &(struct refusal){.code = CODE(BUSY)},
		       "%s came before the last frame of resume", name);
		return;
	}
	rc = hp_message_unpack(session->worker->arena, hp_message_descriptor(frame->type), frame,
			       &message);
	if (rc) {
		refuse(session, frame->tag, &(struct refusal){.code = CODE(MALFORMED)},
		       rc == -E2BIG ? "the payload of %s unpacks to more than a message may need"
				    : "the payload is not the message of %s",
		       name);
		return;
	}
	request->handle(session, frame->tag, message);
}
