/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hang-thread PID NAME: stops the one thread of that name, as if it were stuck, until the process is
 * gone. Nothing else of the process notices.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

static pid_t find_thread(const char *pid, const char *name)
{
	char path[300], comm[64];
	const struct dirent *entry;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir))) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%s/task/%s/comm", pid, entry->d_name);
		file = fopen(path, "r");
		if (file && fgets(comm, sizeof(comm), file)) {
			comm[strcspn(comm, "\n")] = '\0';
			if (strcmp(comm, name) == 0)
				found = (pid_t)atoi(entry->d_name);
		}
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return found;
}

int main(int argc, char **argv)
{
	pid_t tid = argc == 3 ? find_thread(argv[1], argv[2]) : 0;
	int status;

	if (!tid) {
		fprintf(stderr, "usage: hang-thread PID NAME, of a thread that there is\n");
		return 2;
	}
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0 ||
	    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0) {
		perror("ptrace");
		return 1;
	}
	puts("hung");
	fflush(stdout);
	while (waitpid(tid, &status, __WALL) == tid && !WIFEXITED(status) && !WIFSIGNALED(status))
		; /* stopped; nothing lets it go on */
	return 0;
}
