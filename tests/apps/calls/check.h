/* Checks of single calls: each runs in a directory of its own and prints what the calls returned.
 *
 * A check of `same` kind prints the same natively and in a mount. One of `refused` kind runs in a
 * mount only and states what it expects. Numbers of inodes, times that nobody set and whatever
 * else a file system chooses freely are not printed. */
#pragma once
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

struct check {
	const char *name;
	void (*run)(void);
};

#define CHECK(name_)                                                                              \
	static void run_##name_(void);                                                            \
	static const struct check entry_##name_                                                   \
		__attribute__((used, section("checks"), aligned(8))) = {#name_, run_##name_};     \
	static void run_##name_(void)

/* Evaluates, prints the text of the expression with its value or error, and gives the value. */
#define SHOW(expression)                                                                          \
	({                                                                                        \
		errno = 0;                                                                        \
		long value_ = (long)(expression);                                                 \
		show(#expression, value_);                                                        \
	})

/* States that the expression fails with this error, or has this value. */
#define REFUSED(error_, expression)                                                               \
	({                                                                                        \
		errno = 0;                                                                        \
		long value_ = (long)(expression);                                                 \
		refused(#expression, value_, error_);                                             \
	})
#define IS(expected_, expression)                                                                 \
	({                                                                                        \
		errno = 0;                                                                        \
		long value_ = (long)(expression);                                                 \
		is(#expression, value_, expected_);                                               \
	})

extern const char *self;

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
long show(const char *text, long value);
long refused(const char *text, long value, int error);
long is(const char *text, long value, long expected);

/* Mode, links and size of a file, or the error. */
void show_stat(const char *path);
void show_fstat(int fd);
/* The whole content of a file: its length and a digest, and the text when it is short. */
void show_file(const char *path);
/* What a read of so many bytes gives. */
void show_read(int fd, size_t count);
void show_bytes(const char *what, const void *bytes, long count);
/* Names in a directory, sorted. */
void show_names(const char *path);
int make_file(const char *path, const char *content);
/* Makes a file of so many bytes, each another one than its neighbours. */
void make_large(const char *path, size_t bytes);
void reap(pid_t pid);
pid_t spawn_self(char *const arguments[]);
void copy_program(const char *from, const char *to);
void pause_ms(int ms);
