/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the session's worker calls this.
 */
#pragma once

#include <stdint.h>

#include "daemon/net/session.h"

/* A condition of shares_prepare(), shares_publish() or shares_attach(), in words. */
void share_refuse(struct session *session, uint16_t tag, int condition);
