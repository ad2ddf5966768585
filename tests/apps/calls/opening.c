/* open and its relatives; what a descriptor is and how it is multiplied. */
#include "check.h"

CHECK(open_makes_truncates_and_refuses_as_its_flags_say)
{
	SHOW(open("none", O_RDONLY));
	SHOW(open("none/file", O_CREAT | O_RDWR, 0600));
	int fd = SHOW(open("file", O_CREAT | O_EXCL | O_WRONLY, 0640));
	SHOW(open("file", O_CREAT | O_EXCL | O_WRONLY, 0640));
	SHOW(write(fd, "hello", 5));
	SHOW(read(fd, (char[1]){0}, 1));
	SHOW(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
	SHOW(close(fd));
	SHOW(close(fd));
	show_stat("file");
	fd = SHOW(open("file", O_RDONLY));
	SHOW(write(fd, "x", 1));
	SHOW(open("file", O_WRONLY | O_TRUNC | O_CLOEXEC));
	SHOW(fcntl(fd + 1, F_GETFD));
	show_stat("file");
	SHOW(open("file/", O_RDONLY));
	SHOW(open("file/x", O_RDONLY));
	SHOW(open("file", O_RDONLY | O_DIRECTORY));
	SHOW(open(".", O_RDWR));
	SHOW(open(".", O_CREAT | O_RDONLY, 0600));
	SHOW(open("", O_RDONLY));
	SHOW(symlink("file", "link"));
	SHOW(symlink("nothing", "dangling"));
	SHOW(symlink("loop", "loop"));
	SHOW(open("link", O_RDONLY | O_NOFOLLOW));
	SHOW(open("link", O_CREAT | O_EXCL | O_RDONLY, 0600));
	SHOW(open("dangling", O_RDONLY));
	SHOW(open("loop", O_RDONLY));
	SHOW(open("dangling", O_CREAT | O_WRONLY | O_NOCTTY | O_LARGEFILE, 0600));
	SHOW(creat("created", 0604));
	show_names(".");
}

CHECK(open_sync_direct_and_nonblock_are_kept_and_reported)
{
	int fd = SHOW(open("file", O_CREAT | O_RDWR | O_SYNC, 0600));
	SHOW((fcntl(fd, F_GETFL) & O_SYNC) == O_SYNC);
	SHOW(write(fd, "synchronous", 11));
	fd = SHOW(open("file", O_RDWR | O_DSYNC | O_NONBLOCK | O_NOATIME));
	SHOW((fcntl(fd, F_GETFL) & O_DSYNC) == O_DSYNC);
	SHOW((fcntl(fd, F_GETFL) & O_NONBLOCK) == O_NONBLOCK);
	SHOW((fcntl(fd, F_GETFL) & O_NOATIME) == O_NOATIME);
	show_read(fd, 20);
}

CHECK(direct_io_is_accepted)
{
	int fd = open("file", O_CREAT | O_RDWR | O_DIRECT, 0600);
	IS(1, fd >= 0);
	/* No alignment is asked for. */
	IS(5, write(fd, "hello", 5));
	IS(3, pread(fd, (char[8]){0}, 3, 1));
}

static int named_by(int fd, const char *path)
{
	char procfs[64];
	snprintf(procfs, sizeof procfs, "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, procfs, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

CHECK(a_file_without_a_name_gets_one_by_a_link_and_goes_without)
{
	umask(022);
	mkdir("dir", 0755);
	int fd = open("dir", O_TMPFILE | O_RDWR, 0666);
	SHOW(fd >= 0);
	show_fstat(fd);
	SHOW(write(fd, "text", 4));
	show_names("dir");
	SHOW((fcntl(fd, F_GETFL) & (O_TMPFILE | O_ACCMODE)) == (O_TMPFILE | O_RDWR));
	SHOW(rmdir("dir"));
	mkdir("dir", 0755);
	SHOW(named_by(fd, "dir/named"));
	show_fstat(fd);
	show_names("dir");
	show_file("dir/named");
	SHOW(write(fd, " and more", 9));
	show_file("dir/named");
	SHOW(named_by(fd, "dir/named"));
	SHOW(named_by(fd, "dir/second"));
	show_stat("dir/second");
	SHOW(unlink("dir/named") | unlink("dir/second"));
	show_fstat(fd);
	/* Its first name was its chance. */
	SHOW(named_by(fd, "dir/again"));
	SHOW(close(fd));
	/* With the path of the descriptor empty, and large. */
	fd = open(".", O_TMPFILE | O_WRONLY, 0600);
	static char block[100000];
	memset(block, 'b', sizeof block);
	SHOW(write(fd, block, sizeof block));
	SHOW(fchmod(fd, 0640));
	SHOW(linkat(fd, "", AT_FDCWD, "large", AT_EMPTY_PATH));
	SHOW(close(fd));
	show_file("large");
	show_stat("large");
	/* One that may have no name. */
	fd = open("dir", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	SHOW(fd >= 0);
	SHOW(named_by(fd, "dir/never"));
	SHOW(linkat(fd, "", AT_FDCWD, "dir/never", AT_EMPTY_PATH));
	char procfs[64];
	snprintf(procfs, sizeof procfs, "/proc/self/fd/%d", fd);
	SHOW(linkat(AT_FDCWD, procfs, AT_FDCWD, "dir/never", 0));
	/* Two links at one name: the second finds it taken, and the file can still have another. */
	int one = open("dir", O_TMPFILE | O_RDWR, 0600), two = open("dir", O_TMPFILE | O_RDWR, 0600);
	SHOW(named_by(one, "dir/name"));
	SHOW(named_by(two, "dir/name"));
	SHOW(named_by(two, "dir/other"));
	/* A child has it too. */
	fd = open("dir", O_TMPFILE | O_RDWR, 0600);
	pid_t child = fork();
	if (child == 0)
		_exit(write(fd, "child", 5) == 5 && named_by(fd, "dir/childs") == 0 ? 7 : 8);
	reap(child);
	show_file("dir/childs");
	show_names("dir");
}

CHECK(what_o_tmpfile_needs_is_asked_for)
{
	make_file("file", "text");
	mkdir("dir", 02755);
	symlink("dir", "link");
	SHOW(open(".", O_TMPFILE | O_RDONLY, 0600));
	SHOW(open(".", O_TMPFILE | O_RDWR | O_CREAT, 0600));
	SHOW(open(".", (O_TMPFILE & ~O_DIRECTORY) | O_RDWR, 0600));
	SHOW(open("file", O_TMPFILE | O_RDWR, 0600));
	SHOW(open("file/", O_TMPFILE | O_RDWR, 0600));
	SHOW(open("none", O_TMPFILE | O_RDWR, 0600));
	SHOW(open("none", O_TMPFILE | O_RDONLY, 0600));
	SHOW(open("link", O_TMPFILE | O_RDWR | O_NOFOLLOW, 0600));
	SHOW(open("link", O_TMPFILE | O_RDWR, 0600) >= 0);
	SHOW(open("link/", O_TMPFILE | O_RDWR, 0600) >= 0);
	SHOW(open("dir/..", O_TMPFILE | O_RDWR | O_TRUNC, 0600) >= 0);
	int fd = open("dir", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 01777);
	show_fstat(fd);
	SHOW(fcntl(fd, F_GETFD));
	int path = open("dir", O_TMPFILE | O_RDWR | O_PATH, 0600), dir = open("dir", O_RDONLY);
	show_fstat(path);
	char procfs[64];
	snprintf(procfs, sizeof procfs, "/proc/self/fd/%d", dir);
	int inside = open(procfs, O_TMPFILE | O_RDWR, 0640);
	show_fstat(inside);
	SHOW(named_by(inside, "dir/inside"));
	snprintf(procfs, sizeof procfs, "/proc/self/fd/%d", fd);
	SHOW(open(procfs, O_TMPFILE | O_RDWR, 0640));
	SHOW(open(procfs, O_RDONLY) >= 0);
	SHOW(linkat(dir, "", AT_FDCWD, "directory", AT_EMPTY_PATH));
	SHOW(linkat(fd, "", AT_FDCWD, "none/name", AT_EMPTY_PATH));
	SHOW(linkat(fd, "", AT_FDCWD, "", AT_EMPTY_PATH));
	show_names("dir");
	show_names(".");
}

CHECK(an_o_path_descriptor_names_and_does_not_read)
{
	close(make_file("file", "text"));
	SHOW(mkdir("dir", 0755));
	SHOW(symlink("file", "link"));
	int fd = SHOW(open("file", O_PATH));
	SHOW(read(fd, (char[1]){0}, 1));
	SHOW(write(fd, "x", 1));
	SHOW(lseek(fd, 0, SEEK_SET));
	SHOW(ftruncate(fd, 0));
	SHOW(fchmod(fd, 0600));
	SHOW(fcntl(fd, F_GETFL) & O_PATH);
	show_fstat(fd);
	int dir = SHOW(open("dir", O_PATH | O_DIRECTORY));
	SHOW(openat(dir, "inside", O_CREAT | O_WRONLY, 0600));
	SHOW(getdents64(dir, (char[512]){0}, 512));
	SHOW(fchdir(dir));
	show_names(".");
	SHOW(chdir(".."));
	int link = SHOW(open("link", O_PATH | O_NOFOLLOW));
	show_fstat(link);
	char target[16] = "";
	SHOW(readlinkat(link, "", target, sizeof target));
	say("target %s", target);
	struct stat stat;
	SHOW(fstatat(fd, "", &stat, AT_EMPTY_PATH));
	say("size %ld", (long)stat.st_size);
	char name[40];
	snprintf(name, sizeof name, "/proc/self/fd/%d", dir);
	show_names(name);
}

CHECK(openat2_keeps_to_one_file_system)
{
	struct { uint64_t flags, mode, resolve; } how = {O_CREAT | O_RDWR, 0600, 0};
	close(make_file("there", "text"));
	IS(1, syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how) >= 0);
	how.flags = O_RDONLY, how.mode = 0;
	static const uint64_t served[] = {0x01, 0x02};
	for (int at = 0; at < 2; at++) {
		how.resolve = served[at];
		IS(1, syscall(SYS_openat2, AT_FDCWD, "there", &how, sizeof how) >= 0);
	}
	how.resolve = 0;
	REFUSED(EINVAL, syscall(SYS_openat2, AT_FDCWD, "there", &how, 8));
}

CHECK(copies_of_a_descriptor_share_offset_and_flags)
{
	int fd = make_file("file", "0123456789");
	int copy = SHOW(dup(fd));
	SHOW(lseek(fd, 3, SEEK_SET));
	show_read(copy, 2);
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(dup2(fd, 20));
	SHOW(dup2(fd, fd));
	SHOW(dup2(900, 21));
	SHOW(dup3(fd, fd, 0));
	SHOW(dup3(fd, 22, O_CLOEXEC));
	SHOW(fcntl(22, F_GETFD));
	SHOW(fcntl(20, F_GETFD));
	SHOW(fcntl(fd, F_DUPFD, 30));
	SHOW(fcntl(fd, F_DUPFD_CLOEXEC, 30));
	SHOW(fcntl(31, F_GETFD));
	SHOW(fcntl(31, F_SETFD, 0));
	SHOW(fcntl(31, F_GETFD));
	SHOW(fcntl(30, F_SETFL, O_APPEND));
	SHOW(fcntl(fd, F_GETFL) & O_APPEND);
	SHOW(write(20, "x", 1));
	show_read(31, 4);
	int second = open("file", O_RDONLY);
	show_read(second, 20);
	/* Onto an open file of another description, and onto a pipe. */
	SHOW(dup2(second, copy));
	SHOW(lseek(copy, 0, SEEK_CUR));
	int ends[2];
	SHOW(pipe(ends));
	SHOW(dup2(fd, ends[0]) == ends[0]);
	SHOW(lseek(ends[0], 0, SEEK_CUR));
	SHOW(dup2(ends[1], 20));
	SHOW(lseek(20, 0, SEEK_CUR));
	SHOW(fcntl(fd, F_DUPFD, -1));
	SHOW(dup2(fd, -1));
}

CHECK(the_lowest_free_number_is_taken)
{
	int fds[6];
	for (int at = 0; at < 6; at++)
		fds[at] = open("file", O_CREAT | O_RDWR, 0600);
	SHOW(close(fds[1]));
	SHOW(close(fds[3]));
	SHOW(open("file", O_RDONLY));
	SHOW(open("/dev/null", O_RDONLY));
	SHOW(open("file", O_RDONLY));
	SHOW(close(0));
	SHOW(open("file", O_RDONLY));
}

CHECK(close_range_closes_and_marks)
{
	for (int fd = 10; fd < 20; fd++)
		dup2(make_file("file", "text"), fd);
	SHOW(close_range(12, 14, 0));
	SHOW(close_range(15, 16, CLOSE_RANGE_CLOEXEC));
	for (int fd = 10; fd < 20; fd++)
		SHOW(fcntl(fd, F_GETFD));
	SHOW(close_range(17, ~0u, CLOSE_RANGE_UNSHARE));
	SHOW(fcntl(18, F_GETFD));
	SHOW(close_range(5, 4, 0));
	/* The instance is still there afterwards. */
	SHOW(close_range(3, ~0u, 0));
	show_file("file");
}

CHECK(a_hidden_descriptor_cannot_be_closed)
{
	close(make_file("file", "text"));
	DIR *stream = opendir("/proc/self/fd");
	int own = dirfd(stream);
	struct dirent *entry;
	int found = 0;
	while ((entry = readdir(stream))) {
		int fd = atoi(entry->d_name);
		if (fd < 1000 || fd == own)
			continue;
		found++;
		REFUSED(EBADF, close(fd));
		REFUSED(EBADF, dup2(1, fd));
	}
	closedir(stream);
	IS(1, found > 0);
	show_file("file");
}

CHECK(names_of_descriptors_in_procfs_open_and_read_back)
{
	int fd = make_file("file", "0123456789");
	SHOW(lseek(fd, 4, SEEK_SET));
	char name[40], path[4096] = "";
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	SHOW(readlink(name, path, sizeof path) > 0);
	say("%s", path);
	memset(path, 0, sizeof path);
	int again = SHOW(open(name, O_RDONLY));
	show_read(again, 10);
	snprintf(name, sizeof name, "/dev/fd/%d", fd);
	struct stat stat_;
	SHOW(stat(name, &stat_));
	say("size %ld", (long)stat_.st_size);
	SHOW(mkdir("dir", 0755));
	int dir = SHOW(open("dir", O_RDONLY));
	snprintf(name, sizeof name, "/proc/self/fd/%d", dir);
	SHOW(readlink(name, path, sizeof path) > 0);
	say("%s", path);
	show_names(name);
	snprintf(name, sizeof name, "/proc/self/fd/%d/made", dir);
	SHOW(open(name, O_CREAT | O_WRONLY, 0600));
	show_names("dir");
	memset(path, 0, sizeof path);
	SHOW(readlink("/proc/self/cwd", path, sizeof path) > 0);
	say("%s", path);
	SHOW(dup2(open("file", O_RDONLY), 0));
	int in = SHOW(open("/dev/stdin", O_RDONLY));
	show_read(in, 4);
}

CHECK(poll_select_and_epoll_treat_files_as_files)
{
	int fd = make_file("file", "text");
	struct pollfd one = {.fd = fd, .events = POLLIN | POLLOUT};
	SHOW(poll(&one, 1, 1000));
	say("%x", one.revents);
	int ends[2];
	SHOW(pipe(ends));
	struct pollfd two[3] = {{fd, POLLIN, 0}, {ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}};
	SHOW(ppoll(two, 3, &(struct timespec){1, 0}, NULL));
	say("%x %x %x", two[0].revents, two[1].revents, two[2].revents);
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	FD_SET(ends[0], &in);
	SHOW(select(ends[1] + 1, &in, &out, NULL, &(struct timeval){1, 0}));
	say("%d %d %d", FD_ISSET(fd, &in), FD_ISSET(fd, &out), FD_ISSET(ends[0], &in));
	FD_ZERO(&in);
	FD_SET(fd, &in);
	SHOW(pselect(fd + 1, &in, NULL, NULL, &(struct timespec){1, 0}, NULL));
	int set = SHOW(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN};
	SHOW(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	SHOW(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
}

CHECK(ioctl_serves_what_files_have)
{
	int fd = make_file("file", "0123456789"), count = 0, on = 1;
	SHOW(ioctl(fd, FIOCLEX));
	SHOW(fcntl(fd, F_GETFD));
	SHOW(ioctl(fd, FIONCLEX));
	SHOW(fcntl(fd, F_GETFD));
	SHOW(ioctl(fd, FIONBIO, &on));
	SHOW(fcntl(fd, F_GETFL) & O_NONBLOCK);
	SHOW(lseek(fd, 4, SEEK_SET));
	SHOW(ioctl(fd, FIONREAD, &count));
	say("%d", count);
	SHOW(isatty(fd));
	SHOW(ioctl(fd, TIOCGWINSZ, (char[64]){0}));
}

static int send_descriptor(int socket, int fd)
{
	char byte = 'x', room[CMSG_SPACE(sizeof fd)] = "";
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				 .msg_controllen = sizeof room};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	return sendmsg(socket, &message, 0);
}

static int receive_descriptor(int socket)
{
	char byte, room[CMSG_SPACE(sizeof(int))];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				 .msg_controllen = sizeof room};
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) < 1 || !CMSG_FIRSTHDR(&message))
		return -1;
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

CHECK(a_descriptor_sent_to_another_process_is_the_same_file)
{
	int sockets[2];
	SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	pid_t pid = fork();
	if (pid == 0) {
		int fd = make_file("file", "0123456789");
		lseek(fd, 2, SEEK_SET);
		long sent = send_descriptor(sockets[1], fd);
		/* Moved after it was sent: offsets are shared. */
		lseek(fd, 3, SEEK_SET);
		write(sockets[1], "y", 1);
		read(sockets[1], (char[1]){0}, 1);
		SHOW(sent);
		SHOW(lseek(fd, 0, SEEK_CUR));
		_exit(0);
	}
	int fd = SHOW(receive_descriptor(sockets[0]));
	read(sockets[0], (char[1]){0}, 1);
	SHOW(fcntl(fd, F_GETFD));
	show_read(fd, 4);
	SHOW(write(fd, "X", 1));
	write(sockets[0], "z", 1);
	reap(pid);
	show_file("file");
}

static long how_to_open(int at, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct { uint64_t flags, mode, resolve; } how = {flags, mode, resolve};
	/* The kernel gives up when anybody on the machine renames something meanwhile. */
	long fd;
	do
		fd = syscall(SYS_openat2, at, path, &how, sizeof how);
	while (fd < 0 && errno == EAGAIN);
	if (fd < 0)
		return fd;
	/* Which file it is, and not which number. */
	char text[16] = "";
	if (read((int)fd, text, sizeof text - 1) < 0)
		snprintf(text, sizeof text, "%s", strerrorname_np(errno));
	show_bytes(path, text, 8);
	close((int)fd);
	return 0;
}

CHECK(openat2_keeps_a_walk_beneath_a_directory)
{
	enum { NO_LINKS = 4, BENEATH = 8, IN_ROOT = 16 };
	mkdir("root", 0755), mkdir("root/dir", 0755), mkdir("root/dir/deep", 0755);
	mkdir("root/etc", 0755);
	close(make_file("outside", "out"));
	close(make_file("root/file", "file"));
	close(make_file("root/dir/file", "dir"));
	close(make_file("root/etc/passwd", "own"));
	SHOW(symlink("file", "root/link"));
	SHOW(symlink("dir", "root/to-dir"));
	SHOW(symlink("../file", "root/dir/up"));
	SHOW(symlink("../../outside", "root/dir/out"));
	SHOW(symlink("/etc/passwd", "root/absolute"));
	SHOW(symlink("dir/../dir/./up", "root/round"));
	SHOW(symlink("loop", "root/loop"));
	SHOW(symlink("nothing", "root/dangling"));
	int root = open("root", O_RDONLY | O_DIRECTORY);
	static const char *const paths[] = {
		"file", "./file", "dir/file", "dir/../file", "dir//up", "link", "to-dir/file",
		"to-dir/../file", "dir/out", "../outside", "dir/../../outside", "absolute", "round",
		"loop", "dangling", "nothing", "nothing/below", "file/below", "file/", "link/", "dir/",
		".", "..", "/", "/file", "/dir/../../file", "", "to-dir", "to-dir/", "dir/deep/../../link",
	};
	static const uint64_t resolves[] = {
		NO_LINKS, BENEATH, IN_ROOT, NO_LINKS | BENEATH, NO_LINKS | IN_ROOT,
	};
	for (size_t which = 0; which < sizeof resolves / sizeof *resolves; which++) {
		say("resolve %d", (int)resolves[which]);
		for (size_t at = 0; at < sizeof paths / sizeof *paths; at++) {
			if (resolves[which] == NO_LINKS && paths[at][0] == '/')
				continue;
			say("%s", paths[at]);
			SHOW(how_to_open(root, paths[at], O_RDONLY, 0, resolves[which]));
			SHOW(how_to_open(root, paths[at], O_RDONLY | O_NOFOLLOW, 0, resolves[which]));
		}
	}
	say("from here");
	SHOW(how_to_open(AT_FDCWD, "root/link", O_RDONLY, 0, NO_LINKS));
	SHOW(how_to_open(AT_FDCWD, "root/file", O_RDONLY, 0, NO_LINKS));
	SHOW(how_to_open(AT_FDCWD, "root/dir/out", O_RDONLY, 0, BENEATH));
	SHOW(chdir("root/dir"));
	SHOW(how_to_open(AT_FDCWD, "../file", O_RDONLY, 0, NO_LINKS));
	SHOW(how_to_open(AT_FDCWD, "../file", O_RDONLY, 0, BENEATH));
	SHOW(how_to_open(AT_FDCWD, "../file", O_RDONLY, 0, IN_ROOT));
	SHOW(chdir("../.."));
	say("made");
	SHOW(how_to_open(root, "new", O_CREAT | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "dir/new", O_CREAT | O_EXCL | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "dir/new", O_CREAT | O_EXCL | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "dangling", O_CREAT | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "dangling", O_CREAT | O_EXCL | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "../new", O_CREAT | O_WRONLY, 0600, BENEATH));
	SHOW(how_to_open(root, "/../made", O_CREAT | O_WRONLY, 0600, IN_ROOT));
	SHOW(how_to_open(root, "dir", O_TMPFILE | O_RDWR, 0600, BENEATH));
	show_names("root");
	show_names("root/dir");
	say("senseless");
	SHOW(how_to_open(root, "file", O_RDONLY, 0, BENEATH | IN_ROOT));
	SHOW(how_to_open(root, "file", O_RDONLY, 0, 0x80));
	SHOW(how_to_open(root, "nothing", O_RDONLY, 0, 0x80));
	SHOW(how_to_open(root, "nothing", 1ULL << 40, 0, 0));
	SHOW(how_to_open(root, "file", O_RDONLY, 0600, 0));
	SHOW(how_to_open(root, "new", O_CREAT | O_RDWR, 0200000, 0));
	SHOW(how_to_open(root, "file", O_PATH | O_RDWR | O_TRUNC, 0, 0));
	SHOW(how_to_open(root, "dir", O_TMPFILE, 0600, 0));
	SHOW(how_to_open(900, "file", O_RDONLY, 0, BENEATH));
	SHOW(how_to_open(open("root/file", O_RDONLY), "file", O_RDONLY, 0, BENEATH));
}
