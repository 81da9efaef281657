/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/rig.h"

#define WAIT_TRIES  20000 /* of 0.5 ms */
#define TURN_PASSES 3	  /* to take a connection up, to hear what it says, and what that led to */

size_t rig_count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[8];
	size_t n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));

		/* Pipes may be a sanitizer's, to the process that finds names for addresses. */
		if (length < 5 || memcmp(target, "pipe:", 5) != 0)
			n++;
	}
	closedir(dir);
	return n;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

/* --- what the pool tells ---------------------------------------------------------------------- */

static void on_clean(void *userdata, struct pool_zone *zone)
{
	struct rig *rig = userdata;

	waits_poke(rig->net.waits, zone);
}

static void wake_worker(void *userdata, unsigned worker)
{
	const struct net *net = userdata;

	worker_wake(net->workers[worker]);
}

static void tell_notices(void *userdata)
{
	const struct net *net = userdata;

	for (size_t i = 0; i < net->nr_workers; i++)
		worker_notice(net->workers[i]);
}

static void on_retired(void *userdata, struct pool_zone *zone, uint32_t block, uint64_t generation)
{
	struct rig *rig = userdata;

	for (size_t i = 0; i < rig->acceptor.nr_workers; i++)
		worker_retire(rig->workers[i], zone, block, generation);
}

static void on_owner_changed(void *userdata, uint32_t owner)
{
	struct rig *rig = userdata;

	tenants_collect(rig->net.tenants, shares_collect(rig->net.shares, owner));
}

static void on_filled(void *userdata, uint64_t online_bytes, uint64_t configured_bytes)
{
	struct rig *rig = userdata;

	rig->ops.ready = online_bytes == configured_bytes;
	rig->filled = true;
}

/* --- life ------------------------------------------------------------------------------------- */

static void report(void *userdata, const char *message)
{
	(void)userdata;
	print_error("%s\n", message);
}

static struct config *load(const char *text)
{
	char path[] = "/tmp/hugepool-test-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	struct config *config;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	assert_int_equal(config_load(&config, path, report, NULL), 0);
	unlink(path);
	return config;
}

struct rig *rig_new(const struct rig_options *options)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct pool_callbacks callbacks = {
		.clean = on_clean,
		.retired = on_retired,
		.owner_changed = on_owner_changed,
		.filled = on_filled,
		.userdata = rig,
	};

	assert_non_null(rig);
	rig->descriptors = rig_count_descriptors();
	rig->by_hand = options->by_hand;
	rig->config = load(options->config ? options->config : RIG_CONFIG RIG_NO_LIMIT);
	assert_int_equal(pool_new(&rig->net.pool, rig->config, HP_OWNERS_MAX, &callbacks), 0);
	assert_int_equal(tenants_new(&rig->net.tenants, rig->config, rig->net.pool), 0);
	assert_int_equal(slots_new(&rig->net.slots, rig->net.tenants, rig->net.pool), 0);
	rig->net.workers = rig->workers;
	rig->net.nr_workers = options->workers ? options->workers : 1;
	assert_int_equal(waits_new(&rig->net.waits, rig->net.pool, (unsigned)rig->net.nr_workers,
				   wake_worker, &rig->net),
			 0);
	assert_int_equal(shares_new(&rig->net.shares, rig->net.pool, rig->net.tenants), 0);
	assert_int_equal(leases_new(&rig->net.leases, rig->net.pool, rig->net.slots, rig->net.waits,
				    rig->net.shares),
			 0);
	assert_int_equal(revokes_new(&rig->net.revokes, rig->net.pool, rig->net.slots,
				     rig->net.leases, tell_notices, &rig->net),
			 0);
	rig->net.looks = &rig->looks;
	rig->net.hello_timeout_ms =
		options->hello_timeout_ms ? options->hello_timeout_ms : HP_HELLO_TIMEOUT_MS;
	rig->acceptor = (struct acceptor){
		.net = &rig->net,
		.workers = rig->workers,
		.nr_workers = options->workers ? options->workers : 1,
		.sessions_max = HP_SESSIONS_MAX,
		.admin_sessions_max = HP_ADMIN_SESSIONS_MAX,
	};
	rig->ops.net = &rig->net;
	rig->ops.workers = rig->workers;
	rig->ops.nr_workers = rig->acceptor.nr_workers;
	rig->looks = ops_looks(&rig->ops);
	for (unsigned i = 0; i < rig->acceptor.nr_workers; i++) {
		assert_int_equal(worker_new(&rig->workers[i], &rig->net, i), 0);
		if (options->by_hand)
			turn_init(&rig->workers[i]->turn);
		else
			assert_int_equal(worker_start(rig->workers[i]), 0);
	}
	assert_int_equal(pool_start(rig->net.pool), 0);
	for (int i = 0; i < WAIT_TRIES && !rig->filled; i++)
		nap();
	assert_true(rig->filled && rig->ops.ready);
	return rig;
}

struct rig *rig_free(struct rig *rig)
{
	size_t descriptors = rig->descriptors;

	for (size_t i = 0; i < rig->acceptor.nr_workers; i++)
		worker_stop(rig->workers[i]);
	for (size_t i = 0; i < rig->acceptor.nr_workers; i++)
		worker_end_sessions(rig->workers[i]);
	for (size_t i = 0; i < pool_nr_zones(rig->net.pool); i++) {
		struct hp_zone *zone = pool_zone(rig->net.pool, i)->zone;
		struct hp_zone_stats stats;

		assert_int_equal(hp_zone_check(zone, report, NULL), 0);
		hp_zone_stats(zone, &stats);
		assert_int_equal(stats.leased, 0);
		assert_int_equal(stats.pcp, 0);
	}
	pool_free(rig->net.pool);
	for (size_t i = 0; i < rig->acceptor.nr_workers; i++) {
		if (rig->by_hand)
			turn_deinit(&rig->workers[i]->turn);
		worker_free(rig->workers[i]);
	}
	revokes_free(rig->net.revokes);
	leases_free(rig->net.leases);
	shares_free(rig->net.shares);
	waits_free(rig->net.waits);
	slots_free(rig->net.slots);
	tenants_free(rig->net.tenants);
	config_free(rig->config);
	free(rig);
	assert_int_equal(rig_count_descriptors(), descriptors);
	return NULL;
}

void rig_turn(struct rig *rig)
{
	assert_true(rig->by_hand);
	for (unsigned pass = 0; pass < TURN_PASSES; pass++)
		for (size_t i = 0; i < rig->acceptor.nr_workers; i++)
			event_base_loop(rig->workers[i]->base, EVLOOP_NONBLOCK);
}

/* The kernel notes who made the pair as whom its ends are connected to. */
struct peer *rig_connect_as(struct rig *rig, uid_t uid)
{
	struct peer *peer;

	assert_int_equal(seteuid(uid), 0);
	peer = rig_connect(rig, SOCKET_DATA);
	assert_int_equal(seteuid(0), 0);
	peer_hello(peer);
	return peer;
}

struct peer *rig_connect(struct rig *rig, enum socket_kind kind)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	acceptor_take(&rig->acceptor, ends[1], kind);
	return peer_new(ends[0]);
}

struct peer *rig_connect_hello(struct rig *rig, enum socket_kind kind)
{
	struct peer *peer = rig_connect(rig, kind);

	peer_hello(peer);
	return peer;
}

void rig_wait_connections(struct rig *rig, uint32_t n)
{
	uint32_t left = UINT32_MAX;

	for (int i = 0; i < WAIT_TRIES && left != n; i++) {
		left = 0;
		for (size_t j = 0; j < rig->acceptor.nr_workers; j++)
			left += rig->workers[j]->connections;
		if (left != n)
			nap();
	}
	assert_int_equal(left, n);
}
