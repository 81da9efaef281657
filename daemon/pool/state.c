/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything is in place before the first word is stored, and nothing moves afterwards: the file has
 * its full size, with its blocks allocated, so that no store can end in SIGBUS for want of room.
 *
 * A new file is all zero, which means: no records, no leases, every block offline. That is what a
 * zone begins with as well, so there is no moment at which header and words contradict each other.
 * An old one that does not fit is cut to nothing first: a kill behind that finds a file of the wrong
 * size and begins afresh again.
 */
#include "daemon/pool/state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"

#define PAGE_BYTES    4096
#define BOOT_ID_PATH  "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES 40 /* 36 characters */

static const char magic[8] = "hugepool";

struct header_zone {
	char name[HP_NAME_MAX + 8];
	uint64_t page_bytes, block_bytes, nr_pages, nr_blocks;
	uint64_t offset, bytes;
};

struct header_table {
	uint64_t offset, records, record_bytes;
};

struct header {
	char magic[8]; /* stored last */
	uint64_t version, file_bytes, nr_zones;
	char boot_id[BOOT_ID_BYTES];
	struct header_zone zones[HP_ZONES_MAX];
	struct header_table tables[STATE_TABLES];
	uint64_t check; /* of everything before */
};

struct state {
	char *path; /* NULL: private memory */
	int fd;	    /* holds the lock */
	bool adopted;
	struct header want; /* what the header is, or is to be */
	char *memory;
	size_t bytes;
};

/* fixed: bytes covered by the check word */
static const struct {
	const char *name;
	uint32_t records;
	size_t bytes, fixed;
} tables[STATE_TABLES] = {
	[STATE_OWNERS] = {"owner", HP_TENANTS_MAX, sizeof(struct state_owner),
			  offsetof(struct state_owner, tenant_state)},
	[STATE_SESSIONS] = {"session", HP_SLOTS_MAX + 1, sizeof(struct state_session),
			    sizeof(struct state_session)},
	[STATE_SHARES] = {"share", HP_SHARES_MAX, sizeof(struct state_share),
			  offsetof(struct state_share, published)},
	[STATE_ATTACHMENTS] = {"attachment", HP_ATTACHMENTS_MAX, sizeof(struct state_attachment),
			       sizeof(struct state_attachment)},
};

_Static_assert(sizeof(struct state_owner) % 8 == 0 && sizeof(struct state_session) % 8 == 0 &&
		       sizeof(struct state_share) % 8 == 0 &&
		       sizeof(struct state_attachment) % 8 == 0,
	       "records are words");

/* Differs for any one byte that differs: each word is multiplied by an odd number before it is added. */
static uint64_t sum_words(const void *from, size_t bytes, uint64_t sum)
{
	const char *p = from;

	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word;

		memcpy(&word, p + i, 8);
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	return sum;
}

/* --- the header ------------------------------------------------------------------------------- */

static int read_boot_id(char ret[static BOOT_ID_BYTES])
{
	int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, ret, BOOT_ID_BYTES - 1);
	close(fd);
	if (n < 36)
		return -EIO;
	memset(ret + 36, 0, BOOT_ID_BYTES - 36);
	return 0;
}

static uint64_t place(uint64_t *end, uint64_t bytes)
{
	uint64_t at = *end;

	*end += (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	return at;
}

static int fill_header(struct header *header, const struct state_options *options)
{
	uint64_t end = 0;

	memset(header, 0, sizeof(*header));
	place(&end, sizeof(*header));
	memcpy(header->magic, magic, sizeof(magic));
	header->version = STATE_VERSION;
	header->nr_zones = options->nr_zones;
	for (size_t i = 0; i < options->nr_zones; i++) {
		const struct state_zone *zone = &options->zones[i];
		struct header_zone *to = &header->zones[i];

		(void)snprintf(to->name, sizeof(to->name), "%s", zone->name);
		to->page_bytes = zone->page_bytes;
		to->block_bytes = zone->block_bytes;
		to->nr_pages = zone->nr_pages;
		to->nr_blocks = zone->nr_blocks;
		to->bytes = zone->durable_bytes;
		to->offset = place(&end, to->bytes);
	}
	for (size_t i = 0; i < STATE_TABLES; i++) {
		header->tables[i].records = tables[i].records;
		header->tables[i].record_bytes = tables[i].bytes;
		header->tables[i].offset =
			place(&end, (uint64_t)tables[i].records * tables[i].bytes);
	}
	header->file_bytes = end;
	return read_boot_id(header->boot_id);
}

static uint64_t header_check(const struct header *header)
{
	return sum_words(header, offsetof(struct header, check), 1);
}

static bool zone_fits(const struct state *state, const struct header *found, size_t i)
{
	const struct header_zone *want = &state->want.zones[i], *have = &found->zones[i];

	if (memcmp(want, have, sizeof(*want)) == 0)
		return true;
	log_warning("state file is of another geometry path=%s zone=%s page_bytes=%llu "
		    "block_bytes=%llu blocks=%llu configured=\"%s, %llu, %llu, %llu\"",
		    state->path, have->name, (unsigned long long)have->page_bytes,
		    (unsigned long long)have->block_bytes, (unsigned long long)have->nr_blocks,
		    want->name, (unsigned long long)want->page_bytes,
		    (unsigned long long)want->block_bytes, (unsigned long long)want->nr_blocks);
	return false;
}

/* Can what is in the file be what this daemon goes on with? Says why not. */
static bool header_fits(const struct state *state, const struct header *found, uint64_t file_bytes)
{
	const struct header *want = &state->want;
	bool fits = true;

	if (memcmp(found->magic, magic, sizeof(magic)) != 0) {
		log_warning("state file is none of ours path=%s", state->path);
		return false;
	}
	if (found->version != STATE_VERSION) {
		log_warning("state file is of another version path=%s version=%llu wanted=%d",
			    state->path, (unsigned long long)found->version, STATE_VERSION);
		return false;
	}
	if (memcmp(found->boot_id, want->boot_id, sizeof(want->boot_id)) != 0) {
		log_notice("state file is of another boot path=%s boot=%.36s", state->path,
			   found->boot_id);
		return false;
	}
	if (found->check != header_check(found)) {
		log_warning("state file's header is damaged path=%s", state->path);
		return false;
	}
	if (found->nr_zones != want->nr_zones) {
		log_warning("state file has other zones path=%s zones=%llu configured=%llu",
			    state->path, (unsigned long long)found->nr_zones,
			    (unsigned long long)want->nr_zones);
		return false;
	}
	for (size_t i = 0; i < want->nr_zones; i++)
		fits &= zone_fits(state, found, i);
	if (fits && memcmp(found->tables, want->tables, sizeof(want->tables)) != 0) {
		log_warning("state file has other tables path=%s", state->path);
		fits = false;
	}
	if (fits && file_bytes != want->file_bytes) {
		log_warning("state file is cut off path=%s bytes=%llu wanted=%llu", state->path,
			    (unsigned long long)file_bytes, (unsigned long long)want->file_bytes);
		fits = false;
	}
	return fits;
}

/* --- the file --------------------------------------------------------------------------------- */

static int lock_file(const struct state *state)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(state->fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno != EAGAIN && errno != EACCES)
		return -errno;
	log_error("state file is another daemon's path=%s", state->path);
	return -EBUSY;
}

/* Fewer bytes than a header is: cut off. Return: whether it fits, or -errno. */
static int look_at_file(struct state *state, bool *ret_fits)
{
	struct header found;
	struct stat st;
	ssize_t n;

	*ret_fits = false;
	if (fstat(state->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode)) {
		log_error("state file is no regular file path=%s", state->path);
		return -EINVAL;
	}
	if (st.st_size == 0)
		return 0;
	n = pread(state->fd, &found, sizeof(found), 0);
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(found))
		log_warning("state file is cut off path=%s bytes=%lld wanted=%llu", state->path,
			    (long long)st.st_size, (unsigned long long)state->want.file_bytes);
	else
		*ret_fits = header_fits(state, &found, (uint64_t)st.st_size);
	return 0;
}

static int open_file(struct state *state)
{
	int r;

	state->fd = open(state->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (state->fd < 0) {
		r = -errno;
		log_error("state file cannot be opened path=%s error=\"%s\"", state->path,
			  strerror(-r));
		return r;
	}
	return lock_file(state);
}

/* Full size, with room for every page of it. Return: 0 or -errno. */
static int size_file(struct state *state)
{
	int r = 0;

	if (!state->adopted && ftruncate(state->fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = -posix_fallocate(state->fd, 0, (off_t)state->bytes);
	if (r < 0)
		log_error("state file cannot be made path=%s bytes=%zu error=\"%s\"", state->path,
			  state->bytes, strerror(-r));
	return r;
}

static int map(struct state *state)
{
	int flags = state->path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	void *memory = mmap(NULL, state->bytes, PROT_READ | PROT_WRITE, flags, state->fd, 0);

	if (memory == MAP_FAILED) {
		log_error("state cannot be mapped bytes=%zu error=\"%s\"", state->bytes,
			  strerror(errno));
		return -errno;
	}
	state->memory = memory;
	return 0;
}

static void write_header(struct state *state)
{
	struct header *header = (struct header *)(void *)state->memory;
	uint64_t word;

	memcpy((char *)header + sizeof(magic), (char *)&state->want + sizeof(magic),
	       sizeof(*header) - sizeof(magic));
	memcpy(&word, magic, sizeof(word));
	hp_durable_store((hp_word_t *)(void *)header->magic, word);
}

static int make(struct state *state, const struct state_options *options)
{
	bool fits = false;
	int r = fill_header(&state->want, options);

	if (r < 0) {
		log_error("boot id cannot be read error=\"%s\"", strerror(-r));
		return r;
	}
	state->want.check = header_check(&state->want);
	state->bytes = state->want.file_bytes;
	if (state->path) {
		r = open_file(state);
		if (r == 0)
			r = look_at_file(state, &fits);
		if (r == 0 && fits && !options->memory_survives) {
			log_warning("state file tells of memory that ended with the last daemon "
				    "path=%s",
				    state->path);
			fits = false;
		}
		state->adopted = fits;
		if (r == 0)
			r = size_file(state);
	}
	if (r == 0)
		r = map(state);
	if (r == 0 && !state->adopted)
		write_header(state);
	return r;
}

int state_open(struct state **ret, const struct state_options *options)
{
	struct state *state = calloc(1, sizeof(*state));
	int r;

	if (!state)
		return -ENOMEM;
	state->fd = -1;
	if (options->path) {
		state->path = strdup(options->path);
		if (!state->path) {
			free(state);
			return -ENOMEM;
		}
	}
	r = make(state, options);
	if (r < 0) {
		state_close(state);
		return r;
	}
	*ret = state;
	return 0;
}

struct state *state_close(struct state *state)
{
	if (!state)
		return NULL;
	if (state->memory)
		munmap(state->memory, state->bytes);
	if (state->fd >= 0)
		close(state->fd);
	free(state->path);
	free(state);
	return NULL;
}

bool state_is_durable(const struct state *state)
{
	return state->path;
}

bool state_is_adopted(const struct state *state)
{
	return state->adopted;
}

void *state_zone_words(struct state *state, size_t zone)
{
	assert(zone < state->want.nr_zones);
	return state->memory + state->want.zones[zone].offset;
}

/* --- records ---------------------------------------------------------------------------------- */

uint32_t state_count(enum state_table table)
{
	return tables[table].records;
}

void *state_record(struct state *state, enum state_table table, uint32_t index)
{
	assert(index < tables[table].records);
	return state->memory + state->want.tables[table].offset + index * tables[table].bytes;
}

/* A record that has moved to another index is damaged as well. */
static uint64_t record_check(enum state_table table, uint32_t index, const void *fields)
{
	return sum_words((const char *)fields + sizeof(struct state_head),
			 tables[table].fixed - sizeof(struct state_head),
			 (uint64_t)table << 32 | index);
}

void state_put(struct state *state, enum state_table table, uint32_t index, const void *fields,
	       uint32_t to)
{
	hp_word_t *record = state_record(state, table, index);
	const size_t first = sizeof(struct state_head) / 8;
	const uint64_t *from = fields;

	assert(hp_durable_load(&record[0]) == state_encode(STATE_FREE));
	for (size_t i = first; i < tables[table].bytes / 8; i++)
		hp_durable_store(&record[i], from[i]);
	hp_durable_store(&record[1], record_check(table, index, fields));
	hp_durable_store(&record[0], state_encode(to));
}

void state_set(struct state *state, enum state_table table, uint32_t index, uint32_t to)
{
	struct state_head *head = state_record(state, table, index);

	hp_durable_store(&head->state, state_encode(to));
}

int state_get(struct state *state, enum state_table table, uint32_t index, uint32_t *ret_state)
{
	const struct state_head *head = state_record(state, table, index);
	uint64_t word = hp_durable_load(&head->state);

	if (word != state_encode((uint32_t)(word & 0xff)))
		return STATE_DAMAGED;
	if (word != state_encode(STATE_FREE) &&
	    hp_durable_load(&head->check) != record_check(table, index, head))
		return STATE_DAMAGED;
	*ret_state = (uint32_t)(word & 0xff);
	return 0;
}

void state_put_text(uint64_t *words, size_t n, const char *text)
{
	size_t length = strnlen(text, 8 * n - 1);

	memset(words, 0, 8 * n);
	memcpy(words, text, length);
}

void state_get_text(char *to, const uint64_t *words, size_t n)
{
	memcpy(to, words, 8 * n);
	to[8 * n - 1] = '\0';
}

static bool owner_is_sound(struct state *state, uint64_t owner)
{
	uint32_t found;

	return owner != HP_OWNER_NONE && owner < state_count(STATE_OWNERS) &&
	       state_get(state, STATE_OWNERS, (uint32_t)owner, &found) == 0 && found != STATE_FREE;
}

static uint32_t owner_of_share(struct state *state, uint32_t index)
{
	const struct state_share *share = state_record(state, STATE_SHARES, index);
	uint32_t found;

	if (state_get(state, STATE_SHARES, index, &found) != 0 || found == STATE_FREE ||
	    !owner_is_sound(state, share->account))
		return HP_OWNER_NONE;
	return HP_TENANTS_MAX + index;
}

uint32_t state_owner_of_slot(struct state *state, uint32_t slot)
{
	const struct state_session *session;
	uint32_t found;

	if (slot > HP_SLOTS_MAX)
		return slot <= HP_SLOTS_MAX + HP_SHARES_MAX
			       ? owner_of_share(state, slot - HP_SLOTS_MAX - 1)
			       : HP_OWNER_NONE;
	if (slot == HP_SLOT_NONE || state_get(state, STATE_SESSIONS, slot, &found) != 0 ||
	    found == STATE_FREE)
		return HP_OWNER_NONE;
	session = state_record(state, STATE_SESSIONS, slot);
	return owner_is_sound(state, session->owner) ? (uint32_t)session->owner : HP_OWNER_NONE;
}
