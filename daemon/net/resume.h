/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that go on: taken over from a broken connection, or from another daemon.
 *
 * Only the session's worker calls these, unless said otherwise.
 */
#pragma once

#include "daemon/net/session.h"

/* Is the list of what the session keeps under way? Nothing else may be asked for until it is whole. */
static inline bool resume_is_under_way(const struct session *session)
{
	return session->resume;
}

/* The list is dropped, if there is one. */
void resume_drop(struct session *session);

/*
 * Before the workers are started: what another daemon left in the state is sessions again, ended where
 * their process is gone, and dealt out to the workers. Return: 0 or -errno, the reason logged.
 */
int resume_restore(const struct net *net);
