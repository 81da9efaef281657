/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoll MIB...: huge pages in an epoll loop. A range of each size is asked for; what there is no room
 * for waits up to a minute, and the loop goes on meanwhile.
 */
#include <hugepool/hugepool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

static void answered(void *userdata, int result, const struct hugepool_range *range,
		     const struct hugepool_error *error)
{
	int *pending = userdata;

	if (result == 0)
		printf("%llu MiB at %p\n", (unsigned long long)range->bytes >> 20, range->address);
	else
		printf("%s\n", error->message);
	--*pending;
}

int main(int argc, char **argv)
{
	struct hugepool_request request = {.size = sizeof(request), .deadline_ms = 60000};
	struct epoll_event event = {.events = EPOLLIN};
	struct hugepool *pool;
	int epoll = epoll_create1(EPOLL_CLOEXEC), pending = 0;

	if (hugepool_open(&pool, NULL) < 0 ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, hugepool_get_fd(pool), &event))
		return 1;
	for (int i = 1; i < argc; i++) {
		request.bytes = strtoull(argv[i], NULL, 10) << 20;
		if (hugepool_alloc_async(pool, &request, answered, &pending) > 0)
			pending++;
	}
	while (pending > 0 && epoll_wait(epoll, &event, 1, -1) == 1)
		if (hugepool_dispatch(pool, 0) < 0)
			break;
	hugepool_close(pool);
	return pending > 0;
}
