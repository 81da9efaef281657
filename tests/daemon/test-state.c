/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state file by itself: what it takes over, what it begins afresh and says so, and that no damage
 * of a record goes unseen.
 */
#include "daemon/pool/state.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BOOT_ID_AT	 32 /* in the file */
#define HEADER_BYTES_MAX 4096

static char directory[] = "/tmp/hugepool-test-state-XXXXXX";
static char path[64];

static const struct state_zone zones[] = {
	{"small", 2 << 20, 64 << 20, 256, 8, 256 * 8 + 64},
	{"large", 2 << 20, 128 << 20, 256, 4, 256 * 8 + 64},
};

static struct state_options options(void)
{
	return (struct state_options){
		.path = path,
		.zones = zones,
		.nr_zones = 2,
		.memory_survives = true,
	};
}

static struct state *open_state(bool adopted)
{
	const struct state_options o = options();
	struct state *state;

	assert_int_equal(state_open(&state, &o), 0);
	assert_int_equal(state_is_adopted(state), adopted);
	return state;
}

static const struct state_session someone = {
	.owner = 3,
	.number = 77,
	.pid_uid = UINT64_C(1234) << 32 | 1000,
	.start_ticks = 999,
	.token = {0x1122334455667788, 0x99aabbccddeeff00},
};

static void put_someone(struct state *state)
{
	const struct state_owner owner = {.uid = 1000};

	state_put(state, STATE_OWNERS, 3, &owner, STATE_IN_USE);
	state_put(state, STATE_SESSIONS, 5, &someone, 1);
}

/* What was stored is there for the next one, and only for one at a time. */
static void test_taken_over(void **unused)
{
	const struct state_options o = options();
	struct state *state = open_state(false), *second;
	const struct state_session *found;
	uint32_t is;

	(void)unused;
	assert_int_equal(state_open(&second, &o), -EBUSY);
	assert_true(state_is_durable(state));
	put_someone(state);
	hp_durable_store(state_zone_words(state, 1), 42);
	state_close(state);

	state = open_state(true);
	assert_int_equal(hp_durable_load(state_zone_words(state, 1)), 42);
	assert_int_equal(state_get(state, STATE_SESSIONS, 5, &is), 0);
	assert_int_equal(is, 1);
	found = state_record(state, STATE_SESSIONS, 5);
	assert_memory_equal(&found->owner, &someone.owner,
			    sizeof(someone) - offsetof(struct state_session, owner));
	assert_int_equal(state_owner_of_slot(state, 5), 3);
	assert_int_equal(state_owner_of_slot(state, 6), HP_OWNER_NONE);
	state_set(state, STATE_OWNERS, 3, STATE_FREE);
	assert_int_equal(state_owner_of_slot(state, 5), HP_OWNER_NONE);
	state_set(state, STATE_SESSIONS, 5, STATE_FREE);
	state_close(state);
	assert_int_equal(unlink(path), 0);
}

static void test_private(void **unused)
{
	struct state_options o = options();
	struct state *state;

	(void)unused;
	o.path = NULL;
	assert_int_equal(state_open(&state, &o), 0);
	assert_false(state_is_durable(state));
	assert_false(state_is_adopted(state));
	put_someone(state);
	assert_int_equal(state_owner_of_slot(state, 5), 3);
	state_close(state);
}

/* Every byte of a record in use that is not a word of its own. */
static void test_damaged_record(void **unused)
{
	struct state *state = open_state(false);
	unsigned char *bytes;
	uint32_t is;

	(void)unused;
	put_someone(state);
	bytes = state_record(state, STATE_SESSIONS, 5);
	for (size_t i = 0; i < sizeof(struct state_session); i++) {
		for (unsigned flip = 1; flip < 256; flip += 37) {
			bytes[i] ^= (unsigned char)flip;
			assert_int_equal(state_get(state, STATE_SESSIONS, 5, &is), STATE_DAMAGED);
			assert_int_equal(state_owner_of_slot(state, 5), HP_OWNER_NONE);
			bytes[i] ^= (unsigned char)flip;
		}
	}
	assert_int_equal(state_get(state, STATE_SESSIONS, 5, &is), 0);
	/* The record of another slot is none of this one. */
	memcpy(state_record(state, STATE_SESSIONS, 6), bytes, sizeof(struct state_session));
	assert_int_equal(state_get(state, STATE_SESSIONS, 6, &is), STATE_DAMAGED);
	state_close(state);
	assert_int_equal(unlink(path), 0);
}

static void change_file(off_t at, char by)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= by;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void expect_afresh(const struct state_options *o)
{
	struct state *state;
	struct stat st;
	uint32_t is;

	assert_int_equal(state_open(&state, o), 0);
	assert_false(state_is_adopted(state));
	assert_int_equal(state_get(state, STATE_SESSIONS, 5, &is), 0);
	assert_int_equal(is, STATE_FREE);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 1 << 20 && st.st_blocks * 512 >= st.st_size);
	put_someone(state);
	state_close(state);
}

/* The sum as it stands in the file. */
static uint64_t sum_words(const unsigned char *from, size_t bytes)
{
	uint64_t sum = 1, word;

	for (size_t i = 0; i < bytes; i += sizeof(word)) {
		memcpy(&word, from + i, sizeof(word));
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	return sum;
}

/* The word in the header that is the sum of all before it. */
static size_t find_check(const unsigned char *header)
{
	for (size_t at = BOOT_ID_AT; at < HEADER_BYTES_MAX; at += 8) {
		uint64_t word;

		memcpy(&word, header + at, sizeof(word));
		if (word == sum_words(header, at))
			return at;
	}
	fail_msg("the header has no sum that this test knows");
	return 0;
}

/* A whole header with a right sum, of the boot before: only the boot id tells. */
static void test_other_boot(void **unused)
{
	const struct state_options o = options();
	unsigned char header[HEADER_BYTES_MAX];
	struct state *state = open_state(false);
	uint64_t sum;
	size_t check;
	int fd;

	(void)unused;
	put_someone(state);
	hp_durable_store(state_zone_words(state, 1), 42);
	state_close(state);

	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
	check = find_check(header);
	for (unsigned char other = 0; other < 2;
	     other++) { /* first of this boot: the sum is right */
		header[BOOT_ID_AT] ^= other;
		sum = sum_words(header, check);
		memcpy(header + check, &sum, sizeof(sum));
		assert_int_equal(pwrite(fd, header, sizeof(header), 0), sizeof(header));
		if (!other)
			state_close(open_state(true));
	}
	close(fd);
	expect_afresh(&o);
	state = open_state(true);
	assert_int_equal(hp_durable_load(state_zone_words(state, 1)), 0);
	state_close(state);
	assert_int_equal(unlink(path), 0);
}

static void test_afresh(void **unused)
{
	struct state_zone other[] = {zones[0], zones[1]};
	struct state_options o = options();
	struct stat st;

	(void)unused;
	state_close(open_state(false));
	assert_int_equal(stat(path, &st), 0);

	change_file(BOOT_ID_AT, 1);
	expect_afresh(&o);
	for (off_t at = 0; at < 4096; at += at < 300 ? 1 : 61) { /* no byte of the header */
		struct state *state;

		change_file(at, 0x10);
		assert_int_equal(state_open(&state, &o), 0);
		if (!state_is_adopted(state)) {
			put_someone(state);
		} else { /* behind the end of the header */
			assert_int_equal(state_owner_of_slot(state, 5), 3);
			assert_true(at > 2048);
		}
		state_close(state);
	}
	for (off_t length = 1; length < st.st_size; length += length / 2 + 7) {
		assert_int_equal(truncate(path, length), 0);
		expect_afresh(&o);
	}
	assert_int_equal(truncate(path, st.st_size + 4096), 0);
	expect_afresh(&o);
	other[1].nr_blocks = 5;
	o.zones = other;
	expect_afresh(&o);
	o.nr_zones = 1;
	expect_afresh(&o);
	o.memory_survives = false;
	expect_afresh(&o);
	assert_int_equal(unlink(path), 0);
}

static void test_unusable(void **unused)
{
	struct state_options o = options();
	struct state *state;

	(void)unused;
	o.path = directory;
	assert_int_equal(state_open(&state, &o), -EISDIR);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	o.path = path;
	assert_int_equal(state_open(&state, &o), -ELOOP);
	assert_int_equal(unlink(path), 0);
	o.path = "/nowhere/state";
	assert_int_equal(state_open(&state, &o), -ENOENT);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_over),     cmocka_unit_test(test_private),
		cmocka_unit_test(test_damaged_record), cmocka_unit_test(test_other_boot),
		cmocka_unit_test(test_afresh),	       cmocka_unit_test(test_unusable),
	};
	int failed;

	if (!mkdtemp(directory))
		return 1;
	snprintf(path, sizeof(path), "%s/state", directory);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(directory);
	return failed;
}
