/* What checks of locks have in common. */
#pragma once
#include "check.h"

static inline int set(int fd, int command, int type, long start, long length)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = length};
	return fcntl(fd, command, &lock);
}

/* A child that runs `body` between its start and its end; `go()` waits for the parent's word. */
static int to_child[2], to_parent[2];
static inline void word(int fd) { if (write(fd, "x", 1) != 1) _exit(97); }
static inline void hear(int fd) { if (read(fd, (char[1]){0}, 1) != 1) _exit(96); }

static inline pid_t start(void (*body)(void))
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

static inline void on_alarm(int signal) { (void)signal; }
