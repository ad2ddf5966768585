/* Processes that wait for each other's locks. */
#include "locking.h"

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

/* Names of files of which some are surely not at home together. */
static char first[16], second[16];
static int open_first(void) { return open(first, O_RDWR); }
static int open_second(void) { return open(second, O_RDWR); }

static void name_pair(int number)
{
	snprintf(first, sizeof first, "first%d", number);
	snprintf(second, sizeof second, "second%d", number);
}

static void holder_of_second(void)
{
	int fd = open_second(), other = open_first();
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
	word(to_parent[1]);
	hear(to_child[0]);
	/* The parent waits for the second file by now. */
	pause_ms(150);
	SHOW(set(other, F_SETLKW, F_WRLCK, 0, 1));
}

CHECK(processes_that_wait_for_each_other_over_files_are_told)
{
	for (int number = 0; number < 5; number++) {
		name_pair(number);
		int fd = make_file(first, "text"), other = make_file(second, "text");
		SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
		pid_t pid = start(holder_of_second);
		hear(to_parent[0]);
		word(to_child[1]);
		SHOW(set(other, F_SETLKW, F_WRLCK, 0, 1));
		reap(pid);
	}
}

/* Each of four locks a file and waits for that of the next one; it says how its wait ended. */
static int of_four;

static void one_of_four(void)
{
	int fds[4];
	for (int number = 0; number < 4; number++) {
		name_pair(number);
		fds[number] = open_first();
	}
	set(fds[of_four], F_SETLK, F_WRLCK, 0, 0);
	word(to_parent[1]);
	hear(to_child[0]);
	int result = set(fds[(of_four + 1) % 4], F_SETLKW, F_WRLCK, 0, 1);
	_exit(result == 0 ? 0 : errno);
}

CHECK(one_of_four_processes_in_a_circle_is_told_and_the_others_go_on)
{
	pid_t pids[4];
	int words[4], told = 0, served = 0;
	for (int number = 0; number < 4; number++) {
		name_pair(number);
		make_file(first, "text");
	}
	for (of_four = 0; of_four < 4; of_four++) {
		pids[of_four] = start(one_of_four);
		words[of_four] = to_child[1];
		hear(to_parent[0]);
	}
	for (int number = 0; number < 4; number++)
		word(words[number]);
	for (int number = 0; number < 4; number++) {
		int status;
		waitpid(pids[number], &status, 0);
		told += WIFEXITED(status) && WEXITSTATUS(status) == EDEADLK;
		served += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	say("told %d, served %d", told, served);
}

static void wait_until_alarm(int fd, int command)
{
	struct sigaction action = {.sa_handler = on_alarm};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval timer = {.it_value = {0, 200000}};
	setitimer(ITIMER_REAL, &timer, NULL);
	SHOW(set(fd, command, F_WRLCK, 0, 1));
}

static void wait_for_first_and_let_go(void)
{
	int fd = open_second(), other = open_first();
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
	wait_until_alarm(other, F_SETLKW);
	word(to_parent[1]);
	hear(to_child[0]);
	/* The parent waits for the second file by now. */
	pause_ms(200);
	say("child gives it");
	set(fd, F_SETLK, F_UNLCK, 0, 0);
}

CHECK(a_wait_that_a_signal_ended_is_part_of_no_circle)
{
	for (int number = 0; number < 3; number++) {
		name_pair(number);
		int fd = make_file(first, "text"), other = make_file(second, "text");
		SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
		pid_t pid = start(wait_for_first_and_let_go);
		hear(to_parent[0]);
		word(to_child[1]);
		SHOW(set(other, F_SETLKW, F_WRLCK, 0, 1));
		reap(pid);
	}
}

static void wait_as_a_description(void)
{
	int fd = open_second(), other = open_first();
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
	word(to_parent[1]);
	SHOW(set(other, F_OFD_SETLKW, F_WRLCK, 0, 1));
}

CHECK(descriptions_that_wait_for_locks_are_part_of_no_circle)
{
	for (int number = 0; number < 3; number++) {
		name_pair(number);
		int fd = make_file(first, "text"), other = make_file(second, "text");
		SHOW(set(fd, F_SETLK, F_WRLCK, 0, 0));
		pid_t pid = start(wait_as_a_description);
		hear(to_parent[0]);
		pause_ms(150);
		wait_until_alarm(other, F_SETLKW);
		set(fd, F_SETLK, F_UNLCK, 0, 0);
		reap(pid);
	}
}

static void read_and_want_to_write(void)
{
	int fd = open("file", O_RDWR);
	SHOW(set(fd, F_SETLK, F_RDLCK, 0, 10));
	word(to_parent[1]);
	hear(to_child[0]);
	/* The parent waits to become a writer. */
	pause_ms(150);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 0, 10));
}

CHECK(two_readers_that_both_want_to_write_are_told)
{
	int fd = make_file("file", "text");
	SHOW(set(fd, F_SETLK, F_RDLCK, 0, 10));
	pid_t pid = start(read_and_want_to_write);
	hear(to_parent[0]);
	word(to_child[1]);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 0, 10));
	reap(pid);
}
