/* Pipes and sockets that have a name. */
#include "check.h"
#include <stddef.h>
#include <sys/un.h>

static void show_poll(int fd, short events)
{
	struct pollfd entry = {.fd = fd, .events = events};
	SHOW(poll(&entry, 1, 0));
	say("events %x", entry.revents);
}

CHECK(pipes_have_names_links_and_attributes)
{
	umask(027);
	SHOW(mkfifo("pipe", 0666));
	SHOW(mknod("other", S_IFIFO | 0600, 0));
	show_stat("pipe");
	SHOW(mkfifo("pipe", 0600));
	SHOW(mkfifo("pipe/x", 0600));
	SHOW(mkfifo("none/pipe", 0600));
	SHOW(mkfifo("slash/", 0600));
	SHOW(symlink("round", "round"));
	SHOW(mkfifo("round", 0600));
	SHOW(mkfifo("round/pipe", 0600));
	SHOW(chmod("pipe", 0604));
	SHOW(link("pipe", "second"));
	SHOW(rename("second", "moved"));
	show_stat("moved");
	SHOW(truncate("pipe", 0));
	SHOW(chdir("pipe"));
	SHOW(open("pipe", O_RDONLY | O_DIRECTORY));
	SHOW(open("pipe", O_CREAT | O_EXCL | O_RDWR, 0600));
	SHOW(readlink("pipe", (char[8]){0}, 8));
	SHOW(execl("pipe", "pipe", NULL));
	show_names(".");
	DIR *listing = opendir(".");
	for (struct dirent *entry; (entry = readdir(listing));)
		if (strcmp(entry->d_name, "pipe") == 0)
			say("type %d", entry->d_type);
	closedir(listing);
	int fd = SHOW(open("pipe", O_PATH));
	show_fstat(fd);
	SHOW(read(fd, (char[1]){0}, 1));
	close(fd);
	make_file("file", "x");
	SHOW(rename("file", "other"));
	show_stat("other");
	SHOW(rename("pipe", "other"));
	show_stat("other");
	SHOW(unlink("other"));
	show_stat("moved");
	SHOW(unlink("moved"));
	show_names(".");
}

CHECK(pipes_wait_for_both_ends_and_carry_bytes)
{
	SHOW(mkdir("sub", 0700));
	SHOW(mkfifo("sub/pipe", 0600));
	SHOW(symlink("sub/pipe", "link"));
	SHOW(open("link", O_WRONLY | O_NONBLOCK));
	SHOW(open("link", O_RDONLY | O_NOFOLLOW));
	pid_t pid = fork();
	if (pid == 0) {
		pause_ms(100);
		int to = open("link", O_WRONLY | O_TRUNC);
		if (to < 0 || write(to, "through", 7) != 7) {
			say("the child: %s", strerrorname_np(errno));
			kill(getppid(), SIGKILL);
			_exit(1);
		}
		pause_ms(100);
		_exit(0);
	}
	int from = SHOW(open("sub/pipe", O_RDONLY));
	show_read(from, 30);
	SHOW(rename("sub/pipe", "pipe"));
	reap(pid);
	show_read(from, 30);
	int to = SHOW(open("pipe", O_WRONLY | O_NONBLOCK | O_CREAT, 0600));
	show_poll(from, POLLIN);
	SHOW(write(to, "more", 4));
	show_poll(from, POLLIN);
	SHOW(lseek(from, 0, SEEK_SET));
	int available = 0;
	SHOW(ioctl(from, FIONREAD, &available));
	say("%d bytes", available);
	SHOW(unlink("pipe"));
	show_read(from, 30);
	SHOW(mkfifo("pipe", 0600));
	SHOW(open("pipe", O_WRONLY | O_NONBLOCK));
	signal(SIGPIPE, SIG_IGN);
	close(from);
	SHOW(write(to, "x", 1));
	int both = SHOW(open("pipe", O_RDWR));
	SHOW(write(both, "own", 3));
	show_read(both, 3);
	struct stat status;
	SHOW(fstat(both, &status));
	say("%o", status.st_mode & S_IFMT);
}

static socklen_t address(struct sockaddr_un *to, const char *path)
{
	memset(to, 0, sizeof *to);
	to->sun_family = AF_UNIX;
	strcpy(to->sun_path, path);
	return offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1;
}

static int bind_to(int fd, const char *path)
{
	struct sockaddr_un to;
	return bind(fd, (struct sockaddr *)&to, address(&to, path));
}

static int connect_to(int fd, const char *path)
{
	struct sockaddr_un to;
	return connect(fd, (struct sockaddr *)&to, address(&to, path));
}

static int unix_socket(int type) { return socket(AF_UNIX, type | SOCK_CLOEXEC, 0); }

static void show_name(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_un name = {0};
	socklen_t bytes = sizeof name;
	SHOW(get(fd, (struct sockaddr *)&name, &bytes));
	say("%u bytes: %s", bytes, bytes > 2 ? name.sun_path : "");
}

static int sockname(int fd, struct sockaddr *to, socklen_t *bytes)
{
	return getsockname(fd, to, bytes);
}

static int peername(int fd, struct sockaddr *to, socklen_t *bytes)
{
	return getpeername(fd, to, bytes);
}

CHECK(sockets_are_bound_to_names_and_found_by_them)
{
	umask(022);
	int listening = unix_socket(SOCK_STREAM);
	make_file("file", "x");
	SHOW(bind_to(listening, "file"));
	SHOW(bind_to(listening, "none/socket"));
	SHOW(bind_to(listening, "socket"));
	SHOW(bind_to(listening, "again"));
	SHOW(bind_to(unix_socket(SOCK_STREAM), "socket"));
	show_stat("socket");
	show_name(listening, sockname);
	int fd = unix_socket(SOCK_STREAM);
	SHOW(connect_to(fd, "socket"));
	SHOW(connect_to(fd, "file"));
	SHOW(connect_to(fd, "none"));
	SHOW(listen(listening, 4));
	SHOW(open("socket", O_RDWR));
	SHOW(mkdir("sub", 0700));
	SHOW(rename("socket", "sub/moved"));
	SHOW(symlink("sub/moved", "link"));
	SHOW(connect_to(fd, "socket"));
	SHOW(connect_to(fd, "link"));
	show_name(fd, peername);
	int taken = accept(listening, NULL, NULL);
	SHOW(write(fd, "through", 7));
	show_read(taken, 30);
	char path[100];
	snprintf(path, sizeof path, "%s", getcwd(path, sizeof path) ? path : "");
	strcat(path, "/sub/moved");
	SHOW(connect_to(unix_socket(SOCK_STREAM), path) == 0);
	SHOW(unlink("sub/moved"));
	SHOW(connect_to(unix_socket(SOCK_STREAM), "sub/moved"));
	SHOW(write(taken, "back", 4));
	show_read(fd, 30);
	SHOW(mknod("made", S_IFSOCK | 0600, 0));
	show_stat("made");
	SHOW(connect_to(unix_socket(SOCK_STREAM), "made"));
	SHOW(bind_to(0, "bad"));
	SHOW(bind_to(-1, "bad"));
	show_names(".");
}

CHECK(datagrams_are_sent_to_names)
{
	int receiving = unix_socket(SOCK_DGRAM), sending = unix_socket(SOCK_DGRAM);
	SHOW(bind_to(receiving, "inbox"));
	struct sockaddr_un to;
	socklen_t bytes = address(&to, "inbox");
	SHOW(sendto(sending, "one", 3, 0, (struct sockaddr *)&to, bytes));
	struct iovec piece = {"two", 3};
	struct msghdr message = {
		.msg_name = &to, .msg_namelen = bytes, .msg_iov = &piece, .msg_iovlen = 1};
	SHOW(sendmsg(sending, &message, 0));
	SHOW(connect_to(sending, "inbox"));
	SHOW(send(sending, "three", 5, 0));
	for (int round = 0; round < 3; round++)
		show_read(receiving, 30);
	bytes = address(&to, "none");
	SHOW(sendto(sending, "x", 1, 0, (struct sockaddr *)&to, bytes));
}
