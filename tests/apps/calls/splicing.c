/* splice and tee. */

#include "check.h"

CHECK(splice_moves_between_files_and_pipes)
{
	make_large("file", 300000);
	int fd = open("file", O_RDWR), to = open("to", O_CREAT | O_RDWR, 0600), ends[2], other[2];
	static char text[1 << 20];
	SHOW(pipe(ends));
	SHOW(pipe(other));
	/* A pipe takes no more than it holds, and nobody waits for the rest. */
	long moved = splice(fd, NULL, ends[1], NULL, 300000, 0);
	say("some %d", moved > 0 && moved <= 65536);
	SHOW(lseek(fd, 0, SEEK_CUR) == moved);
	say("none %d", splice(fd, NULL, ends[1], NULL, 300000, SPLICE_F_NONBLOCK) <= 65536);
	long all = 0, more;
	while ((more = splice(ends[0], NULL, to, NULL, 1 << 20, SPLICE_F_NONBLOCK)) > 0)
		all += more;
	SHOW(errno);
	say("all %d", all == lseek(fd, 0, SEEK_CUR));
	SHOW(lseek(to, 0, SEEK_CUR) == all);
	/* The whole file, as a copying program does it. */
	SHOW(ftruncate(to, 0));
	SHOW(lseek(to, 0, SEEK_SET));
	SHOW(lseek(fd, 0, SEEK_SET));
	while ((moved = splice(fd, NULL, ends[1], NULL, 300000, SPLICE_F_MOVE)) > 0)
		for (long left = moved; left > 0; left -= more)
			if ((more = splice(ends[0], NULL, to, NULL, left, SPLICE_F_MOVE)) <= 0)
				break;
	show_file("to");
	/* Offsets of their own. */
	loff_t at = 100, behind = 5000;
	SHOW(lseek(fd, 7, SEEK_SET));
	SHOW(splice(fd, &at, ends[1], NULL, 50, 0));
	SHOW(at);
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(splice(ends[0], NULL, to, &behind, 200, 0));
	SHOW(behind);
	SHOW(pread(to, text, 50, 5000));
	show_bytes("moved", text, 50);
	at = 299990;
	SHOW(splice(fd, &at, ends[1], NULL, 50, 0));
	SHOW(splice(fd, &at, ends[1], NULL, 50, 0));
	SHOW(read(ends[0], text, sizeof text));
	/* What makes no sense. */
	SHOW(splice(fd, NULL, to, NULL, 10, 0));
	SHOW(splice(fd, NULL, ends[1], &at, 10, 0));
	SHOW(splice(ends[0], &at, to, NULL, 10, 0));
	SHOW(splice(fd, NULL, ends[1], NULL, 10, 64));
	SHOW(splice(fd, NULL, ends[1], NULL, 0, 0));
	SHOW(splice(fd, NULL, ends[0], NULL, 10, 0));
	SHOW(splice(ends[1], NULL, to, NULL, 10, 0));
	SHOW(splice(fd, NULL, -1, NULL, 10, 0));
	SHOW(splice(-1, NULL, fd, NULL, 10, 0));
	SHOW(splice(open("file", O_WRONLY), NULL, ends[1], NULL, 10, 0));
	SHOW(write(ends[1], "text", 4));
	SHOW(splice(ends[0], NULL, open("file", O_RDONLY), NULL, 10, 0));
	SHOW(splice(ends[0], NULL, open("file", O_RDWR | O_APPEND), NULL, 10, 0));
	SHOW(splice(ends[0], NULL, open(".", O_RDONLY), NULL, 10, 0));
	SHOW(tee(ends[0], other[1], 4, 0));
	SHOW(tee(fd, other[1], 4, 0));
	SHOW(tee(ends[0], fd, 4, 0));
	SHOW(close(ends[1]));
	SHOW(splice(ends[0], NULL, to, NULL, 10, 0));
	SHOW(splice(ends[0], NULL, to, NULL, 10, 0));
	SHOW(splice(ends[0], NULL, to, NULL, 10, SPLICE_F_NONBLOCK));
	show_file("to");
	/* Into a pipe that nobody reads from. */
	signal(SIGPIPE, SIG_IGN);
	SHOW(close(other[0]));
	SHOW(splice(fd, NULL, other[1], NULL, 10, 0));
}
