/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: each mistake is told with its file and line, what was found and what was
 * expected; the example documents exactly the keys that the parser knows.
 */
#include "daemon/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *example_path;
static char directory[] = "/tmp/test-config-XXXXXX";
static char path[64], drop_ins[sizeof(path) + 2];

struct messages {
	char text[8192];
	unsigned count;
};

static void collect(void *userdata, const char *message)
{
	struct messages *messages = userdata;
	size_t n = strlen(messages->text);

	snprintf(messages->text + n, sizeof(messages->text) - n, "%s\n", message);
	messages->count++;
}

static void write_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "we");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static struct config *load(const char *text)
{
	struct messages messages = {0};
	struct config *config = NULL;

	write_file(path, text);
	if (config_load(&config, path, collect, &messages) < 0)
		fail_msg("refused: %s", messages.text);
	assert_int_equal(messages.count, 0);
	return config;
}

/* shmem zones are the same on every machine. */
#define SHMEM "backing = shmem\nblock-size = 4M\n"

static const struct {
	const char *text;
	unsigned mistakes;
	const char *line; /* ":N: " */
	const char *says[3];
} mistakes[] = {
	/* lines and sections */
	{"", 1, "hugepool.conf: ", {"no zone"}},
	{"[daemon]\nhello\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"hello", "key = value"}},
	{"workers = 1\n[zone a]\n" SHMEM "size=4M\n", 1, ":1: ", {"workers", "before any section"}},
	{"[zone a]\n" SHMEM "size=4M\n[demon]\nx=1\n", 1, ":5: ", {"demon", "[daemon]"}},
	{"[daemon\n[zone a]\n" SHMEM "size=4M\n", 1, ":1: ", {"[daemon", "header"}},
	{"[zone a b]\n" SHMEM "size=4M\n", 1, ":1: ", {"a b", "name"}},
	{"[zone ]\n" SHMEM "size=4M\n", 1, ":1: ", {"name"}},
	{"[zone a]\n" SHMEM "size=4M\n[zone a]\n", 1, ":5: ", {"twice", "hugepool.conf:1"}},
	{"[zone aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n", 1, ":1: ", {"1 to 32"}},
	/* keys */
	{"[zone a]\n" SHMEM "size=4M\ncolour=red\n",
	 1,
	 ":5: ",
	 {"colour", "unknown key", "block-size"}},
	{"[zone a]\n" SHMEM "size=4M\nsize=8M\n",
	 1,
	 ":5: ",
	 {"size given twice", "hugepool.conf:4"}},
	{"[daemon]\nworkers=0\n[zone a]\n" SHMEM "size=4M\n",
	 1,
	 ":2: ",
	 {"workers = 0", "from 1 to 64"}},
	{"[daemon]\nworkers=two\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"two", "number"}},
	{"[daemon]\nsocket=run\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"run", "absolute path"}},
	{"[daemon]\nsocket-mode=999\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"999", "octal"}},
	{"[daemon]\nsocket-group=no such group\n[zone a]\n" SHMEM "size=4M\n",
	 1,
	 ":2: ",
	 {"group"}},
	{"[daemon]\nidle-delay=soon\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"soon", "10s"}},
	{"[daemon]\nidle-delay=999999h\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"24h"}},
	{"[daemon]\nrecycle-rate=fast\n[zone a]\n" SHMEM "size=4M\n", 1, ":2: ", {"fast", "size"}},
	/* geometry of a zone */
	{"[zone a]\n" SHMEM, 1, ":1: ", {"[zone a]", "no size", "4M"}},
	{"[zone a]\n" SHMEM "size=6M\n", 1, ":4: ", {"6M", "multiple", "4M"}},
	{"[zone a]\n" SHMEM "size=0\n", 1, ":4: ", {"multiple"}},
	{"[zone a]\n" SHMEM "size=-4M\n", 1, ":4: ", {"-4M", "size such as"}},
	{"[zone a]\n" SHMEM "size=4Q\n", 1, ":4: ", {"4Q", "size such as"}},
	{"[zone a]\n" SHMEM "size=99999999999999999999\n", 1, ":4: ", {"size such as"}},
	{"[zone a]\nbacking=shmem\nblock-size=6M\nsize=12M\n", 1, ":3: ", {"6M", "power of two"}},
	{"[zone a]\nbacking=shmem\nblock-size=1M\nsize=12M\n", 1, ":3: ", {"1M", "page size (2M)"}},
	{"[zone a]\nbacking=shmem\npage-size=3M\nsize=12M\n", 1, ":3: ", {"3M", "power of two"}},
	{"[zone a]\nbacking=shmem\npage-size=0\nsize=12M\n", 1, ":3: ", {"power of two"}},
	{"[zone a]\n" SHMEM "size=8G\n",
	 1,
	 ":4: ",
	 {"2048 blocks", "at most 1024", "block-size = 8M"}},
	{"[zone a]\n" SHMEM "size=8M\nmax-size=8G\n",
	 1,
	 ":5: ",
	 {"max-size", "2048 blocks", "block-size = 8M"}},
	{"[zone a]\n" SHMEM "size=8M\nmax-size=4M\n", 1, ":5: ", {"max-size = 4M", "size of 8M"}},
	{"[zone a]\n" SHMEM "size=8M\nmax-size=9M\n", 1, ":5: ", {"max-size = 9M", "multiple"}},
	{"[zone a]\nbacking=memfd\nsize=64M\ngrow-nr-hugepages=yes\n", 1, ":4: ", {"hugetlb"}},
	{"[zone a]\nbacking=hugetlb\npage-size=3M\nsize=1G\n",
	 1,
	 ":3: ",
	 {"3M", "no huge pages of that size"}},
	{"[zone a]\nbacking=disk\nblock-size=4M\nsize=4M\n",
	 1,
	 ":2: ",
	 {"disk", "hugetlb, memfd or shmem"}},
	{"[zone a]\n" SHMEM "size=4M\nnode=999\n", 1, ":5: ", {"node = 999", "no such node"}},
	{"[zone a]\n" SHMEM "size=4M\nnode=left\n", 1, ":5: ", {"left", "NUMA node"}},
	{"[zone a]\n" SHMEM "size=4M\ngrow-nr-hugepages=yes\n", 1, ":5: ", {"hugetlb"}},
	{"[zone a]\n" SHMEM "size=4M\ngrow-nr-hugepages=1\n", 1, ":5: ", {"yes or no"}},
	/* watermarks */
	{"[zone a]\n" SHMEM "size=16M\nclean-low=5\n", 1, ":5: ", {"clean-low", "4 blocks"}},
	{"[zone a]\n" SHMEM "size=16M\nclean-low=6M\n", 1, ":5: ", {"6M", "multiple"}},
	{"[zone a]\n" SHMEM "size=16M\nclean-min=3\nclean-high=2\n",
	 1,
	 ":5: ",
	 {"clean-min = 3", "<="}},
	{"[zone a]\n" SHMEM "size=16M\nclean-low=3\nclean-high=8M\n",
	 1,
	 ":5: ",
	 {"clean-high = 2"}},
	/* tenants */
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\n",
	 1,
	 ":5: ",
	 {"[tenant x]", "no uid and no socket"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nsocket=x.sock\n",
	 1,
	 ":6: ",
	 {"x.sock", "absolute path"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nsocket-mode=0600\n",
	 1,
	 ":7: ",
	 {"socket-mode", "no socket of its own"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nsocket=/tmp/x\n[tenant y]\nsocket=/tmp/x\n",
	 1,
	 ":8: ",
	 {"/tmp/x", "[tenant x]", "hugepool.conf:6"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nsocket=/run/hugepool/admin.sock\n",
	 1,
	 ":6: ",
	 {"admin-socket", "of its own"}},
	{"[daemon]\npolicy=socket\n[zone a]\n" SHMEM "size=16M\n", 1, ":2: ", {"uid or session"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x y]\nuid=7\n", 1, ":5: ", {"x y", "name"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=4\nguarantee.a=6M\n",
	 1,
	 ":8: ",
	 {"guarantee.a = 6M", "multiple", "4M"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=no such user\n",
	 1,
	 ":6: ",
	 {"user", "expected"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\n[tenant y]\nuid=7\n",
	 1,
	 ":8: ",
	 {"uid = 7", "[tenant x]", "hugepool.conf:6"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\n[tenant x]\n", 1, ":7: ", {"twice"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.b=1\n",
	 1,
	 ":7: ",
	 {"limit.b", "unknown zone", "a"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=6M\n",
	 1,
	 ":7: ",
	 {"6M", "multiple", "4M"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=5\n",
	 1,
	 ":7: ",
	 {"5 blocks", "at most the 4"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=lots\n",
	 1,
	 ":7: ",
	 {"lots", "number of blocks"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=1\nlimit.a=2\n",
	 1,
	 ":8: ",
	 {"twice"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nlimit.a=1\nguarantee.a=2\n",
	 1,
	 ":8: ",
	 {"guarantee.a is 2", "limit.a 1"}},
	{"[zone a]\n" SHMEM "size=16M\n[tenant x]\nuid=7\nguarantee.a=3\n",
	 1,
	 ":7: ",
	 {"by default"}},
	{"[zone a]\n" SHMEM
	 "size=16M\n[tenant x]\nuid=7\nguarantee.a=2\n[tenant y]\nuid=8\nlimit.a=3\n"
	 "guarantee.a=3\n",
	 1,
	 ":11: ",
	 {"add up to 5", "4"}},
	{"[zone a]\n" SHMEM "size=16M\n[default]\nguarantee.a=1\n",
	 1,
	 ":6: ",
	 {"guarantee.a", "unknown key"}},
	/* several mistakes in one run, each with its line */
	{"[daemon]\nworkers=x\n[zone a]\n" SHMEM "size=5M\n", 2, ":2: ", {":6: ", "workers", "5M"}},
};

static void test_mistakes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		struct messages messages = {0};
		struct config *config = NULL;

		write_file(path, mistakes[i].text);
		if (config_load(&config, path, collect, &messages) != -EINVAL || config)
			fail_msg("not refused: %s", mistakes[i].text);
		if (messages.count != mistakes[i].mistakes ||
		    !strstr(messages.text, mistakes[i].line))
			fail_msg("%s\nsays: %s", mistakes[i].text, messages.text);
		for (int s = 0; s < 3 && mistakes[i].says[s]; s++)
			if (!strstr(messages.text, mistakes[i].says[s]))
				fail_msg("%s\nsays: %snot: %s", mistakes[i].text, messages.text,
					 mistakes[i].says[s]);
	}
}

static void test_too_many(void **state)
{
	struct messages messages = {0};
	struct config *config = NULL;
	FILE *file;

	(void)state;
	file = fopen(path, "we");
	assert_non_null(file);
	for (int i = 0; i <= HP_ZONES_MAX; i++)
		fprintf(file, "[zone z%d]\n" SHMEM "size=4M\n", i);
	for (int i = 0; i <= CONFIG_TENANTS_MAX; i++)
		fprintf(file, "[tenant t%d]\nuid=%d\n", i, i);
	fprintf(file, "#%0300d\n", 0);
	fclose(file);
	assert_int_equal(config_load(&config, path, collect, &messages), -EINVAL);
	assert_int_equal(messages.count, 3);
	assert_non_null(strstr(messages.text, "at most 32 zones"));
	assert_non_null(strstr(messages.text, "at most 256 tenants"));
	assert_non_null(strstr(messages.text, "line too long"));
}

static void test_defaults(void **state)
{
	struct config *config = load("[zone a]\nbacking = shmem\nsize = 1G\n");

	(void)state;
	assert_string_equal(config->socket, "/run/hugepool/hugepool.sock");
	assert_string_equal(config->admin_socket, "/run/hugepool/admin.sock");
	assert_string_equal(config->setup_socket, "/run/hugepool/setup.sock");
	assert_string_equal(config->namespace_path, "/run/hugepool/ns");
	assert_null(config->socket_group);
	assert_int_equal(config->socket_mode, 0660);
	assert_int_equal(config->workers, 1);
	assert_in_range(config->recycle_threads, 1, 4);
	assert_int_equal(config->recycle_rate_bytes, 0);
	assert_int_equal(config->idle_delay_ms, 10000);
	assert_null(config->state_path);
	assert_int_equal(config->grace_ms, 30000);
	assert_int_equal(config->nr_zones, 1);
	assert_int_equal(config->zones[0].page_bytes, 2 << 20);
	assert_int_equal(config->zones[0].block_bytes, 64 << 20);
	assert_int_equal(config->zones[0].node, -1);
	assert_false(config->zones[0].grow);
	assert_int_equal(config->zones[0].clean_min, 0);
	assert_int_equal(config->zones[0].clean_low, 1);
	assert_int_equal(config->zones[0].clean_high, 2);
	assert_int_equal(config->zones[0].line, 1);
	assert_int_equal(config->defaults.quota[0].limit_blocks, 8);
	assert_int_equal(config->defaults.quota[0].guarantee_blocks, 0);
	assert_false(config->defaults.quota[0].given);
	assert_int_equal(config->defaults.sessions, HP_SESSIONS_PER_TENANT_MAX);
	config_free(config);
}

/* Sections in any order, quotas before their zone, blanks, comments, drop-in files in order. */
static void test_values(void **state)
{
	struct config *config;
	char name[128];

	(void)state;
	snprintf(name, sizeof(name), "%s/20-tenants.conf", drop_ins);
	write_file(name, "[tenant second]\nuid = 8\nlimit.b = 3\n");
	snprintf(name, sizeof(name), "%s/10-zones.conf", drop_ins);
	write_file(name, "[zone b]\n" SHMEM "size = 16M\nclean-low = 8M\n");
	snprintf(name, sizeof(name), "%s/ignored.txt", drop_ins);
	write_file(name, "rubbish");
	config = load("\xef\xbb\xbf# comment\n"
		      "[tenant first]\n"
		      "  uid = root\n"
		      "\tlimit.b = 12M ; three blocks\n"
		      "guarantee.b = 2\n"
		      "sessions = 5\n"
		      "[default]\n"
		      "limit.b = 0\n"
		      "[zone a]\n"
		      "page-size = 4K\n"
		      "block-size = 16K\n"
		      "backing = shmem\n"
		      "size = 64K\n"
		      "node = 0\n"
		      "[daemon]\n"
		      "socket = /tmp/s\n"
		      "socket-mode = 0600\n"
		      "socket-group = root\n"
		      "idle-delay = 0\n"
		      "state = /run/x/state\n"
		      "grace = 1s\n"
		      "recycle-rate = 1G\n"
		      "workers = 2");
	assert_int_equal(config->nr_zones, 2);
	assert_string_equal(config->zones[0].name, "a");
	assert_int_equal(config->zones[0].page_bytes, 4096);
	assert_int_equal(config->zones[0].size_bytes, 65536);
	assert_int_equal(config->zones[0].node, 0);
	assert_string_equal(config->zones[1].name, "b");
	assert_int_equal(config->zones[1].clean_low, 2);
	assert_int_equal(config->zones[1].clean_high, 2);
	assert_int_equal(config->nr_tenants, 2);
	assert_int_equal(config->tenants[0].uid, 0);
	assert_int_equal(config->tenants[0].sessions, 5);
	assert_int_equal(config->tenants[0].quota[0].limit_blocks, 2); /* half of zone a */
	assert_false(config->tenants[0].quota[0].given);
	assert_int_equal(config->tenants[0].quota[1].limit_blocks, 3);
	assert_int_equal(config->tenants[0].quota[1].guarantee_blocks, 2);
	assert_true(config->tenants[0].quota[1].given);
	assert_int_equal(config->tenants[1].uid, 8);
	assert_int_equal(config->tenants[1].quota[1].limit_blocks, 3);
	assert_int_equal(config->defaults.quota[1].limit_blocks, 0);
	assert_string_equal(config->socket, "/tmp/s");
	assert_string_equal(config->socket_group, "root");
	assert_int_equal(config->socket_mode, 0600);
	assert_int_equal(config->idle_delay_ms, 0);
	assert_string_equal(config->state_path, "/run/x/state");
	assert_int_equal(config->grace_ms, 1000);
	assert_int_equal(config->recycle_rate_bytes, 1 << 30);
	assert_int_equal(config->workers, 2);
	config_free(config);
	snprintf(name, sizeof(name), "rm -r %s/*", drop_ins);
	assert_int_equal(system(name), 0);
}

/* A section or key of a drop-in that is there already names both places. */
static void test_tenant_sockets(void **state)
{
	struct config *config = load("[zone a]\n" SHMEM "size = 16M\n"
				     "[daemon]\npolicy = session\n"
				     "[tenant x]\nsocket = /tmp/x\nguarantee.a = 1\n"
				     "[tenant y]\nuid = 7\nsocket = /tmp/y\nsocket-mode = 0\n"
				     "socket-group = root\n");

	(void)state;
	assert_int_equal(config->policy, CONFIG_POLICY_SESSION);
	assert_false(config->tenants[0].has_uid);
	assert_string_equal(config->tenants[0].socket, "/tmp/x");
	assert_int_equal(config->tenants[0].socket_mode, 0660);
	assert_null(config->tenants[0].socket_group);
	assert_true(config->tenants[1].has_uid);
	assert_int_equal(config->tenants[1].socket_mode, 0);
	assert_string_equal(config->tenants[1].socket_group, "root");
	assert_string_equal(config->tenants[1].file, path);
	assert_int_equal(config->tenants[1].line, 10);
	config_free(config);
}

/* What a running daemon cannot change is told by name, and nothing else is. */
static void test_compare(void **state)
{
	static const char zone[] = "[zone a]\n" SHMEM "size = 16M\n";
	struct config *a = load(zone), *b;
	struct messages messages = {0};

	(void)state;
	b = load("[daemon]\nidle-delay = 1s\nrecycle-rate = 1G\npolicy = session\n"
		 "[zone a]\n" SHMEM "size = 16M\nclean-low = 3\nclean-high = 4\n"
		 "[tenant x]\nuid = 7\n[default]\nlimit.a = 1\n");
	config_compare(a, b, collect, &messages);
	assert_int_equal(messages.count, 0);
	config_free(b);
	b = load("[daemon]\nworkers = 2\nsocket-mode = 0600\nsocket-group = root\n"
		 "[zone a]\nbacking = shmem\nblock-size = 8M\nsize = 32M\n[zone b]\n" SHMEM
		 "size = 4M\n");
	config_compare(a, b, collect, &messages);
	assert_string_equal(messages.text, "[daemon] socket-mode\n[daemon] socket-group\n"
					   "[daemon] workers\n[zone a] block-size\n"
					   "[zone a] max-size\n[zone b]\n");
	assert_false(config_same_zone(&a->zones[0], &b->zones[0]));
	memset(&messages, 0, sizeof(messages));
	config_compare(b, a, collect, &messages);
	assert_non_null(strstr(messages.text, "[zone b]\n"));
	config_free(b);
	config_free(a);
}

static void test_drop_in_twice(void **state)
{
	struct messages messages = {0};
	struct config *config = NULL;
	char name[128];

	(void)state;
	snprintf(name, sizeof(name), "%s/x.conf", drop_ins);
	write_file(name, "[zone a]\n[daemon]\nworkers = 3\n");
	write_file(path, "[daemon]\nworkers = 2\n[zone a]\n" SHMEM "size = 4M\n");
	assert_int_equal(config_load(&config, path, collect, &messages), -EINVAL);
	assert_int_equal(messages.count, 2);
	assert_non_null(strstr(messages.text, "x.conf:1: [zone a] given twice"));
	assert_non_null(strstr(messages.text, "hugepool.conf:3"));
	assert_non_null(strstr(messages.text, "x.conf:3: workers given twice"));
	assert_non_null(strstr(messages.text, "hugepool.conf:2"));
	assert_int_equal(unlink(name), 0);
}

static void test_unreadable(void **state)
{
	struct messages messages = {0};
	struct config *config = NULL;

	(void)state;
	assert_int_equal(config_load(&config, "/nonexistent/x.conf", collect, &messages), -ENOENT);
	assert_int_equal(messages.count, 1);
	assert_non_null(strstr(messages.text, "/nonexistent/x.conf: cannot be read"));
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"4096", 4096},	{"2M", 2 << 20},	  {"2Mi", 2 << 20},
		    {"2MiB", 2 << 20},	{"2MB", 2 << 20},	  {"2048kB", 2 << 20},
		    {"2048K", 2 << 20}, {"1G", 1 << 30},	  {"0", 0},
		    {"12B", 12},	{"1T", UINT64_C(1) << 40}};
	static const char *const bad[] = {"",	 "M",	 "-1",	 "+1",	" 1",
					  "1 M", "1.5G", "0x10", "1Mx", "1bi"};
	char buffer[CONFIG_SIZE_TEXT_MAX];
	uint64_t bytes;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(config_parse_size(good[i].text, &bytes), 0);
		assert_true(bytes == good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(config_parse_size(bad[i], &bytes), -EINVAL);
	assert_int_equal(config_parse_size("16777216T", &bytes), -ERANGE);
	assert_int_equal(config_parse_size("99999999999999999999", &bytes), -ERANGE);
	assert_string_equal(config_format_size(64 << 20, buffer), "64M");
	assert_string_equal(config_format_size(1536, buffer), "1536");
	assert_string_equal(config_format_size(0, buffer), "0");
}

#define DOCUMENTED_MAX 64

/* The "key = value" lines of the example, commented out or not, as "section key". */
static size_t documented_keys(char keys[static DOCUMENTED_MAX][64])
{
	FILE *file = fopen(example_path, "re");
	char line[256], section[32] = "", key[64];
	size_t n = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		const char *text = line + (*line == '#');

		if (sscanf(text, "[%31[a-z]", section) == 1)
			continue;
		if (sscanf(text, "%63[a-z.-] =", key) != 1 || !strstr(text, " = "))
			continue;
		if (text[strlen(key)] != ' ' || text[strlen(key) + 1] != '=')
			continue;
		assert_true(n < DOCUMENTED_MAX);
		if (strchr(key, '.'))
			*(strchr(key, '.') + 1) = '\0';
		snprintf(keys[n++], 64, "%.20s %.40s", section, key);
	}
	fclose(file);
	return n;
}

static void test_example(void **state)
{
	char keys[DOCUMENTED_MAX][64], known[64];
	const char *section, *key;
	size_t n = documented_keys(keys), nr_known = 0;

	(void)state;
	for (; config_key(nr_known, &section, &key); nr_known++) {
		bool found = false;

		snprintf(known, sizeof(known), "%s %s", section, key);
		for (size_t i = 0; i < n; i++)
			found |= strcmp(known, keys[i]) == 0;
		if (!found)
			fail_msg("%s does not document: %s", example_path, known);
	}
	assert_true(nr_known > 20);
	for (size_t i = 0; i < n; i++) {
		bool found = false;

		for (size_t k = 0; config_key(k, &section, &key); k++) {
			snprintf(known, sizeof(known), "%s %s", section, key);
			found |= strcmp(known, keys[i]) == 0;
		}
		if (!found)
			fail_msg("%s documents what is not known: %s", example_path, keys[i]);
	}
}

/* The example is a configuration as it stands, on a machine that has huge pages of 2 MiB. */
static void test_example_loads(void **state)
{
	struct messages messages = {0};
	struct config *config = NULL;

	(void)state;
	if (access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK) < 0)
		skip();
	if (config_load(&config, example_path, collect, &messages) < 0)
		fail_msg("%s", messages.text);
	assert_int_equal(config->zones[0].page_bytes, 2 << 20);
	assert_int_equal(config->defaults.quota[0].limit_blocks, 8);
	config_free(config);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mistakes),       cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_defaults),       cmocka_unit_test(test_values),
		cmocka_unit_test(test_tenant_sockets), cmocka_unit_test(test_compare),
		cmocka_unit_test(test_drop_in_twice),  cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_sizes),	       cmocka_unit_test(test_example),
		cmocka_unit_test(test_example_loads),
	};
	int failed;

	if (argc != 2 || !mkdtemp(directory))
		return 2;
	example_path = argv[1];
	snprintf(path, sizeof(path), "%s/hugepool.conf", directory);
	snprintf(drop_ins, sizeof(drop_ins), "%s.d", path);
	if (mkdir(drop_ins, 0700) < 0)
		return 2;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(drop_ins);
	rmdir(directory);
	return failed;
}
