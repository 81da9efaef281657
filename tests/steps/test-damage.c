/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state file that is damaged: bytes changed at random, one at a time, and cut off at many lengths. The
 * daemon that goes on with it must not crash, must keep its zone sound, and must give no page that
 * somebody holds to somebody else: it is leased to him still, or its block is out of use until nobody has
 * its file any more.
 *
 * A lease word has no room for a check of its own. Where a changed byte makes another possible lease of it
 * (a shorter one, an earlier one of another session of the same tenant), that is not seen before its
 * holder tells what he has; these are counted apart, and never lead to another tenant.
 *
 * test-damage [BYTES [SEED]]
 */
#include "tests/steps/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES_DEFAULT 2000
#define SESSIONS      4

static char directory[] = "/dev/shm/hugepool-steps-XXXXXX", path[64], log_path[64];
static unsigned nr_bytes = BYTES_DEFAULT;
static uint64_t seed;

static struct {
	struct facts facts; /* what they held */
	size_t records_at[STATE_TABLES], record_bytes[STATE_TABLES];
	unsigned held, out_of_use, lost; /* pages, by what has become of them */
	unsigned moved;			 /* to another session of the tenant */
	bool other_tenant, adopted;
} * shared;

static uint64_t dice(uint64_t n)
{
	seed += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = seed;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (z ^ (z >> 31)) % n;
}

/* --- the processes ---------------------------------------------------------------------------- */

static void make(void)
{
	struct hp_range ranges[32];
	struct world world;
	char *base;

	world_open(&world, path, true);
	for (unsigned i = 0; i < SESSIONS; i++) {
		struct slot *slot = world_session(&world, i / 2); /* two tenants */

		world_grant(&world, slot, 1, 6, ranges);
		world_grant(&world, slot, 4, 1, ranges);
		if (i % 2)
			world_grant(&world, slot, WORLD_BLOCK_PAGES + 2, 1, ranges);
	}
	world_facts(&world, &shared->facts);
	base = (char *)state_zone_words(pool_state(world.net.pool), 0);
	for (unsigned t = 0; t < STATE_TABLES; t++) {
		char *first = state_record(pool_state(world.net.pool), t, 0);

		shared->records_at[t] = (size_t)(first - base);
		shared->record_bytes[t] =
			(size_t)((char *)state_record(pool_state(world.net.pool), t, 1) - first);
	}
}

static void report(void *userdata, const char *message)
{
	(void)userdata;
	fprintf(stderr, "%s\n", message);
}

static uint32_t block_owner(struct hp_block_word word)
{
	return word.state == HP_BLOCK_LIVE || word.state == HP_BLOCK_FAILING ? word.owner : 0;
}

/* What has become of a page that somebody held. */
static void look_at_page(struct world *world, const struct facts *now, uint32_t page)
{
	const struct fact *was = &shared->facts.page[page], *is = &now->page[page];
	struct hp_block_word word =
		hp_zone_block_word(world_zone(world)->zone, page / WORLD_BLOCK_PAGES);

	if (!was->slot)
		return;
	if (word.state == HP_BLOCK_CLEAN)
		world_die("page %u is held, and its block is clean", page);
	if (!block_owner(word)) { /* nobody gets it before it has been recycled */
		shared->out_of_use++;
		return;
	}
	if (block_owner(word) != shared->facts.owner[was->slot]) {
		shared->other_tenant = true;
		world_die("page %u of owner %u is owner %u's", page,
			  (unsigned)shared->facts.owner[was->slot], word.owner);
	}
	if (is->revoked && is->slot) /* what is left of a lease that has lost another block */
		shared->out_of_use++;
	else if (is->slot == was->slot)
		shared->held++;
	else if (is->slot)
		shared->moved++;
	else
		shared->lost++;
}

static void go_on(void)
{
	struct facts now;
	struct world world;

	world_open(&world, path, false);
	shared->adopted = state_is_adopted(pool_state(world.net.pool));
	if (hp_zone_check(world_zone(&world)->zone, report, NULL))
		world_die("the zone is not sound");
	world_facts(&world, &now);
	shared->held = shared->out_of_use = shared->lost = shared->moved = 0;
	if (!shared->adopted)
		return; /* every block goes through recycling */
	for (uint32_t i = 0; i < WORLD_PAGES; i++)
		look_at_page(&world, &now, i);
	world_close(&world);
}

static int run(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (!freopen(log_path, "w", stderr))
			_exit(3);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- the file --------------------------------------------------------------------------------- */

static char *whole;
static size_t whole_bytes;

static void keep_file(void)
{
	FILE *file = fopen(path, "r");
	struct stat st;

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	whole_bytes = (size_t)st.st_size;
	whole = malloc(whole_bytes);
	assert_non_null(whole);
	assert_int_equal(fread(whole, 1, whole_bytes, file), whole_bytes);
	fclose(file);
}

static void put_file(size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(whole, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static bool log_says_something(void)
{
	static char text[1 << 16];
	FILE *log = fopen(log_path, "r");
	size_t n = log ? fread(text, 1, sizeof(text) - 1, log) : 0;

	if (log)
		fclose(log);
	text[n] = '\0';
	return strstr(text, "warning") || strstr(text, "another boot");
}

static void show_log(void)
{
	char command[96];

	snprintf(command, sizeof(command), "tail -n 20 %s >&2", log_path);
	if (system(command))
		fprintf(stderr, "no log\n");
}

/* Where something is: the header, the words, the records in use. */
static size_t somewhere(void)
{
	const size_t words = 4096;

	switch (dice(5)) {
	case 0:
		return dice(4096);
	case 1:
		return words + dice(WORLD_BLOCKS * 8);
	case 2:
		return words + WORLD_BLOCKS * 8 + dice(WORLD_PAGES * 8);
	case 3:
		return words + shared->records_at[STATE_SESSIONS] +
		       dice((SESSIONS + 2) * shared->record_bytes[STATE_SESSIONS]);
	default:
		return words + shared->records_at[STATE_OWNERS] +
		       dice(4 * shared->record_bytes[STATE_OWNERS]);
	}
}

static bool is_lease_word(size_t at)
{
	return at >= 4096 + WORLD_BLOCKS * 8 && at < 4096 + WORLD_BLOCKS * 8 + WORLD_PAGES * 8;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_bytes(void **state)
{
	unsigned afresh = 0, whole_again = 0, silent = 0, reported = 0, unseen = 0;
	uint64_t began = seed;

	(void)state;
	for (unsigned i = 0; i < nr_bytes; i++) {
		size_t at = somewhere();
		char by = (char)(1 + dice(255)), was = whole[at];
		int status;

		whole[at] ^= by;
		put_file(whole_bytes);
		whole[at] = was;
		status = run(go_on);
		if (status) {
			show_log();
			fail_msg("byte %zu changed by %#x, seed %llu: status %d", at, (unsigned)by,
				 (unsigned long long)began, status);
		}
		afresh += !shared->adopted;
		whole_again +=
			shared->adopted && !shared->out_of_use && !shared->lost && !shared->moved;
		if (shared->lost || shared->moved) {
			/* only by a lease word that is another possible one */
			if (!is_lease_word(at)) {
				show_log();
				fail_msg("byte %zu changed by %#x: %u pages lost, %u moved", at,
					 (unsigned)by, shared->lost, shared->moved);
			}
			unseen++;
		} else if (shared->out_of_use || !shared->adopted) {
			if (log_says_something()) {
				reported++;
				continue;
			}
			if (is_lease_word(at)) { /* one that was revoked, for example */
				unseen++;
				continue;
			}
			show_log();
			printf("byte %zu changed by %#x: %u pages out of use, and nothing says so\n",
			       at, (unsigned)by, shared->out_of_use);
			silent++;
		}
	}
	printf("%u bytes, seed %llu: all as it was %u, begun afresh %u, damage reported %u, lease words that are other possible ones %u\n",
	       nr_bytes, (unsigned long long)began, whole_again, afresh, reported, unseen);
	assert_int_equal(silent, 0);
}

static void test_lengths(void **state)
{
	unsigned n = 0;

	(void)state;
	for (size_t bytes = 0; bytes < whole_bytes; bytes += 1 + bytes / 9) {
		put_file(bytes);
		if (run(go_on)) {
			show_log();
			fail_msg("cut off at %zu", bytes);
		}
		assert_false(shared->adopted);
		assert_true(bytes == 0 || log_says_something());
		n++;
	}
	printf("%u lengths, each begun afresh and reported\n", n);
}

static void test_undamaged(void **state)
{
	(void)state;
	put_file(whole_bytes);
	assert_int_equal(run(go_on), 0);
	assert_true(shared->adopted);
	assert_true(shared->held > 40);
	assert_int_equal(shared->out_of_use + shared->lost + shared->moved, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_undamaged),
						  cmocka_unit_test(test_bytes),
						  cmocka_unit_test(test_lengths)};
	int failed;

	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	if (argc > 1)
		nr_bytes = (unsigned)atoi(argv[1]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || !mkdtemp(directory))
		return 1;
	snprintf(path, sizeof(path), "%s/state", directory);
	snprintf(log_path, sizeof(log_path), "%s/log", directory);
	if (run(make)) {
		show_log();
		return 1;
	}
	keep_file();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(whole);
	unlink(path);
	unlink(log_path);
	rmdir(directory);
	return failed;
}
