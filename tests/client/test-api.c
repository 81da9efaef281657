/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links the shared library and nothing else of ours: every function of the header is there, and does
 * without a daemon what it can.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <hugepool/hugepool.h>

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			return 1;                                                       \
		}                                                                       \
	} while (0)

/* Those that cannot be called without a daemon: that they are there is all that counts. */
static void (*const volatile functions[])(void) = {
	(void (*)(void))hugepool_alloc,		(void (*)(void))hugepool_alloc_async,
	(void (*)(void))hugepool_alloc_bulk,	(void (*)(void))hugepool_attach,
	(void (*)(void))hugepool_cache_alloc,	(void (*)(void))hugepool_cache_fill,
	(void (*)(void))hugepool_cache_flush,	(void (*)(void))hugepool_cache_new,
	(void (*)(void))hugepool_cache_release, (void (*)(void))hugepool_cancel,
	(void (*)(void))hugepool_detach,	(void (*)(void))hugepool_dispatch,
	(void (*)(void))hugepool_free,		(void (*)(void))hugepool_free_async,
	(void (*)(void))hugepool_free_bulk,	(void (*)(void))hugepool_free_part,
	(void (*)(void))hugepool_get_error,	(void (*)(void))hugepool_get_fd,
	(void (*)(void))hugepool_range_fd,	(void (*)(void))hugepool_set_callbacks,
	(void (*)(void))hugepool_share,		(void (*)(void))hugepool_stats,
	(void (*)(void))hugepool_zone_stats,
};

int main(void)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool_request request = HUGEPOOL_REQUEST_INIT;
	struct hugepool *pool = NULL;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		CHECK(functions[i]);
	CHECK(options.size == sizeof(options) && request.size == sizeof(request));
	options.socket = "/nonexistent/socket";
	CHECK(hugepool_open(&pool, &options) == -ENOENT);
	CHECK(pool == NULL);
	CHECK(hugepool_close(NULL) == NULL);
	CHECK(hugepool_cache_free(NULL) == NULL);
	CHECK(strcmp(hugepool_version(), HUGEPOOL_VERSION) == 0);
	return 0;
}
