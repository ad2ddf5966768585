/* Threads of several processes that use descriptors in every way at once, and start children, while
 * a handler uses files too. Each thread has files of its own, whose bytes it knows, and looks
 * whether they are there by whatever descriptor it, or a child, has of them.
 *
 * threads STEPS THREADS PROCESSES prints what is wrong; last, steps and faults of this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES_MAX = 8000, THREADS_MAX = 64, NAMES = 5 };

extern char **environ;
static long wrong, done;
static int steps;

/* States a claim; false when it does not hold. */
#define HOLDS(claim)                                                                              \
	((claim) || (__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED),                             \
		     fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #claim,      \
			     strerror(errno)),                                                    \
		     0))

/* A file that one thread has open, and what is in it. */
struct held {
	int fd;
	size_t length;
	unsigned seed;
	unsigned random;
	char path[64];
};

static void fill(const struct held *held, char *bytes)
{
	for (size_t at = 0; at < held->length; at++)
		bytes[at] = 'a' + (held->seed + at * 7) % 26;
}

static int has_its_bytes(const struct held *held, int fd)
{
	char wanted[BYTES_MAX], there[BYTES_MAX];
	fill(held, wanted);
	return pread(fd, there, held->length, 0) == (ssize_t)held->length &&
	       memcmp(there, wanted, held->length) == 0;
}

static int ended_well(pid_t pid)
{
	int status = 1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && status == 0;
}

static void another_number(struct held *held)
{
	int other = dup(held->fd);
	HOLDS(other >= 0 && close(held->fd) == 0);
	held->fd = other;
	HOLDS(has_its_bytes(held, other));
}

static void onto_another_file(struct held *held)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	HOLDS(dup3(held->fd, null, O_CLOEXEC) == null && has_its_bytes(held, null));
	HOLDS(close(null) == 0);
}

static void under_another_file(struct held *held)
{
	char byte;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	HOLDS(dup2(null, held->fd) == held->fd && read(held->fd, &byte, 1) == 0);
	close(null), close(held->fd);
	held->fd = open(held->path, O_RDWR);
	HOLDS(held->fd >= 0 && has_its_bytes(held, held->fd));
}

static pid_t spawn_cat(int in, int out)
{
	pid_t pid = -1;
	char *arguments[] = {"cat", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	HOLDS((errno = posix_spawn(&pid, "/bin/cat", &actions, NULL, arguments, environ)) == 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static void become_cat(int in, int out)
{
	char *arguments[] = {"cat", NULL};
	if (dup2(in, 0) == 0 && dup2(out, 1) == 1)
		execv("/bin/cat", arguments);
	_exit(1);
}

static pid_t start_cat(int way, int in, int out)
{
	pid_t pid;
	if (way == 0)
		return spawn_cat(in, out);
	if (way == 1) {
		pid = fork();
		if (pid == 0)
			become_cat(in, out);
	} else {
		pid = vfork();
		if (pid == 0)
			become_cat(in, out);
	}
	return pid;
}

/* A program reads it, from where the descriptor stands, and moves it. */
static void by_a_program(struct held *held)
{
	int ends[2];
	size_t used = 0;
	char wanted[BYTES_MAX], came[BYTES_MAX + 1];
	fill(held, wanted);
	if (!HOLDS(pipe2(ends, O_CLOEXEC) == 0 && lseek(held->fd, 0, SEEK_SET) == 0))
		return;
	pid_t pid = start_cat(rand_r(&held->random) % 3, held->fd, ends[1]);
	close(ends[1]);
	for (;;) {
		ssize_t more = read(ends[0], came + used, sizeof came - used);
		if (more < 0 && errno == EINTR)
			continue;
		if (more <= 0)
			break;
		used += more;
	}
	close(ends[0]);
	HOLDS(ended_well(pid));
	HOLDS(used == held->length && memcmp(came, wanted, used) == 0);
	HOLDS(lseek(held->fd, 0, SEEK_CUR) == (off_t)held->length);
}

/* A child reads it, has files of its own, and closes what it inherited. */
static void by_a_child(struct held *held)
{
	pid_t pid = fork();
	if (pid == 0) {
		char name[80];
		snprintf(name, sizeof name, "%s.child", held->path);
		int own = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
		int good = own >= 0 && write(own, "child", 5) == 5 && close(own) == 0 &&
			   unlink(name) == 0 && has_its_bytes(held, held->fd);
		int other = dup(held->fd);
		_exit(!(good && close(held->fd) == 0 && has_its_bytes(held, other)));
	}
	HOLDS(ended_well(pid));
	HOLDS(has_its_bytes(held, held->fd));
}

union control {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static int send_descriptor(int socket, int fd)
{
	struct iovec piece = {"x", 1};
	union control control = {.head = {.cmsg_len = CMSG_LEN(sizeof fd),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
				 .msg_controllen = sizeof control};
	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(socket, &message, 0) == 1;
}

static int receive_descriptor(int socket)
{
	char byte;
	int fd = -1;
	struct iovec piece = {&byte, 1};
	union control control;
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control,
				 .msg_controllen = sizeof control};
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void through_a_socket(struct held *held)
{
	int ends[2], came = -1;
	if (!HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0))
		return;
	HOLDS(send_descriptor(ends[0], held->fd) && (came = receive_descriptor(ends[1])) >= 0);
	close(ends[0]), close(ends[1]);
	HOLDS(has_its_bytes(held, came) && close(held->fd) == 0 && has_its_bytes(held, came));
	held->fd = came;
}

static void without_a_name(struct held *held)
{
	char other[80];
	snprintf(other, sizeof other, "%s.moved", held->path);
	HOLDS(rename(held->path, other) == 0 && has_its_bytes(held, held->fd));
	int by_name = open(other, O_RDONLY);
	HOLDS(has_its_bytes(held, by_name) && close(by_name) == 0);
	HOLDS(unlink(other) == 0 && has_its_bytes(held, held->fd));
}

static void cut_and_longer(struct held *held)
{
	char tail[4];
	struct stat stat;
	int end = open(held->path, O_WRONLY | O_APPEND | O_CLOEXEC);
	HOLDS(end >= 0 && write(end, "tail", 4) == 4 && close(end) == 0);
	HOLDS(pread(held->fd, tail, 4, held->length) == 4 && memcmp(tail, "tail", 4) == 0);
	HOLDS(ftruncate(held->fd, held->length / 2) == 0 && fstat(held->fd, &stat) == 0);
	HOLDS(stat.st_size == (off_t)(held->length / 2));
}

static void (*const WAYS[])(struct held *) = {
	another_number, onto_another_file, under_another_file, by_a_program,   by_a_program,
	by_a_child,	through_a_socket,  without_a_name,     cut_and_longer,
};

static void *use_files(void *number)
{
	char bytes[BYTES_MAX];
	struct held held = {.random = (long)number * 7919 + getpid()};
	for (int step = 0; step < steps; step++) {
		int closes = rand_r(&held.random) % 2 ? O_CLOEXEC : 0;
		held.seed = rand_r(&held.random);
		held.length = 1 + held.seed % (step % 4 == 0 ? BYTES_MAX - 1 : 200);
		snprintf(held.path, sizeof held.path, "%d-%ld-%d", getpid(), (long)number,
			 step % NAMES);
		held.fd = open(held.path, O_RDWR | O_CREAT | O_TRUNC | closes, 0644);
		fill(&held, bytes);
		if (HOLDS(write(held.fd, bytes, held.length) == (ssize_t)held.length))
			WAYS[rand_r(&held.random) % (sizeof WAYS / sizeof *WAYS)](&held);
		HOLDS(close(held.fd) == 0);
		__atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void look_at_a_file(int unused)
{
	(void)unused;
	char byte;
	int error = errno, fd = open("looked at", O_RDONLY | O_CLOEXEC);
	HOLDS(read(fd, &byte, 1) == 1 && byte == 'x' && close(fd) == 0);
	errno = error;
}

/* A signal to this process so often. */
static void disturb(int micros)
{
	struct sigaction action = {.sa_handler = look_at_a_file, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, micros}, {0, micros}};
	HOLDS(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS_MAX];
	if (count != 4)
		return 2;
	steps = atoi(arguments[1]);
	int wanted = atoi(arguments[2]), processes = atoi(arguments[3]), status = 0;
	int looked_at = open("looked at", O_CREAT | O_WRONLY, 0644);
	HOLDS(wanted <= THREADS_MAX && write(looked_at, "x", 1) == 1 && close(looked_at) == 0);
	for (int process = 1; process < processes; process++)
		if (fork() == 0)
			processes = 0;
	disturb(1000);
	for (long number = 0; number < wanted; number++)
		HOLDS(pthread_create(&threads[number], NULL, use_files, (void *)number) == 0);
	for (int number = 0; number < wanted; number++)
		pthread_join(threads[number], NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	while (processes && (wait(&status) > 0 || errno == EINTR))
		HOLDS(status == 0);
	if (processes)
		printf("%ld steps, %ld wrong\n", done, wrong);
	return wrong != 0;
}
