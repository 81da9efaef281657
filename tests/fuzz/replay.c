/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files and folders of files: a corpus is a regression test in every build,
 * also where there is no fuzzer.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static unsigned replayed;

static void die(const char *path)
{
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	exit(1);
}

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "rbe");
	uint8_t *bytes = malloc(FILE_BYTES_MAX);
	size_t size;

	if (!file || !bytes)
		die(path);
	size = fread(bytes, 1, FILE_BYTES_MAX, file);
	if (ferror(file))
		die(path);
	fclose(file);
	/* Before the run, so that the last line names the file that ended it. */
	printf("%s\n", path);
	fflush(stdout);
	/* In memory of its exact size, so that a sanitizer sees reads beyond it. */
	bytes = realloc(bytes, size ? size : 1);
	if (!bytes)
		die(path);
	LLVMFuzzerTestOneInput(bytes, size);
	free(bytes);
	replayed++;
}

static int is_input(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* In the order of names, and with no descriptor open: targets may count them. */
static void replay_folder(const char *path)
{
	struct dirent **entries;
	int n = scandir(path, &entries, is_input, alphasort);

	if (n < 0)
		die(path);
	for (int i = 0; i < n; i++) {
		char name[PATH_MAX];

		snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
		replay_file(name);
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct stat st;

		if (stat(argv[i], &st) != 0)
			die(argv[i]);
		if (S_ISDIR(st.st_mode))
			replay_folder(argv[i]);
		else
			replay_file(argv[i]);
	}
	printf("%u inputs replayed\n", replayed);
	return replayed > 0 ? 0 : 1;
}
