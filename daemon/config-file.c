/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and lines of the configuration.
 *
 * libinih splits lines into sections, keys and values. It neither tells line numbers nor notices an
 * empty section or an over-long line, so it reads through next_line(), which counts, and which
 * opens sections itself.
 */
#include "daemon/config-internal.h"

#include <dirent.h>
#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void skip_rest_of_line(FILE *file)
{
	int c;

	do
		c = getc(file);
	while (c != '\n' && c != EOF);
}

/* What libinih is shown instead of a line that has been dealt with. */
static char *blank_line(char *line)
{
	line[0] = '\n';
	line[1] = '\0';
	return line;
}

/*
 * fgets() for libinih. Blanks in front go, so that no line is taken for the continuation of the one
 * before; sections are opened here; what libinih could not read at all is reported and hidden.
 */
static char *next_line(char *line, int size, void *userdata)
{
	struct config_reader *reader = userdata;
	size_t blanks, length;

	if (!fgets(line, size, reader->file))
		return NULL;
	reader->place.line++;
	length = strlen(line);
	if (length == (size_t)size - 1 && line[length - 1] != '\n') {
		config_mistake(reader->draft, reader->place,
			       "line too long: expected at most %d characters", size - 2);
		skip_rest_of_line(reader->file);
		return blank_line(line);
	}
	blanks = strspn(line, reader->place.line == 1 ? "\xef\xbb\xbf \t" : " \t");
	memmove(line, line + blanks, length - blanks + 1);
	if (*line == '[') {
		config_open_section(reader, line);
		return blank_line(line);
	}
	if (!strchr("#;\r\n", *line) && !strpbrk(line, "=:")) {
		line[strcspn(line, "\r\n")] = '\0';
		config_mistake(reader->draft, reader->place,
			       "%s: expected [section] or key = value", line);
		return blank_line(line);
	}
	return line;
}

static int unreadable(struct config_draft *draft, const char *path, int error)
{
	config_mistake(draft, (struct config_place){path, 0}, "cannot be read: %s",
		       strerror(error));
	return -error;
}

/* libinih calls this for each key; its own idea of the section is not used. Return: 1, go on. */
static int on_key(void *userdata, const char *section, const char *name, const char *value)
{
	(void)section;
	config_take_key(userdata, name, value);
	return 1;
}

static int read_one_file(struct config_draft *draft, const char *path)
{
	struct config_reader reader = {.draft = draft, .place = {path, 0}};
	int r = 0;

	reader.file = fopen(path, "re");
	if (!reader.file)
		return unreadable(draft, path, errno);
	ini_parse_stream(next_line, &reader, on_key, &reader);
	if (ferror(reader.file))
		r = unreadable(draft, path, errno ? errno : EIO);
	(void)fclose(reader.file);
	return r;
}

static int is_conf(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return entry->d_name[0] != '.' && length > 5 &&
	       strcmp(entry->d_name + length - 5, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds to the files of the configuration. Return: 0 or -ENOMEM. */
static int add_file(struct config *config, char *path)
{
	if (!path)
		return -ENOMEM;
	config->files[config->nr_files++] = path;
	return 0;
}

static char *join(const char *directory, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

/* Adds path.d/NAME.conf. Return: 0 (also if there is no such directory) or -errno. */
static int list_directory(struct config_draft *draft, const char *path)
{
	struct config *config = draft->config;
	char directory[PATH_MAX];
	struct dirent **entries = NULL;
	int n, r = 0;

	if ((size_t)snprintf(directory, sizeof(directory), "%s.d", path) >= sizeof(directory))
		return unreadable(draft, path, ENAMETOOLONG);
	n = scandir(directory, &entries, is_conf, by_name);
	if (n < 0)
		return errno == ENOENT ? 0 : unreadable(draft, directory, errno);
	for (int i = 0; i < n; i++) {
		if (r == 0 && config->nr_files == CONFIG_FILES_MAX)
			r = unreadable(draft, directory, E2BIG);
		else if (r == 0)
			r = add_file(config, join(directory, entries[i]->d_name));
		free(entries[i]);
	}
	free(entries);
	return r;
}

int config_read_files(struct config_draft *draft, const char *path)
{
	struct config *config = draft->config;
	int r = add_file(config, strdup(path));

	if (r == 0)
		r = read_one_file(draft, config->files[0]);
	if (r == 0)
		r = list_directory(draft, path);
	for (size_t i = 1; r == 0 && i < config->nr_files; i++)
		r = read_one_file(draft, config->files[i]);
	return r;
}
