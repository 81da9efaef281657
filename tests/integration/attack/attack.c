/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attack DAEMON SETUP [--recycles N] [--seconds N] [--guest]
 *
 * Runs until there were so many recycles, the time is over and every trick has worked, then looks at
 * what is left: first with the attackers alive and holding what they have, then without them.
 *
 * The process that was started puts the stage up and takes it down; a child of it directs the
 * attack and judges, so that whatever becomes of that the machine is left as it was.
 */
#include "tests/integration/attack/attack.h"

#include <getopt.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED		77
#define GIVE_UP_S	90		   /* beyond the time asked for */
#define SETTLE_TRIES	4000		   /* of 5 ms */
#define LONGEST_TURN_NS UINT64_C(50000000) /* all waits included: see watch.c */
#define BLOCKS_EVERY_MS 10
#define RECYCLES_AFTER	30

struct tally *tally;
const char *attack_socket;

static const struct {
	int where;
	const char *name;
} hits[] = {
#define TEXT(name, where, text) {where, text},
	HITS(TEXT)
#undef TEXT
};
static const char *const wrong_names[] = {
#define TEXT(name, text) text,
	WRONGS(TEXT)
#undef TEXT
};

static int place = HOST;

static const struct part {
	const char *name;
	uid_t uid;
	void (*run)(uint32_t who);
	bool attacks;
	int where;
} parts[] = {
	{"alice", UID_ALICE, victim, false, EVERYWHERE},
	{"bob", UID_BOB, victim, false, EVERYWHERE},
	{"alice", UID_ALICE, victim, false, HOST}, /* two of a user, where there is time for it */
	{"bob", UID_BOB, victim, false, HOST},
	{"grow", UID_MALLORY, attacker_grow, true, HOST},
	{"pin", UID_MALLORY, attacker_pin, true, HOST},
	{"map", UID_MALLORY, attacker_map, true, HOST},
	{"lock", UID_LOCKER, attacker_lock, true, HOST},
	{"leave", UID_LEAVER, attacker_leave, true, HOST},
	{"back-out", UID_MALLORY, attacker_back_out, true, GUEST},
	{"race", UID_MALLORY, attacker_race, true, GUEST},
};
#define NR_PARTS    (sizeof(parts) / sizeof(parts[0]))
#define PLAYERS_MAX 16

struct player {
	pid_t pid; /* 0: has ended */
	const struct part *part;
};

struct play {
	struct player players[PLAYERS_MAX];
	size_t nr;
	uint64_t recycles, longest_turn_ns;
	unsigned complaints;
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void complain(struct play *play, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void complain(struct play *play, const char *format, ...)
{
	va_list args;

	(void)fprintf(stderr, "attack: ");
	va_start(args, format);
	(void)vfprintf(stderr, format, args);
	va_end(args);
	(void)fprintf(stderr, "\n");
	play->complaints++;
}

/* --- players ---------------------------------------------------------------------------------- */

static void start_player(struct play *play, const struct part *part)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		(void)setsid(); /* a group of its own for the scheduler, as users have */
		if (setgroups(0, NULL) || setresgid(part->uid, part->uid, part->uid) ||
		    setresuid(part->uid, part->uid, part->uid) ||
		    prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
			_exit(1);
		srandom((unsigned)getpid());
		memory_init();
		part->run(part->uid);
	}
	if (pid > 0)
		play->players[play->nr++] = (struct player){pid, part};
}

/* Those that have ended: victims may when it is over, attackers when they are killed. */
static void reap(struct play *play)
{
	for (size_t i = 0; i < play->nr; i++) {
		struct player *player = &play->players[i];
		int status;

		if (!player->pid || waitpid(player->pid, &status, WNOHANG) != player->pid)
			continue;
		player->pid = 0;
		if (attacking() || player->part->attacks || status) {
			(void)fprintf(stderr, "attack: %s ended, status %#x\n", player->part->name,
				      status);
			wrong(WRONG_DIED);
		}
	}
}

static unsigned alive(const struct play *play, bool attackers)
{
	unsigned n = 0;

	for (size_t i = 0; i < play->nr; i++)
		n += play->players[i].pid && play->players[i].part->attacks == attackers;
	return n;
}

static void kill_attackers(struct play *play)
{
	for (size_t i = 0; i < play->nr; i++) {
		if (!play->players[i].pid)
			continue;
		kill(play->players[i].pid, SIGKILL);
		waitpid(play->players[i].pid, NULL, 0);
		play->players[i].pid = 0;
	}
}

/* --- acts ------------------------------------------------------------------------------------- */

static bool every_trick_has_worked(void)
{
	for (size_t i = 0; i < NR_HITS; i++)
		if (!tally->hits[i] && hits[i].where & place && i != HIT_RECYCLER_STUCK &&
		    i != HIT_FOUND_AT_END)
			return false;
	return true;
}

/* In a guest the kernel is made to lose pages of the attackers' blocks. */
static bool is_expected(enum wrong what)
{
	return place == GUEST && what == WRONG_LOST;
}

static bool something_is_wrong(void)
{
	for (size_t i = 0; i < NR_WRONGS; i++)
		if (tally->wrongs[i] && !is_expected(i))
			return true;
	return false;
}

static void attack(struct play *play, struct watch *watch, const struct stage *stage,
		   uint64_t recycles, uint64_t seconds)
{
	uint64_t began = now_ms(), give_up = began + (seconds + GIVE_UP_S) * 1000, looked = 0, now;

	for (;;) {
		now = now_ms();
		watch_threads(watch);
		reap(play);
		if (now - looked >= BLOCKS_EVERY_MS) {
			looked = now;
			watch_blocks(watch);
			play->recycles = watch_recycles(watch);
			if (play->recycles >= recycles && now - began >= seconds * 1000 &&
			    every_trick_has_worked() && stage_log_count(stage, "recycler is stuck"))
				break;
		}
		if (now > give_up || something_is_wrong())
			break;
		nap_ms(1);
	}
	printf("%-9" PRIu64 " ms of attack\n", now - began);
	printf("%-9" PRIu64 " recycles, %" PRIu64 " GiB of victims' memory looked at\n",
	       play->recycles, tally->looked_bytes >> 30);
	if (something_is_wrong() || play->recycles < recycles)
		watch_print(watch);
	if (play->recycles < recycles)
		complain(play, "fewer recycles than %" PRIu64, recycles);
}

/* Victims go; what is not clean then is the attackers', and charged to them. */
static void look_at_what_they_hold(struct play *play, struct watch *watch)
{
	struct watch_held held = {0};

	tally->phase = PHASE_HOLD;
	for (int i = 0; i < SETTLE_TRIES; i++) {
		reap(play);
		watch_blocks(watch);
		held = watch_held(watch);
		if (!alive(play, false) && tally->holding >= alive(play, true) && !held.others)
			break;
		nap_ms(5);
	}
	if (alive(play, false) || held.others)
		watch_print(watch);
	if (alive(play, false))
		complain(play, "%u victims do not end", alive(play, false));
	if (tally->holding < alive(play, true))
		complain(play, "only %u attackers come to rest", tally->holding);
	if (held.others)
		complain(play, "%u blocks are kept from others than attackers", held.others);
	if (held.uncharged)
		complain(play, "%u blocks are charged to nobody", held.uncharged);
	atomic_fetch_add(&tally->hits[HIT_FOUND_AT_END], held.attackers);
}

/* Return: what is not clean when it does not get less any more. */
static struct watch_held settle(struct watch *watch)
{
	struct watch_held held = {0};

	for (int i = 0; i < SETTLE_TRIES; i++) {
		held = watch_held(watch);
		if (!held.others && (!held.attackers || (place == GUEST && i > SETTLE_TRIES / 2)))
			break;
		nap_ms(5);
	}
	return held;
}

static void look_at_what_is_left(struct play *play, struct watch *watch)
{
	struct watch_held held;

	kill_attackers(play);
	held = settle(watch);
	if (held.others || (held.attackers && place == HOST))
		complain(play, "%u blocks have not come back with nobody there",
			 held.attackers + held.others);
	if (held.uncharged)
		complain(play, "%u blocks are charged to nobody", held.uncharged);
	if (watch_check(watch))
		complain(play, "the zones' own check found something");
	if (place == GUEST)
		printf("%-9u blocks have lost pages until this machine is started again\n",
		       held.attackers);
}

/* With blocks that are damaged for ever everybody else goes on as if they had never been. */
static void go_on(struct play *play, struct watch *watch, const struct stage *stage)
{
	uint64_t recycles = watch_recycles(watch) + RECYCLES_AFTER;

	tally->phase = PHASE_ATTACK;
	for (size_t i = 0; i < NR_PARTS; i++)
		if (parts[i].where & place && !parts[i].attacks)
			start_player(play, &parts[i]);
	printf("afterwards:\n");
	attack(play, watch, stage, recycles, 0);
	tally->phase = PHASE_HOLD;
	for (int i = 0; i < SETTLE_TRIES && alive(play, false); i++) {
		reap(play);
		nap_ms(5);
	}
	if (alive(play, false) || settle(watch).others)
		complain(play, "%u victims do not end, or leave something", alive(play, false));
}

/* --- judging ---------------------------------------------------------------------------------- */

static void judge(struct play *play)
{
	printf("hits:\n");
	for (size_t i = 0; i < NR_HITS; i++) {
		if (!(hits[i].where & place))
			continue;
		printf("%-9" PRIu64 " %s\n", tally->hits[i], hits[i].name);
		if (!tally->hits[i])
			(void)fprintf(stderr, "attack: never: %s\n", hits[i].name);
		play->complaints += !tally->hits[i];
	}
	printf("what must not be:\n");
	for (size_t i = 0; i < NR_WRONGS; i++) {
		printf("%-9" PRIu64 " %s\n", tally->wrongs[i], wrong_names[i]);
		play->complaints += tally->wrongs[i] && !is_expected(i);
	}
	printf("%-9" PRIu64 " us the longest turn of an event loop\n",
	       play->longest_turn_ns / 1000);
	if (play->longest_turn_ns > LONGEST_TURN_NS && place == HOST) /* a guest has no speed */
		complain(play, "an event loop's longest turn was %" PRIu64 " us",
			 play->longest_turn_ns / 1000);
}

/* Return: exit status. */
static int direct(const struct stage *stage, uint64_t recycles, uint64_t seconds)
{
	struct play play = {.nr = 0};
	struct watch *watch;

	attack_socket = stage->socket;
	watch = watch_new(stage);
	if (!watch)
		return 1;
	for (size_t i = 0; i < NR_PARTS; i++)
		if (parts[i].where & place)
			start_player(&play, &parts[i]);
	attack(&play, watch, stage, recycles, seconds);
	look_at_what_they_hold(&play, watch);
	look_at_what_is_left(&play, watch);
	if (place == GUEST)
		go_on(&play, watch, stage);
	tally->hits[HIT_RECYCLER_STUCK] = stage_log_count(stage, "recycler is stuck");
	play.longest_turn_ns = watch_longest_turn_ns(watch);
	watch_free(watch);
	judge(&play);
	(void)fflush(stdout);
	return play.complaints != 0;
}

static int direct_in_child(const struct stage *stage, uint64_t recycles, uint64_t seconds)
{
	pid_t parent = getpid(), pid;
	int status;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		alarm((unsigned)(seconds + 2 * GIVE_UP_S));
		exit(direct(stage, recycles, seconds));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status))
		(void)fprintf(stderr, "attack: the director died of signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* The kernel gives back what a process held a little after it has ended. */
static bool machine_is_as(struct huge_pages before)
{
	struct huge_pages now;

	for (int i = 0; i < SETTLE_TRIES; i++) {
		now = huge_pages_now();
		if (memcmp(&now, &before, sizeof(now)) == 0)
			return true;
		nap_ms(5);
	}
	(void)fprintf(stderr,
		      "attack: huge pages: total %ld free %ld reserved %ld surplus %ld; before: "
		      "%ld %ld %ld %ld\n",
		      now.total, now.free, now.reserved, now.surplus, before.total, before.free,
		      before.reserved, before.surplus);
	return false;
}

/* As tests/guest/run tells its kernel. */
static bool is_guest(void)
{
	FILE *file = fopen("/proc/cmdline", "re");
	char line[4096] = "";
	bool found = file && fgets(line, sizeof(line), file) && strstr(line, "hugepool-guest=");

	if (file)
		fclose(file);
	return found;
}

static int usage(void)
{
	(void)fprintf(stderr,
		      "usage: attack DAEMON SETUP [--recycles N] [--seconds N] [--guest]\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"recycles", required_argument, NULL, 'r'},
						{"seconds", required_argument, NULL, 's'},
						{"guest", no_argument, NULL, 'g'},
						{NULL, 0, NULL, 0}};
	uint64_t recycles = 1000, seconds = 0;
	struct huge_pages before;
	struct stage stage;
	int c, failed = 1, status;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'r' && c != 's' && c != 'g')
			return usage();
		if (c == 'g')
			place = GUEST;
		else
			*(c == 'r' ? &recycles : &seconds) = strtoull(optarg, NULL, 10);
	}
	if (argc - optind != 2)
		return usage();
	if (place == GUEST && !is_guest()) {
		(void)fprintf(stderr, "attack: --guest damages the kernel: only in a guest of "
				      "tests/guest/run\n");
		return 2;
	}
	before = huge_pages_now();
	if (geteuid() != 0 || before.total < 0) {
		printf("needs root and huge pages of 2 MiB\n");
		return SKIPPED;
	}
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (tally == MAP_FAILED)
		return 1;
	if (stage_up(&stage, argv[optind], argv[optind + 1]) == 0)
		failed = direct_in_child(&stage, recycles, seconds);
	status = stage_down(&stage);
	if (status)
		(void)fprintf(stderr, "attack: the daemon or its set-up ended with %d\n", status);
	if (place == GUEST) /* what it has lost it does not get back */
		return failed;
	return failed || status || !machine_is_as(before);
}
