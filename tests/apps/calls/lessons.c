/* What other interposing libraries got wrong, each once. */
#include "check.h"
#include <dlfcn.h>
#include <linux/sched.h>

/* Numbers that a child without usable descriptors leaves for its parent. */
static int *shared_numbers(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

CHECK(a_program_without_standard_descriptors_gets_the_lowest_numbers)
{
	close(make_file("file", "0123456789"));
	int *numbers = shared_numbers();
	pid_t pid = fork();
	if (pid == 0) {
		for (int fd = 0; fd < 1024; fd++)
			close(fd);
		char bytes[4];
		for (int at = 0; at < 4; at++)
			numbers[at] = open("file", O_RDWR);
		numbers[4] = pread(2, bytes, 4, 3) == 4 && memcmp(bytes, "3456", 4) == 0;
		numbers[5] = close(1), numbers[6] = dup(3);
		numbers[7] = write(1, "ab", 2);
		_exit(0);
	}
	reap(pid);
	for (int at = 0; at < 8; at++)
		say("%d: %d", at, numbers[at]);
	show_file("file");
	/* The same in a program that is started without any. */
	for (int after = 0; after < 4; after++) {
		pid = fork();
		if (pid == 0) {
			for (int fd = 2; fd >= after; fd--)
				close(fd);
			execv(self, (char *[]){"calls", "--lowest", "file", NULL});
			_exit(98);
		}
		reap(pid);
	}
}

CHECK(flags_of_dup3_and_marks_for_exec_are_kept)
{
	int fd = make_file("file", "text");
	SHOW(dup3(fd, 20, 0)), SHOW(fcntl(20, F_GETFD));
	SHOW(dup3(fd, 20, O_CLOEXEC)), SHOW(fcntl(20, F_GETFD));
	SHOW(dup3(fd, 20, 0)), SHOW(fcntl(20, F_GETFD));
	SHOW(dup3(fd, 21, O_NONBLOCK)), SHOW(dup3(fd, 21, O_CLOEXEC | O_APPEND));
	SHOW(dup3(fd, fd, O_CLOEXEC)), SHOW(dup3(fd, -1, 0)), SHOW(dup3(-1, 21, 0));
	SHOW(dup3(fd, 1 << 28, 0)), SHOW(fcntl(21, F_GETFD));
	SHOW(dup3(fd, 22, 0)), SHOW(ioctl(22, FIOCLEX));
	SHOW(dup3(fd, 23, O_CLOEXEC)), SHOW(ioctl(23, FIONCLEX));
	SHOW(fcntl(fd, F_SETFD, FD_CLOEXEC));
	reap(spawn_self((char *[]){"calls", "--fds", NULL}));
}

CHECK(times_may_be_null_in_every_call)
{
	int fd = make_file("file", "text");
	struct timespec before, old[2] = {{5, 0}, {6, 0}};
	/* The clock of files: the fine one is up to a tick ahead of it, and may be in the next second. */
	clock_gettime(CLOCK_REALTIME_COARSE, &before);
	struct stat got;
	for (int way = 0; way < 7; way++) {
		SHOW(futimens(fd, old));
		if (way == 0)
			SHOW(utimensat(AT_FDCWD, "file", NULL, 0));
		if (way == 1)
			SHOW(futimens(fd, NULL));
		if (way == 2)
			SHOW(utimes("file", NULL));
		if (way == 3)
			SHOW(utime("file", NULL));
		if (way == 4)
			SHOW(syscall(SYS_futimesat, AT_FDCWD, "file", NULL));
		if (way == 5)
			SHOW(syscall(SYS_utimensat, fd, NULL, NULL, 0));
		if (way == 6)
			SHOW(syscall(SYS_utime, "file", NULL));
		SHOW(fstat(fd, &got));
		say("now %d %d", got.st_atime >= before.tv_sec, got.st_mtime >= before.tv_sec);
	}
	SHOW(utimensat(AT_FDCWD, NULL, NULL, 0));
	SHOW(syscall(SYS_futimesat, fd, NULL, NULL));
}

/* A file that threads read while others replace or close its descriptor. */
struct race {
	_Atomic int stop, fd;
	/* The number always stands for the file. */
	int always;
	_Atomic long wrong;
};

static void *read_on(void *argument)
{
	struct race *race = argument;
	char bytes[64], wanted[64];
	memset(wanted, 'a', sizeof wanted);
	while (!race->stop) {
		int fd = race->fd;
		ssize_t count = pread(fd, bytes, sizeof bytes, 4096);
		if (count == -1 ? race->always || errno != EBADF
				: count != (ssize_t)sizeof bytes ||
					  memcmp(bytes, wanted, sizeof bytes) != 0)
			race->wrong++;
		struct stat got;
		if (race->always && (fstat(fd, &got) != 0 || got.st_size != 8192))
			race->wrong++;
	}
	return NULL;
}

static void replace(struct race *race, int round)
{
	/* A number that a reader has may be that of a new file by the time it reads. */
	const char *path = race->always && round % 2 == 0 ? "/proc/self/fd/0" : "file";
	int old = race->fd, fresh = open(path, O_RDONLY);
	if (race->always) {
		/* Over itself, over another open file, and over one of the kernel's. */
		int copy = open("file", O_RDONLY);
		dup2(copy, old), dup2(copy, fresh), close(copy), close(fresh);
	} else {
		close(fresh);
		race->fd = open("file", O_RDONLY);
		close(old);
	}
}

CHECK(a_file_replaced_or_closed_by_one_thread_is_whole_for_those_inside_it)
{
	static struct race race;
	static char content[8192];
	memset(content, 'a', sizeof content);
	SHOW(write(make_file("file", ""), content, sizeof content));
	for (race.always = 1; race.always >= 0; race.always--) {
		race.fd = open("file", O_RDONLY);
		race.stop = 0;
		pthread_t threads[4];
		for (int at = 0; at < 4; at++)
			pthread_create(&threads[at], NULL, read_on, &race);
		for (int round = 0; round < 3000; round++)
			replace(&race, round);
		race.stop = 1;
		for (int at = 0; at < 4; at++)
			pthread_join(threads[at], NULL);
		say("wrong: %ld", race.wrong);
	}
}

CHECK(a_vfork_child_that_closes_everything_leaves_its_parent_everything)
{
	int fd = make_file("file", "0123456789"), other = dup(fd), dir = open(".", O_RDONLY);
	pid_t pid = vfork();
	if (pid == 0) {
		for (int number = 3; number < 64; number++)
			close(number);
		_exit(pread(fd, (char[1]){0}, 1, 0) == -1 && errno == EBADF ? 0 : 1);
	}
	reap(pid);
	pid = vfork();
	if (pid == 0) {
		close_range(3, ~0U, 0);
		_exit(open("file", O_RDONLY) == 3 ? 0 : 1);
	}
	reap(pid);
	SHOW(lseek(fd, 4, SEEK_SET));
	show_read(other, 3);
	SHOW(faccessat(dir, "file", F_OK, 0));
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	extern char **environ;
	SHOW(posix_spawn(&pid, self, &actions, NULL, (char *[]){"calls", "--fds", NULL}, environ));
	reap(pid);
	posix_spawn_file_actions_destroy(&actions);
	show_read(fd, 10);
}

static int inside = -1;
static volatile sig_atomic_t handled, handler_wrong;
enum { HANDLED = 300 };

static void use_files(int signal)
{
	(void)signal;
	int saved = errno;
	char bytes[6] = "";
	int fd = open("other", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || pwrite(fd, "inside", 6, handled * 6) != 6 ||
	    pread(fd, bytes, 6, handled * 6) != 6 || memcmp(bytes, "inside", 6) != 0 ||
	    close(fd) != 0 || pread(inside, bytes, 1, 0) != 1)
		handler_wrong++;
	/* Where the handler takes longer than the time between two signals nothing else runs. */
	if (++handled == HANDLED)
		setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	errno = saved;
}

CHECK(a_signal_handler_uses_files_while_a_call_on_them_is_interrupted)
{
	static char block[3000], back[3000];
	/* The handler reads a byte, and may run before anything is written below. */
	inside = make_file("file", "0");
	struct sigaction action = {.sa_handler = use_files, .sa_flags = SA_RESTART}, old;
	SHOW(sigaction(SIGALRM, &action, &old));
	struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
	SHOW(setitimer(ITIMER_REAL, &often, NULL));
	long wrong = 0, rounds = 0;
	for (; handled < HANDLED && rounds < 1000000; rounds++) {
		memset(block, 1 + rounds % 250, sizeof block);
		if (pwrite(inside, block, sizeof block, rounds % 7 * 3000) != sizeof block ||
		    pread(inside, back, sizeof back, rounds % 7 * 3000) != sizeof back ||
		    memcmp(block, back, sizeof back) != 0)
			wrong++;
		char name[20];
		snprintf(name, sizeof name, "name%ld", rounds % 5);
		int fd = open(name, O_CREAT | O_RDWR, 0600);
		if (fd < 0 || close(fd) != 0 || (rounds % 3 == 0 && unlink(name) != 0))
			wrong++;
	}
	SHOW(setitimer(ITIMER_REAL, &never, NULL));
	SHOW(sigaction(SIGALRM, &old, NULL));
	/* The watchdog of all checks. */
	alarm(60);
	say("handled %d, wrong %ld, in the handler %d", handled >= HANDLED, wrong, handler_wrong);
}

CHECK(checked_forms_of_calls_are_served)
{
	close(make_file("file", "0123456789"));
	SHOW(symlink("file", "link"));
	int dir = open(".", O_RDONLY);
	int (*open_2)(const char *, int) = dlsym(RTLD_DEFAULT, "__open_2");
	int (*open64_2)(const char *, int) = dlsym(RTLD_DEFAULT, "__open64_2");
	int (*openat_2)(int, const char *, int) = dlsym(RTLD_DEFAULT, "__openat_2");
	int (*openat64_2)(int, const char *, int) = dlsym(RTLD_DEFAULT, "__openat64_2");
	ssize_t (*read_chk)(int, void *, size_t, size_t) = dlsym(RTLD_DEFAULT, "__read_chk");
	ssize_t (*pread_chk)(int, void *, size_t, off_t, size_t) =
		dlsym(RTLD_DEFAULT, "__pread_chk");
	ssize_t (*readlink_chk)(const char *, char *, size_t, size_t) =
		dlsym(RTLD_DEFAULT, "__readlink_chk");
	char *(*getcwd_chk)(char *, size_t, size_t) = dlsym(RTLD_DEFAULT, "__getcwd_chk");
	char *(*realpath_chk)(const char *, char *, size_t) =
		dlsym(RTLD_DEFAULT, "__realpath_chk");
	int fds[] = {open_2("file", O_RDONLY), open64_2("file", O_RDONLY),
		     openat_2(dir, "file", O_RDWR), openat64_2(dir, "link", O_RDONLY)};
	char bytes[4096];
	for (int at = 0; at < 4; at++) {
		SHOW(read_chk(fds[at], bytes, 4, sizeof bytes));
		show_bytes("read", bytes, 4);
		SHOW(pread_chk(fds[at], bytes, 4, 5, sizeof bytes));
		show_bytes("pread", bytes, 4);
	}
	SHOW(readlink_chk("link", bytes, 100, sizeof bytes));
	SHOW(getcwd_chk(bytes, sizeof bytes, sizeof bytes) == bytes), say("%s", bytes);
	SHOW(realpath_chk("link", bytes, sizeof bytes) == bytes), say("%s", bytes);
}

CHECK(a_child_of_clone3_shares_what_a_child_of_fork_does)
{
	int fd = make_file("file", "0123456789"), pidfd = -1;
	SHOW(lseek(fd, 2, SEEK_SET));
	struct clone_args arguments = {.exit_signal = SIGCHLD, .flags = CLONE_PIDFD,
				       .pidfd = (uintptr_t)&pidfd};
	for (int round = 0; round < 2; round++) {
		pid_t pid = syscall(SYS_clone3, &arguments, sizeof arguments);
		if (pid == 0) {
			show_read(fd, 3);
			SHOW(mkdir(round ? "two" : "one", 0755));
			SHOW(chdir(round ? "two" : "one"));
			_exit(open("new", O_CREAT | O_RDWR, 0600) > 0 ? 0 : 1);
		}
		reap(pid);
		SHOW(lseek(fd, 0, SEEK_CUR));
		SHOW(fcntl(pidfd, F_GETFD)), SHOW(close(pidfd));
		arguments.flags |= CLONE_CLEAR_SIGHAND;
	}
	show_names("."), show_names("two");
	SHOW(syscall(SYS_clone3, &arguments, 8));
	SHOW(syscall(SYS_clone3, NULL, sizeof arguments));
}
