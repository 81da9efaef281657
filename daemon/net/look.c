/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that only look, and the drain of every page cache, which changes nothing that anybody
 * holds.
 */
#include "daemon/net/dispatch.h"

#include <errno.h>

#include "daemon/net/reply.h"

#define CODE(name) HUGEPOOL__V1__CODE__CODE_##name

static void answer(struct session *session, uint16_t tag, int bytes)
{
	if (bytes > 0)
		output_commit(session, (size_t)bytes);
	else if (bytes == -ENODEV)
		refuse(session, tag, &(struct refusal){.code = CODE(NO_ZONE)},
		       "there is no zone of that number");
	else if (bytes == -EINVAL)
		refuse(session, tag, &(struct refusal){.code = CODE(INVALID)},
		       "what: there is no such list");
	else
		refuse(session, tag, &(struct refusal){.code = CODE(INTERNAL)},
		       "the answer could not be put together");
}

void request_stats(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const struct looks *looks = session->worker->net->looks;

	(void)message;
	answer(session, tag,
	       looks->stats(looks->userdata, session->tenant, tag, output_room(session)));
}

void request_list(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const struct looks *looks = session->worker->net->looks;

	answer(session, tag,
	       looks->list(looks->userdata, session->tenant, (const Hugepool__V1__List *)message,
			   tag, output_room(session)));
}

void request_check(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	const struct looks *looks = session->worker->net->looks;

	(void)message;
	answer(session, tag, looks->check(looks->userdata, tag, output_room(session)));
}

void request_flush(struct session *session, uint16_t tag, const ProtobufCMessage *message)
{
	struct pool *pool = session->worker->net->pool;

	(void)message;
	for (size_t i = 0; i < pool_nr_zones(pool); i++)
		hp_zone_drain(pool_zone(pool, i)->zone, HP_OWNER_NONE);
	pool_poke(pool);
	reply_done(session, tag);
}
