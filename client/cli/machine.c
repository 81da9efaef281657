/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who else uses huge pages on this machine.
 *
 * Of a process its status tells everybody how much it has mapped; what of that is hugepool's only its
 * smaps tell, which are for its own user and root. Mappings name the file system that they are of,
 * and hugepoold has all of its own open: so they are told apart. A process may end at any time
 * while it is looked at, which is no failure; one that may not be looked at is counted.
 *
 * Segments of System V without a process show as pages that are neither free nor anybody's.
 */
#include "client/cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define HUGETLBFS_MAGIC 0x958458f6
#define FILES_MAX	1000 /* shown */
#define SIZES_MAX	8    /* of pages, in one process */

struct look {
	dev_t *devices; /* file systems of hugepool */
	size_t nr_devices, room;
	bool knows_devices;
	const struct cli_sessions *clients;
	json_t *processes, *files;
	unsigned unreadable, nr_files;
};

/* --- what is hugepool's ----------------------------------------------------------------------- */

static bool is_ours(const struct look *look, dev_t device)
{
	for (size_t i = 0; i < look->nr_devices; i++)
		if (look->devices[i] == device)
			return true;
	return false;
}

static int add_device(struct look *look, dev_t device)
{
	if (is_ours(look, device))
		return 0;
	if (look->nr_devices == look->room) {
		size_t room = look->room ? 2 * look->room : 64;
		dev_t *devices = reallocarray(look->devices, room, sizeof(*devices));

		if (!devices)
			return -ENOMEM;
		look->devices = devices;
		look->room = room;
	}
	look->devices[look->nr_devices++] = device;
	return 0;
}

/* By the directories of its blocks, which the daemon holds open. */
static int find_devices(struct look *look, pid_t daemon)
{
	char path[64];
	struct dirent *entry;
	int r = 0;
	DIR *fds;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon);
	fds = opendir(path);
	look->knows_devices = fds;
	while (fds && r == 0 && (entry = readdir(fds))) {
		char file[sizeof(path) + sizeof(entry->d_name) + 1];
		struct statfs fs;
		struct stat st;

		(void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		if (statfs(file, &fs) == 0 && (unsigned long)fs.f_type == HUGETLBFS_MAGIC &&
		    stat(file, &st) == 0)
			r = add_device(look, st.st_dev);
	}
	if (fds)
		closedir(fds);
	return r;
}

static bool is_client(const struct look *look, pid_t pid)
{
	for (size_t i = 0; i < look->clients->nr; i++)
		if (look->clients->known[i].pid == (uint32_t)pid)
			return true;
	return false;
}

/* --- processes -------------------------------------------------------------------------------- */

static FILE *open_of(pid_t pid, const char *name)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return fopen(path, "re");
}

struct process {
	pid_t pid;
	uint32_t uid;
	char command[64];
	uint64_t bytes; /* of huge pages, hugepool's included */
};

static void read_status(struct process *process)
{
	FILE *file = open_of(process->pid, "status");
	char *line = NULL;
	size_t room = 0;

	while (file && getline(&line, &room, file) >= 0) {
		uint64_t kb;

		if (sscanf(line, "Name:\t%63[^\n]", process->command) == 1 ||
		    sscanf(line, "Uid:\t%" SCNu32, &process->uid) == 1)
			continue;
		if (sscanf(line, "HugetlbPages:\t%" SCNu64 " kB", &kb) == 1)
			process->bytes = kb * 1024;
	}
	free(line);
	if (file)
		fclose(file);
}

struct use {
	uint64_t page_bytes, bytes;
};

static void add_use(struct use uses[SIZES_MAX], uint64_t page_bytes, uint64_t bytes)
{
	for (size_t i = 0; i < SIZES_MAX; i++) {
		if (uses[i].bytes && uses[i].page_bytes != page_bytes)
			continue;
		uses[i].page_bytes = page_bytes;
		uses[i].bytes += bytes;
		return;
	}
}

/* Mappings that are not of hugepool. Return: false if they may not be read. */
static bool read_mappings(const struct look *look, pid_t pid, struct use uses[SIZES_MAX])
{
	FILE *file = open_of(pid, "smaps");
	unsigned major_number, minor_number;
	uint64_t page_kb = 0, kb;
	char *line = NULL;
	size_t room = 0;
	bool ours = false;

	if (!file)
		return errno != EACCES && errno != EPERM;
	while (getline(&line, &room, file) >= 0) {
		if (sscanf(line, "%*x-%*x %*s %*x %x:%x", &major_number, &minor_number) == 2)
			ours = is_ours(look, makedev(major_number, minor_number));
		else if (sscanf(line, "KernelPageSize: %" SCNu64 " kB", &kb) == 1)
			page_kb = kb;
		else if (!ours &&
			 (sscanf(line, "Shared_Hugetlb: %" SCNu64 " kB", &kb) == 1 ||
			  sscanf(line, "Private_Hugetlb: %" SCNu64 " kB", &kb) == 1) &&
			 kb)
			add_use(uses, page_kb * 1024, kb * 1024);
	}
	free(line);
	fclose(file);
	return true;
}

/* page_bytes 0: not known. */
static int add_process(struct look *look, const struct process *process, uint64_t page_bytes,
		       uint64_t bytes)
{
	json_t *command = json_string(process->command);

	return json_array_append_new(
		look->processes,
		json_pack("{s:i, s:I, s:o, s:I, s:o}", "pid", (int)process->pid, "uid",
			  (json_int_t)process->uid, "command", command ? command : json_string("?"),
			  "bytes", (json_int_t)bytes, "page_size",
			  page_bytes ? json_integer((json_int_t)page_bytes) : json_null()));
}

static int look_at_process(struct look *look, pid_t pid)
{
	struct process process = {.pid = pid, .command = "?"};
	struct use uses[SIZES_MAX] = {{0, 0}};
	int r = 0;

	read_status(&process);
	if (!process.bytes || (!look->knows_devices && is_client(look, pid)))
		return 0;
	if (!read_mappings(look, pid, uses)) {
		look->unreadable++;
		return is_client(look, pid) ? 0 : add_process(look, &process, 0, process.bytes);
	}
	for (size_t i = 0; r == 0 && i < SIZES_MAX && uses[i].bytes; i++)
		r = add_process(look, &process, uses[i].page_bytes, uses[i].bytes);
	return r;
}

static int look_at_processes(struct look *look)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int r = 0;

	while (processes && r == 0 && (entry = readdir(processes))) {
		pid_t pid = atoi(entry->d_name);

		if (pid > 0)
			r = look_at_process(look, pid);
	}
	if (processes)
		closedir(processes);
	return r;
}

/* --- files ------------------------------------------------------------------------------------ */

static int add_file(struct look *look, const FTSENT *entry)
{
	const struct stat *st = entry->fts_statp;
	json_t *path;

	if (!S_ISREG(st->st_mode) || st->st_blocks == 0 || is_ours(look, st->st_dev) ||
	    look->nr_files++ >= FILES_MAX)
		return 0;
	path = json_string(entry->fts_path);
	return json_array_append_new(
		look->files,
		json_pack("{s:o, s:I, s:I, s:I}", "path", path ? path : json_string("?"), "uid",
			  (json_int_t)st->st_uid, "bytes", (json_int_t)st->st_blocks * 512,
			  "page_size", (json_int_t)st->st_blksize));
}

static int look_at_mount(struct look *look, char *place)
{
	char *const places[] = {place, NULL};
	FTS *files = fts_open(places, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int r = 0;

	while (files && r == 0 && (entry = fts_read(files))) {
		if (entry->fts_info == FTS_F)
			r = add_file(look, entry);
		else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_NS)
			look->unreadable++;
	}
	if (files)
		fts_close(files);
	return r;
}

/* The kernel writes blanks and the like as \040. */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned code;

		if (*text == '\\' && sscanf(text + 1, "%3o", &code) == 1) {
			*to++ = (char)code;
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static int look_at_mounts(struct look *look)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, place[4096];
	size_t room = 0;
	int r = 0;

	while (file && r == 0 && getline(&line, &room, file) >= 0) {
		const char *type = strstr(line, " - ");

		if (!type || strncmp(type + 3, "hugetlbfs ", 10) != 0 ||
		    sscanf(line, "%*s %*s %*s %*s %4095s", place) != 1)
			continue;
		unescape(place);
		r = look_at_mount(look, place);
	}
	free(line);
	if (file)
		fclose(file);
	return r;
}

/* --- the kernel's counts ---------------------------------------------------------------------- */

static json_int_t count_of(const char *size, const char *name)
{
	char path[384];
	json_int_t value = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/%s/%s_hugepages", size, name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%" JSON_INTEGER_FORMAT, &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static json_t *look_at_counts(void)
{
	DIR *sizes = opendir("/sys/kernel/mm/hugepages");
	json_t *rows = json_array();
	struct dirent *entry;

	while (rows && sizes && (entry = readdir(sizes))) {
		json_int_t kb;

		if (sscanf(entry->d_name, "hugepages-%" JSON_INTEGER_FORMAT "kB", &kb) != 1)
			continue;
		if (json_array_append_new(
			    rows, json_pack("{s:I, s:I, s:I, s:I, s:I}", "page_size", kb * 1024,
					    "pages", count_of(entry->d_name, "nr"), "free",
					    count_of(entry->d_name, "free"), "reserved",
					    count_of(entry->d_name, "resv"), "surplus",
					    count_of(entry->d_name, "surplus"))) < 0) {
			json_decref(rows);
			rows = NULL;
		}
	}
	if (sizes)
		closedir(sizes);
	return rows;
}

json_t *cli_machine(pid_t daemon, const struct cli_sessions *clients)
{
	struct look look = {.clients = clients, .processes = json_array(), .files = json_array()};
	json_t *counts = look_at_counts();
	int r = look.processes && look.files && counts ? 0 : -ENOMEM;

	if (r == 0)
		r = find_devices(&look, daemon);
	if (r == 0)
		r = look_at_processes(&look);
	if (r == 0)
		r = look_at_mounts(&look);
	free(look.devices);
	if (r == 0)
		return json_pack("{s:o, s:o, s:o, s:i}", "pages", counts, "processes",
				 look.processes, "files", look.files, "unreadable",
				 (int)look.unreadable);
	json_decref(counts);
	json_decref(look.processes);
	json_decref(look.files);
	return NULL;
}
