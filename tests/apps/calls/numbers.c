/* Numbers of descriptors: they are the kernel's, whatever is opened and closed in between. */
#include "check.h"
#include <sys/eventfd.h>
#include <sys/resource.h>

/* Numbers that a walk is about: above them nothing stays open. */
enum { FIRST = 3, NUMBERS = 12, STEPS = 1500, WALKS = 3 };

static unsigned long long state;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % below;
}

static int any(void)
{
	return FIRST + (int)draw(NUMBERS);
}

/* Says what came of it; a number above those of the walk is closed again. */
static void came(const char *what, int on, int number)
{
	if (number < 0)
		say("%s %d: %s", what, on, strerrorname_np(errno));
	else
		say("%s %d: %d", what, on, number);
	if (number >= FIRST + NUMBERS)
		close(number);
}

static void list_numbers(void)
{
	DIR *stream = opendir("/proc/self/fd");
	int open[64] = {0}, own = stream ? dirfd(stream) : -1;
	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (atoi(entry->d_name) < 64 && entry->d_name[0] != '.')
			open[atoi(entry->d_name)] = 1;
	if (stream)
		closedir(stream);
	for (int number = 0; number < 64; number++)
		if (open[number])
			say("listed%s: %d", number == own ? " by" : "", number);
}

static void open_with_few(void)
{
	struct rlimit before, few;
	getrlimit(RLIMIT_NOFILE, &before);
	few = before, few.rlim_cur = (rlim_t)any();
	setrlimit(RLIMIT_NOFILE, &few);
	int number = open("file", O_RDONLY), error = errno;
	setrlimit(RLIMIT_NOFILE, &before);
	errno = error;
	came("open with few", (int)few.rlim_cur, number);
}

static void open_two(const char *what, int made, const int ends[2])
{
	came(what, 0, made == 0 ? ends[0] : -1);
	if (made == 0)
		came(what, 1, ends[1]);
}

static void wait_for(int on)
{
	struct pollfd one = {.fd = on, .events = POLLIN | POLLOUT};
	say("poll %d: %d %d", on, poll(&one, 1, 0), one.revents);
}

static void step_on_files(int at, int on)
{
	char name[32];
	snprintf(name, sizeof name, "new-%d", at);
	switch (draw(8)) {
	case 0: came("open", on, open("file", O_RDONLY)); return;
	case 1: came("open for exec", on, open("file", O_RDONLY | O_CLOEXEC)); return;
	case 2: came("make for exec", on, open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); return;
	case 3: came("open directory", on, open(".", O_RDONLY | O_DIRECTORY)); return;
	default: came("make", on, open(name, O_CREAT | O_WRONLY, 0600)); return;
	}
}

static void step_on_the_kernels(int on)
{
	int ends[2];
	struct stat attributes;
	int type;
	switch (draw(22)) {
	case 0: came("null", on, open("/dev/null", O_RDWR)); return;
	case 1: came("dup", on, dup(on)); return;
	case 2: came("dup2 to 7 of", on, dup2(on, 7)); return;
	case 3: came("from 5 on", on, fcntl(on, F_DUPFD, 5)); return;
	case 4: came("mark", on, fcntl(on, F_SETFD, FD_CLOEXEC)); return;
	case 5: came("ask", on, fcntl(on, F_GETFD)); return;
	case 6: came("fstat", on, fstat(on, &attributes)); return;
	case 7: open_two("pipe", pipe(ends), ends); return;
	case 8: open_two("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends), ends); return;
	case 9: came("event", on, eventfd(0, 0)); return;
	case 10: came("seek", on, (int)lseek(on, 0, SEEK_CUR)); return;
	case 11: came("write", on, (int)write(on, "x", 1)); return;
	case 12: wait_for(on); return;
	case 13: list_numbers(); return;
	case 14: open_with_few(); return;
	case 15: came("memory", on, memfd_create("memory", 0)); return;
	/* What is wrong with a file depends (docs/reference/semantics.md). */
	case 16: say("%d", getsockopt(on, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){4})); return;
	case 17: came("mark by ioctl", on, ioctl(on, FIOCLEX)); return;
	case 18: came("range", on, close_range(on, on, 0)); return;
	case 19: came("wait set", on, epoll_create1(0)); return;
	case 20: came("elsewhere", on, access("/proc/self/fd/5", F_OK)); return;
	default: came("link", on, readlink("/proc/self/fd/4", (char[9]){0}, 8) < 0 ? -1 : 0); return;
	}
}

static void step_on_children(void)
{
	pid_t pid;
	switch (draw(3)) {
	case 0:
		pid = fork();
		if (pid == 0) {
			for (int number = FIRST; number < FIRST + NUMBERS; number++)
				came("in child", number, fcntl(number, F_GETFD));
			came("in child", 0, open("file", O_RDONLY));
			_exit(0);
		}
		break;
	case 1:
		pid = spawn_self((char *[]){"calls", "--fds", NULL});
		break;
	default:
		posix_spawn(&pid, self, NULL, NULL, (char *[]){"calls", "--fds", NULL}, environ);
	}
	reap(pid);
}

static void walk(unsigned long long seed)
{
	state = seed;
	for (int at = 0; at < STEPS; at++) {
		int on = any();
		unsigned kind = draw(100);
		if (kind < 35)
			step_on_files(at, on);
		else if (kind < 75)
			came("close", on, close(on));
		else if (kind < 99)
			step_on_the_kernels(on);
		else
			step_on_children();
	}
	close_range(FIRST, ~0u, 0);
}

CHECK(numbers_are_the_kernels_whatever_is_opened_and_closed_between)
{
	signal(SIGPIPE, SIG_IGN);
	close(make_file("file", "text"));
	for (unsigned long long seed = 1; seed <= WALKS; seed++)
		walk(seed);
}

#define HANDLED 5000

static volatile sig_atomic_t handled;

static void open_and_close(int signal)
{
	(void)signal;
	int error = errno;
	close(open("file", O_RDONLY));
	/* Where an open takes longer than the timer, those that it interrupts never end before. */
	if (++handled == HANDLED)
		setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	errno = error;
}

CHECK(a_handler_that_opens_and_closes_leaves_the_numbers_as_they_were)
{
	close(make_file("file", "text"));
	struct sigaction action = {.sa_handler = open_and_close, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 70}, {0, 70}}, NULL);
	int wrong = 0, ends[2];
	while (handled < HANDLED) {
		int file = open("file", O_RDONLY);
		wrong += pipe(ends) != 0 || file != 3 || ends[0] != 4 || ends[1] != 5;
		close(file), close(ends[0]);
		wrong += open("file", O_RDONLY) != 3 || dup(1) != 4;
		close(4), close(3), close(ends[1]);
		wrong += fcntl(3, F_GETFD) >= 0 || fcntl(4, F_GETFD) >= 0 || fcntl(5, F_GETFD) >= 0;
	}
	say("wrong: %d", wrong);
}

static void *opens(void *wrong)
{
	for (int at = 0; at < 20000; at++) {
		int fd = open("file", O_RDONLY);
		char byte = 0;
		if (read(fd, &byte, 1) != 1 || byte != 't' || close(fd) != 0)
			__atomic_fetch_add((int *)wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

CHECK(threads_that_open_and_close_never_share_a_number)
{
	close(make_file("file", "text"));
	pthread_t threads[3];
	int wrong = 0, ends[2];
	/* One is kept when the threads begin. */
	close(open("file", O_RDONLY));
	for (int at = 0; at < 3; at++)
		pthread_create(&threads[at], NULL, opens, &wrong);
	for (int at = 0; at < 5000; at++)
		if (pipe(ends) != 0 || write(ends[1], "p", 1) != 1 || close(ends[0]) + close(ends[1]) != 0)
			wrong++;
	for (int at = 0; at < 3; at++)
		pthread_join(threads[at], NULL);
	say("wrong: %d", wrong);
	SHOW(open("file", O_RDONLY));
}
