/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugepoolctl as its user sees it: what it prints, what it says when something is wrong, and its exit
 * status. The program is the one that gets installed; the daemon is the test's own, with answers
 * made up here.
 */
#include "tests/client/common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cli.h"

#define OUTPUT_MAX 65536
#define ARGS_MAX   8

static const char *program;

struct run {
	int status; /* exit status */
	char out[OUTPUT_MAX], err[OUTPUT_MAX];
};

/* --- running ---------------------------------------------------------------------------------- */

struct child {
	pid_t pid;
	int out, err;
};

/* err: the reader's end and the program's; both are consumed. */
static struct child start_with(struct fixture *f, const char *const *args, const int err[2])
{
	int out[2];
	struct child child;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	child = (struct child){.pid = fork(), .out = out[0], .err = err[0]};
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		char *argv[ARGS_MAX + 2] = {(char *)program};

		for (int i = 0; args[i] && i < ARGS_MAX; i++)
			argv[i + 1] = (char *)args[i];
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		setenv("HUGEPOOL_SOCKET", f->fake.path, 1);
		setenv("HUGEPOOL_ADMIN_SOCKET", f->fake.path, 1);
		alarm(60);
		execv(program, argv);
		_exit(127);
	}
	close(out[1]);
	close(err[1]);
	return child;
}

static struct child start(struct fixture *f, const char *const *args)
{
	int err[2];

	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	return start_with(f, args, err);
}

/* Its errors go to a terminal. */
static struct child start_on_terminal(struct fixture *f, const char *const *args)
{
	int err[2] = {posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};

	assert_true(err[0] >= 0);
	assert_int_equal(grantpt(err[0]), 0);
	assert_int_equal(unlockpt(err[0]), 0);
	err[1] = open(ptsname(err[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(err[1] >= 0);
	return start_with(f, args, err);
}

static void read_all(int fd, char *text)
{
	size_t n = 0;
	ssize_t r;

	while ((r = read(fd, text + n, OUTPUT_MAX - 1 - n)) > 0)
		n += (size_t)r;
	/* A terminal whose other end is closed says EIO. */
	assert_true(r == 0 || errno == EIO);
	text[n] = '\0';
	close(fd);
}

static struct run *finish(struct child child)
{
	static struct run run;
	int status;

	read_all(child.out, run.out);
	read_all(child.err, run.err);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFEXITED(status));
	run.status = WEXITSTATUS(status);
	return &run;
}

#define RUN(f, ...) finish(start(f, (const char *const[]){__VA_ARGS__, NULL}))

static void expect(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static json_t *parse(const char *text)
{
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (!json)
		fail_msg("line %d: %s in:\n%s", error.line, error.text, text);
	return json;
}

/* --- answers ---------------------------------------------------------------------------------- */

static ProtobufCBinaryData text(const char *s)
{
	return (ProtobufCBinaryData){.len = strlen(s), .data = (uint8_t *)s};
}

/* Two zones, the second of another name; in two pieces, to be asked for one by one. */
static void list_zones(struct fake *fake, uint64_t cursor, Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Zone zone, *row = &zone;

	zone = fake_zone(fake);
	zone.clean = 40;
	zone.leased = 88;
	zone.clean_min = 2;
	zone.leasable = 30;
	if (cursor) {
		zone.id++;
		zone.name = text("other\033[2J");
		zone.node = 1;
		zone.held = text("somebody lowered nr_hugepages");
	}
	reply->n_zones = 1;
	reply->zones = &row;
	reply->next = !cursor;
}

static void list_blocks(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Block block, *row = &block;

	block = (Hugepool__V1__Block)HUGEPOOL__V1__BLOCK__INIT;
	block.index = 5;
	block.state = HUGEPOOL__V1__BLOCK_STATE__BLOCK_STATE_QUARANTINED;
	block.generation = 77;
	block.owner = 3;
	block.pages = 32;
	block.reason = text("2 pages are pinned");
	block.age_ms = 3 * 3600 * 1000 + 5 * 60 * 1000;
	reply->n_blocks = 1;
	reply->blocks = &row;
}

static void list_buddyinfo(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__BuddyRow row, *rows = &row;
	static uint32_t chunks[] = {11, 0, 7};

	row = (Hugepool__V1__BuddyRow)HUGEPOOL__V1__BUDDY_ROW__INIT;
	row.owner = 3;
	row.n_free_chunks = 3;
	row.free_chunks = chunks;
	reply->n_buddyinfo = 1;
	reply->buddyinfo = &rows;
}

static void list_tenants(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Tenant tenant, *row = &tenant;
	static uint64_t held[] = {4, 2}, leased[] = {3}, limit[] = {8, 8};

	tenant = (Hugepool__V1__Tenant)HUGEPOOL__V1__TENANT__INIT;
	tenant.owner = 3;
	tenant.name = text("database");
	tenant.uid = 999;
	tenant.n_held_blocks = 2;
	tenant.held_blocks = held;
	tenant.n_leased_pages = 1; /* shorter than there are zones */
	tenant.leased_pages = leased;
	tenant.n_limit_blocks = 2;
	tenant.limit_blocks = limit;
	reply->n_tenants = 1;
	reply->tenants = &row;
}

static void list_sessions(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Session session, *row = &session;

	session = (Hugepool__V1__Session)HUGEPOOL__V1__SESSION__INIT;
	session.session = 42;
	session.owner = 3;
	session.state = HUGEPOOL__V1__SESSION_STATE__SESSION_STATE_CONDEMNED;
	session.pid = 4711;
	session.name = text("worker");
	session.command = text("postgres");
	session.leased_bytes = 64u << 20;
	reply->n_sessions = 1;
	reply->sessions = &row;
}

static void list_leases(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Lease lease, shared, *rows[] = {&lease, &shared};
	static uint64_t words[HP_WIRE_RANGE_WORDS];

	lease = (Hugepool__V1__Lease)HUGEPOOL__V1__LEASE__INIT;
	hp_wire_put_range(words,
			  &(struct hp_wire_range){
				  .zone = FAKE_ZONE, .page = 12, .pages = 4, .generation = 9});
	lease.n_range = HP_WIRE_RANGE_WORDS;
	lease.range = words;
	lease.session = 42;
	lease.revoked = true;
	shared = (Hugepool__V1__Lease)HUGEPOOL__V1__LEASE__INIT;
	shared.n_range = HP_WIRE_RANGE_WORDS;
	shared.range = words;
	shared.shared = true;
	shared.share = text("tables\033");
	shared.attachments = 3;
	shared.readers = 2;
	reply->n_leases = 2;
	reply->leases = rows;
}

static void list_caches(Hugepool__V1__ListReply *reply)
{
	static Hugepool__V1__Cache cache, *row = &cache;

	cache = (Hugepool__V1__Cache)HUGEPOOL__V1__CACHE__INIT;
	cache.owner = 3;
	cache.pages = 17;
	cache.high = 63;
	cache.hits = 123456;
	reply->n_caches = 1;
	reply->caches = &row;
}

static void answer_list(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__List *list = fake_unpack(fake, frame);
	Hugepool__V1__ListReply reply = HUGEPOOL__V1__LIST_REPLY__INIT;

	switch (list->what) {
	case LIST_WHAT(ZONES):
		list_zones(fake, list->cursor, &reply);
		break;
	case LIST_WHAT(BLOCKS):
		list_blocks(&reply);
		break;
	case LIST_WHAT(BUDDYINFO):
		list_buddyinfo(&reply);
		break;
	case LIST_WHAT(TENANTS):
		list_tenants(&reply);
		break;
	case LIST_WHAT(SESSIONS):
		list_sessions(&reply);
		break;
	case LIST_WHAT(LEASES):
		list_leases(&reply);
		break;
	default:
		list_caches(&reply);
	}
	fake_send(fake, TYPE(LIST_REPLY), frame->tag, &reply.base);
}

static bool answer_queries(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__StatsReply stats = HUGEPOOL__V1__STATS_REPLY__INIT;
	Hugepool__V1__CheckReply check = HUGEPOOL__V1__CHECK_REPLY__INIT;
	ProtobufCBinaryData violation = text("zone small: page 3 is on two lists");

	switch (frame->type) {
	case TYPE(STATS):
		stats.server = text("9.8.7");
		stats.pid = 1234;
		stats.configured_bytes = UINT64_C(3) << 30;
		stats.online_bytes = UINT64_C(2) << 30;
		stats.tenant = text("database");
		fake_send(fake, TYPE(STATS_REPLY), frame->tag, &stats.base);
		return true;
	case TYPE(CHECK):
		check.violations = (uint32_t)fake->counter;
		check.n_messages = check.violations;
		check.messages = &violation;
		fake_send(fake, TYPE(CHECK_REPLY), frame->tag, &check.base);
		return true;
	case TYPE(FLUSH):
		fake_done(fake, frame->tag);
		return true;
	case TYPE(LIST):
		answer_list(fake, frame);
		return true;
	default:
		return false;
	}
}

/* --- usage ------------------------------------------------------------------------------------ */

static void test_usage(void **state)
{
	static const char *const wrong[][ARGS_MAX] = {
		{"frobnicate"},
		{"--frobnicate"},
		{"zones", "small"},
		{"zones", "--count", "3"},
		{"zones", "--zone"},
		{"zones", "--json=yes"},
		{"alloc"},
		{"alloc", "2M", "2M"},
		{"alloc", "much"},
		{"alloc", "0"},
		{"alloc", "-2M"},
		{"alloc", "99999999999G"},
		{"alloc", "2M", "--admin"},
		{"alloc", "2M", "--align", "3M"},
		{"alloc", "2M", "--align", "0"},
		{"alloc", "2M", "--count", "0"},
		{"alloc", "2M", "--count", "257"},
		{"alloc", "2M", "--count", "-1"},
		{"alloc", "2M", "--count", "2x"},
		{"alloc", "2M", "--page-size", "2Q"},
		{"alloc", "2M", "--wait"},
		{"alloc", "2M", "--wait", "soon"},
		{"alloc", "2M", "--wait", "3d"},
		{"alloc", "2M", "--wait", "25h"},
		{"alloc", "2M", "--wait", "-1"},
		{"alloc", "2M", "--read-only"},
		{"share", "2M"},
		{"share", "2M", "name", "more"},
		{"share", "name", "2M"},
		{"share", "2M", "name", "--for", "nobody-of-that-name"},
		{"share", "2M", "name", "--for",
		 "0,"
		 "4294967295"},
		{"share", "2M", "name", "--for", ","},
		{"share", "2M", "name", "--count", "2"},
		{"attach"},
		{"attach", "name", "--for", "0"},
		{"zones", "--wait", "3s"},
		{"tenant"},
		{"tenant", "create"},
		{"tenant", "make", "x"},
		{"tenant", "create", "x", "--grace", "1s"},
		{"tenant", "create", "x", "--user", "nobody-of-that-name"},
		{"tenant", "create", "x", "--user", "0", "--any-user"},
		{"tenant", "delete", "x", "--limit", "small=1"},
		{"tenant", "delete", "x", "--any-user"},
		{"tenant", "delete", "x", "--grace", "25h"},
		{"quota", "x"},
		{"quota", "x", "small", "--grace", "3s"},
		{"reload", "now"},
		{"zones", "--limit", "3"},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct run *run = finish(start(f, wrong[i]));

		if (run->status != EXIT_USAGE)
			fail_msg("%s %s: %d", wrong[i][0], wrong[i][1] ? wrong[i][1] : "",
				 run->status);
		assert_string_equal(run->out, "");
		expect(run->err, "--help");
	}
	/* All of it is found out without asking. */
	assert_int_equal(f->fake.connections, 0);
	assert_int_equal(finish(start(f, (const char *const[]){NULL}))->status, EXIT_USAGE);
}

static void test_help(void **state)
{
	static const char *const verbs[] = {
		"status", "zones", "buddyinfo", "blocks",   "caches", "tenants",	"sessions",
		"leases", "alloc", "share",	"attach",   "tenant", "quota",		"reload",
		"revoke", "check", "flush",	"--socket", "--json", "HUGEPOOL_SOCKET"};
	struct fixture *f = *state;
	struct run *run = RUN(f, "--help");

	assert_int_equal(run->status, 0);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		expect(run->out, verbs[i]);
	run = RUN(f, "--version");
	assert_int_equal(run->status, 0);
	assert_string_equal(run->out, "hugepoolctl " HUGEPOOL_VERSION "\n");
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {
		{"4096", 4096},
		{"2M", 2u << 20},
		{"2Mi", 2u << 20},
		{"2MiB", 2u << 20},
		{"2MB", 2u << 20},
		{"2 MiB", 2u << 20},
		{"2048kB", 2u << 20},
		{"2048k", 2u << 20},
		{"1G", 1u << 30},
		{"1g", 1u << 30},
		{"3T", UINT64_C(3) << 40},
		{"15E", UINT64_C(15) << 60},
		{"100B", 100},
		{"18446744073709551615", UINT64_MAX},
	};
	static const char *const bad[] = {"",	 "M",	"2X",  "2MM",  "2Mix", "0x10", "2.5G",
					  " 2M", "+2M", "-2M", "2  M", "2M ",  "2iB",  "ten"};
	static const char *const large[] = {"18446744073709551616", "16E", "99999999999999999999G"};
	char buffer[CLI_SIZE_MAX];
	uint64_t bytes;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(cli_parse_size(good[i].text, &bytes), 0);
		assert_int_equal(bytes, good[i].bytes);
		/* What is printed can be typed again. */
		assert_int_equal(cli_parse_size(cli_size(buffer, bytes), &bytes), 0);
		assert_int_equal(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(cli_parse_size(bad[i], &bytes), -EINVAL);
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
		assert_int_equal(cli_parse_size(large[i], &bytes), -ERANGE);
	assert_string_equal(cli_size(buffer, 0), "0");
	assert_string_equal(cli_size(buffer, 1536u << 20), "1536 MiB");
	assert_string_equal(cli_size(buffer, UINT64_MAX), "18446744073709551615");
}

/* --- queries ---------------------------------------------------------------------------------- */

static void test_status(void **state)
{
	struct fixture *f = *state;
	struct run *run;
	json_t *json;

	f->fake.hook = answer_queries;
	run = RUN(f, "status");
	assert_int_equal(run->status, 0);
	expect(run->out, "hugepoold 9.8.7, pid 1234");
	expect(run->out, "2 GiB of 3 GiB");
	expect(run->out, "database");
	expect(run->out, "somebody lowered nr_hugepages");
	expect(run->out, ", 0 tenants, 0 workers\n");
	expect(run->out, " 1920 KiB          0 ");
	run = RUN(f, "status", "--admin");
	assert_int_equal(run->status, 0);
	expect(run->out, "  -          -          -\n");
	json = parse(RUN(f, "status", "--json")->out);
	assert_int_equal(json_integer_value(json_object_get(json, "pid")), 1234);
	assert_true(json_is_false(json_object_get(json, "ready")));
	json_decref(json);
}

static void test_zones(void **state)
{
	struct fixture *f = *state;
	struct run *run;
	json_t *json, *zone;

	f->fake.hook = answer_queries;
	run = RUN(f, "zones");
	assert_int_equal(run->status, 0);
	expect(run->out, "Node any, zone    small\n");
	expect(run->out, "  pages free     40\n        min      32\n");
	/* A name is not a way to send commands to a terminal. */
	expect(run->out, "Node 1, zone other?[2J\n");
	assert_null(strchr(run->out, '\033'));
	expect(run->out, "leasable  30\n");
	run = RUN(f, "zones", "--admin");
	assert_null(strstr(run->out, "leasable"));
	json = parse(RUN(f, "zones", "--admin", "--json")->out);
	zone = json_array_get(json_object_get(json, "zones"), 0);
	assert_true(json_is_null(json_object_get(zone, "leasable")));
	assert_true(json_is_null(json_object_get(zone, "limit_blocks")));
	json_decref(json);

	json = parse(RUN(f, "zones", "--json")->out);
	assert_int_equal(json_array_size(json_object_get(json, "zones")), 2);
	zone = json_array_get(json_object_get(json, "zones"), 0);
	/* Every field of the protocol, by its name there. */
	for (unsigned i = 0; i < hugepool__v1__zone__descriptor.n_fields; i++)
		assert_non_null(
			json_object_get(zone, hugepool__v1__zone__descriptor.fields[i].name));
	assert_string_equal(json_string_value(json_object_get(zone, "name")), "small");
	assert_string_equal(json_string_value(json_object_get(zone, "backing")), "memfd");
	assert_int_equal(json_integer_value(json_object_get(zone, "leased")), 88);
	assert_int_equal(json_integer_value(json_object_get(zone, "node")), -1);
	json_decref(json);

	json = parse(RUN(f, "zones", "--json", "--zone", "small")->out);
	assert_int_equal(json_array_size(json_object_get(json, "zones")), 1);
	json_decref(json);
	run = RUN(f, "zones", "--zone", "small");
	assert_null(strstr(run->out, "other"));
	for (int i = 0; i < 2; i++) {
		run = RUN(f, i ? "zones" : "blocks", "--zone", "nowhere");
		assert_int_equal(run->status, EXIT_FAILED);
		expect(run->err, "no zone nowhere");
		expect(run->err, "hugepoolctl zones");
	}
}

/* Each list: a line of it as text, a key and a value of a row as JSON. */
static void test_lists(void **state)
{
	static const struct {
		const char *verb, *line, *key, *value;
	} cases[] = {
		{"blocks",
		 "small            5  quarantined  database             77     32      0  "
		 "3 h 5 min      2 pages are pinned\n",
		 "state", "\"quarantined\""},
		{"buddyinfo",
		 "Node any, zone    small, tenant     database      11      0      7\n",
		 "free_chunks", "[11,0,7]"},
		{"caches", "small             0  database         17      0     63     123456 ",
		 "hits", "123456"},
		{"tenants",
		 "database        999        0      0  small             4 MiB    192 KiB      8 "
		 "MiB          0\n",
		 "held_blocks", "[4,2]"},
		{"sessions",
		 "     42  condemned  database        4711      0       0     64 MiB  0 "
		 "ms           worker (postgres)\n",
		 "state", "\"condemned\""},
		{"leases",
		 "small                12        4    256 KiB          9      42  database        "
		 "4711  postgres         0 ms  revoked\n",
		 "range", "[{\"zone\":7,\"page\":12,\"pages\":4,\"generation\":9}]"},
		{"leases",
		 "256 KiB          9  shared  -                  0  -                0 ms  as "
		 "tables?, 3 attached, 2 of them to read only\n",
		 "session", "42"},
		{"leases", "postgres", "command", "\"postgres\""},
		{"leases", "database", "tenant", "\"database\""},
	};
	struct fixture *f = *state;

	f->fake.hook = answer_queries;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct run *run = RUN(f, cases[i].verb);
		json_t *json, *row;
		char *value;

		assert_int_equal(run->status, 0);
		assert_string_equal(run->err, "");
		expect(run->out, cases[i].line);
		run = RUN(f, cases[i].verb, "--json");
		assert_int_equal(run->status, 0);
		json = parse(run->out);
		row = json_array_get(json_object_get(json, cases[i].verb), 0);
		value = json_dumps(json_object_get(row, cases[i].key),
				   JSON_COMPACT | JSON_ENCODE_ANY);
		assert_string_equal(value, cases[i].value);
		free(value);
		json_decref(json);
	}
}

static bool list_without_end(struct fake *fake, const struct hp_frame *frame)
{
	Hugepool__V1__ListReply reply = HUGEPOOL__V1__LIST_REPLY__INIT;

	if (frame->type != TYPE(LIST))
		return false;
	reply.next = 1;
	fake_send(fake, TYPE(LIST_REPLY), frame->tag, &reply.base);
	return true;
}

static void test_endless_list(void **state)
{
	struct fixture *f = *state;
	struct run *run;

	f->fake.hook = list_without_end;
	run = RUN(f, "zones");
	assert_int_equal(run->status, EXIT_FAILED);
	expect(run->err, "no end");
}

static void test_check_and_flush(void **state)
{
	struct fixture *f = *state;
	struct run *run;
	json_t *json;

	f->fake.hook = answer_queries;
	assert_string_equal(RUN(f, "check")->out, "no violations\n");
	assert_int_equal(RUN(f, "flush")->status, 0);
	assert_int_equal(f->fake.seen[TYPE(FLUSH)], 1);
	f->fake.counter = 1;
	run = RUN(f, "check");
	assert_int_equal(run->status, EXIT_FAILED);
	expect(run->out, "1 violations\nzone small: page 3 is on two lists\n");
	run = RUN(f, "check", "--json");
	assert_int_equal(run->status, EXIT_FAILED);
	json = parse(run->out);
	assert_int_equal(json_integer_value(json_object_get(json, "violations")), 1);
	json_decref(json);
}

/* What is packed in words comes out of them. */
static void test_words(void **state)
{
	Hugepool__V1__Blocks blocks = HUGEPOOL__V1__BLOCKS__INIT;
	uint64_t word = hp_wire_put_block((struct hp_wire_block){.index = 3, .generation = 12});
	json_t *json;
	char *out;

	(void)state;
	blocks.n_blocks = 1;
	blocks.blocks = &word;
	json = cli_json_message(&blocks.base);
	out = json_dumps(json, JSON_COMPACT);
	assert_string_equal(out, "{\"zone\":0,\"blocks\":[{\"index\":3,\"generation\":12}]}");
	free(out);
	json_decref(json);
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = {
		{"0", 0},	   {"500ms", 500},	  {"10", 10000},
		{"10s", 10000},	   {"10 s", 10000},	  {"5min", 300000},
		{"24h", 86400000}, {"1440min", 86400000}, {"86400000ms", 86400000},
	};
	static const char *const bad[] = {
		"", "s", "-1", "1.5s", "10sec", "1d", "25h", "86401", "99999999999999999999s"};
	uint64_t ms;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(cli_parse_duration(good[i].text, &ms), 0);
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(cli_parse_duration(bad[i], &ms) < 0);
}

/* --- alloc ------------------------------------------------------------------------------------ */

/* Its first words, without waiting for its end. */
static void read_some(struct child child, char *line, size_t size)
{
	ssize_t n = read(child.out, line, size - 1);

	assert_true(n > 0);
	line[n] = '\0';
}

static void test_alloc(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct fixture *f = *state;
	char line[1024];

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct child child =
			start(f, (const char *const[]){"alloc", "128k", "--zero", NULL});
		struct run *run;

		read_some(child, line, sizeof(line));
		expect(line, "128 KiB at 0x");
		expect(line, ": zone small, page 0, 2 pages of 64 KiB\n");
		assert_int_equal(f->fake.leased_pages, 2);
		assert_int_equal(kill(child.pid, signals[i]), 0);
		run = finish(child);
		assert_int_equal(run->status, 0);
		assert_string_equal(run->err, "");
		/* It has said goodbye. */
		assert_int_equal(f->fake.seen[TYPE(GOODBYE)], i + 1);
	}
}

static void test_alloc_json(void **state)
{
	struct fixture *f = *state;
	struct child child = start(f, (const char *const[]){"alloc", "64k", "--count", "3",
							    "--json", "--align", "128k", NULL});
	char text[4096];
	json_t *json, *range;

	read_some(child, text, sizeof(text));
	json = parse(text);
	assert_int_equal(json_array_size(json_object_get(json, "ranges")), 3);
	range = json_array_get(json_object_get(json, "ranges"), 2);
	assert_int_equal(json_integer_value(json_object_get(range, "page")), 4);
	assert_int_equal(json_integer_value(json_object_get(range, "bytes")), 65536);
	assert_string_equal(json_string_value(json_object_get(range, "zone")), "small");
	json_decref(json);
	kill(child.pid, SIGTERM);
	assert_int_equal(finish(child)->status, 0);
}

static _Atomic uint32_t waited_ms; /* as said in the last ALLOC that had a deadline */

/* There is no room at once. What comes of a wait is in the counter: a code, or 0. */
static bool make_wait(struct fake *fake, const struct hp_frame *frame)
{
	const Hugepool__V1__Alloc *alloc;

	if (frame->type != TYPE(ALLOC))
		return false;
	alloc = fake_unpack(fake, frame);
	if (!alloc->deadline_ms) {
		fake_error(fake, frame->tag, CODE(NO_MEMORY));
		return true;
	}
	waited_ms = alloc->deadline_ms;
	if (fake->counter)
		fake_error(fake, frame->tag, (Hugepool__V1__Code)fake->counter);
	return fake->counter;
}

static void test_wait(void **state)
{
	static const char *const args[] = {"alloc", "64k", "--wait", "90s", NULL};
	struct fixture *f = *state;
	char line[1024];

	f->fake.hook = make_wait;
	for (int on_terminal = 0; on_terminal < 2; on_terminal++) {
		struct child child = on_terminal ? start_on_terminal(f, args) : start(f, args);
		struct run *run;

		read_some(child, line, sizeof(line));
		expect(line, "64 KiB at 0x");
		assert_in_range(waited_ms, 30000, 90000);
		assert_int_equal(kill(child.pid, SIGTERM), 0);
		run = finish(child);
		assert_int_equal(run->status, 0);
		if (on_terminal) {
			expect(run->err, "hugepoolctl: waiting for room in zone small, at most "
					 "1 min 30 s");
			expect(run->err, "asked         64 KiB");
			expect(run->err, "free          128 KiB");
		} else {
			assert_string_equal(run->err, "");
		}
	}
}

/* Nobody waits, and nothing is said of it, where there is room. */
static void test_wait_for_nothing(void **state)
{
	struct fixture *f = *state;
	struct child child =
		start_on_terminal(f, (const char *const[]){"alloc", "64k", "--wait", "90s", NULL});
	char line[1024];
	struct run *run;

	read_some(child, line, sizeof(line));
	assert_int_equal(kill(child.pid, SIGTERM), 0);
	run = finish(child);
	assert_int_equal(run->status, 0);
	assert_string_equal(run->err, "");
	assert_int_equal(f->fake.seen[TYPE(ALLOC)], 1);
}

static void test_wait_in_vain(void **state)
{
	struct fixture *f = *state;
	struct run *run;
	json_t *json, *error;

	f->fake.hook = make_wait;
	f->fake.counter = CODE(TIMED_OUT);
	run = RUN(f, "alloc", "64k", "--wait", "500ms", "--json");
	assert_int_equal(run->status, EXIT_FAILED);
	assert_in_range(waited_ms, 1, 500);
	expect(run->err, "hugepoolctl: a reason?with a control character\n"
			 "  asked         64 KiB\n"
			 "  free          128 KiB\n");
	expect(run->err, "Wait longer, ask for less");
	json = parse(run->out);
	error = json_object_get(json, "error");
	assert_int_equal(json_integer_value(json_object_get(error, "errno")), ETIMEDOUT);
	assert_int_equal(json_integer_value(json_object_get(error, "asked_bytes")), 65536);
	json_decref(json);
}

static bool answer_no_wait(struct fake *fake, const struct hp_frame *frame)
{
	return make_wait(fake, frame) || frame->type == TYPE(ALLOC);
}

/* A wait of a day ends when somebody wants it to. */
static void test_interrupted_wait(void **state)
{
	struct fixture *f = *state;
	struct child child;
	int status;

	f->fake.hook = answer_no_wait;
	child = start(f, (const char *const[]){"alloc", "64k", "--wait", "24h", NULL});
	fake_await(&f->fake, TYPE(ALLOC), 2);
	assert_int_equal(kill(child.pid, SIGINT), 0);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
	close(child.out);
	close(child.err);
}

static void test_alloc_daemon_ends(void **state)
{
	struct fixture *f = *state;
	struct child child = start(f, (const char *const[]){"alloc", "64k", NULL});
	char line[1024];
	struct run *run;

	read_some(child, line, sizeof(line));
	shutdown(f->fake.session, SHUT_RDWR);
	run = finish(child);
	assert_int_equal(run->status, EXIT_FAILED);
	expect(run->err, "the daemon has ended");
}

/* The numbers, and what to do. */
static void test_no_memory(void **state)
{
	struct fixture *f = *state;
	struct run *run = RUN(f, "alloc", "1G");
	json_t *json, *error;

	assert_int_equal(run->status, EXIT_FAILED);
	assert_string_equal(run->out, "");
	expect(run->err, "hugepoolctl: a reason?with a control character\n"
			 "  asked         1 GiB\n"
			 "  free          128 KiB\n"
			 "  leasable      192 KiB\n"
			 "  limit         256 KiB\n"
			 "  largest hole  320 KiB\n");
	expect(run->err, "Ask for no more than the largest hole");

	run = RUN(f, "alloc", "1G", "--json");
	assert_int_equal(run->status, EXIT_FAILED);
	json = parse(run->out);
	error = json_object_get(json, "error");
	assert_int_equal(json_integer_value(json_object_get(error, "errno")), ENOMEM);
	assert_int_equal(json_integer_value(json_object_get(error, "asked_bytes")), 1 << 30);
	assert_int_equal(json_integer_value(json_object_get(error, "largest_bytes")), 320 << 10);
	json_decref(json);
}

static void test_no_daemon(void **state)
{
	struct fixture *f = *state;
	struct run *run = RUN(f, "status", "--socket", "/nonexistent/socket");

	assert_int_equal(run->status, EXIT_FAILED);
	expect(run->err, "/nonexistent/socket: No such file or directory\n");
	expect(run->err, "Start hugepoold");
	run = RUN(f, "caches");
	assert_int_equal(run->status, EXIT_FAILED);
	expect(run->err, "a reason?with a control character\nThis daemon does not serve that");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(test_usage),
		FIXTURE_TEST(test_help),
		cmocka_unit_test(test_sizes),
		FIXTURE_TEST(test_status),
		FIXTURE_TEST(test_zones),
		FIXTURE_TEST(test_lists),
		cmocka_unit_test(test_words),
		FIXTURE_TEST(test_endless_list),
		FIXTURE_TEST(test_check_and_flush),
		FIXTURE_TEST(test_alloc),
		FIXTURE_TEST(test_alloc_json),
		FIXTURE_TEST(test_alloc_daemon_ends),
		FIXTURE_TEST(test_no_memory),
		FIXTURE_TEST(test_no_daemon),
		cmocka_unit_test(test_durations),
		FIXTURE_TEST(test_wait),
		FIXTURE_TEST(test_wait_for_nothing),
		FIXTURE_TEST(test_wait_in_vain),
		FIXTURE_TEST(test_interrupted_wait),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s HUGEPOOLCTL\n", argv[0]);
		return 2;
	}
	program = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
