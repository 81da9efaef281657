/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See the header. SIGBUS is looked for in a child, so that no handler and no long jump out of one
 * mixes with the code under test.
 */
#include "tests/daemon/pool-fixture.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_STRIDE 4096

/* --- callbacks -------------------------------------------------------------------------------- */

static void on_clean(void *userdata, struct pool_zone *zone)
{
	struct fixture *fixture = userdata;

	(void)zone;
	fixture->clean++;
}

static void on_retired(void *userdata, struct pool_zone *zone, uint32_t block, uint64_t generation)
{
	struct fixture *fixture = userdata;

	(void)zone;
	fixture->retired_block = block;
	fixture->retired_generation = generation;
	fixture->retired++;
}

static void on_owner_changed(void *userdata, uint32_t owner)
{
	struct fixture *fixture = userdata;

	fixture->owner_changed[owner]++;
}

static void on_filled(void *userdata, uint64_t online_bytes, uint64_t configured_bytes)
{
	struct fixture *fixture = userdata;

	fixture->online_bytes = online_bytes;
	fixture->configured_bytes = configured_bytes;
	fixture->filled++;
}

/* --- life ------------------------------------------------------------------------------------- */

static void print_mistake(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

static void write_config(const struct fixture *fixture, const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	const char *place;

	assert_non_null(file);
	while ((place = strstr(text, "DIR"))) {
		fwrite(text, 1, (size_t)(place - text), file);
		fputs(fixture->directory, file);
		text = place + 3;
	}
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

int fixture_try(struct fixture *fixture, const char *config_text)
{
	const struct pool_callbacks callbacks = {on_clean, on_retired, on_owner_changed, on_filled,
						 fixture};
	const char *tmp = getenv("TMPDIR");
	char path[96];
	int r;

	memset(fixture, 0, sizeof(*fixture));
	r = snprintf(fixture->directory, sizeof(fixture->directory), "%s/test-pool-XXXXXX",
		     tmp ? tmp : "/tmp");
	assert_true(r < (int)sizeof(fixture->directory));
	assert_non_null(mkdtemp(fixture->directory));
	snprintf(path, sizeof(path), "%s/hugepool.conf", fixture->directory);
	write_config(fixture, path, config_text);
	r = config_load(&fixture->config, path, print_mistake, NULL);
	unlink(path);
	assert_int_equal(r, 0);
	r = pool_new(&fixture->pool, fixture->config, FIXTURE_OWNERS, &callbacks);
	if (r == 0)
		fixture->zone = pool_zone(fixture->pool, 0);
	return r;
}

void fixture_open(struct fixture *fixture, const char *config_text)
{
	assert_int_equal(fixture_try(fixture, config_text), 0);
	assert_int_equal(pool_start(fixture->pool), 0);
	fixture_wait(fixture->filled);
}

void fixture_close(struct fixture *fixture)
{
	if (fixture->pool)
		fixture_check_zone(fixture);
	fixture->pool = pool_free(fixture->pool);
	fixture->config = config_free(fixture->config);
	assert_int_equal(rmdir(fixture->directory), 0);
}

void fixture_sleep_ms(unsigned ms)
{
	const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* --- zones ------------------------------------------------------------------------------------ */

enum hp_block_state fixture_state(struct fixture *fixture, uint32_t block)
{
	return hp_zone_block_word(fixture->zone->zone, block).state;
}

uint32_t fixture_clean_blocks(struct fixture *fixture)
{
	struct hp_zone_stats stats;

	hp_zone_stats(fixture->zone->zone, &stats);
	return stats.clean_blocks;
}

struct hp_grant fixture_alloc(struct fixture *fixture, uint32_t owner, uint32_t pages)
{
	const struct hp_request request = {.owner = owner, .slot = owner, .pages = pages};
	struct hp_grant grant;

	assert_int_equal(hp_zone_alloc(fixture->zone->zone, NULL, &request, &grant), 0);
	pool_poke(fixture->pool);
	return grant;
}

void fixture_free(struct fixture *fixture, uint32_t owner, const struct hp_grant *grant)
{
	assert_int_equal(hp_zone_free(fixture->zone->zone, NULL, owner, &grant->range), 0);
	pool_poke(fixture->pool);
}

uint32_t fixture_block(const struct fixture *fixture, const struct hp_grant *grant)
{
	return grant->range.pfn / fixture->zone->block_pages;
}

static void print_violation(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

void fixture_check_zone(struct fixture *fixture)
{
	for (size_t z = 0; z < pool_nr_zones(fixture->pool); z++)
		assert_int_equal(
			hp_zone_check(pool_zone(fixture->pool, z)->zone, print_violation, NULL), 0);
}

/* --- memory ----------------------------------------------------------------------------------- */

void fixture_fill(char *memory, size_t bytes, char what)
{
	for (size_t i = 0; i < bytes; i += PAGE_STRIDE)
		memory[i] = what;
}

bool fixture_is_zero(const char *memory, size_t bytes)
{
	return memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;
}

bool fixture_is_dead(const volatile char *address)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGBUS, SIG_DFL);
		(void)*address;
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

/* --- machine ---------------------------------------------------------------------------------- */

static void number_path(char path[static 128], const char *name)
{
	snprintf(path, 128, "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", name);
}

uint64_t fixture_hugepages(const char *name)
{
	uint64_t number = 0;
	char path[128];
	FILE *file;

	number_path(path, name);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%" SCNu64, &number), 1);
	fclose(file);
	return number;
}

void fixture_set_number(const char *name, uint64_t number)
{
	char path[128];
	FILE *file;

	number_path(path, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fprintf(file, "%" PRIu64 "\n", number);
	assert_int_equal(fclose(file), 0);
}

void fixture_set_hugepages(uint64_t number)
{
	fixture_set_number("nr_hugepages", number);
}

unsigned fixture_open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}
