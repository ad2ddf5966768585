/* Calls that change what others hold: locks made stronger, mappings moved, names taken away,
 * directories moved from under their users, threads cancelled, forks among threads. */
#include "check.h"

static int set(int fd, int type)
{
	struct flock lock = {.l_type = type};
	return fcntl(fd, F_SETLK, &lock);
}

static int in_child(int (*body)(void))
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0)
		_exit(body());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int reads(void) { return set(open("file", O_RDWR), F_RDLCK) == 0 ? 0 : errno; }
static int writes(void) { return set(open("file", O_RDWR), F_WRLCK) == 0 ? 0 : errno; }

CHECK(locks_are_made_stronger_and_weaker)
{
	int one = make_file("file", "text"), two = open("file", O_RDWR);
	SHOW(flock(one, LOCK_SH));
	SHOW(flock(two, LOCK_SH));
	/* What cannot be made stronger at once is lost. */
	SHOW(flock(one, LOCK_EX | LOCK_NB));
	SHOW(flock(two, LOCK_EX | LOCK_NB));
	SHOW(flock(one, LOCK_SH | LOCK_NB));
	SHOW(flock(two, LOCK_SH | LOCK_NB));
	SHOW(flock(one, LOCK_SH | LOCK_NB));
	SHOW(flock(one, LOCK_UN));
	SHOW(flock(two, LOCK_UN));
	SHOW(set(one, F_RDLCK));
	SHOW(in_child(reads));
	SHOW(in_child(writes));
	SHOW(set(one, F_WRLCK));
	SHOW(in_child(reads));
	SHOW(set(one, F_RDLCK));
	SHOW(in_child(reads));
	/* A second reader keeps the first from writing; the first keeps what it has. */
	int ready[2], over[2];
	SHOW(pipe(ready));
	SHOW(pipe(over));
	pid_t pid = fork();
	if (pid == 0) {
		int failed = reads();
		if (write(ready[1], "x", 1) != 1 || read(over[0], (char[1]){0}, 1) != 1)
			_exit(99);
		_exit(failed);
	}
	SHOW(read(ready[0], (char[1]){0}, 1));
	SHOW(set(one, F_WRLCK));
	SHOW(in_child(writes));
	SHOW(write(over[1], "x", 1));
	reap(pid);
	SHOW(set(one, F_WRLCK));
}

CHECK(a_mapping_is_protected_grown_and_moved)
{
	enum { PAGE = 4096, BYTES = 64 * PAGE };
	make_large("file", BYTES);
	int fd = open("file", O_RDWR);
	char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
	if (SHOW(map == MAP_FAILED))
		return;
	memcpy(map, "first", 5);
	/* As a whole: parts are not joined again on every file system. */
	SHOW(mprotect(map, 2 * PAGE, PROT_READ));
	SHOW(map[0]);
	SHOW(mprotect(map, 2 * PAGE, PROT_READ | PROT_WRITE));
	map = mremap(map, 2 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	SHOW(map != MAP_FAILED);
	SHOW(memcmp(map, "first", 5));
	memcpy(map + PAGE, "second", 6);
	memcpy(map + 7 * PAGE, "third", 5);
	SHOW(msync(map, 8 * PAGE, MS_SYNC));
	char text[6];
	for (int page = 1; page <= 8; page++)
		if (SHOW(pread(fd, text, 6, page * PAGE)) == 6)
			show_bytes("there", text, 6);
	map = mremap(map, 8 * PAGE, PAGE, 0);
	SHOW(memcmp(map, "first", 5));
	SHOW(munmap(map, PAGE));
	int only = open("file", O_RDONLY);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, only, PAGE);
	SHOW(memcmp(map, "first", 5));
	SHOW(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
	char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, only, PAGE);
	memcpy(own, "own", 3);
	own = mremap(own, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
	show_bytes("own", own, 5);
	show_bytes("shared", map, 5);
	SHOW(madvise(map, PAGE, MADV_WILLNEED));
	show_file("file");
}

/* By a descriptor that could write: what is mapped to be read only. */
CHECK(a_shared_mapping_that_only_reads_is_served)
{
	enum { PAGE = 4096, BYTES = 10 * PAGE + 7 };
	make_large("file", BYTES);
	int fd = open("file", O_RDWR);
	char *map = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 8 * PAGE);
	if (SHOW(map == MAP_FAILED))
		return;
	SHOW(close(fd));
	show_bytes("first", map, 8);
	show_bytes("last", map + 2 * PAGE, 8);
	SHOW(map[2 * PAGE + 7]);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGBUS, SIG_DFL);
		_exit(((volatile char *)map)[3 * PAGE]);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	SHOW(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	SHOW(munmap(map, 4 * PAGE));
	fd = open("file", O_RDONLY);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
	SHOW(memcmp(map, "first", 5) != 0);
	SHOW(mprotect(map, PAGE, PROT_READ | PROT_WRITE));
	SHOW(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	SHOW(errno);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100 * PAGE);
	SHOW(map == MAP_FAILED);
}

CHECK(a_file_that_a_rename_replaces_stays_open)
{
	int old = make_file("old", "old content"), new = make_file("new", "new");
	SHOW(link("old", "kept"));
	SHOW(rename("new", "old"));
	show_fstat(old);
	show_fstat(new);
	SHOW(unlink("kept"));
	show_fstat(old);
	SHOW(lseek(old, 0, SEEK_SET));
	show_read(old, 100);
	SHOW(pwrite(old, "still", 5, 0));
	SHOW(ftruncate(old, 7));
	SHOW(lseek(old, 0, SEEK_SET));
	show_read(old, 100);
	show_file("old");
	SHOW(rename("old", "old"));
	SHOW(close(old));
	SHOW(close(new));
	show_names(".");
}

CHECK(directories_move_while_files_are_made_in_them)
{
	enum { FILES = 400 };
	SHOW(mkdir("a", 0755));
	SHOW(mkdir("a/b", 0755));
	SHOW(mkdir("a/b/c", 0755));
	SHOW(mkdir("other", 0755));
	int there[2];
	SHOW(pipe(there));
	pid_t pid = fork();
	if (pid == 0) {
		int failed = chdir("a/b/c") != 0 || write(there[1], "x", 1) != 1;
		for (int number = 0; number < FILES; number++) {
			char name[20];
			snprintf(name, sizeof name, "%d", number);
			int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
			failed += fd < 0 || write(fd, name, 1) != 1 || close(fd) != 0;
		}
		_exit(failed != 0);
	}
	SHOW(read(there[0], (char[1]){0}, 1));
	int status = 0, moves = 0, failed = 0;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		failed += rename("a/b", "other/b") != 0 || rename("other/b", "a/b") != 0;
		moves++;
	}
	SHOW(status);
	SHOW(failed);
	SHOW(moves > 0);
	SHOW(chdir("a/b/c"));
	SHOW(rename("../../../a", "../../../moved"));
	char path[4096];
	SHOW(getcwd(path, sizeof path) != NULL);
	SHOW(strcmp(path + strlen(path) - 9, "moved/b/c"));
	int missing = 0;
	for (int number = 0; number < FILES; number++) {
		char name[20];
		struct stat stat_;
		snprintf(name, sizeof name, "%d", number);
		missing += stat(name, &stat_) != 0 || stat_.st_size != 1;
	}
	SHOW(missing);
}

static int cancelled = -1;
static int begun;

static void clean_up(void *unused)
{
	(void)unused;
	close(cancelled);
	unlink("busy");
}

static void *write_for_ever(void *unused)
{
	cancelled = open("busy", O_CREAT | O_RDWR, 0644);
	pthread_cleanup_push(clean_up, unused);
	for (;;) {
		char text[100] = "";
		if (pwrite(cancelled, text, sizeof text, 0) != sizeof text)
			break;
		if (pread(cancelled, text, sizeof text, 0) != sizeof text)
			break;
		__atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
	}
	pthread_cleanup_pop(1);
	return NULL;
}

CHECK(a_thread_that_is_cancelled_between_calls_on_files_cleans_up)
{
	int failed = 0;
	for (int round = 0; round < 50; round++) {
		pthread_t thread;
		void *result = NULL;
		begun = 0;
		failed += pthread_create(&thread, NULL, write_for_ever, NULL) != 0;
		while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
			sched_yield();
		failed += pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0;
		failed += result != PTHREAD_CANCELED || fcntl(cancelled, F_GETFD) != -1;
	}
	SHOW(failed);
	show_names(".");
}

static int stop, wrong;

static void *use_files(void *number)
{
	char name[20], text[64], back[64];
	snprintf(name, sizeof name, "thread%ld", (long)number);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
		memset(text, 'a' + (int)(long)number, sizeof text);
		int good = write(fd, text, sizeof text) == sizeof text &&
			   pread(fd, back, sizeof back, 0) == sizeof back &&
			   memcmp(text, back, sizeof text) == 0 && close(fd) == 0;
		if (!good)
			__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

enum { USERS = 4 };

/* Starts threads that use files until they are told to stop; how many could not be started. */
static int begin_using(pthread_t *threads)
{
	int failed = 0;
	stop = wrong = 0;
	for (long number = 0; number < USERS; number++)
		failed += pthread_create(&threads[number], NULL, use_files, (void *)number) != 0;
	return failed;
}

static void end_using(pthread_t *threads)
{
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int number = 0; number < USERS; number++)
		pthread_join(threads[number], NULL);
}

/* Waits for a child, also beside signals; does it say that something is wrong? */
static int ends_badly(pid_t pid)
{
	int status = 1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid < 0 || status != 0;
}

CHECK(a_program_with_threads_forks_while_they_use_files)
{
	enum { CHILDREN = 40 };
	pthread_t threads[USERS];
	int shared = make_file("shared", ""), failed = begin_using(threads);
	for (int child = 0; child < CHILDREN; child++) {
		pid_t pid = fork();
		if (pid == 0) {
			char name[20];
			snprintf(name, sizeof name, "child%d", child);
			int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0644);
			_exit(fd < 0 || write(fd, name, 5) != 5 || write(shared, "x", 1) != 1 ||
			      rename(name, "last") != 0);
		}
		failed += ends_badly(pid);
	}
	end_using(threads);
	SHOW(failed);
	SHOW(wrong);
	show_file("shared");
	show_names(".");
}

/* In a child: is each number that the kernel knows one that can be used? */
static int numbers_agree(void)
{
	for (int number = 3; number < 20; number++)
		if (fcntl(number, F_GETFD) >= 0 && lseek(number, 0, SEEK_CUR) < 0 && errno == EBADF)
			return 0;
	return 1;
}

/* The kernel copies descriptors and memory one after the other, and other threads go on meanwhile:
 * a child that took a file of theirs for its own could not run a program, or ended it for them. */
CHECK(children_of_a_program_with_threads_run_programs_while_these_use_files)
{
	enum { CHILDREN = 300 };
	pthread_t threads[USERS];
	int failed = begin_using(threads);
	for (int child = 0; child < CHILDREN; child++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (child % 2 == 0 && !numbers_agree())
				_exit(1);
			execl("/bin/true", "true", NULL);
			_exit(2);
		}
		failed += ends_badly(pid);
	}
	end_using(threads);
	SHOW(failed);
	SHOW(wrong);
	show_names(".");
}

static volatile int handled;

static void look_at_a_file(int unused)
{
	(void)unused;
	char byte;
	int error = errno, fd = open("looked at", O_RDONLY);
	if (read(fd, &byte, 1) != 1 || close(fd) != 0)
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
	handled++;
	errno = error;
}

static void *disturb(void *main_thread)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		int before = handled;
		pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
		/* Where files are slow the thread would do nothing else. */
		do
			usleep(20);
		while (handled == before && !__atomic_load_n(&stop, __ATOMIC_ACQUIRE));
	}
	return NULL;
}

/* A signal lets vfork begin once more. The handler's calls took it for over, and then what the
 * child did to its descriptors was done to those of its parent. */
CHECK(a_handler_that_uses_files_as_a_vfork_begins_leaves_the_childs_descriptors_its_own)
{
	enum { CHILDREN = 300 };
	char bytes[4];
	pthread_t disturber, self = pthread_self();
	struct sigaction action = {.sa_handler = look_at_a_file, .sa_flags = SA_RESTART};
	close(make_file("looked at", "text"));
	int fd = make_file("held", "held"), failed = 0;
	stop = wrong = 0;
	SHOW(sigaction(SIGUSR1, &action, NULL));
	SHOW(pthread_create(&disturber, NULL, disturb, &self));
	for (int child = 0; child < CHILDREN; child++) {
		pid_t pid = vfork();
		if (pid == 0) {
			if (dup2(fd, 0) != 0 || close(fd) != 0)
				_exit(1);
			execl("/bin/true", "true", NULL);
			_exit(2);
		}
		failed += ends_badly(pid) || pread(fd, bytes, 4, 0) != 4 ||
			  memcmp(bytes, "held", 4) != 0;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(disturber, NULL);
	SHOW(failed);
	SHOW(wrong);
	SHOW(handled > 0);
	SHOW(pread(fd, bytes, 4, 0));
}
