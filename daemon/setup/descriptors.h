/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process may have open. */
#pragma once

/* As many as it is allowed to allow itself. If that fails the limit stays what it is. */
void descriptors_raise_limit(void);
