/* What a process sees of the changes that another one makes meanwhile. */
#include "check.h"

/* A counter that two processes see. */
static volatile int *shared_counter(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

#define CHANGES 4000

static void change_all(volatile int *done)
{
	for (int at = 1; at <= CHANGES; at++) {
		struct timespec times[2] = {{at, 0}, {at, 0}};
		char name[32];
		utimensat(AT_FDCWD, "timed", times, 0);
		if (truncate("long", at) != 0)
			say("truncate refused");
		snprintf(name, sizeof name, "new%d", at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
		if (rename(name, "target") != 0)
			say("rename refused");
		snprintf(name, sizeof name, "made/%d", at);
		mkdir(name, 0700);
		if (at > 1) {
			snprintf(name, sizeof name, "made/%d", at - 1);
			rmdir(name);
		}
		__sync_synchronize();
		*done = at;
	}
}

/* Another process changes files all the time. What stat tells has every change that returned. */
CHECK(what_stat_tells_is_never_older_than_what_has_returned)
{
	volatile int *done = shared_counter();
	struct stat found;
	close(open("timed", O_CREAT | O_WRONLY, 0600));
	close(open("long", O_CREAT | O_WRONLY, 0600));
	close(open("target", O_CREAT | O_WRONLY, 0600));
	mkdir("made", 0700);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		change_all(done);
		fflush(stdout);
		_exit(0);
	}
	for (int before = 0; before < CHANGES; ) {
		char name[32];
		before = *done;
		__sync_synchronize();
		if (before > 0 && (stat("timed", &found) != 0 || found.st_mtime < before))
			say("%d: a time of %ld", before, (long)found.st_mtime);
		if (stat("long", &found) != 0 || found.st_size < before)
			say("%d: %ld bytes", before, (long)found.st_size);
		if (stat("target", &found) != 0)
			say("%d: no target", before);
		snprintf(name, sizeof name, "made/%d", before - 1);
		if (before > 1 && stat(name, &found) == 0)
			say("%d: an old directory", before);
		snprintf(name, sizeof name, "made/%d", before);
		/* It may have been removed by now, but then the next one is there. */
		if (before > 0 && stat(name, &found) != 0 && *done == before) {
			snprintf(name, sizeof name, "made/%d", before + 1);
			if (stat(name, &found) != 0 && *done == before)
				say("%d: no directory", before);
		}
	}
	waitpid(child, NULL, 0);
	say("%d changes", *done);
}

#define STAYING 400
#define ROUNDS 300

/* Makes and removes entries in bursts; those below the counts have returned. */
static void come_and_go(volatile int *counts)
{
	char name[48];
	for (int at = 1; at <= ROUNDS && !counts[2]; at++) {
		for (int more = 0; more < 8; more++) {
			snprintf(name, sizeof name, "list/passing%d.%d", at, more);
			close(open(name, O_CREAT | O_WRONLY, 0600));
			unlink(name);
		}
		snprintf(name, sizeof name, "list/new%d", at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
		__sync_synchronize();
		counts[0] = at;
		snprintf(name, sizeof name, "list/old%d", at);
		unlink(name);
		__sync_synchronize();
		counts[1] = at;
		usleep(300);
	}
	counts[2] = 1;
}

static void list_once(int made, int removed)
{
	static char stays[STAYING + 1], news[ROUNDS + 1];
	memset(stays, 0, sizeof stays);
	memset(news, 0, sizeof news);
	DIR *listing = opendir("list");
	for (struct dirent *entry; (entry = readdir(listing)) != NULL; ) {
		int number;
		if (sscanf(entry->d_name, "stays%d", &number) == 1)
			stays[number]++;
		else if (sscanf(entry->d_name, "new%d", &number) == 1)
			news[number]++;
		else if (sscanf(entry->d_name, "old%d", &number) == 1 && number <= removed)
			say("old%d was removed before", number);
	}
	closedir(listing);
	for (int at = 1; at <= STAYING; at++)
		if (stays[at] != 1)
			say("stays%d is there %d times", at, stays[at]);
	for (int at = 1; at <= ROUNDS; at++)
		if (news[at] > 1 || (at <= made && news[at] != 1))
			say("new%d of %d is there %d times", at, made, news[at]);
}

CHECK(a_listing_has_once_what_stays_while_another_process_makes_and_removes_entries)
{
	volatile int *counts = shared_counter();
	char name[48];
	mkdir("list", 0700);
	for (int at = 1; at <= STAYING; at++) {
		snprintf(name, sizeof name, "list/stays%d", at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	for (int at = 1; at <= ROUNDS; at++) {
		snprintf(name, sizeof name, "list/old%d", at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		come_and_go(counts);
		_exit(0);
	}
	do {
		int made = counts[0], removed = counts[1];
		__sync_synchronize();
		list_once(made, removed);
	} while (!counts[2]);
	waitpid(child, NULL, 0);
	list_once(ROUNDS, ROUNDS);
	say("%d made, %d removed", counts[0], counts[1]);
}

#define REWRITES 1500
#define WHOLE 3901

static void write_whole(int fd, const char *text)
{
	if (pwrite(fd, text, WHOLE, 0) != WHOLE)
		say("a write refused");
	close(fd);
}

static void rewrite_and_replace(volatile int *done)
{
	static char text[WHOLE];
	memset(text, 'n', sizeof text);
	for (int at = 1; at <= REWRITES; at++) {
		snprintf(text, sizeof text, "%08d", at);
		write_whole(open("rewritten", O_WRONLY), text);
		write_whole(open("next", O_CREAT | O_WRONLY, 0600), text);
		if (rename("next", "replaced") != 0)
			say("rename refused");
		__sync_synchronize();
		*done = at;
	}
}

static void expect_content(const char *what, int fd, int before)
{
	char got[WHOLE + 1] = "";
	long count = pread(fd, got, sizeof got, 0);
	if (before > 0 && (count != WHOLE || atoi(got) < before))
		say("%d: %s has %ld bytes, %.8s", before, what, count, got);
}

static void open_and_expect(const char *name, int before)
{
	int fd = open(name, O_RDONLY);
	expect_content(name, fd, before);
	close(fd);
}

/* What opens of small files bring with them has every change that returned before the read. */
CHECK(what_open_and_read_give_is_never_older_than_what_has_returned)
{
	volatile int *done = shared_counter();
	close(open("rewritten", O_CREAT | O_WRONLY, 0600));
	close(open("replaced", O_CREAT | O_WRONLY, 0600));
	int kept = open("rewritten", O_RDONLY);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		rewrite_and_replace(done);
		fflush(stdout);
		_exit(0);
	}
	for (int before = 0; before < REWRITES; ) {
		before = *done;
		__sync_synchronize();
		open_and_expect("rewritten", before);
		open_and_expect("replaced", before);
		expect_content("kept", kept, before);
	}
	waitpid(child, NULL, 0);
	say("%d changes", *done);
}

#define SIZED 16

/* A listing with attributes, as ls -l makes it. */
static void list_sizes(int before)
{
	struct stat found;
	DIR *listing = opendir("sizes");
	for (struct dirent *entry; (entry = readdir(listing)) != NULL; ) {
		int number;
		if (sscanf(entry->d_name, "sized%d", &number) != 1)
			continue;
		/* The last change of this one that has returned. */
		int least = before - (before + SIZED - number) % SIZED;
		if (fstatat(dirfd(listing), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
		    found.st_size < least)
			say("%d: sized%d has %ld bytes", before, number, (long)found.st_size);
	}
	closedir(listing);
}

CHECK(a_listing_with_attributes_is_never_older_than_what_has_returned)
{
	volatile int *done = shared_counter();
	char name[32];
	mkdir("sizes", 0700);
	for (int at = 0; at < SIZED; at++) {
		snprintf(name, sizeof name, "sizes/sized%d", at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		for (int at = 1; at <= CHANGES; at++) {
			snprintf(name, sizeof name, "sizes/sized%d", at % SIZED);
			if (truncate(name, at) != 0)
				say("truncate refused");
			__sync_synchronize();
			*done = at;
		}
		fflush(stdout);
		_exit(0);
	}
	for (int before = 0; before < CHANGES; ) {
		before = *done;
		__sync_synchronize();
		list_sizes(before);
	}
	waitpid(child, NULL, 0);
	say("%d changes", *done);
}
