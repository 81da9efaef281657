/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sessions hear of revocations: see daemon/tenancy/notice.h. Only the session's worker calls
 * these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/net/session.h"

/*
 * Takes in what was posted to the session's slot: counts what it holds anew and tells the client.
 * untold: n grants that the client does not know of (yet); what becomes of those it is not told.
 * Return: whether anything was said; it is in the session's output.
 */
bool notices_take(struct session *session, const struct hp_grant *untold, size_t n);

/* Is this lease, which the session was granted and has not given back, not its any more? */
bool notices_is_lost(const struct session *session, const struct hp_range *range);

/*
 * The client has let go of this lease, or does not know of it and never will (untold): free, or
 * what is left of it if it was taken. Return: as hp_zone_free().
 */
int notices_let_go(struct session *session, const struct hp_range *range, bool untold);
