/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of a session that wait for room, each with its deadline. Only the session's worker calls
 * these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/net/session.h"

/* Replies to the request now, if it can be granted or never will be, or when its time has come. */
void park(struct session *session, uint16_t tag, struct pool_zone *zone,
	  const struct hp_request *request, size_t n, uint32_t priority, uint32_t deadline_ms);

/* Delivers what requests of this worker were granted. May free sessions. */
void parked_fetch(struct worker *worker);

/* Its tenant is leaving: nothing waits any more, and the client is told why. */
void parked_refuse(struct session *session);

/* Refuses what has come to be more than its tenant may ever have. Return: whether there was any. */
bool parked_look(struct session *session);

/* Is this what one of them was granted, and nobody has fetched? */
bool parked_has(struct session *session, const struct hp_range *range);

/* Nothing of the session waits any more; each is answered by CANCELLED, or nobody is there to hear. */
void parked_drop(struct session *session, bool answer);
