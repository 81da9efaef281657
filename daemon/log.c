/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is put together on the stack and leaves by one write(): lines of several threads do not
 * mix, and nothing is allocated where memory may be what is missing. What a client chose (names)
 * may be part of a line, so control characters are replaced: nobody forges a second line. The level
 * goes in front as <N> only where the journal itself reads stderr, which it says by JOURNAL_STREAM.
 */
#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LINE_MAX 2048 /* bytes; longer ones are cut */

static _Atomic int max_level = LOG_INFO;
static bool to_journal;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* JOURNAL_STREAM is "device:inode" of the socket that the journal reads. */
static void find_journal(void)
{
	unsigned long long device, inode;
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;

	if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 ||
	    fstat(STDERR_FILENO, &st) < 0)
		return;
	to_journal = st.st_dev == device && st.st_ino == inode;
}

void log_set_max_level(int level)
{
	max_level = level;
}

void log_line(int level, const char *format, ...)
{
	static const char *const names[] = {"emergency", "alert",  "critical", "error",
					    "warning",	 "notice", "info",     "debug"};
	int saved = errno;
	char line[LOG_LINE_MAX];
	size_t used, start;
	va_list ap;
	int n;

	if (level > max_level || level < LOG_EMERG || level > LOG_DEBUG)
		return;
	pthread_once(&once, find_journal);
	n = to_journal ? snprintf(line, sizeof(line), "<%d>", level)
		       : snprintf(line, sizeof(line), "%s: %s: ", program_invocation_short_name,
				  names[level]);
	start = used = (size_t)n;

	va_start(ap, format);
	n = vsnprintf(line + used, sizeof(line) - used, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	used += (size_t)n < sizeof(line) - used ? (size_t)n : sizeof(line) - used - 1;

	for (size_t i = start; i < used; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[used++] = '\n';
	while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
		;
	errno = saved;
}
