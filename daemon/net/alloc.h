/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends an ALLOC, at once or after it has waited. Only the session's worker calls these.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/net/session.h"

/* The sentence of a refusal, with the name of a tenant that is being deleted. */
#define ALLOC_LEAVING "tenant %s is being deleted: nothing more is granted; free what you hold"

/*
 * What was granted for this request is the session's now: replied with its blocks, or, if that
 * fails, taken back.
 */
void alloc_deliver(struct session *session, uint16_t tag, struct pool_zone *zone,
		   const struct hp_request *request, const struct hp_grant *grants, size_t n);

/* Gives back what the client has not been told of. */
void alloc_take_back(struct session *session, const struct hp_request *request,
		     const struct hp_grant *grants, size_t n);

/* HP_NO_ROOM, HP_OVER_LIMIT, -EINVAL: in words and figures. */
void alloc_refuse(struct session *session, uint16_t tag, int condition,
		  const struct pool_zone *zone, const struct hp_request *request, size_t n);
