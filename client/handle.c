/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handle from HELLO to GOODBYE. The order at the end matters: what was mapped is unmapped before
 * the daemon is told, so that nothing of ours is left in memory that goes to somebody else.
 */
#include "client/handle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/request.h"

#define DEFAULT_SOCKET	   "/run/hugepool/hugepool.sock"
#define DEFAULT_TIMEOUT_MS 10000
#define OPTIONS_FIRST_BYTES \
	(offsetof(struct hugepool_options, timeout_ms) + sizeof(int)) /* of the first version */
#define STRUCT_BYTES_MAX 4096 /* a size above this is no size */

#define TYPE(name) HUGEPOOL__V1__MESSAGE_TYPE__MESSAGE_TYPE_##name

/* --- the handle ------------------------------------------------------------------------------- */

struct window *handle_window(struct hugepool *pool, uint32_t zone)
{
	for (size_t i = 0; i < pool->nr_windows; i++)
		if (pool->windows[i].id == zone)
			return &pool->windows[i];
	return NULL;
}

struct hugepool_range handle_name_range(struct hugepool *pool, const struct held_range *held)
{
	const struct window *window = handle_window(pool, held->zone);
	const struct hp_wire_range wire = {
		.zone = held->zone,
		.page = held->page,
		.pages = held->pages,
		.generation = held->generation,
	};
	struct hugepool_range range = {
		.address = held->address,
		.bytes = held->pages * window->page_bytes,
		.page_size = window->page_bytes,
	};

	hp_wire_put_range(range.lease, &wire);
	return range;
}

void handle_note(struct hugepool *pool, int error, const char *format, ...)
{
	va_list args;

	pool->error = (struct hugepool_error){.error = -error};
	va_start(args, format);
	(void)vsnprintf(pool->error.message, sizeof(pool->error.message), format, args);
	va_end(args);
}

int handle_enter(struct hugepool *pool)
{
	if (pool->pid != getpid())
		return -ECHILD;
	pthread_mutex_lock(&pool->mutex);
	return 0;
}

int handle_leave(struct hugepool *pool, int r)
{
	pthread_mutex_unlock(&pool->mutex);
	return r;
}

int handle_check_size(size_t size)
{
	return size < sizeof(size) || size > STRUCT_BYTES_MAX ? -EINVAL : 0;
}

int handle_take_struct(void *ret, size_t size, size_t first, const void *theirs)
{
	size_t n;

	memcpy(&n, theirs, sizeof(n));
	if (n < first || n > STRUCT_BYTES_MAX)
		return -EINVAL;
	for (size_t i = size; i < n; i++)
		if (((const unsigned char *)theirs)[i])
			return -E2BIG;
	memset(ret, 0, size);
	memcpy(ret, theirs, n < size ? n : size);
	return 0;
}

/* --- open and close --------------------------------------------------------------------------- */

static int take_zones(struct hugepool *pool, const Hugepool__V1__Welcome *welcome)
{
	if (welcome->n_zones > HP_ZONES_MAX)
		return -EPROTO;
	for (size_t i = 0; i < welcome->n_zones; i++) {
		int r;

		if (handle_window(pool, welcome->zones[i]->id))
			return -EPROTO;
		r = window_init(&pool->windows[pool->nr_windows], welcome->zones[i],
				pool->flags & HUGEPOOL_INHERIT);
		if (r < 0)
			return r;
		pool->nr_windows++;
	}
	return 0;
}

static int say_hello(struct hugepool *pool)
{
	const Hugepool__V1__Welcome *welcome;
	int r = resume_say_hello(pool, &welcome);

	if (r < 0)
		return r;
	resume_note_welcome(&pool->resume, welcome);
	r = take_zones(pool, welcome);
	if (r < 0)
		return handle_fail(pool, r, "the daemon's zones make no sense");
	return 0;
}

/* Forgets zones and ranges. unmap: also the mappings. */
static void let_go(struct hugepool *pool, bool unmap)
{
	for (size_t i = 0; i < pool->ranges.capacity && unmap; i++) {
		const struct held_range *range = &pool->ranges.slots[i];

		if (range->pages)
			window_unmap_range(handle_window(pool, range->zone), range->page,
					   range->pages, range->address);
	}
	range_table_deinit(&pool->ranges);
	for (size_t i = 0; i < pool->nr_windows; i++)
		window_deinit(&pool->windows[i], unmap);
	pool->nr_windows = 0;
}

static struct hugepool *destroy(struct hugepool *pool)
{
	pending_deinit(&pool->pendings);
	resume_deinit(&pool->resume);
	loop_deinit(&pool->loop);
	connection_deinit(&pool->connection);
	pthread_mutex_destroy(&pool->mutex);
	free(pool);
	return NULL;
}

static int open_with(struct hugepool *pool, const struct hugepool_options *options)
{
	const char *path = options->socket ? options->socket : getenv("HUGEPOOL_SOCKET");
	int timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
	int r;

	if (!path || !*path)
		path = DEFAULT_SOCKET;
	r = resume_init(&pool->resume, path,
			options->name ? options->name : program_invocation_short_name,
			options->resume_timeout_ms);
	if (r == 0)
		r = connection_init(&pool->connection, path, timeout_ms);
	if (r < 0)
		return handle_fail(pool, r, "%s: %s", path, strerror(-r));
	return say_hello(pool);
}

int handle_open(struct hugepool **ret, const struct hugepool_options *theirs,
		struct hugepool_error *ret_error)
{
	struct hugepool_options options = HUGEPOOL_OPTIONS_INIT;
	struct hugepool *pool;
	int r = 0;

	if (theirs)
		r = handle_take_struct(&options, sizeof(options), OPTIONS_FIRST_BYTES, theirs);
	if (r < 0)
		return r;
	if (options.flags &
	    ~(unsigned)(HUGEPOOL_KEEP_BLOCKS | HUGEPOOL_KEEP_FDS | HUGEPOOL_INHERIT))
		return -EINVAL;

	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pthread_mutex_init(&pool->mutex, NULL);
	pool->pid = getpid();
	pool->flags = options.flags;
	pool->connection.socket = -1;
	loop_init(&pool->loop);
	pending_init(&pool->pendings);
	r = open_with(pool, &options);
	if (r < 0) {
		if (ret_error)
			*ret_error = pool->error;
		let_go(pool, true);
		destroy(pool);
		return r;
	}
	*ret = pool;
	return 0;
}

int hugepool_open(struct hugepool **ret, const struct hugepool_options *options)
{
	return handle_open(ret, options, NULL);
}

struct hugepool *hugepool_close(struct hugepool *pool)
{
	Hugepool__V1__Empty empty = HUGEPOOL__V1__EMPTY__INIT;

	if (!pool)
		return NULL;
	/* What is at those addresses in a child of fork() is not ours. */
	if (pool->pid != getpid()) {
		let_go(pool, false);
		return destroy(pool);
	}
	/* Nothing of ours is mapped any more when the daemon frees it. */
	let_go(pool, true);
	pool->closing = true;
	(void)request_exchange(pool, TYPE(GOODBYE), &empty.base, TYPE(DONE), NULL);
	return destroy(pool);
}

int hugepool_get_error(struct hugepool *pool, struct hugepool_error *ret)
{
	size_t size = ret->size;
	int r;

	if (handle_check_size(size) < 0)
		return -EINVAL;
	r = handle_enter(pool);
	if (r < 0)
		return r;
	memset(ret, 0, size);
	memcpy(ret, &pool->error, size < sizeof(pool->error) ? size : sizeof(pool->error));
	ret->size = size;
	return handle_leave(pool, 0);
}

const char *hugepool_version(void)
{
	return HUGEPOOL_VERSION;
}
