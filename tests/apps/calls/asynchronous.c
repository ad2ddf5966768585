/* io_submit, io_getevents: requests on files of either side, and what becomes of them. */
#include "check.h"
#include <linux/aio_abi.h>
#include <linux/kcmp.h>
#include <sys/eventfd.h>

enum { REQUESTS = 8 };

static aio_context_t context;
static struct iocb requests[REQUESTS];

static struct iocb *request(int at, int fd, int opcode, const void *buffer, size_t bytes,
			    long long offset)
{
	requests[at] = (struct iocb){.aio_data = 100 + at, .aio_fildes = fd,
				     .aio_lio_opcode = opcode,
				     .aio_buf = (uintptr_t)buffer, .aio_nbytes = bytes,
				     .aio_offset = offset};
	return &requests[at];
}

/* Events in the order of their requests, which the kernel does not promise. */
static void show_events(long least)
{
	struct io_event events[REQUESTS];
	long count = syscall(SYS_io_getevents, context, least, REQUESTS, events,
			     &(struct timespec){5, 0});
	say("%ld events", count);
	for (int at = 0; at < REQUESTS; at++)
		for (long event = 0; event < count; event++)
			if (events[event].obj == (uintptr_t)&requests[at])
				say("request %d: data %lld result %lld", at,
				    (long long)events[event].data, (long long)events[event].res);
}

static long submit(int count, ...)
{
	struct iocb *list[REQUESTS];
	va_list arguments;
	va_start(arguments, count);
	for (int at = 0; at < count; at++)
		list[at] = va_arg(arguments, struct iocb *);
	va_end(arguments);
	return syscall(SYS_io_submit, context, count, list);
}

CHECK(asynchronous_requests_are_carried_out)
{
	static char large[300000], back[300000];
	for (size_t at = 0; at < sizeof large; at++)
		large[at] = at * 7 + at / 1000;
	int fd = make_file("file", "0123456789");
	char one[20] = "", two[20] = "";
	int other = memfd_create("outside", MFD_CLOEXEC);
	SHOW(other >= 0);
	SHOW(syscall(SYS_io_setup, REQUESTS, &context));
	SHOW(submit(2, request(0, fd, IOCB_CMD_PWRITE, "abc", 3, 2),
		    request(1, fd, IOCB_CMD_PWRITE, large, sizeof large, 100)));
	show_events(2);
	show_file("file");
	SHOW(submit(1, request(0, fd, IOCB_CMD_FSYNC, NULL, 0, 0)));
	show_events(1);
	/* On both sides in one call; behind the end; vectors. */
	struct iovec parts[] = {{one, 4}, {two, 3}};
	SHOW(submit(5, request(0, other, IOCB_CMD_PWRITE, "outside", 7, 0),
		    request(1, fd, IOCB_CMD_PREAD, back, sizeof back, 100),
		    request(2, fd, IOCB_CMD_PREADV, parts, 2, 1),
		    request(3, fd, IOCB_CMD_PREAD, back, 10, 1 << 30),
		    request(4, fd, IOCB_CMD_PWRITEV, (struct iovec[]){{"x", 1}, {"yz", 2}}, 2,
			    400000)));
	show_events(5);
	show_bytes("one", one, 4), show_bytes("two", two, 3);
	say("the same %d", memcmp(large, back, sizeof large) == 0);
	SHOW(pread(other, one, 7, 0)), show_bytes("outside", one, 7);
	show_fstat(fd);
	/* What was submitted is as it was. */
	say("request %d %d %lld", requests[4].aio_fildes == (unsigned)fd,
	    requests[4].aio_lio_opcode, (long long)requests[4].aio_offset);
	/* Counted by an eventfd as well. */
	int counter = eventfd(0, EFD_NONBLOCK);
	request(0, fd, IOCB_CMD_PREAD, back, 4, 0), request(1, fd, IOCB_CMD_FDSYNC, NULL, 0, 0);
	requests[0].aio_flags = requests[1].aio_flags = IOCB_FLAG_RESFD;
	requests[0].aio_resfd = requests[1].aio_resfd = counter;
	SHOW(submit(2, &requests[0], &requests[1]));
	show_events(2);
	uint64_t counted = 0;
	SHOW(read(counter, &counted, sizeof counted)), say("%lu", counted);
	SHOW(syscall(SYS_io_destroy, context));
	SHOW(submit(1, request(0, fd, IOCB_CMD_PWRITE, "lost", 4, 0)));
	show_read(fd, 4);
}

CHECK(asynchronous_requests_are_refused_as_they_should)
{
	int fd = make_file("file", "0123456789"), reader = open("file", O_RDONLY);
	char bytes[20];
	SHOW(syscall(SYS_io_setup, 2, &context));
	SHOW(submit(1, request(0, reader, IOCB_CMD_PWRITE, "abc", 3, 0)));
	SHOW(submit(1, request(0, open("file", O_WRONLY), IOCB_CMD_PREAD, bytes, 3, 0)));
	SHOW(submit(1, request(0, fd, 77, bytes, 3, 0)));
	SHOW(submit(1, request(0, fd, IOCB_CMD_POLL, (void *)POLLIN, 0, 0)));
	SHOW(submit(1, request(0, fd, IOCB_CMD_FSYNC, bytes, 3, 0)));
	SHOW(submit(1, request(0, open("file", O_PATH), IOCB_CMD_PREAD, bytes, 3, 0)));
	SHOW(submit(1, request(0, 900, IOCB_CMD_PREAD, bytes, 3, 0)));
	SHOW(submit(2, request(0, fd, IOCB_CMD_PREAD, bytes, 3, 0),
		    request(1, reader, IOCB_CMD_PWRITE, bytes, 3, 0)));
	show_events(1);
	request(0, fd, IOCB_CMD_PREAD, bytes, 3, 0);
	requests[0].aio_rw_flags = 0x4000;
	SHOW(submit(1, &requests[0]));
	SHOW(submit(0));
	SHOW(syscall(SYS_io_submit, context, -1, NULL));
	SHOW(syscall(SYS_io_submit, context, 1, (struct iocb *[]){(struct iocb *)-4096}));
	SHOW(syscall(SYS_io_destroy, context));
	show_file("file");
}

CHECK(two_descriptors_are_told_apart)
{
	int fd = make_file("file", "text"), copy = dup(fd), other = open("file", O_RDWR);
	int outside = open("/dev/null", O_RDONLY), self_ = getpid();
	SHOW(syscall(SYS_kcmp, self_, self_, KCMP_FILE, fd, copy));
	say("differ %d", syscall(SYS_kcmp, self_, self_, KCMP_FILE, fd, other) > 0);
	say("differ %d", syscall(SYS_kcmp, self_, self_, KCMP_FILE, outside, other) > 0);
	SHOW(syscall(SYS_kcmp, self_, self_, KCMP_FILE, outside, outside));
	SHOW(syscall(SYS_kcmp, self_, self_, KCMP_FILE, fd, 900));
	SHOW(syscall(SYS_kcmp, self_, self_, KCMP_VM, 0, 0));
}
