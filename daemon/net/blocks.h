/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of blocks on their way to a session. Only the session's worker calls this.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/net/session.h"

/*
 * Makes sure that the session knows every block of these grants: those it does not know are opened
 * and sent, in front of the GRANT that its caller is going to reply, for reading and
 * writing or only for reading. Return: 0, or -1: refused, and
 * the session knows what it knew before; taking the grants back is the caller's business.
 */
int blocks_deliver(struct session *session, uint16_t tag, struct pool_zone *zone,
		   const struct hp_grant *grants, size_t n, bool read_only);
