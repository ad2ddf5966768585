/* flock, POSIX locks and locks of open file descriptions, between processes. */
#include "check.h"

static int set(int fd, int command, int type, long start, long length)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = length};
	return fcntl(fd, command, &lock);
}

static void show_holder(int fd, int command, long start, long length)
{
	struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = length};
	if (fcntl(fd, command, &lock) != 0)
		say("get: %s", strerrorname_np(errno));
	else if (lock.l_type == F_UNLCK)
		say("free");
	else
		say("held %d from %ld for %ld by %d", lock.l_type, (long)lock.l_start,
		    (long)lock.l_len, lock.l_pid == -1 ? -1 : lock.l_pid == getppid());
}

/* A child that runs `body` between its start and its end; `go()` waits for the parent's word. */
static int to_child[2], to_parent[2];
static void word(int fd) { if (write(fd, "x", 1) != 1) _exit(97); }
static void hear(int fd) { if (read(fd, (char[1]){0}, 1) != 1) _exit(96); }

static pid_t start(void (*body)(void))
{
	if (pipe(to_child) != 0 || pipe(to_parent) != 0)
		say("pipe");
	pid_t pid = fork();
	if (pid == 0) {
		body();
		_exit(0);
	}
	return pid;
}

static void look_at_posix(void)
{
	int fd = open("file", O_RDWR);
	show_holder(fd, F_GETLK, 0, 0);
	show_holder(fd, F_GETLK, 15, 5);
	show_holder(fd, F_GETLK, 500, 5);
	SHOW(set(fd, F_SETLK, F_WRLCK, 12, 1));
	SHOW(set(fd, F_SETLK, F_RDLCK, 105, 1));
	SHOW(set(fd, F_SETLK, F_WRLCK, 300, 10));
	word(to_parent[1]);
	hear(to_child[0]);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 12, 1));
	say("child has it");
}

CHECK(posix_locks_exclude_report_and_wait)
{
	int fd = make_file("file", "0123456789");
	SHOW(set(fd, F_SETLK, F_WRLCK, 10, 10));
	SHOW(set(fd, F_SETLK, F_RDLCK, 100, 10));
	SHOW(set(fd, F_SETLK, F_WRLCK, 14, 2));
	SHOW(set(fd, F_SETLK, F_UNLCK, 18, 1));
	pid_t pid = start(look_at_posix);
	hear(to_parent[0]);
	show_holder(fd, F_GETLK, 300, 1);
	word(to_child[1]);
	pause_ms(150);
	say("parent gives it");
	set(fd, F_SETLK, F_UNLCK, 0, 0);
	reap(pid);
	show_holder(fd, F_GETLK, 0, 0);
	SHOW(set(open("file", O_RDONLY), F_SETLK, F_WRLCK, 0, 1));
	SHOW(set(fd, F_SETLK, 77, 0, 1));
	SHOW(set(fd, F_SETLK, F_WRLCK, -5, 1));
	SHOW(set(900, F_SETLK, F_WRLCK, 0, 1));
}

static void try_posix(void)
{
	int fd = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	word(to_parent[1]);
	hear(to_child[0]);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
}

CHECK(closing_any_descriptor_of_the_file_frees_posix_locks)
{
	int fd = make_file("file", "text"), other = open("file", O_RDONLY);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
	pid_t pid = start(try_posix);
	hear(to_parent[0]);
	SHOW(close(other));
	word(to_child[1]);
	reap(pid);
}

static void look_at_ofd(void)
{
	int fd = open("file", O_RDWR);
	show_holder(fd, F_OFD_GETLK, 0, 0);
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 0, 1));
	word(to_parent[1]);
	SHOW(set(fd, F_OFD_SETLKW, F_WRLCK, 0, 1));
	say("child has it");
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
}

CHECK(locks_of_descriptions_are_shared_by_fork_and_freed_by_the_last_close)
{
	int fd = make_file("file", "text"), other = open("file", O_RDWR);
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
	SHOW(set(other, F_OFD_SETLK, F_WRLCK, 0, 10));
	SHOW(set(dup(fd), F_OFD_SETLK, F_WRLCK, 0, 10));
	SHOW(close(other));
	int ready[2];
	SHOW(pipe(ready));
	pid_t holder = fork();
	if (holder == 0) {
		SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
		word(ready[1]);
		pause_ms(300);
		_exit(0);
	}
	hear(ready[0]);
	pid_t pid = start(look_at_ofd);
	hear(to_parent[0]);
	/* The child and the copy still hold the description; then only the child. */
	SHOW(close(fd));
	SHOW(close(fd + 2));
	reap(holder);
	/* The waiting child inherited the description too: its own copies keep the lock. */
	kill(pid, SIGKILL);
	reap(pid);
	fd = open("file", O_RDWR);
	SHOW(set(fd, F_OFD_SETLKW, F_WRLCK, 0, 0));
}

static void look_at_flock(void)
{
	int fd = open("file", O_RDONLY);
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(fd, LOCK_SH | LOCK_NB));
	word(to_parent[1]);
	hear(to_child[0]);
	SHOW(flock(fd, LOCK_EX));
	say("child has it");
}

CHECK(flock_excludes_shares_and_waits)
{
	int fd = make_file("file", "text"), other = open("file", O_RDONLY);
	SHOW(flock(fd, LOCK_SH));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	SHOW(flock(other, LOCK_UN));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	/* POSIX locks are another matter. */
	SHOW(set(other, F_SETLK, F_RDLCK, 0, 0));
	pid_t pid = start(look_at_flock);
	hear(to_parent[0]);
	word(to_child[1]);
	pause_ms(150);
	say("parent gives it");
	flock(dup(fd), LOCK_UN);
	reap(pid);
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(fd, 0));
	SHOW(flock(900, LOCK_SH));
	int dir = open(".", O_RDONLY);
	SHOW(flock(dir, LOCK_EX | LOCK_NB));
}

static void on_alarm(int signal) { (void)signal; }

static void wait_with_alarm(void)
{
	int fd = open("file", O_RDWR);
	struct sigaction action = {.sa_handler = on_alarm};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval timer = {.it_value = {0, 80000}};
	setitimer(ITIMER_REAL, &timer, NULL);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 0, 1));
	setitimer(ITIMER_REAL, &timer, NULL);
	SHOW(flock(fd, LOCK_EX));
	setitimer(ITIMER_REAL, &timer, NULL);
	SHOW(set(fd, F_OFD_SETLKW, F_WRLCK, 20, 1));
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	word(to_parent[1]);
	SHOW(flock(fd, LOCK_EX));
}

CHECK(a_signal_interrupts_a_wait_for_a_lock)
{
	int fd = make_file("file", "text"), other = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	SHOW(flock(fd, LOCK_EX));
	SHOW(set(other, F_OFD_SETLK, F_WRLCK, 20, 1));
	pid_t pid = start(wait_with_alarm);
	hear(to_parent[0]);
	pause_ms(250);
	say("parent gives it");
	flock(fd, LOCK_UN);
	reap(pid);
}

static void hold_and_exit(void)
{
	int fd = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 10, 1));
	SHOW(flock(fd, LOCK_EX));
}

static void hold_and_sleep(void)
{
	hold_and_exit();
	word(to_parent[1]);
	pause();
}

CHECK(locks_are_free_when_their_process_has_ended)
{
	int fd = make_file("file", "text");
	reap(start(hold_and_exit));
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 10, 1));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(set(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
	SHOW(set(fd, F_SETLK, F_UNLCK, 0, 0));
	SHOW(flock(fd, LOCK_UN));
}

CHECK(locks_are_free_when_their_process_was_killed)
{
	int fd = make_file("file", "text");
	pid_t pid = start(hold_and_sleep);
	hear(to_parent[0]);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	kill(pid, SIGKILL);
	reap(pid);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 10, 1));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
}

static void second_of_two(void)
{
	int fd = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_WRLCK, 1, 1));
	word(to_parent[1]);
	hear(to_child[0]);
	/* The parent waits for byte 1 by now. */
	pause_ms(150);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 0, 1));
}

CHECK(two_processes_that_wait_for_each_other_are_told)
{
	int fd = make_file("file", "text");
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 1));
	pid_t pid = start(second_of_two);
	hear(to_parent[0]);
	word(to_child[1]);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 1, 1));
	reap(pid);
}

CHECK(with_locks_off_every_lock_is_enolck)
{
	int fd = make_file("file", "text");
	REFUSED(ENOLCK, flock(fd, LOCK_EX));
	REFUSED(ENOLCK, set(fd, F_SETLK, F_WRLCK, 0, 1));
	REFUSED(ENOLCK, set(fd, F_SETLKW, F_WRLCK, 0, 1));
	REFUSED(ENOLCK, set(fd, F_OFD_SETLK, F_WRLCK, 0, 1));
}
