/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record is a small JSON file, replaced by rename: operators may want to read it. It names the
 * boot it belongs to, since after a reboot the kernel's numbers start anew.
 */
#include "daemon/setup/record.h"

#include "daemon/setup/hugepages.h"
#include "daemon/setup/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_VERSION	 1
#define RECORD_NEW_NAME	 SETUP_RECORD_NAME ".new"
#define RECORD_BYTES_MAX (64 * 1024)
#define BOOT_ID_BYTES	 40

void setup_record_init(struct setup_record *record, int dirfd, uid_t uid)
{
	memset(record, 0, sizeof(*record));
	record->dirfd = dirfd;
	record->uid = uid;
}

static int read_boot_id(char ret[static BOOT_ID_BYTES])
{
	ssize_t n;
	int fd;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, ret, BOOT_ID_BYTES - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n <= 0)
		return n < 0 ? (int)n : -EIO;
	ret[n] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	return 0;
}

/* --- file ------------------------------------------------------------------------------------- */

static json_t *change_to_json(const struct setup_change *change)
{
	if (!change->pending)
		return json_pack("{s:I, s:i, s:I}", "page_bytes", (json_int_t)change->page_bytes,
				 "node", change->node, "added", (json_int_t)change->added);
	return json_pack("{s:I, s:i, s:I, s:I, s:I}", "page_bytes", (json_int_t)change->page_bytes,
			 "node", change->node, "added", (json_int_t)change->added, "from",
			 (json_int_t)change->from, "to", (json_int_t)change->to);
}

static json_t *resize_to_json(const struct setup_resize *resize)
{
	return json_pack("{s:s, s:I, s:i, s:i, s:i, s:I}", "zone", resize->zone, "page_bytes",
			 (json_int_t)resize->page_bytes, "node", resize->node, "block_pages",
			 (int)resize->block_pages, "blocks", (int)resize->blocks, "added",
			 (json_int_t)resize->added_pages);
}

/* NULL: no memory. */
static json_t *to_json(const struct setup_record *record, const char *boot_id)
{
	json_t *pages = json_array(), *root;

	for (uint32_t i = 0; i < record->nr; i++) {
		if (json_array_append_new(pages, change_to_json(&record->changes[i])) < 0) {
			json_decref(pages);
			return NULL;
		}
	}
	root = json_pack("{s:i, s:s, s:I, s:o}", "version", RECORD_VERSION, "boot_id", boot_id,
			 "uid", (json_int_t)record->uid, "pages", pages);
	if (root && record->resize.pending &&
	    json_object_set_new(root, "resize", resize_to_json(&record->resize)) < 0) {
		json_decref(root);
		return NULL;
	}
	return root;
}

static int write_file(int fd, const char *text)
{
	size_t left = strlen(text);

	while (left) {
		ssize_t n = write(fd, text, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text += n;
		left -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int setup_record_save(const struct setup_record *record)
{
	char boot_id[BOOT_ID_BYTES], *text;
	json_t *root;
	int fd, r;

	if (record->dirfd < 0)
		return 0;
	r = read_boot_id(boot_id);
	if (r < 0)
		return r;
	root = to_json(record, boot_id);
	text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	json_decref(root);
	if (!text)
		return -ENOMEM;
	fd = openat(record->dirfd, RECORD_NEW_NAME,
		    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : write_file(fd, text);
	if (fd >= 0)
		close(fd);
	free(text);
	if (r == 0 &&
	    renameat(record->dirfd, RECORD_NEW_NAME, record->dirfd, SETUP_RECORD_NAME) < 0)
		r = -errno;
	return r;
}

int setup_record_remove(const struct setup_record *record)
{
	if (record->dirfd < 0)
		return 0;
	if (unlinkat(record->dirfd, RECORD_NEW_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	if (unlinkat(record->dirfd, SETUP_RECORD_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

static int change_from_json(json_t *entry, struct setup_change *ret)
{
	json_int_t page_bytes, added, from = -1, to = -1;
	int node;

	if (json_unpack(entry, "{s:I, s:i, s:I, s?I, s?I}", "page_bytes", &page_bytes, "node",
			&node, "added", &added, "from", &from, "to", &to) < 0)
		return -EBADMSG;
	if (page_bytes < 4096 || added < 0 || node < -1 || (from < 0) != (to < 0))
		return -EBADMSG;
	*ret = (struct setup_change){
		.page_bytes = (uint64_t)page_bytes, .node = node, .added = (uint64_t)added};
	if (from >= 0) {
		ret->pending = true;
		ret->from = (uint64_t)from;
		ret->to = (uint64_t)to;
	}
	return 0;
}

static int resize_from_json(json_t *root, struct setup_resize *ret)
{
	json_t *entry = json_object_get(root, "resize");
	json_int_t page_bytes, added;
	int node, block_pages, blocks;
	const char *zone;

	if (!entry)
		return 0;
	if (json_unpack(entry, "{s:s, s:I, s:i, s:i, s:i, s:I}", "zone", &zone, "page_bytes",
			&page_bytes, "node", &node, "block_pages", &block_pages, "blocks", &blocks,
			"added", &added) < 0)
		return -EBADMSG;
	if (page_bytes < 4096 || added < 0 || node < -1 || block_pages < 1 || blocks < 0 ||
	    strlen(zone) > CONFIG_NAME_MAX)
		return -EBADMSG;
	*ret = (struct setup_resize){.pending = true,
				     .page_bytes = (uint64_t)page_bytes,
				     .added_pages = (uint64_t)added,
				     .node = node,
				     .block_pages = (uint32_t)block_pages,
				     .blocks = (uint32_t)blocks};
	memcpy(ret->zone, zone, strlen(zone) + 1);
	return 0;
}

/* Return: 1, 0 (of another boot) or -errno. */
static int from_json(struct setup_record *record, json_t *root)
{
	char boot_id[BOOT_ID_BYTES];
	const char *recorded;
	json_t *pages, *entry;
	json_int_t uid;
	int version, r;
	size_t i;

	r = read_boot_id(boot_id);
	if (r < 0)
		return r;
	if (json_unpack(root, "{s:i, s:s, s:I, s:o}", "version", &version, "boot_id", &recorded,
			"uid", &uid, "pages", &pages) < 0 ||
	    version != RECORD_VERSION || uid < 0 || uid >= UINT32_MAX ||
	    json_array_size(pages) > SETUP_CHANGES_MAX)
		return -EBADMSG;
	if (strcmp(recorded, boot_id) != 0)
		return 0;
	record->uid = (uid_t)uid;
	json_array_foreach(pages, i, entry)
	{
		r = change_from_json(entry, &record->changes[i]);
		if (r < 0)
			return r;
	}
	record->nr = (uint32_t)json_array_size(pages);
	r = resize_from_json(root, &record->resize);
	return r < 0 ? r : 1;
}

/* How far the kernel got with a change that nobody saw the end of. */
static int book_interrupted(struct setup_change *change)
{
	struct hugepages_counts counts;
	uint64_t now;
	int lock, r;

	lock = lock_page_size(change->page_bytes);
	if (lock < 0)
		return lock;
	r = hugepages_read(change->page_bytes, change->node, &counts);
	unlock_page_size_consume_fd(change->page_bytes, lock);
	if (r < 0)
		return r;
	now = counts.total - counts.surplus;
	if (change->to >= change->from) {
		now = now < change->from ? change->from : now > change->to ? change->to : now;
		change->added += now - change->from;
	} else {
		now = now > change->from ? change->from : now < change->to ? change->to : now;
		change->added -=
			change->from - now > change->added ? change->added : change->from - now;
	}
	change->pending = false;
	return 0;
}

int setup_record_load(struct setup_record *record)
{
	char text[RECORD_BYTES_MAX];
	ssize_t n;
	json_t *root;
	int fd, r;

	fd = openat(record->dirfd, SETUP_RECORD_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	n = read(fd, text, sizeof(text));
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	root = json_loadb(text, (size_t)n, 0, NULL);
	if (!root)
		return -EBADMSG;
	r = from_json(record, root);
	json_decref(root);
	return r;
}

int setup_record_recover(struct setup_record *record)
{
	int r;

	for (uint32_t i = 0; i < record->nr; i++) {
		if (!record->changes[i].pending)
			continue;
		r = book_interrupted(&record->changes[i]);
		if (r < 0)
			return r;
		r = setup_record_save(record);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- changes ---------------------------------------------------------------------------------- */

static struct setup_change *find_change(struct setup_record *record, uint64_t page_bytes, int node)
{
	struct setup_change *change = record->changes;

	for (; change < record->changes + record->nr; change++)
		if (change->page_bytes == page_bytes && change->node == node)
			return change;
	if (record->nr == SETUP_CHANGES_MAX)
		return NULL;
	record->nr++;
	*change = (struct setup_change){.page_bytes = page_bytes, .node = node};
	return change;
}

int setup_record_change(struct setup_record *record, uint64_t page_bytes, int node, int64_t by,
			int64_t *ret_moved)
{
	struct setup_change *change = find_change(record, page_bytes, node);
	struct hugepages_counts counts;
	uint64_t now;
	int r;

	if (!change)
		return -ENOSPC;
	r = hugepages_read(page_bytes, node, &counts);
	if (r < 0)
		return r;
	change->from = counts.total - counts.surplus;
	change->to = by < 0 && change->from < (uint64_t)-by ? 0 : change->from + (uint64_t)by;
	change->pending = true;
	r = setup_record_save(record);
	if (r < 0)
		return r;
	r = hugepages_set(page_bytes, node, change->to, &now);
	if (r < 0)
		return r;
	*ret_moved = (int64_t)(now - change->from);
	change->added = *ret_moved < 0 && change->added < (uint64_t) - *ret_moved
				? 0
				: change->added + (uint64_t)*ret_moved;
	change->pending = false;
	return setup_record_save(record);
}

uint64_t setup_record_added(const struct setup_record *record, uint64_t page_bytes, int node)
{
	for (uint32_t i = 0; i < record->nr; i++)
		if (record->changes[i].page_bytes == page_bytes && record->changes[i].node == node)
			return record->changes[i].added;
	return 0;
}

int setup_record_take_off(struct setup_record *record)
{
	int first = 0;

	for (uint32_t i = 0; i < record->nr; i++) {
		struct setup_change *change = &record->changes[i];
		int64_t moved;
		int lock, r;

		if (!change->added)
			continue;
		lock = lock_page_size(change->page_bytes);
		r = lock < 0 ? lock
			     : setup_record_change(record, change->page_bytes, change->node,
						   -(int64_t)change->added, &moved);
		if (lock >= 0)
			unlock_page_size_consume_fd(change->page_bytes, lock);
		if (r < 0 && first == 0)
			first = r;
	}
	return first;
}
