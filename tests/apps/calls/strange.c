/* Calls that few programs make of files: what an instance answers to them. */
#include "check.h"
#include <sys/resource.h>

CHECK(an_owner_for_signals_is_accepted)
{
	int fd = make_file("file", "text");
	SHOW(fcntl(fd, F_SETOWN, getpid()));
	IS(1, fcntl(fd, F_GETOWN) >= 0);
	IS(0, fcntl(fd, F_SETFL, O_ASYNC));
}

CHECK(unknown_fcntl_commands_are_refused)
{
	int fd = make_file("file", "text");
	REFUSED(EINVAL, fcntl(fd, F_NOTIFY, 1));
	REFUSED(EINVAL, fcntl(fd, F_ADD_SEALS, 1));
	REFUSED(EINVAL, fcntl(fd, F_GET_SEALS));
	REFUSED(EINVAL, fcntl(fd, 4321, 0));
}

CHECK(calls_that_make_no_sense_on_files_are_refused)
{
	int fd = make_file("file", "text"), dir = open(".", O_RDONLY), ends[2];
	struct iovec part = {"abc", 3};
	IS(0, pipe(ends));
	REFUSED(EBADF, syscall(SYS_vmsplice, fd, &part, 1, 0));
	REFUSED(EINVAL, tee(fd, ends[1], 4, 0));
	IS(-1, syscall(SYS_finit_module, fd, "", 0));
	IS(-1, syscall(SYS_quotactl_fd, fd, 0x800002, 0, (char[512]){0}));
	IS(-1, syscall(SYS_fanotify_mark, fd, 1, 1UL, dir, "file"));
	REFUSED(EPERM, syscall(SYS_open_tree, AT_FDCWD, "file", 0));
	REFUSED(EPERM, syscall(SYS_open_tree, dir, "", AT_EMPTY_PATH));
	REFUSED(EPERM, syscall(SYS_move_mount, AT_FDCWD, "file", AT_FDCWD, ".", 0));
	REFUSED(EPERM, syscall(SYS_fspick, AT_FDCWD, "file", 0));
	REFUSED(EPERM, syscall(SYS_pivot_root, ".", "."));
	REFUSED(EPERM, syscall(SYS_swapoff, "file"));
	show_file("file");
}

CHECK(io_uring_is_not_to_be_had)
{
	REFUSED(ENOSYS, syscall(SYS_io_uring_setup, 4, (char[256]){0}));
}

CHECK(an_open_file_whose_first_name_is_gone_has_a_made_up_one_in_procfs)
{
	int fd = make_file("file", "text");
	char name[40], path[4096] = "";
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	IS(0, link("file", "other"));
	IS(0, unlink("file"));
	IS(1, readlink(name, path, sizeof path - 1) > 0);
	IS(1, strstr(path, "/mount/.file-") != NULL);
	REFUSED(ENOENT, open(path, O_RDONLY));
}

CHECK(select_takes_high_descriptors)
{
	struct rlimit limit;
	IS(0, getrlimit(RLIMIT_NOFILE, &limit));
	int fd = make_file("file", "text"), high = fcntl(fd, F_DUPFD, 900);
	fd_set in;
	FD_ZERO(&in);
	FD_SET(high, &in);
	IS(1, select(high + 1, &in, NULL, NULL, &(struct timeval){1, 0}));
	IS(1, FD_ISSET(high, &in) != 0);
}

CHECK(bad_pointers_are_efault)
{
	char *bad = (char *)-4096;
	int fd = make_file("file", "text");
	SHOW(open(bad, O_RDONLY));
	SHOW(rename("file", bad));
	SHOW(pread(fd, bad, 1, 0));
	SHOW(pwrite(fd, bad, 1, 0));
	SHOW(readlink("/proc/self/cwd", bad, 100));
	SHOW(syscall(SYS_getcwd, bad, 100));
	SHOW(fcntl(fd, F_SETLK, bad));
	SHOW(syscall(SYS_getdents64, open(".", O_RDONLY), bad, 1000));
	SHOW(statfs(".", (struct statfs *)bad));
	SHOW(syscall(SYS_utimensat, AT_FDCWD, "file", bad, 0));
	show_file("file");
}

static int close_it(void *fd)
{
	return close((int)(intptr_t)fd) == 0 && open("made", O_CREAT | O_RDWR, 0600) >= 0 ? 0 : 1;
}

CHECK(a_clone_that_shares_descriptors_closes_them_for_both)
{
	int fd = make_file("file", "text");
	static char stack[1 << 18];
	pid_t pid = clone(close_it, stack + sizeof stack, SIGCHLD | CLONE_FILES,
			  (void *)(intptr_t)fd);
	reap(pid);
	/* Its own new file is at the same number, and is not ours: relaxed, but never the old one. */
	char byte = 0;
	IS(1, pread(fd, &byte, 1, 0) <= 0);
	show_names(".");
}

CHECK(unshare_in_one_thread_keeps_working)
{
	int fd = make_file("file", "text");
	SHOW(unshare(CLONE_FILES));
	SHOW(unshare(CLONE_FS));
	show_file("file");
	SHOW(close(fd));
	SHOW(mkdir("dir", 0755));
	SHOW(chdir("dir"));
	SHOW(access("../file", F_OK));
}

CHECK(a_program_with_an_empty_environment_is_served)
{
	close(make_file("file", "text"));
	copy_program(self, "program");
	SHOW(mkdir("dir", 0755));
	for (int inside = 0; inside < 2; inside++) {
		pid_t pid = fork();
		if (pid == 0) {
			char *words[] = {"calls", "--where", NULL}, *none[] = {NULL};
			execve(inside ? "program" : self, words, none);
			_exit(9);
		}
		reap(pid);
	}
}

CHECK(a_static_program_in_the_mount_runs_without_the_instance)
{
	const char *alone = getenv("CALLS_STATIC");
	copy_program(alone, "static");
	pid_t pid = fork();
	if (pid == 0) {
		execv("./static", (char *[]){"static", NULL});
		say("WRONG exec: %s", strerrorname_np(errno));
		_exit(9);
	}
	int status = -1;
	IS(pid, waitpid(pid, &status, 0));
	IS(0, status);
}

/* Writes from and reads to memory that is not there, into files of each size: in the record, in an
   object, none yet. */
static void transfer(void *bad, int size)
{
	char name[64], *zeros = calloc(1, 1 << 20);
	static int number;
	struct iovec half[2] = {{"good", 4}, {bad, 8}}, all[1] = {{bad, 8}};
	int fds[14];
	for (int i = 0; i < 14; i++) {
		snprintf(name, sizeof name, "file-%d", number++);
		fds[i] = open(name, O_CREAT | O_RDWR | (i == 2 ? O_APPEND : 0), 0600);
		if (write(fds[i], zeros, size) != size || lseek(fds[i], 0, SEEK_SET) != 0)
			say("not written");
	}
	SHOW(write(fds[0], bad, 8));
	SHOW(write(fds[1], bad, 100000));
	SHOW(write(fds[2], bad, 8));
	SHOW(pwrite(fds[3], bad, 2 << 20, 0));
	SHOW(pwrite(fds[4], bad, 8, 1 << 20));
	SHOW(writev(fds[5], half, 2));
	SHOW(writev(fds[6], all, 1));
	SHOW(pwritev(fds[7], half, 2, 0));
	SHOW(pwritev2(fds[8], half, 2, -1, 0));
	SHOW(writev(fds[9], bad, 2));
	SHOW(fstat(fds[10], bad));
	SHOW(getcwd(bad, 100));
	if (size > 0) {
		SHOW(read(fds[11], bad, 8));
		SHOW(preadv(fds[12], all, 1, 0));
		SHOW(preadv2(fds[13], all, 1, 0, 0));
	}
	/* Memory that ends in the middle of what is written. */
	char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(edge + 4096, 4096, PROT_NONE);
	SHOW(write(fds[0], edge + 4092, 8) == -1 ? errno == EFAULT : 1);
	for (int i = 0; i < 14; i++)
		close(fds[i]);
	free(zeros);
}

static volatile int handled;

static void handle(int signal)
{
	(void)signal;
	if (++handled > 3)
		_exit(99);
}

static void with_signals(void (*set)(void))
{
	void *bad = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int size = 0; size <= 100000; size = size == 0 ? 100 : size * 1000) {
		pid_t pid = fork();
		if (pid == 0) {
			set();
			transfer(bad, size);
			transfer((void *)16, size);
			SHOW(handled);
			_exit(0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		SHOW(status);
	}
	munmap(bad, 4 << 20);
}

static void leave(void)
{
}

static void install(void)
{
	signal(SIGSEGV, handle);
	signal(SIGBUS, handle);
}

static void ignore(void)
{
	signal(SIGSEGV, SIG_IGN);
	signal(SIGBUS, SIG_IGN);
}

static void block(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
}

CHECK(memory_that_is_not_there_is_efault)
{
	with_signals(leave);
}

CHECK(memory_that_is_not_there_is_efault_with_handlers)
{
	with_signals(install);
}

CHECK(memory_that_is_not_there_is_efault_when_its_signals_are_ignored)
{
	with_signals(ignore);
}

CHECK(memory_that_is_not_there_is_efault_when_its_signals_are_blocked)
{
	with_signals(block);
}

/* What the program says of its signals is what it said, also to those that it executes. */
CHECK(faults_that_are_ignored_stay_so_over_exec)
{
	struct sigaction now;
	ignore();
	SHOW(sigaction(SIGSEGV, NULL, &now));
	SHOW(now.sa_handler == SIG_IGN);
	SHOW(kill(getpid(), SIGSEGV));
	SHOW(raise(SIGBUS));
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "kill -SEGV $$; kill -BUS $$; exit 7", NULL);
		_exit(1);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	SHOW(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	SHOW(execl("nothing", "nothing", NULL));
	SHOW(kill(getpid(), SIGSEGV));
	/* One of its own is the end all the same. */
	pid = fork();
	if (pid == 0) {
		*(volatile char *)16 = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	SHOW(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	signal(SIGSEGV, SIG_DFL);
	SHOW(sigaction(SIGSEGV, NULL, &now));
	SHOW(now.sa_handler == SIG_DFL);
	pid = fork();
	if (pid == 0) {
		kill(getpid(), SIGSEGV);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	SHOW(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* As a server that begins as root and goes on as somebody else. */
CHECK(a_process_that_changes_its_user_goes_on)
{
	if (geteuid() != 0)
		return;
	make_large("large", 500000);
	close(make_file("small", "text"));
	SHOW(chmod("large", 0666));
	SHOW(chmod("small", 0666));
	SHOW(chmod(".", 0777));
	int held = open("large", O_RDWR), secret = make_file("secret", "text");
	SHOW(setgid(12345));
	SHOW(setuid(12345));
	char byte = 0;
	SHOW(pread(held, &byte, 1, 400000));
	SHOW(byte);
	SHOW(pwrite(held, "X", 1, 400001));
	SHOW(write(secret, "still", 5));
	show_file("small");
	show_file("large");
	make_large("own", 300000);
	show_file("own");
	struct stat now;
	SHOW(stat("own", &now));
	SHOW(now.st_uid);
	char *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, held, 4096);
	if (!SHOW(map == MAP_FAILED))
		show_bytes("mapped", map, 8);
	SHOW(mkdir("dir", 0755));
	SHOW(chdir("dir"));
	close(make_file("inside", "text"));
	show_names(".");
	SHOW(rename("inside", "../outside"));
	SHOW(chdir(".."));
	SHOW(unlink("small"));
	show_names(".");
}

CHECK(a_child_of_a_process_that_has_changed_its_user_is_refused)
{
	if (geteuid() != 0)
		return;
	close(make_file("file", "text"));
	IS(0, chmod(".", 0777));
	IS(0, setuid(12345));
	IS(0, access("file", F_OK));
	int seen[2];
	IS(0, pipe(seen));
	pid_t pid = fork();
	IS(1, pid >= 0);
	if (pid == 0) {
		int got = open("file", O_RDONLY) == -1 ? errno : 0;
		_exit(write(seen[1], &got, sizeof got) != sizeof got);
	}
	reap(pid);
	int got = 0;
	IS(sizeof got, read(seen[0], &got, sizeof got));
	IS(EACCES, got);
	IS(0, access("file", F_OK));
}
