/* Reading, writing, lengths, mappings, copies. */
#include "check.h"

CHECK(positioned_and_vectored_io_leave_the_offset_alone)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	struct iovec parts[3] = {{"abc", 3}, {"", 0}, {"defgh", 5}};
	SHOW(writev(fd, parts, 3));
	SHOW(pwrite(fd, "XY", 2, 20));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(pwritev(fd, parts, 3, 30));
	SHOW(pwritev2(fd, parts, 3, 40, RWF_DSYNC));
	SHOW(pwritev2(fd, parts, 3, 50, RWF_SYNC));
	SHOW(pwritev2(fd, parts, 1, -1, 0));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(pwritev2(fd, parts, 1, 0, RWF_APPEND));
	SHOW(lseek(fd, 0, SEEK_CUR));
	show_file("file");
	char one[4] = "", two[9] = "";
	struct iovec in[2] = {{one, 3}, {two, 8}};
	SHOW(preadv(fd, in, 2, 20));
	show_bytes("one", one, 3), show_bytes("two", two, 8);
	SHOW(preadv2(fd, in, 2, 1, 0));
	show_bytes("one", one, 3), show_bytes("two", two, 8);
	SHOW(lseek(fd, 5, SEEK_SET));
	SHOW(readv(fd, in, 2));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(pread(fd, one, 3, 1000));
	SHOW(pread(fd, one, 3, -1));
	SHOW(syscall(SYS_readv, fd, in, -1));
	SHOW(read(fd, NULL, 0));
	SHOW(write(fd, NULL, 0));
	SHOW(read(fd, (void *)-4096, 10));
	SHOW(write(fd, (void *)-4096, 10));
}

CHECK(unknown_write_flags_are_refused)
{
	int fd = make_file("file", "text");
	struct iovec part = {"abc", 3};
	REFUSED(EOPNOTSUPP, pwritev2(fd, &part, 1, 0, 0x40));
	REFUSED(EOPNOTSUPP, pwritev2(fd, &part, 1, 0, 0x80));
	REFUSED(EOPNOTSUPP, pwritev2(fd, &part, 1, 0, 0x4000));
	IS(3, pwritev2(fd, &part, 1, 0, RWF_HIPRI));
	IS(3, preadv2(fd, &(struct iovec){(char[4]){0}, 3}, 1, 0, RWF_NOWAIT));
}

static void append_records(char who, int records)
{
	int fd = open("log", O_CREAT | O_WRONLY | O_APPEND, 0600);
	char record[700];
	for (int at = 0; at < records; at++) {
		int length = 10 + at * 37 % 600;
		memset(record, who, length);
		snprintf(record, 10, "%c%07d", who, at);
		record[8] = '.', record[length - 1] = '\n';
		if (write(fd, record, length) != length)
			say("append: %s", strerrorname_np(errno));
	}
	close(fd);
}

CHECK(appends_of_two_processes_are_whole_and_in_order)
{
	pid_t pids[2];
	for (int child = 0; child < 2; child++) {
		pids[child] = fork();
		if (pids[child] == 0) {
			append_records("ab"[child], 600);
			_exit(0);
		}
	}
	reap(pids[0]), reap(pids[1]);
	FILE *file = fopen("log", "r");
	char line[1000];
	int next[2] = {0, 0}, torn = 0;
	while (fgets(line, sizeof line, file)) {
		int who = line[0] - 'a', length = strlen(line);
		if (who < 0 || who > 1 || atoi(line + 1) != next[who] ||
		    length != 10 + next[who] * 37 % 600)
			torn++;
		else
			next[who]++;
	}
	say("%d %d, torn %d", next[0], next[1], torn);
	struct stat stat_;
	stat("log", &stat_);
	say("size %ld", (long)stat_.st_size);
}

CHECK(an_append_flag_set_later_counts)
{
	int fd = make_file("file", "0123456789"), other = open("file", O_WRONLY | O_APPEND);
	SHOW(lseek(fd, 2, SEEK_SET));
	SHOW(fcntl(fd, F_SETFL, O_APPEND));
	SHOW(write(fd, "ab", 2));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(write(other, "cd", 2));
	SHOW(write(fd, "ef", 2));
	SHOW(pwrite(fd, "gh", 2, 0));
	SHOW(fcntl(fd, F_SETFL, 0));
	SHOW(pwrite(fd, "ij", 2, 0));
	show_file("file");
}

CHECK(lseek_moves_and_refuses)
{
	int fd = make_file("file", "0123456789");
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(lseek(fd, -3, SEEK_END));
	SHOW(lseek(fd, -20, SEEK_CUR));
	SHOW(lseek(fd, 1L << 40, SEEK_SET));
	SHOW(read(fd, (char[4]){0}, 4));
	SHOW(lseek(fd, 5, 77));
	SHOW(lseek(fd, -1, SEEK_SET));
	SHOW(lseek(fd, 4, SEEK_SET));
	SHOW(lseek(fd, 3, SEEK_DATA));
	SHOW(lseek(fd, 3, SEEK_HOLE));
	SHOW(lseek(fd, 10, SEEK_DATA));
	SHOW(lseek(fd, 10, SEEK_HOLE));
	int ends[2];
	SHOW(pipe(ends));
	SHOW(lseek(ends[0], 0, SEEK_CUR));
}

CHECK(data_and_holes_of_a_large_file_are_found)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	static char block[65536];
	memset(block, 'x', sizeof block);
	SHOW(pwrite(fd, block, sizeof block, 4 << 20));
	SHOW(ftruncate(fd, 8 << 20));
	SHOW(fsync(fd));
	SHOW(lseek(fd, 0, SEEK_DATA));
	SHOW(lseek(fd, 0, SEEK_HOLE));
	SHOW(lseek(fd, 4 << 20, SEEK_HOLE));
	SHOW(lseek(fd, 5 << 20, SEEK_DATA));
	SHOW(lseek(fd, 8 << 20, SEEK_HOLE));
	SHOW(lseek(fd, (4 << 20) + 5, SEEK_DATA));
	SHOW(lseek(fd, -1, SEEK_DATA));
	SHOW(lseek(fd, 0, SEEK_CUR));
	/* One that may only be written, one that only names the file, and a directory. */
	int writer = open("file", O_WRONLY), path = open("file", O_PATH);
	SHOW(lseek(writer, 0, SEEK_DATA));
	SHOW(lseek(writer, 4 << 20, SEEK_HOLE));
	SHOW(lseek(path, 0, SEEK_DATA));
	/* Somebody else's writes. */
	SHOW(pwrite(writer, block, sizeof block, 1 << 20));
	SHOW(fsync(writer));
	SHOW(close(writer));
	SHOW(lseek(fd, 0, SEEK_DATA));
	SHOW(lseek(fd, 1 << 20, SEEK_HOLE));
	SHOW(truncate("file", 2 << 20));
	SHOW(lseek(fd, 2 << 20, SEEK_DATA));
	SHOW(lseek(fd, (2 << 20) - 1, SEEK_HOLE));
	show_file("file");
}

CHECK(truncated_bytes_do_not_come_back_and_holes_read_as_zeros)
{
	make_large("file", 300000);
	int fd = open("file", O_RDWR);
	static const long lengths[] = {299999, 100000, 200000, 4097, 4096, 9000, 100, 5000, 0, 70000};
	for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
		SHOW(at % 2 ? ftruncate(fd, lengths[at]) : truncate("file", lengths[at]));
		show_file("file");
		SHOW(pwrite(fd, "mark", 4, lengths[at] / 2));
	}
	show_file("file");
	SHOW(ftruncate(fd, -1));
	SHOW(truncate("none", 0));
	SHOW(truncate(".", 0));
	SHOW(ftruncate(open("file", O_RDONLY), 5));
	SHOW(pwrite(fd, "far", 3, 3L << 30));
	show_stat("file");
	char bytes[16] = "xxxxxxxxxxxxxxx";
	SHOW(pread(fd, bytes, 16, 2L << 30));
	show_bytes("hole", bytes, 16);
}

CHECK(a_write_beyond_the_limit_is_efbig_with_a_signal)
{
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit { unsigned long now, most; } limit = {10000, 10000};
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	static char block[8000];
	SHOW(syscall(SYS_setrlimit, 1, &limit));
	SHOW(write(fd, block, sizeof block));
	SHOW(write(fd, block, sizeof block));
	SHOW(write(fd, block, 1));
	SHOW(ftruncate(fd, 10001));
	SHOW(ftruncate(fd, 9999));
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGXFSZ, SIG_DFL);
		pwrite(fd, block, 1, 20000);
		_exit(1);
	}
	reap(pid);
	show_stat("file");
}

CHECK(private_mappings_see_the_file_and_do_not_write_it)
{
	close(make_file("small", "small content"));
	make_large("large", 1 << 20);
	static const char *const names[] = {"small", "large"};
	for (int at = 0; at < 2; at++) {
		int fd = open(names[at], O_RDWR);
		long bytes = lseek(fd, 0, SEEK_END);
		char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
		SHOW(close(fd));
		SHOW(map == MAP_FAILED);
		show_bytes("mapped", map, bytes);
		memcpy(map, "changed", 7);
		show_file(names[at]);
		SHOW(munmap(map, bytes));
	}
	int fd = open("large", O_RDONLY);
	char *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 65536);
	show_bytes("part", map, 8192);
	map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096);
	show_bytes("part", map, 4096);
	SHOW(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 5));
	SHOW(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0));
	SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	fd = open("large", O_WRONLY);
	SHOW(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	fd = open(".", O_RDONLY);
	SHOW(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
}

CHECK(two_processes_share_a_writable_mapping)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	SHOW(ftruncate(fd, 1 << 20));
	pid_t pid = fork();
	if (pid == 0) {
		int again = open("file", O_RDWR);
		volatile char *map =
			mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
		if (map == MAP_FAILED)
			_exit(7);
		map[500000] = 'c';
		while (map[1] != 'p')
			;
		_exit(0);
	}
	volatile char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	SHOW(map == MAP_FAILED);
	while (map != MAP_FAILED && map[500000] != 'c' && waitpid(pid, NULL, WNOHANG) == 0)
		;
	map[1] = 'p';
	reap(pid);
	char byte = 0;
	SHOW(pread(fd, &byte, 1, 500000));
	SHOW(byte);
	SHOW(pwrite(fd, "w", 1, 700000));
	SHOW(map[700000]);
	SHOW(msync((void *)map, 1 << 20, MS_SYNC));
	SHOW(munmap((void *)map, 1 << 20));
	SHOW(close(fd));
	show_file("file");
}

CHECK(a_small_file_can_be_mapped_shared_and_then_written)
{
	int fd = make_file("file", "0123456789");
	char *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	SHOW(map == MAP_FAILED);
	map[2] = 'X';
	show_file("file");
	SHOW(pwrite(fd, "Y", 1, 3));
	show_bytes("mapped", map, 10);
	SHOW(munmap(map, 10));
	SHOW(close(fd));
	show_file("file");
}

/* A shared mapping of `size` bytes of a new file, which nobody has open any more. */
static char *map_and_close(const char *name, long size)
{
	make_large(name, size);
	int fd = open(name, O_RDWR);
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	SHOW(map == MAP_FAILED);
	close(fd);
	return map;
}

/* The mapping is all that holds the file: its pages stay whatever becomes of the name. */
CHECK(a_mapping_outlives_the_descriptor_and_the_name)
{
	char *removed = map_and_close("removed", 70000);
	SHOW(unlink("removed"));
	show_bytes("removed", removed + 50000, 8);
	memcpy(removed + 60000, "written", 8);
	show_bytes("removed", removed + 60000, 8);

	char *replaced = map_and_close("replaced", 70000);
	make_large("other", 100);
	SHOW(rename("other", "replaced"));
	show_bytes("replaced", replaced + 50000, 8);

	char *rewritten = map_and_close("rewritten", 70000);
	int fd = open("rewritten", O_WRONLY | O_TRUNC);
	SHOW(write(fd, "anew", 4));
	SHOW(close(fd));
	show_bytes("rewritten", rewritten, 8);
	memcpy(rewritten, "A", 1);
	show_file("rewritten");

	char *small = map_and_close("small", 50);
	small[0] = 'S';
	SHOW(truncate("small", 3));
	SHOW(truncate("small", 20));
	small[5] = 'T';
	show_file("small");
}

CHECK(sendfile_and_copy_file_range_copy)
{
	make_large("from", 700001);
	int from = open("from", O_RDONLY), to = open("to", O_CREAT | O_RDWR, 0600);
	long done = 0, more;
	off_t at = 1;
	while ((more = sendfile(to, from, &at, 100000)) > 0)
		done += more;
	say("sendfile %ld, offset %ld", done, (long)at);
	SHOW(lseek(from, 0, SEEK_CUR));
	show_file("to");
	SHOW(ftruncate(to, 0));
	SHOW(lseek(to, 0, SEEK_SET));
	for (done = 0; (more = copy_file_range(from, NULL, to, NULL, 1 << 20, 0)) > 0;)
		done += more;
	say("copied %ld", done);
	SHOW(lseek(from, 0, SEEK_CUR));
	SHOW(lseek(to, 0, SEEK_CUR));
	show_file("to");
	off_t in = 10, out = 20;
	SHOW(copy_file_range(from, &in, to, &out, 1000, 0));
	say("%ld %ld", (long)in, (long)out);
	SHOW(copy_file_range(from, NULL, to, NULL, 10, 1));
	show_file("to");
	/* To and from descriptors outside. */
	int ends[2];
	SHOW(pipe(ends));
	SHOW(sendfile(-1, from, NULL, 10));
	SHOW(sendfile(900, from, NULL, 0));
	SHOW(sendfile(ends[0], from, NULL, 10));
	SHOW(sendfile(to, ends[1], NULL, 10));
	at = 3;
	SHOW(sendfile(ends[1], from, &at, 10));
	show_read(ends[0], 100);
	int outside = open(self, O_RDONLY);
	SHOW(ftruncate(to, 0));
	SHOW(lseek(to, 0, SEEK_SET));
	SHOW(sendfile(to, outside, NULL, 4));
	char magic[4] = "";
	SHOW(pread(to, magic, 4, 0));
	SHOW(memcmp(magic, "\177ELF", 4));
}

CHECK(calls_without_a_counterpart_are_refused)
{
	int fd = make_file("file", "text"), other = make_file("other", ""), ends[2];
	IS(0, pipe(ends));
	REFUSED(EOPNOTSUPP, ioctl(other, 0x40049409, fd));
	REFUSED(ENOTTY, ioctl(fd, TCGETS, (char[64]){0}));
	/* Flags of files: FS_IOC_GETFLAGS, SETFLAGS, FSGETXATTR, FSSETXATTR. */
	REFUSED(ENOTTY, ioctl(fd, 0x80086601, (char[64]){0}));
	REFUSED(ENOTTY, ioctl(fd, 0x40086602, (char[64]){0}));
	REFUSED(ENOTTY, ioctl(fd, 0x801c581f, (char[64]){0}));
	REFUSED(ENOTTY, ioctl(fd, 0x401c5820, (char[64]){0}));
	REFUSED(EINVAL, fcntl(fd, F_SETLEASE, F_RDLCK));
	REFUSED(EBADF, fcntl(fd, F_SETPIPE_SZ, 4096));
	REFUSED(EOPNOTSUPP, syscall(SYS_name_to_handle_at, AT_FDCWD, "file", (char[200]){0},
				    (int[1]){0}, 0));
	REFUSED(ENOSYS, syscall(SYS_getdents, open(".", O_RDONLY), (char[512]){0}, 512));
	REFUSED(EPERM, chroot("."));
	REFUSED(EPERM, syscall(SYS_mount, "none", ".", "tmpfs", 0, NULL));
	REFUSED(EPERM, syscall(SYS_umount2, ".", 0));
	REFUSED(EPERM, syscall(SYS_swapon, "file", 0));
	REFUSED(EPERM, syscall(SYS_acct, "file"));
	IS(4, lseek(fd, 0, SEEK_END));
	show_file("file");
}

CHECK(advice_is_accepted)
{
	int fd = make_file("file", "text");
	SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
	SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	SHOW(readahead(fd, 0, 4096));
	show_file("file");
}

CHECK(sync_calls_succeed_on_files_and_directories)
{
	int fd = make_file("file", "text"), dir = open(".", O_RDONLY);
	SHOW(fsync(fd));
	SHOW(fdatasync(fd));
	SHOW(fsync(dir));
	SHOW(sync_file_range(fd, 0, 4, SYNC_FILE_RANGE_WRITE));
	/* Programs take success for a promise. */
	SHOW(sync_file_range(fd, 0, 4, 8));
	SHOW(sync_file_range(fd, -1, 4, 0));
	SHOW(sync_file_range(fd, 4, -2, 0));
	SHOW(sync_file_range(fd, 1, 0x7fffffffffffffff, 0));
	SHOW(syncfs(fd));
	SHOW(fsync(900));
}

enum { THREADS = 8, RECORDS = 1000 };

static void *write_records(void *shared)
{
	int fd = *(int *)shared;
	for (int at = 0; at < RECORDS; at++)
		if (write(fd, "0123456789abcde\n", 16) != 16)
			say("write: %s", strerrorname_np(errno));
	return NULL;
}

static void *open_and_close(void *number)
{
	char name[32];
	for (int at = 0; at < 200; at++) {
		snprintf(name, sizeof name, "t%ld.%d", (long)(intptr_t)number, at);
		int fd = open(name, O_CREAT | O_RDWR | O_EXCL, 0600);
		char back[32] = "";
		if (fd < 0 || write(fd, name, 32) != 32 || pread(fd, back, 32, 0) != 32 ||
		    strcmp(name, back) != 0 || close(fd) != 0 || unlink(name) != 0)
			say("%s: %s", name, strerrorname_np(errno));
	}
	return NULL;
}

CHECK(threads_share_descriptors_and_their_offset)
{
	pthread_t threads[THREADS];
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	for (int at = 0; at < THREADS; at++)
		pthread_create(&threads[at], NULL, write_records, &fd);
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	show_file("file");
	for (long at = 0; at < THREADS; at++)
		pthread_create(&threads[at], NULL, open_and_close, (void *)at);
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	show_names(".");
	SHOW(open("file", O_RDONLY));
}

/* Runs in a process of its own and waits for its end. */
#define ELSEWHERE(...)                                                                            \
	do {                                                                                      \
		fflush(stdout);                                                                   \
		if (fork() == 0) {                                                                \
			__VA_ARGS__;                                                              \
			_exit(0);                                                                 \
		}                                                                                 \
		wait(NULL);                                                                       \
	} while (0)

static void show_rest(int fd)
{
	char got[8192];
	lseek(fd, 0, SEEK_SET);
	long count = read(fd, got, sizeof got);
	unsigned long sum = 0;
	for (long at = 0; at < count; at++)
		sum = sum * 31 + (unsigned char)got[at];
	say("%ld bytes, sum %lu, then %ld", count, sum, (long)read(fd, got, sizeof got));
}

static void write_at(const char *name, int flags, const char *text, int offset)
{
	int fd = open(name, O_WRONLY | flags, 0600);
	pwrite(fd, text, strlen(text), offset);
	close(fd);
}

/* What a small file held when it was opened comes with the answer to open: no change by others
 * after that may be missed. */
CHECK(a_file_that_others_change_is_read_as_it_is_now)
{
	char many[6000];
	memset(many, 'm', sizeof many - 1);
	many[sizeof many - 1] = 0;
	write_at("file", O_CREAT, "as it was", 0);
	int fd = open("file", O_RDONLY), other = open("file", O_RDONLY);
	ELSEWHERE(write_at("file", 0, "IS", 3));
	show_rest(fd);
	ELSEWHERE(write_at("file", O_APPEND, " and more", 0));
	show_rest(fd);
	ELSEWHERE(truncate("file", 4));
	show_rest(fd);
	ELSEWHERE(write_at("file", O_TRUNC, "anew", 0));
	show_rest(fd);
	ELSEWHERE(write_at("file", 0, many, 2));
	show_rest(fd);
	ELSEWHERE(truncate("file", 7));
	show_rest(fd);
	show_rest(other);
	close(fd);
	fd = open("file", O_RDONLY);
	ELSEWHERE(write_at("new", O_CREAT, "of another name", 0); rename("new", "file"));
	show_rest(fd);
	int mine = open("file", O_RDONLY), writer = open("file", O_WRONLY);
	for (int at = 0; at < 3; at++) {
		SHOW(pwrite(writer, "012" + at, 1, at));
		show_rest(mine);
	}
	ELSEWHERE(show_rest(mine));
}

static void *add_ones(void *name)
{
	for (int at = 0; at < 300; at++) {
		char text[16];
		snprintf(text, sizeof text, "%08d", at);
		write_at(name, 0, text, 0);
		int fd = open(name, O_RDONLY);
		char got[16] = "";
		write_at(name, 0, "x", 0);
		if (read(fd, got, 15) != 8 || got[0] != 'x' || strcmp(got + 1, text + 1) != 0)
			say("%d: %s", at, got);
		close(fd);
	}
	return NULL;
}

CHECK(threads_that_open_read_and_change_small_files_meet_no_old_bytes)
{
	static char names[THREADS][8];
	pthread_t threads[THREADS];
	for (int at = 0; at < THREADS; at++) {
		snprintf(names[at], sizeof names[at], "n%d", at);
		write_at(names[at], O_CREAT, "00000000", 0);
		pthread_create(&threads[at], NULL, add_ones, names[at]);
	}
	for (int at = 0; at < THREADS; at++)
		pthread_join(threads[at], NULL);
	show_file("n0");
}
