/*
 * Makes system calls by instructions of its own, as programs do that are built on a library without
 * libc, in the directory of its argument. With LINKED some are made by a library that it needs,
 * which is this file with LIBRARY.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static __attribute__((noinline)) long own_call(long number, long a, long b, long c, long d)
{
	register long r10 asm("r10") = d;
	long result;
	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
		     : "rcx", "r11", "memory");
	return result;
}

#ifdef LIBRARY

long library_call(long number, long a, long b, long c, long d)
{
	return own_call(number, a, b, c, d);
}

#else

#ifdef LINKED
long library_call(long number, long a, long b, long c, long d);
#else
#define library_call own_call
#endif

/* A compiler may keep flags over a system call, which the kernel leaves as they are. */
static int flags_are_kept(long number, long one, long other)
{
	long result = number;
	unsigned char equal;
	asm volatile("cmp %[one], %[other]\n\tsyscall\n\tsete %[equal]"
		     : "+a"(result), [equal] "=r"(equal)
		     : [one] "r"(one), [other] "r"(other)
		     : "rcx", "r11", "memory");
	return equal && result > 0;
}

#define IS(what, found)                                                                        \
	do {                                                                                   \
		long is = (long)(found);                                                       \
		if (is != (what)) {                                                            \
			printf("line %d: %s is %ld\n", __LINE__, #found, is);                  \
			return 1;                                                              \
		}                                                                              \
	} while (0)

int main(int count, char **arguments)
{
	char text[4096];
	if (count < 2)
		return 2;
	IS(0, library_call(SYS_chdir, (long)arguments[1], 0, 0, 0));
	IS(1, library_call(SYS_getcwd, (long)text, sizeof text, 0, 0) > 1);
	IS(0, strcmp(text, arguments[1]));
	IS(0, own_call(SYS_mkdirat, AT_FDCWD, (long)"dir", 0755, 0));
	long fd = own_call(SYS_openat, AT_FDCWD, (long)"dir/file", O_CREAT | O_RDWR, 0644);
	IS(1, fd > 2);
	IS(5, own_call(SYS_write, fd, (long)"hello", 5, 0));
	IS(5, library_call(SYS_pread64, fd, (long)text, 10, 0));
	IS(0, memcmp(text, "hello", 5));
	/* The C library's calls and these mean the same descriptor. */
	IS(2, lseek(fd, 2, SEEK_SET));
	IS(3, own_call(SYS_read, fd, (long)text, 10, 0));
	IS(0, memcmp(text, "llo", 3));
	IS(-2, own_call(SYS_openat, AT_FDCWD, (long)"missing", O_RDONLY, 0));
	IS(-14, own_call(SYS_openat, AT_FDCWD, 8, O_RDONLY, 0));
	IS(0, own_call(SYS_renameat, AT_FDCWD, (long)"dir/file", AT_FDCWD, (long)"dir/named"));
	IS(1, flags_are_kept(SYS_getpid, 7, 7));
	IS(0, flags_are_kept(SYS_getpid, 7, 8));
	long child = fork();
	if (child == 0)
		_exit(own_call(SYS_write, fd, (long)"child", 5, 0) == 5 ? 0 : 1);
	int status;
	IS(child, own_call(SYS_wait4, child, (long)&status, 0, 0));
	IS(0, status);
	IS(10, own_call(SYS_lseek, fd, 0, SEEK_END, 0));
	IS(0, own_call(SYS_close, fd, 0, 0, 0));
	IS(-9, own_call(SYS_close, fd, 0, 0, 0));
	FILE *file = fopen("dir/named", "r");
	IS(1, file != NULL);
	IS(1, fgets(text, sizeof text, file) != NULL);
	IS(0, strcmp(text, "hellochild"));
	fclose(file);
	IS(0, own_call(SYS_unlinkat, AT_FDCWD, (long)"dir/named", 0, 0));
	IS(0, own_call(SYS_unlinkat, AT_FDCWD, (long)"dir", AT_REMOVEDIR, 0));
	puts("all right");
	return 0;
}

#endif
