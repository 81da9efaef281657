/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where huge pages come from: directory descriptors of blocks, sent by hugepool-setup.
 *
 * Either its socket answers, or we are root and start a guard of our own, which sends the same. What
 * comes is checked against the configuration, and each directory is locked: so a second daemon on
 * the same blocks is refused, and "hugepool-setup down" sees that they are in use.
 */
#include "daemon/pool/internal.h"

#include "daemon/log.h"
#include "daemon/setup/blockfs.h"
#include "daemon/setup/directories.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SETUP_PROGRAM	  "hugepool-setup"
#define SETUP_ENVIRONMENT "HUGEPOOL_SETUP" /* another path of it, for tests and odd installations */

#define KEEP_INTERVAL_MS 5
#define KEEP_TIMEOUT_MS	 200

/* --- taking what comes ------------------------------------------------------------------------ */

static struct bound_zone *find_zone(struct pool *pool, const char *name)
{
	for (size_t z = 0; z < pool->nr_zones; z++)
		if (strcmp(pool->zones[z].public.name, name) == 0 &&
		    pool->zones[z].backing == &backing_hugetlb)
			return &pool->zones[z];
	return NULL;
}

/* "hugepool-setup status" may just be looking whether we have it: that takes no time. */
static int keep(int fd)
{
	const struct timespec interval = {.tv_nsec = KEEP_INTERVAL_MS * 1000000};
	int r = blockfs_keep(fd);

	for (int ms = 0; r == 1 && ms < KEEP_TIMEOUT_MS; ms += KEEP_INTERVAL_MS) {
		nanosleep(&interval, NULL);
		r = blockfs_keep(fd);
	}
	return r;
}

/* Return: 0; -EINVAL (said why) for another geometry; -EBUSY for another daemon's. */
static int check_directory(const struct pool_zone *zone, uint32_t block, int fd)
{
	struct blockfs_info info;
	int r;

	r = blockfs_info(fd, &info);
	if (r < 0) {
		log_error("setup sent something else than a block zone=%s block=%u error=\"%s\"",
			  zone->name, block, strerror(-r));
		return r;
	}
	if (info.page_bytes != zone->page_bytes || info.pages != zone->block_pages) {
		log_error("zone is set up differently zone=%s page_bytes=%" PRIu64
			  " block_pages=%" PRIu64 " configured_page_bytes=%" PRIu64
			  " configured_block_pages=%u: run \"hugepool-setup down\" and \"up\"",
			  zone->name, info.page_bytes, info.pages, zone->page_bytes,
			  zone->block_pages);
		return -EINVAL;
	}
	r = keep(fd);
	if (r == 0)
		return 0;
	log_error("block cannot be locked: %s zone=%s block=%u",
		  r < 0 ? strerror(-r) : "another daemon uses it", zone->name, block);
	return r < 0 ? r : -EBUSY;
}

/* At the start everything is taken; later more of one zone, which the recyclers are given at once. */
struct reception {
	struct pool *pool;
	struct bound_zone *zone; /* NULL: at the start */
	uint32_t room;		 /* blocks that are still wanted of it */
};

static void take_in(struct pool_block *block, int fd)
{
	struct pool *pool = block->zone->pool;

	pthread_mutex_lock(&pool->lock);
	block->backing.fd = fd;
	life_take_in(block);
	pthread_mutex_unlock(&pool->lock);
}

/* Return: 1 to take it, 0 not to, -EPROTO for one that came twice. */
static int is_wanted(const struct reception *reception, const struct bound_zone *zone,
		     uint32_t index)
{
	bool ours;

	pthread_mutex_lock(&zone->pool->lock);
	ours = zone->blocks[index].stage != STAGE_ABSENT;
	pthread_mutex_unlock(&zone->pool->lock);
	if (!reception->zone)
		return ours ? -EPROTO : 1;
	return zone == reception->zone && !ours && reception->room;
}

/* directories_fn */
static int adopt(void *userdata, const char *name, uint32_t index, int fd)
{
	struct reception *reception = userdata;
	struct bound_zone *zone = find_zone(reception->pool, name);
	struct pool_block *block;
	int r;

	if (!zone || index >= zone->public.nr_blocks) { /* the set-up may have more than we want */
		log_info("block is set up but not configured zone=%s block=%u", name, index);
		close(fd);
		return 0;
	}
	block = &zone->blocks[index];
	r = is_wanted(reception, zone, index);
	if (r == 1)
		r = check_directory(&zone->public, index, fd) ?: 1;
	if (r <= 0) {
		close(fd);
		return r;
	}
	if (reception->zone) {
		reception->room--;
		take_in(block, fd);
		return 0;
	}
	block->backing.fd = fd;
	life_set_stage(block, STAGE_RETIRING, "");
	return 0;
}

static int receive(struct pool *pool, int socket)
{
	struct reception reception = {.pool = pool};
	char text[DIRECTORIES_TEXT_MAX];
	int r = directories_receive(socket, adopt, &reception, text);

	if (r == -ECANCELED)
		log_notice("asked to stop while waiting for hugepool-setup");
	else if (r < 0)
		log_error("no memory from hugepool-setup: %s%s%s", strerror(-r), *text ? ": " : "",
			  text);
	else if (*text)
		log_warning("fewer huge pages than configured: %s", text);
	return r;
}

/* --- the server of a set-up ------------------------------------------------------------------- */

/* Only root may tell us what our memory is. */
static int check_server(int socket, const char *path)
{
	socklen_t length = sizeof(struct ucred);
	struct ucred peer;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return -errno;
	if (peer.uid == 0)
		return 0;
	log_error("setup socket is not root's path=%s uid=%u", path, peer.uid);
	return -EPERM;
}

/* Return: socket; -ECONNREFUSED if nobody listens; -errno (logged). */
static int connect_server(const char *path)
{
	const struct timeval timeout = {.tv_sec = DIRECTORIES_TIMEOUT_SEC};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r = 0;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = errno == ENOENT ? -ECONNREFUSED : -errno;
	if (r == 0)
		r = check_server(fd, path);
	else if (r != -ECONNREFUSED)
		log_error("setup socket path=%s error=\"%s\"", path, strerror(-r));
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

/* --- a guard of our own ----------------------------------------------------------------------- */

/* Beside our own program, or where it is installed. */
static int find_setup_program(char *ret, size_t size)
{
	const char *given = secure_getenv(SETUP_ENVIRONMENT);
	ssize_t n;
	char *slash;

	if (given && *given == '/') {
		(void)snprintf(ret, size, "%s", given);
		return access(ret, X_OK) < 0 ? -errno : 0;
	}
	n = readlink("/proc/self/exe", ret, size - sizeof(SETUP_PROGRAM));
	if (n > 0) {
		ret[n] = '\0';
		slash = strrchr(ret, '/');
		memcpy(slash ? slash + 1 : ret, SETUP_PROGRAM, sizeof(SETUP_PROGRAM));
		if (access(ret, X_OK) == 0)
			return 0;
	}
	(void)snprintf(ret, size, "%s/%s", HUGEPOOL_LIBEXECDIR, SETUP_PROGRAM);
	return access(ret, X_OK) < 0 ? -errno : 0;
}

/* In a session of its own, so that a terminal's signals do not reach it; with nothing of ours but
 * its end of the socket and stderr. */
static int spawn_guard(const char *program, int socket, pid_t *ret)
{
	char *const arguments[] = {SETUP_PROGRAM, "guard", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r;

	sigemptyset(&none);
	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
	posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	r = -posix_spawn(ret, program, &actions, &attributes, arguments, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

static int start_guard(struct pool *pool)
{
	char program[PATH_MAX];
	int sockets[2], r;

	r = find_setup_program(program, sizeof(program));
	if (r < 0) {
		log_error("no %s beside this program nor in %s", SETUP_PROGRAM,
			  HUGEPOOL_LIBEXECDIR);
		return r;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return -errno;
	r = spawn_guard(program, sockets[1], &pool->guard_pid);
	close(sockets[1]);
	if (r < 0) {
		log_error("cannot start %s: %s", program, strerror(-r));
		close(sockets[0]);
		return r;
	}
	pool->guard_socket = sockets[0];
	return 0;
}

static int open_guard(struct pool *pool)
{
	struct setup_plan plan;
	int r;

	r = start_guard(pool);
	if (r < 0)
		return r;
	log_info("no set-up at %s: one of our own that ends with us guard=%d",
		 pool->config->setup_socket, (int)pool->guard_pid);
	setup_plan_from_config(&plan, pool->config);
	r = directories_send_plan(pool->guard_socket, &plan);
	return r < 0 ? r : receive(pool, pool->guard_socket);
}

void source_close(struct pool *pool)
{
	char byte;
	ssize_t n;

	if (pool->guard_socket < 0)
		return;
	shutdown(pool->guard_socket, SHUT_WR);
	do /* its end closes when everything is given back */
		n = recv(pool->guard_socket, &byte, sizeof(byte), 0);
	while (n > 0 || (n < 0 && errno == EINTR));
	close(pool->guard_socket);
	pool->guard_socket = -1;
	waitpid(pool->guard_pid, NULL, 0);
}

/* --- both ------------------------------------------------------------------------------------- */

int source_open(struct pool *pool)
{
	int socket, r;

	socket = connect_server(pool->config->setup_socket);
	if (socket >= 0) {
		r = receive(pool, socket);
		close(socket);
		pool->pinned = r == 0;
		return r;
	}
	if (socket != -ECONNREFUSED)
		return socket;
	if (geteuid() == 0)
		return open_guard(pool);
	log_error("no hugepool-setup answers at %s, and only root can do without: run "
		  "\"hugepool-setup up\" and \"hugepool-setup fds\" as root",
		  pool->config->setup_socket);
	return -EACCES;
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Whoever ends the pool shuts it down, so that nobody waits for minutes. Return: whether to begin. */
static bool set_socket(struct pool *pool, int socket)
{
	bool begin;

	pthread_mutex_lock(&pool->lock);
	begin = !pool->stopping;
	pool->resize_socket = begin ? socket : -1;
	pthread_mutex_unlock(&pool->lock);
	return begin;
}

static int receive_more(struct bound_zone *zone, int socket, uint32_t room,
			char text[POOL_REASON_MAX])
{
	struct reception reception = {.pool = zone->pool, .zone = zone, .room = room};
	char said[DIRECTORIES_TEXT_MAX] = "";
	int r = set_socket(zone->pool, socket)
			? directories_receive(socket, adopt, &reception, said)
			: -ECANCELED;

	set_socket(zone->pool, -1);
	(void)snprintf(text, POOL_REASON_MAX, "%.*s", POOL_REASON_MAX - 1, said);
	return r;
}

/* The zone of so many blocks, the others as they are. */
static int send_sizes(struct bound_zone *zone, uint32_t blocks)
{
	struct pool *pool = zone->pool;
	struct setup_plan plan;

	setup_plan_from_config(&plan, pool->config);
	pthread_mutex_lock(&pool->lock);
	for (uint32_t z = 0; z < plan.nr_zones; z++) {
		const struct bound_zone *of = find_zone(pool, plan.zones[z].name);

		plan.zones[z].nr_blocks = of == zone ? blocks : resize_known_blocks(of);
	}
	pthread_mutex_unlock(&pool->lock);
	return directories_send_plan(pool->guard_socket, &plan);
}

int source_adopt(struct bound_zone *zone, uint32_t blocks, char text[POOL_REASON_MAX])
{
	struct pool *pool = zone->pool;
	uint32_t known;
	int socket, r;

	pthread_mutex_lock(&pool->lock);
	known = resize_known_blocks(zone);
	pthread_mutex_unlock(&pool->lock);
	if (pool->guard_socket >= 0) {
		r = send_sizes(zone, blocks);
		return r < 0 ? r : receive_more(zone, pool->guard_socket, blocks - known, text);
	}
	socket = connect_server(pool->config->setup_socket);
	if (socket < 0) {
		(void)snprintf(text, POOL_REASON_MAX, "no \"hugepool-setup fds\" answers at %.128s",
			       pool->config->setup_socket);
		return socket;
	}
	r = receive_more(zone, socket, blocks - known, text);
	close(socket);
	return r;
}

int source_give_up(struct bound_zone *zone, char text[POOL_REASON_MAX])
{
	struct pool *pool = zone->pool;
	uint32_t known;
	int r;

	if (pool->guard_socket < 0)
		return 0;
	pthread_mutex_lock(&pool->lock);
	known = resize_known_blocks(zone);
	pthread_mutex_unlock(&pool->lock);
	r = send_sizes(zone, known);
	return r < 0 ? r : receive_more(zone, pool->guard_socket, 0, text);
}
