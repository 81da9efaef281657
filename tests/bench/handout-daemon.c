/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the benchmark and the daemon stands a process, the keeper. It is the daemon's parent, and
 * it alone adds to the machine's huge pages. It holds one end of a pipe whose other end is the
 * benchmark's: when that is closed, by stage_end(), by exit() or by SIGKILL, the keeper takes the
 * pages off, ends the daemon and removes the directory. So nothing is left however a run ends, and
 * no signal handler is needed for it.
 *
 * The pages for the baselines come when the daemon has filled its zone: free pages that are there
 * before would be counted by it as the zone's.
 */
#include "tests/bench/handout-daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/harness.h"

#define NR_HUGEPAGES "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

#define SPARE_BYTES	(UINT64_C(1) << 30) /* of memory, left to the others */
#define FILL_TRIES	12000		    /* of TRY_MS */
#define TRY_MS		10
#define END_TRIES	3000 /* of TRY_MS */
#define NICE		(-20)
#define EXIT_SKIPPED	77
#define PATH_BYTES	128
#define QUERY		BENCH_HUGEPOOLCTL " zones --admin --json 2>/dev/null"
#define KEEPER_FAILED	1
#define DIRECTORY_DEPTH 8

/* What the keeper says of itself. */
struct report {
	pid_t daemon;
	int pages_missing; /* of those for the baselines */
};

static struct {
	struct stage_shape shape;
	char directory[PATH_BYTES], socket[PATH_BYTES + 16];
	pid_t keeper, daemon; /* 0: none */
	int daemon_fd;	      /* a pidfd, readable when the daemon has ended */
	int order, report;    /* pipes to and from the keeper */
} stage;

static cpu_set_t everywhere;

/* --- pages ------------------------------------------------------------------------------------ */

static long nr_hugepages(void)
{
	FILE *file = fopen(NR_HUGEPAGES, "re");
	long n = -1;

	if (file && fscanf(file, "%ld", &n) != 1)
		n = -1;
	if (file)
		fclose(file);
	return n;
}

/* Return: by how many the number has changed. */
static long add_hugepages(long n)
{
	const long before = nr_hugepages();
	FILE *file = fopen(NR_HUGEPAGES, "we");

	if (before < 0 || !file)
		return 0;
	fprintf(file, "%ld", before + n);
	fclose(file);
	return nr_hugepages() - before;
}

static uint64_t available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib = 0;

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

static _Noreturn void skip(const char *why)
{
	fprintf(stderr, "%s: skipped: %s\n", program_invocation_short_name, why);
	exit(EXIT_SKIPPED);
}

/* --- the keeper ------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
	(void)status;
	(void)type;
	(void)at;
	return remove(path);
}

static _Noreturn void become_daemon(void)
{
	char config[PATH_BYTES + 16], log[PATH_BYTES + 16];
	int fd;

	snprintf(config, sizeof(config), "%s/conf", stage.directory);
	snprintf(log, sizeof(log), "%s/log", stage.directory);
	fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
		_exit(KEEPER_FAILED);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGINT, SIG_IGN); /* of the terminal: the keeper ends it */
	signal(SIGHUP, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	execl(BENCH_HUGEPOOLD, BENCH_HUGEPOOLD, "--config", config, (char *)NULL);
	_exit(KEEPER_FAILED);
}

/* Return: whether it has ended in order. */
static bool end_daemon(pid_t pid)
{
	int status = 0;

	kill(pid, SIGTERM);
	for (int i = 0; i < END_TRIES; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && WEXITSTATUS(status) == 0;
		poll(NULL, 0, TRY_MS);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return false;
}

static _Noreturn void keep(int order, int report)
{
	const long wanted = (long)(stage.shape.baseline_bytes / HUGE_BYTES);
	struct report say = {.daemon = 0};
	bool good = true;
	long added = 0;
	char byte;

	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (stage.shape.zone_bytes && (say.daemon = fork()) == 0)
		become_daemon();
	good = say.daemon >= 0 && write(report, &say, sizeof(say)) == sizeof(say);
	while (good && read(order, &byte, 1) == 1) {
		added += wanted ? add_hugepages(wanted) : 0;
		say.pages_missing = (int)(wanted - added);
		good = write(report, &say, sizeof(say)) == sizeof(say);
	}
	if (added > 0 && add_hugepages(-added) != -added)
		good = false;
	if (say.daemon > 0 && !end_daemon(say.daemon))
		good = false;
	nftw(stage.directory, remove_entry, DIRECTORY_DEPTH, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	_exit(good ? 0 : KEEPER_FAILED);
}

static struct report hear(void)
{
	struct report report;

	if (read(stage.report, &report, sizeof(report)) != sizeof(report))
		bench_die("the daemon's keeper does not answer");
	return report;
}

static void start_keeper(void)
{
	int order[2], report[2];

	if (pipe2(order, O_CLOEXEC) < 0 || pipe2(report, O_CLOEXEC) < 0)
		bench_die("pipe: %s", strerror(errno));
	fflush(NULL);
	stage.keeper = fork();
	if (stage.keeper < 0)
		bench_die("fork: %s", strerror(errno));
	if (stage.keeper == 0) {
		close(order[1]);
		close(report[0]);
		keep(order[0], report[1]);
	}
	close(order[0]);
	close(report[1]);
	stage.order = order[1];
	stage.report = report[0];
	stage.daemon = hear().daemon;
}

/* --- the daemon ------------------------------------------------------------------------------- */

static void write_zone(FILE *file)
{
	const uint64_t zone = stage.shape.zone_bytes >> 20, block = stage.shape.block_bytes >> 20;

	fprintf(file, "[zone bench]\nblock-size = %" PRIu64 "M\nsize = %" PRIu64 "M\n", block,
		zone);
	/* All is wanted clean: what is given back is taken back and zeroed at once. */
	if (stage.shape.shmem_page)
		fprintf(file, "page-size = %" PRIu64 "\nbacking = shmem\nclean-low = 0\n",
			stage.shape.shmem_page);
	else
		fprintf(file,
			"page-size = 2M\nclean-low = %" PRIu64 "\nclean-high = %" PRIu64
			"\ngrow-nr-hugepages = yes\n",
			zone / block, zone / block);
	fprintf(file, "[default]\nlimit.bench = %" PRIu64 "M\n", zone);
}

static void write_config(void)
{
	char path[PATH_BYTES + 16];
	FILE *file;

	snprintf(path, sizeof(path), "%s/conf", stage.directory);
	file = fopen(path, "wxe");
	if (!file)
		bench_die("%s: %s", path, strerror(errno));
	fprintf(file,
		"[daemon]\nsocket = %s\nsocket-mode = 0666\nadmin-socket = %s/admin\n"
		"setup-socket = %s/setup\nnamespace = %s/ns\nidle-delay = 10ms\nworkers = %u\n",
		stage.socket, stage.directory, stage.directory, stage.directory,
		stage.shape.workers ? stage.shape.workers : 1);
	write_zone(file);
	if (fclose(file) != 0)
		bench_die("%s: %s", path, strerror(errno));
}

static void show_log(void)
{
	char path[PATH_BYTES + 16], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", stage.directory);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		fprintf(stderr, "hugepoold: %s", line);
	if (file)
		fclose(file);
}

static bool is_clean(void)
{
	FILE *answer = popen(QUERY, "re");
	json_t *root, *zone;
	bool clean;

	if (!answer)
		bench_die("hugepoolctl: %s", strerror(errno));
	root = json_loadf(answer, 0, NULL);
	(void)pclose(answer); /* fails as long as the daemon does not listen yet */
	zone = json_array_get(json_object_get(root, "zones"), 0);
	clean = (uint64_t)json_integer_value(json_object_get(zone, "clean")) ==
		stage.shape.zone_bytes / (stage.shape.shmem_page ?: HUGE_BYTES);
	json_decref(root);
	return clean;
}

void stage_wait_clean(void)
{
	struct pollfd daemon = {.fd = stage.daemon_fd, .events = POLLIN};

	for (int i = 0; i < FILL_TRIES; i++) {
		if (is_clean())
			return;
		if (poll(&daemon, 1, TRY_MS) > 0)
			break;
	}
	show_log();
	bench_die(daemon.revents ? "hugepoold has ended" : "the zone does not get clean");
}

/* --- begin and end ---------------------------------------------------------------------------- */

static bool has_memory(const char *name, const struct stage_shape *shape)
{
	const uint64_t wanted = shape->zone_bytes + shape->baseline_bytes + SPARE_BYTES;
	const uint64_t available = available_bytes();

	if (available >= wanted)
		return true;
	fprintf(stderr,
		"%s: left out: %s needs %" PRIu64 " MiB of memory, %" PRIu64 " MiB are available\n",
		program_invocation_short_name, name, wanted >> 20, available >> 20);
	return false;
}

static void make_directory(void)
{
	snprintf(stage.directory, sizeof(stage.directory), "/tmp/hugepool-bench-XXXXXX");
	if (!mkdtemp(stage.directory))
		bench_die("%s: %s", stage.directory, strerror(errno));
	/* Clients of other users have to reach the socket. */
	if (chmod(stage.directory, 0755) < 0)
		bench_die("%s: %s", stage.directory, strerror(errno));
}

static void start_daemon(void)
{
	char admin[PATH_BYTES + 16];

	snprintf(admin, sizeof(admin), "%s/admin", stage.directory);
	setenv("HUGEPOOL_ADMIN_SOCKET", admin, 1);
	stage.daemon_fd = (int)syscall(SYS_pidfd_open, stage.daemon, 0);
	if (stage.daemon_fd < 0)
		bench_die("pidfd_open: %s", strerror(errno));
	stage_wait_clean();
}

bool stage_begin(const char *name, const struct stage_shape *shape)
{
	const bool ordinary = shape->shmem_page && !shape->baseline_bytes;
	static bool registered;
	struct report report;

	if (!ordinary && geteuid() != 0)
		skip("only root can have the machine's huge pages");
	if (!ordinary && access(NR_HUGEPAGES, W_OK) < 0)
		skip("this machine has no huge pages of 2 MiB");
	if (!has_memory(name, shape))
		return false;
	if (!registered && atexit(stage_end) != 0)
		bench_die("atexit");
	registered = true;

	stage.shape = *shape;
	make_directory();
	snprintf(stage.socket, sizeof(stage.socket), "%s/socket", stage.directory);
	if (shape->zone_bytes)
		write_config();
	start_keeper();
	if (stage.daemon)
		start_daemon();
	if (write(stage.order, "p", 1) != 1)
		bench_die("the daemon's keeper is gone");
	report = hear();
	if (report.pages_missing == 0)
		return true;
	fprintf(stderr, "%s: left out: %s: the kernel has %d huge pages too few\n",
		program_invocation_short_name, name, report.pages_missing);
	stage_end();
	return false;
}

void stage_end(void)
{
	const pid_t keeper = stage.keeper;
	int status = 0;

	if (!keeper)
		return;
	close(stage.order);
	stage.keeper = 0;
	if (waitpid(keeper, &status, 0) != keeper || !WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "%s: the daemon or its huge pages did not end in order\n",
			program_invocation_short_name);
		fflush(NULL);
		_exit(1); /* which is right within exit(), too */
	}
	close(stage.report);
	if (stage.daemon)
		close(stage.daemon_fd);
	stage.daemon = 0;
}

const char *stage_socket(void)
{
	return stage.daemon ? stage.socket : NULL;
}

pid_t stage_daemon(void)
{
	return stage.daemon;
}

/* --- places ----------------------------------------------------------------------------------- */

static void place(pid_t thread, const cpu_set_t *set)
{
	if (sched_setaffinity(thread, sizeof(*set), set) < 0 && errno != ESRCH)
		bench_die("sched_setaffinity: %s", strerror(errno));
	/* Both sides above whoever else computes here; without the right to, never mind. */
	(void)setpriority(PRIO_PROCESS, (id_t)thread, NICE);
}

int stage_first_cpu(void)
{
	cpu_set_t set;

	if (sched_getaffinity(getpid(), sizeof(set), &set) < 0)
		bench_die("sched_getaffinity: %s", strerror(errno));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			return cpu;
	bench_die("no processor");
}

static cpu_set_t set_of(int cpu)
{
	cpu_set_t set;

	if (CPU_COUNT(&everywhere) == 0 &&
	    sched_getaffinity(0, sizeof(everywhere), &everywhere) < 0)
		bench_die("sched_getaffinity: %s", strerror(errno));
	if (cpu == ANYWHERE)
		return everywhere;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return set;
}

void stage_place_process(pid_t process, int cpu)
{
	const cpu_set_t set = set_of(cpu);
	char path[64];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", process);
	tasks = opendir(path);
	if (!tasks)
		bench_die("%s: %s", path, strerror(errno));
	while ((entry = readdir(tasks)))
		if (*entry->d_name != '.')
			place((pid_t)strtol(entry->d_name, NULL, 10), &set);
	closedir(tasks);
}

void stage_place(int cpu)
{
	const cpu_set_t set = set_of(cpu);

	place(0, &set);
	if (stage.daemon)
		stage_place_process(stage.daemon, cpu);
}
