/* flock, POSIX locks and locks of open file descriptions, between processes. */
#include "locking.h"

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
	SHOW((fd = open("file", O_RDWR)) >= 0);
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

static void read_and_upgrade(void)
{
	int fd = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_RDLCK, 0, 10));
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 10));
	word(to_parent[1]);
	hear(to_child[0]);
	pause_ms(150);
	SHOW(set(fd, F_SETLK, F_UNLCK, 0, 5));
	say("child gives it");
	set(fd, F_SETLK, F_UNLCK, 5, 5);
	hear(to_child[0]);
	SHOW(set(fd, F_SETLK, F_RDLCK, 0, 10));
	word(to_parent[1]);
	SHOW(set(fd, F_SETLKW, F_RDLCK, 0, 10));
	say("child reads beside it");
}

CHECK(locks_are_upgraded_and_downgraded)
{
	int fd = make_file("file", "text");
	SHOW(set(fd, F_SETLK, F_RDLCK, 0, 10));
	pid_t pid = start(read_and_upgrade);
	hear(to_parent[0]);
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 10));
	word(to_child[1]);
	int result = set(fd, F_SETLKW, F_WRLCK, 0, 10);
	say("parent writes: %d", result);
	word(to_child[1]);
	hear(to_parent[0]);
	pause_ms(150);
	say("parent reads again");
	set(fd, F_SETLK, F_RDLCK, 0, 10);
	reap(pid);
	int other = open("file", O_RDWR);
	SHOW(flock(fd, LOCK_SH));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	SHOW(flock(fd, LOCK_SH | LOCK_NB));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_UN));
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
}

/* Kinds of locks, for what is the same with all of them. */
enum { POSIX, DESCRIPTION, FLOCK, KINDS };

static int take(int kind, int fd, int wait)
{
	if (kind == FLOCK)
		return flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
	int command = kind == POSIX ? F_SETLK : F_OFD_SETLK;
	int waiting = kind == POSIX ? F_SETLKW : F_OFD_SETLKW;
	return set(fd, wait ? waiting : command, F_WRLCK, 0, 10);
}

static int give(int kind, int fd)
{
	if (kind == FLOCK)
		return flock(fd, LOCK_UN);
	return set(fd, kind == POSIX ? F_SETLK : F_OFD_SETLK, F_UNLCK, 0, 10);
}

static int kind_of_all, turn, in_turn;

/* Waits for a lock; its number is written where all find it when it has it. */
static void wait_for_a_turn(void)
{
	int fd = open("file", O_RDWR);
	word(to_parent[1]);
	if (take(kind_of_all, fd, 1) != 0)
		_exit(95);
	char number = '0' + turn;
	if (write(in_turn, &number, 1) != 1)
		_exit(94);
	give(kind_of_all, fd);
}

CHECK(locks_are_given_in_the_order_in_which_they_were_asked_for)
{
	for (kind_of_all = 0; kind_of_all < KINDS; kind_of_all++) {
		int fd = make_file("file", "text"), turns[2];
		IS(0, pipe(turns));
		in_turn = turns[1];
		IS(0, take(kind_of_all, fd, 0));
		pid_t pids[4];
		for (turn = 0; turn < 4; turn++) {
			pids[turn] = start(wait_for_a_turn);
			hear(to_parent[0]);
			pause_ms(100);
		}
		IS(0, give(kind_of_all, fd));
		for (int number = 0; number < 4; number++)
			reap(pids[number]);
		char order[5] = "";
		IS(4, read(turns[0], order, 4));
		IS(0, strcmp(order, "0123"));
		close(fd);
	}
}

static void hold_two_descriptors(void)
{
	int fd = open("file", O_RDWR), copy = dup(fd);
	if (take(kind_of_all, fd, 0) != 0)
		_exit(95);
	word(to_parent[1]);
	hear(to_child[0]);
	close(copy);
	word(to_parent[1]);
	hear(to_child[0]);
	close(fd);
	word(to_parent[1]);
	pause();
}

static void wait_and_say(void)
{
	int fd = open("file", O_RDWR);
	word(to_parent[1]);
	int result = take(kind_of_all, fd, 1);
	_exit(result == 0 ? 0 : 93);
}

static void show_end(pid_t pid, int patience_ms)
{
	int status;
	for (int passed = 0; passed < patience_ms; passed += 10) {
		if (waitpid(pid, &status, WNOHANG) == pid) {
			say("ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
			return;
		}
		pause_ms(10);
	}
	say("waits");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

CHECK(locks_go_with_descriptors_and_processes_in_any_order)
{
	for (kind_of_all = 0; kind_of_all < KINDS; kind_of_all++) {
		close(make_file("file", "text"));
		for (int closed = 0; closed < 3; closed++) {
			pid_t holder = start(hold_two_descriptors);
			int said = to_parent[0], tell = to_child[1];
			hear(said);
			for (int number = 0; number < closed; number++) {
				word(tell);
				hear(said);
			}
			/* Is it still held, and is it free when the holder was killed? */
			int fd = open("file", O_RDWR);
			say("kind %d, %d closed", kind_of_all, closed);
			SHOW(take(kind_of_all, fd, 0));
			close(fd);
			pid_t first = start(wait_and_say);
			hear(to_parent[0]);
			pid_t killed = start(wait_and_say);
			hear(to_parent[0]);
			pause_ms(50);
			kill(killed, SIGKILL);
			waitpid(killed, NULL, 0);
			kill(holder, SIGKILL);
			waitpid(holder, NULL, 0);
			show_end(first, 20000);
			fd = open("file", O_RDWR);
			SHOW(take(kind_of_all, fd, 0));
			close(fd);
		}
	}
}

CHECK(with_locks_off_every_lock_is_enolck)
{
	int fd = make_file("file", "text");
	REFUSED(ENOLCK, flock(fd, LOCK_EX));
	REFUSED(ENOLCK, set(fd, F_SETLK, F_WRLCK, 0, 1));
	REFUSED(ENOLCK, set(fd, F_SETLKW, F_WRLCK, 0, 1));
	REFUSED(ENOLCK, set(fd, F_OFD_SETLK, F_WRLCK, 0, 1));
}

CHECK(a_lock_of_no_type_is_einval)
{
	int fd = make_file("file", "text");
	for (short type = -2; type < 6; type++) {
		struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
		say("type %d", type);
		SHOW(fcntl(fd, F_SETLK, &lock));
		lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
		SHOW(fcntl(fd, F_GETLK, &lock));
		lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
		SHOW(fcntl(fd, F_OFD_SETLK, &lock));
		lock = (struct flock){.l_type = F_UNLCK, .l_whence = SEEK_SET};
		fcntl(fd, F_SETLK, &lock);
		fcntl(fd, F_OFD_SETLK, &lock);
	}
	for (short whence = -1; whence < 5; whence++) {
		struct flock lock = {.l_type = F_WRLCK, .l_whence = whence, .l_len = 1};
		say("whence %d", whence);
		SHOW(fcntl(fd, F_SETLK, &lock));
	}
	struct flock before = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = -1, .l_len = 1};
	SHOW(fcntl(fd, F_SETLK, &before));
	before = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = -4};
	SHOW(fcntl(fd, F_SETLK, &before));
	before = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX, .l_len = 2};
	SHOW(fcntl(fd, F_SETLK, &before));
}
