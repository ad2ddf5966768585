/* Space that is taken ahead or given back. */
#include "check.h"
#include <sys/resource.h>

#define KEEP FALLOC_FL_KEEP_SIZE
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define ZERO FALLOC_FL_ZERO_RANGE

static void show_space(int fd)
{
	struct stat got;
	fstat(fd, &got);
	say("%ld bytes, %s", (long)got.st_size,
	    got.st_blocks * 512 >= got.st_size ? "all of them with space" : "with holes");
}

CHECK(fallocate_lengthens_and_zeroes_small_files)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	SHOW(fallocate(fd, 0, 0, 1000));
	show_file("file");
	SHOW(pwrite(fd, "text", 4, 500));
	SHOW(fallocate(fd, KEEP, 0, 900));
	SHOW(fallocate(fd, KEEP, 0, 3000));
	show_file("file");
	SHOW(fallocate(fd, PUNCH, 502, 10));
	show_file("file");
	SHOW(pwrite(fd, "text", 4, 500));
	SHOW(fallocate(fd, ZERO | KEEP, 501, 10000));
	show_file("file");
	SHOW(pwrite(fd, "text", 4, 990));
	SHOW(fallocate(fd, ZERO, 992, 1000));
	show_file("file");
	SHOW(fallocate(fd, PUNCH, 5000, 1000));
	SHOW(fallocate(fd, 0, 10, 10));
	SHOW(fallocate(fd, 0, 4000, 96));
	show_file("file");
	show_space(fd);
	SHOW(fallocate(fd, 0, 4000, 97));
	show_file("file");
	show_space(fd);
	SHOW(lseek(fd, 0, SEEK_CUR));
}

CHECK(fallocate_takes_and_gives_back_space)
{
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	static char block[1 << 20];
	memset(block, 'x', sizeof block);
	SHOW(fallocate(fd, 0, 0, 4 << 20));
	show_file("file");
	show_space(fd);
	SHOW(pwrite(fd, block, sizeof block, 1 << 20));
	SHOW(fsync(fd));
	SHOW(fallocate(fd, PUNCH, (1 << 20) + (256 << 10), 256 << 10));
	SHOW(fsync(fd));
	show_file("file");
	show_space(fd);
	SHOW(lseek(fd, 1 << 20, SEEK_HOLE));
	SHOW(lseek(fd, (1 << 20) + (256 << 10), SEEK_DATA));
	SHOW(fallocate(fd, ZERO, (1 << 20) + 100, 100000));
	show_file("file");
	SHOW(fallocate(fd, ZERO | KEEP, (4 << 20) - 100, 1000));
	SHOW(fallocate(fd, ZERO, (4 << 20) - 100, 1000));
	show_file("file");
	SHOW(fallocate(fd, KEEP, 8 << 20, 1 << 20));
	show_file("file");
	SHOW(fallocate(fd, PUNCH, 100, 16 << 20));
	show_file("file");
	show_space(fd);
	SHOW(posix_fallocate(fd, 0, 5 << 20));
	show_file("file");
	show_space(fd);
	/* Others see it: a mapping, another descriptor, another process. */
	char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	map[0] = map[4096] = 'm';
	int other = open("file", O_RDWR | O_APPEND);
	SHOW(fallocate(other, PUNCH, 0, 4096));
	say("%d %d", map[0], map[4096]);
	SHOW(fallocate(other, 0, 5 << 20, 100));
	SHOW(write(other, "end", 3));
	SHOW(lseek(fd, 0, SEEK_END));
	pid_t child = fork();
	if (child == 0)
		_exit(fallocate(fd, 0, 6 << 20, 1) == 0 ? 7 : 8);
	reap(child);
	show_file("file");
	/* A file without a name has space too. */
	SHOW(unlink("file"));
	SHOW(fallocate(fd, 0, 0, 8 << 20));
	show_space(fd);
	SHOW(close(other));
	show_space(fd);
}

CHECK(fallocate_refuses_what_a_local_file_system_refuses)
{
	int fd = make_file("file", "text"), reader = open("file", O_RDONLY);
	int path = open("file", O_PATH), dir = open(".", O_RDONLY);
	SHOW(fallocate(fd, 0, -1, 10));
	SHOW(fallocate(fd, 0, 0, 0));
	SHOW(fallocate(fd, 0, 10, -10));
	SHOW(fallocate(fd, 0, INT64_MAX, 10));
	SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
	SHOW(fallocate(fd, PUNCH | ZERO, 0, 10));
	SHOW(fallocate(fd, 0x1000, 0, 10));
	SHOW(fallocate(fd, 0x1000, 0, 0));
	SHOW(fallocate(reader, 0x1000, 0, 10));
	SHOW(fallocate(reader, 0, 0, 10));
	SHOW(fallocate(reader, 0, INT64_MAX, 10));
	SHOW(fallocate(reader, 0, 0, 0));
	SHOW(fallocate(path, 0, 0, 10));
	SHOW(fallocate(path, 0, 0, 0));
	SHOW(fallocate(dir, 0, 0, 10));
	SHOW(fallocate(999, 0, 0, 10));
	show_file("file");
	struct rlimit limit = {1 << 20, RLIM_INFINITY};
	signal(SIGXFSZ, SIG_IGN);
	SHOW(fallocate(fd, 0, 0, 2 << 20));
	SHOW(setrlimit(RLIMIT_FSIZE, &limit));
	SHOW(fallocate(fd, 0, 1 << 20, 1 << 20));
	SHOW(fallocate(fd, 0, 2 << 20, 1));
	SHOW(fallocate(fd, ZERO, 1 << 20, 2 << 20));
	SHOW(fallocate(fd, KEEP, 1 << 20, 2 << 20));
	SHOW(fallocate(fd, PUNCH, 1 << 20, 2 << 20));
	show_file("file");
}

CHECK(ranges_are_neither_collapsed_nor_inserted)
{
	make_large("file", 100000);
	int fd = open("file", O_RDWR);
	REFUSED(EOPNOTSUPP, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096));
	REFUSED(EOPNOTSUPP, fallocate(fd, FALLOC_FL_INSERT_RANGE, 0, 4096));
	REFUSED(EOPNOTSUPP, fallocate(fd, FALLOC_FL_UNSHARE_RANGE, 0, 4096));
	REFUSED(EOPNOTSUPP, fallocate(fd, 0x80, 0, 4096));
	IS(100000, lseek(fd, 0, SEEK_END));
	struct stat got;
	IS(0, fallocate(fd, 0, 0, 100000) | fstat(fd, &got));
	long blocks = got.st_blocks;
	/* Space behind the end is promised and not kept. */
	IS(0, fallocate(fd, KEEP, 1 << 20, 1 << 20) | fstat(fd, &got));
	IS(100000, got.st_size);
	IS(blocks, got.st_blocks);
}
