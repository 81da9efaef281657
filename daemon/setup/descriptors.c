/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each block takes a descriptor, in the daemon as in whoever sets it up; the usual soft limit is there
 * for programs that use select(), which none of ours does.
 */
#include "daemon/setup/descriptors.h"

#include <sys/resource.h>

void descriptors_raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}
