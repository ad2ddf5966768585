/* Names, attributes, directories, links, working directories. */
#include "check.h"

CHECK(calls_relative_to_a_directory_descriptor_stay_there)
{
	SHOW(mkdir("dir", 0755));
	int dir = SHOW(open("dir", O_RDONLY | O_DIRECTORY));
	int fd = SHOW(openat(dir, "file", O_CREAT | O_RDWR, 0600));
	SHOW(write(fd, "text", 4));
	SHOW(mkdirat(dir, "sub", 0700));
	SHOW(mknodat(dir, "node", S_IFREG | 0640, 0));
	SHOW(symlinkat("file", dir, "link"));
	SHOW(linkat(dir, "file", AT_FDCWD, "hard", 0));
	SHOW(linkat(dir, "link", dir, "of-link", 0));
	SHOW(linkat(dir, "link", dir, "followed", AT_SYMLINK_FOLLOW));
	SHOW(renameat(dir, "node", AT_FDCWD, "node"));
	SHOW(rename("dir", "moved"));
	SHOW(faccessat(dir, "file", F_OK, 0));
	SHOW(faccessat(dir, "node", F_OK, 0));
	SHOW(fchmodat(dir, "file", 0611, 0));
	char target[16] = "";
	SHOW(readlinkat(dir, "link", target, sizeof target));
	struct stat stat;
	SHOW(fstatat(dir, "link", &stat, AT_SYMLINK_NOFOLLOW));
	say("%o", stat.st_mode);
	SHOW(fstatat(dir, "link", &stat, 0));
	say("%o", stat.st_mode);
	SHOW(fstatat(fd, "", &stat, AT_EMPTY_PATH));
	SHOW(fstatat(fd, "", &stat, 0));
	SHOW(fstatat(fd, "x", &stat, 0));
	SHOW(fstatat(900, "x", &stat, 0));
	SHOW(unlinkat(dir, "sub", 0));
	SHOW(unlinkat(dir, "file", AT_REMOVEDIR));
	SHOW(unlinkat(dir, "sub", AT_REMOVEDIR));
	SHOW(unlinkat(dir, "of-link", 0));
	show_names("moved");
	show_names(".");
	show_file("hard");
	show_stat("hard");
}

CHECK(attributes_agree_between_all_calls_that_report_them)
{
	int fd = make_file("file", "0123456789");
	struct stat one, two;
	struct statx x;
	SHOW(symlink("file", "link"));
	SHOW(stat("link", &one));
	SHOW(fstat(fd, &two));
	say("same %d", one.st_ino == two.st_ino && one.st_dev == two.st_dev &&
	    one.st_mtime == two.st_mtime && one.st_blocks == two.st_blocks);
	SHOW(statx(AT_FDCWD, "link", 0, STATX_BASIC_STATS, &x));
	say("same %d", one.st_ino == x.stx_ino && one.st_mode == x.stx_mode &&
	    one.st_size == (long)x.stx_size && one.st_nlink == x.stx_nlink);
	say("all %d", (x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	SHOW(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
	say("size %ld", (long)x.stx_size);
	SHOW(statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &x));
	say("type %o size %ld", x.stx_mode & S_IFMT, (long)x.stx_size);
	SHOW(statx(AT_FDCWD, "none", 0, STATX_TYPE, &x));
	SHOW(statx(AT_FDCWD, "file", 0x10000, STATX_TYPE, &x));
	SHOW(statx(fd, "", 0, STATX_TYPE, &x));
	SHOW(lstat("link", &one));
	say("%o %ld", one.st_mode, (long)one.st_size);
	SHOW(stat("file/", &one));
	SHOW(stat("", &one));
	SHOW(stat((char *)-4096, &one));
	SHOW(stat("file", (struct stat *)-4096));
}

CHECK(access_tells_what_exists)
{
	close(make_file("file", "text"));
	close(creat("program", 0755));
	SHOW(access("file", F_OK));
	SHOW(access("file", R_OK | W_OK));
	SHOW(access("file", X_OK));
	SHOW(access("program", X_OK));
	SHOW(access(".", R_OK | W_OK | X_OK));
	SHOW(access("none", F_OK));
	SHOW(access("file/x", F_OK));
	SHOW(access("file", 55));
	SHOW(faccessat(AT_FDCWD, "file", R_OK, AT_EACCESS));
	SHOW(symlink("none", "dangling"));
	SHOW(faccessat(AT_FDCWD, "dangling", F_OK, 0));
	SHOW(faccessat(AT_FDCWD, "dangling", F_OK, AT_SYMLINK_NOFOLLOW));
	SHOW(eaccess("program", X_OK));
}

CHECK(rename_replaces_and_refuses_as_its_flags_say)
{
	close(make_file("a", "aaa")), close(make_file("b", "bbb"));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", 64));
	int open_target = open("b", O_RDONLY);
	SHOW(rename("c", "b"));
	show_read(open_target, 3);
	show_fstat(open_target);
	show_file("b");
	SHOW(rename("b", "b"));
	SHOW(link("b", "hard"));
	SHOW(rename("b", "hard"));
	show_names(".");
	SHOW(mkdir("d1", 0755)), SHOW(mkdir("d2", 0755)), SHOW(mkdir("d1/sub", 0755));
	SHOW(rename("b", "d1"));
	SHOW(rename("d1", "b"));
	SHOW(rename("d1", "d1/sub/x"));
	SHOW(rename("d1/sub", "d1"));
	SHOW(rename("d2", "d1"));
	SHOW(rename("d1", "d2"));
	show_names("d2");
	SHOW(rename("d2", "none/x"));
	SHOW(rename("none", "x"));
	SHOW(rename("d2/sub/", "d3/"));
	SHOW(rename("b", "x/"));
	SHOW(rename(".", "x"));
	SHOW(rename("d3", ".."));
	SHOW(symlink("b", "link"));
	SHOW(rename("link", "link2"));
	SHOW(rename("link2", "b"));
	show_names(".");
}

static struct statx_timestamp birth_of(const char *path)
{
	struct statx x = {0};
	int result = statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &x);
	say("%s: %d, birth %s, %s", path, result, x.stx_mask & STATX_BTIME ? "told" : "unknown",
	    x.stx_btime.tv_sec == 0 ? "never" : "some time");
	return x.stx_btime;
}

CHECK(the_time_of_birth_is_told_and_stays)
{
	int fd = make_file("file", "text");
	mkdir("dir", 0755), symlink("file", "link");
	struct stat got;
	fstat(fd, &got);
	struct statx_timestamp born = birth_of("file"), now;
	say("near %d", labs((long)(born.tv_sec - got.st_mtime)) <= 1);
	birth_of("dir"), birth_of("link");
	pause_ms(20);
	SHOW(write(fd, "more", 4));
	SHOW(fchmod(fd, 0640));
	SHOW(utimensat(AT_FDCWD, "file", (struct timespec[]){{5, 0}, {6, 0}}, 0));
	SHOW(ftruncate(fd, 100000));
	SHOW(rename("file", "dir/moved"));
	SHOW(link("dir/moved", "second"));
	now = birth_of("second");
	say("same %d", born.tv_sec == now.tv_sec && born.tv_nsec == now.tv_nsec);
	/* Nothing that was not asked for is missing. */
	struct statx x;
	SHOW(statx(fd, "", AT_EMPTY_PATH, 0, &x));
	SHOW(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x));
	say("%d %ld", (x.stx_mask & 0xfff) == 0xfff, (long)x.stx_size);
	SHOW(statx(fd, "", AT_EMPTY_PATH, 0x80000000u, &x));
	SHOW(statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, 0, &x));
	SHOW(statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BTIME, &x));
}

CHECK(whiteout_is_refused)
{
	close(make_file("a", "aaa"));
	REFUSED(EINVAL, renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_WHITEOUT));
	show_file("a");
}

CHECK(names_do_not_move_across_the_border)
{
	close(make_file("inside", "text"));
	close(make_file("../../tmp/outside", "text"));
	REFUSED(EXDEV, rename("inside", "../../tmp/x"));
	REFUSED(EXDEV, rename("../../tmp/outside", "x"));
	REFUSED(EXDEV, link("inside", "../../tmp/x"));
	REFUSED(EXDEV, link("../../tmp/outside", "x"));
	show_file("inside");
	show_file("../../tmp/outside");
	IS(0, unlink("../../tmp/outside"));
}

CHECK(a_bad_directory_is_told_before_the_border)
{
	close(make_file("inside", "text"));
	close(make_file("../../tmp/outside", "text"));
	SHOW(linkat(900, "name", AT_FDCWD, "x", 0));
	SHOW(linkat(AT_FDCWD, "inside", 900, "x", 0));
	SHOW(renameat(AT_FDCWD, "inside", 900, "x"));
	SHOW(link("../../tmp/outside/below", "x"));
	SHOW(link("inside", "../../tmp/outside/below"));
	SHOW(unlink("../../tmp/outside"));
}

CHECK(links_count_and_unlinked_files_stay_open)
{
	int fd = make_file("file", "0123456789");
	SHOW(link("file", "hard"));
	SHOW(link("file", "hard"));
	SHOW(mkdir("dir", 0755));
	SHOW(link("dir", "dirlink"));
	SHOW(link("none", "x"));
	show_stat("file");
	SHOW(unlink("file"));
	show_stat("hard");
	SHOW(unlink("hard"));
	show_fstat(fd);
	SHOW(pwrite(fd, "unlinked", 8, 20000));
	close(make_file("file", "another"));
	/* It lives on through fork and exec. */
	SHOW(lseek(fd, 3, SEEK_SET));
	char number[16];
	snprintf(number, sizeof number, "%d", fd);
	reap(spawn_self((char *[]){"calls", "--read", number, NULL}));
	reap(spawn_self((char *[]){"calls", "--write", number, "from a child", NULL}));
	SHOW(lseek(fd, 0, SEEK_CUR));
	show_fstat(fd);
	SHOW(lseek(fd, 0, SEEK_SET));
	show_read(fd, 30000);
	show_file("file");
	SHOW(unlink("dir"));
	SHOW(unlink("none"));
	SHOW(unlink("file/x"));
	SHOW(unlink("file/"));
	SHOW(rmdir("file"));
	SHOW(linkat(fd, "", AT_FDCWD, "again", AT_EMPTY_PATH));
	show_names(".");
}

CHECK(mknod_makes_no_device)
{
	IS(0, mknod("file", S_IFREG | 0600, 0));
	REFUSED(EEXIST, mknod("file", S_IFREG | 0600, 0));
	IS(0, mknod("plain", 0600, 0));
	REFUSED(EPERM, mknod("device", S_IFCHR | 0600, 0x103));
	REFUSED(EPERM, mknod("device", S_IFBLK | 0600, 0x103));
	REFUSED(EINVAL, mknod("device", 0170000 | 0600, 0));
	REFUSED(EEXIST, mknod("file", S_IFCHR | 0600, 0x103));
	REFUSED(ENOENT, mknod("none/device", S_IFCHR | 0600, 0x103));
	REFUSED(ENOTDIR, mknod("file/device", S_IFCHR | 0600, 0x103));
	IS(0, symlink("round", "round"));
	REFUSED(EEXIST, mknod("round", S_IFCHR | 0600, 0x103));
	REFUSED(ELOOP, mknod("round/device", S_IFCHR | 0600, 0x103));
	show_names(".");
}

CHECK(directories_are_made_and_removed)
{
	SHOW(mkdir("dir", 01777));
	show_stat("dir");
	SHOW(mkdir("dir", 0755));
	SHOW(mkdir("dir/a", 0755));
	SHOW(mkdir("none/a", 0755));
	SHOW(mkdir("dir/b/", 0755));
	show_stat("dir");
	SHOW(rmdir("dir"));
	SHOW(rmdir("dir/a/."));
	SHOW(rmdir("dir/a/.."));
	SHOW(rmdir("dir/a"));
	SHOW(symlink("dir/b", "link"));
	SHOW(rmdir("link"));
	SHOW(rmdir("link/"));
	SHOW(rmdir("dir/b"));
	SHOW(rmdir("dir"));
	SHOW(rmdir("none"));
	SHOW(mkdir("link", 0755));
}

enum { MANY = 10000 };

static int mark_all(DIR *stream, char *seen)
{
	int count = 0;
	struct dirent *entry;
	while ((entry = readdir(stream))) {
		if (entry->d_name[0] != 'n')
			continue;
		int at = atoi(entry->d_name + 1);
		count += seen[at] == 0;
		seen[at]++;
	}
	return count;
}

CHECK(a_listing_has_every_entry_once_and_can_be_moved)
{
	static char seen[MANY];
	SHOW(mkdir("dir", 0755));
	char name[32];
	for (int at = 0; at < MANY; at++) {
		snprintf(name, sizeof name, "dir/n%d", at);
		close(creat(name, 0600));
	}
	DIR *stream = opendir("dir");
	SHOW(mark_all(stream, seen));
	int twice = 0;
	for (int at = 0; at < MANY; at++)
		twice += seen[at] > 1;
	say("twice %d", twice);
	rewinddir(stream);
	for (int at = 0; at < 7000; at++)
		readdir(stream);
	long place = telldir(stream);
	memset(seen, 0, sizeof seen);
	int rest = mark_all(stream, seen);
	say("rest %d", rest <= 3000 && rest >= 2998);
	seekdir(stream, place);
	memset(seen, 0, sizeof seen);
	say("again %d", mark_all(stream, seen) - rest);
	SHOW(lseek(dirfd(stream), 0, SEEK_SET));
	SHOW(closedir(stream));
	/* Entries go while the listing runs; those that stay are all seen. */
	stream = opendir("dir");
	memset(seen, 0, sizeof seen);
	int removed = 0;
	struct dirent *entry;
	while ((entry = readdir(stream))) {
		if (entry->d_name[0] != 'n')
			continue;
		int at = atoi(entry->d_name + 1);
		seen[at]++;
		if (at % 2 == 0) {
			snprintf(name, sizeof name, "dir/n%d", at);
			removed += unlink(name) == 0;
		}
	}
	int missed = 0;
	for (int at = 1; at < MANY; at += 2)
		missed += seen[at] != 1;
	say("removed %d, missed %d", removed, missed);
	closedir(stream);
	stream = opendir("dir");
	memset(seen, 0, sizeof seen);
	SHOW(mark_all(stream, seen));
	closedir(stream);
	int fd = open("dir", O_RDONLY);
	SHOW(syscall(SYS_getdents64, fd, (char[8]){0}, 8));
	SHOW(read(fd, name, 8));
	SHOW(syscall(SYS_getdents64, make_file("file", ""), (char[512]){0}, 512));
	SHOW(rmdir("dir"));
}

CHECK(symbolic_links_lead_in_and_out)
{
	char path[4096], here[4096], name[4200];
	SHOW(getcwd(here, sizeof here) != NULL);
	close(make_file("file", "inside"));
	SHOW(symlink("file", "relative"));
	snprintf(name, sizeof name, "%s/file", here);
	SHOW(symlink(name, "absolute"));
	SHOW(symlink("../../tmp", "out"));
	close(make_file("out/outside", "outside"));
	show_file("../../tmp/outside");
	show_file("relative"), show_file("absolute"), show_file("out/outside");
	SHOW(symlink(name, "out/in"));
	snprintf(name, sizeof name, "%s", here);
	SHOW(symlink(name, "out/indir"));
	show_file("out/in");
	show_file("out/indir/file");
	show_file("out/indir/out/indir/relative");
	close(make_file("out/indir/made", "through two links"));
	show_file("made");
	memset(path, 0, sizeof path);
	SHOW(readlink("relative", path, 3));
	say("%s", path);
	SHOW(readlink("file", path, sizeof path));
	SHOW(readlink("relative", path, 0));
	SHOW(chdir("out/indir"));
	SHOW(strcmp(getcwd(path, sizeof path), here));
	SHOW(chdir("out"));
	SHOW(getcwd(path, sizeof path) != NULL);
	say("%s", path);
	show_file("outside");
	SHOW(chdir("indir"));
	char *real = realpath("out/in", NULL);
	say("%s", real ? real : strerrorname_np(errno));
	SHOW(symlink("", "empty"));
	SHOW(symlink("x", "relative"));
	SHOW(unlink("out/outside")), SHOW(unlink("out/in")), SHOW(unlink("out/indir"));
	show_names(".");
}

static void where(void)
{
	char path[4096];
	long result = syscall(SYS_getcwd, path, sizeof path);
	say("in %s", result > 0 && path[0] == '/' ? path : result < 0 ? strerrorname_np(errno) : path);
}

CHECK(the_working_directory_moves_with_its_name)
{
	SHOW(mkdir("a", 0755)), SHOW(mkdir("a/b", 0755)), SHOW(mkdir("a/b/c", 0755));
	SHOW(chdir("a/b/c"));
	where();
	close(make_file("file", "text"));
	int up = open("../../..", O_RDONLY | O_DIRECTORY);
	SHOW(renameat(up, "a", up, "moved"));
	where();
	show_file("file");
	show_file("../c/file");
	reap(spawn_self((char *[]){"calls", "--where", NULL}));
	SHOW(chdir(".."));
	where();
	SHOW(chdir("none"));
	SHOW(chdir("c/file"));
	SHOW(fchdir(up));
	where();
	SHOW(fchdir(900));
	SHOW(fchdir(make_file("plain", "")));
	SHOW(syscall(SYS_getcwd, (char[4]){0}, 4));
	SHOW(chdir("../.."));
	where();
	SHOW(access("run", F_OK));
	SHOW(chdir("mount/d"));
	where();
	SHOW(chdir("/"));
	where();
}

CHECK(a_removed_working_directory_is_empty_and_has_no_name)
{
	SHOW(mkdir("gone", 0755));
	SHOW(chdir("gone"));
	SHOW(rmdir("../gone"));
	char path[4096];
	SHOW(getcwd(path, sizeof path) != NULL);
	SHOW(creat("file", 0600));
	SHOW(mkdir("dir", 0700));
	SHOW(open("file", O_RDONLY));
	SHOW(open(".", O_RDONLY) >= 0);
	struct stat stat_;
	SHOW(stat(".", &stat_));
	SHOW(rename("../gone", "../x"));
	pid_t pid = fork();
	if (pid == 0) {
		SHOW(creat("file", 0600));
		_exit(0);
	}
	reap(pid);
	SHOW(chdir(".."));
	show_names(".");
}

CHECK(dots_lead_out_of_the_mount_and_back)
{
	struct stat one, two;
	SHOW(stat("../..", &one));
	SHOW(stat("../../mount/../.", &two));
	say("same %d", one.st_ino == two.st_ino);
	close(make_file("file", "text"));
	show_file("../../mount/d/file");
	show_file(".././d/../../mount//d/./file");
	SHOW(open("../..", O_RDONLY | O_DIRECTORY));
	show_names("../../tmp");
	SHOW(mkdir("../../tmp/made", 0755));
	SHOW(rmdir("../../tmp/made"));
	SHOW(mkdir("../../mount", 0755));
	int top = open("..", O_RDONLY);
	SHOW(faccessat(top, "../run", F_OK, 0));
	SHOW(openat(top, "../mount/d/file", O_RDONLY));
}

CHECK(modes_are_stored_and_reported)
{
	int fd = make_file("file", "text");
	SHOW(chmod("file", 0751)), show_stat("file");
	SHOW(fchmod(fd, 04755)), show_stat("file");
	SHOW(fchmodat(AT_FDCWD, "file", 0600, 0)), show_stat("file");
	SHOW(mkdir("dir", 0755));
	SHOW(chmod("dir", 02770)), show_stat("dir");
	SHOW(chmod("none", 0600));
	SHOW(fchmod(900, 0600));
	SHOW(symlink("file", "link"));
	SHOW(chmod("link", 0644)), show_stat("file");
	SHOW(chown("file", geteuid(), getegid()));
	SHOW(lchown("link", geteuid(), -1));
	SHOW(fchown(fd, -1, -1));
	SHOW(fchownat(fd, "", -1, getegid(), AT_EMPTY_PATH));
	show_stat("file");
}

CHECK(the_mode_of_a_link_cannot_be_changed)
{
	close(make_file("file", "text"));
	IS(0, symlink("file", "link"));
	REFUSED(EOPNOTSUPP, fchmodat(AT_FDCWD, "link", 0600, AT_SYMLINK_NOFOLLOW));
}

static void show_times(const char *path)
{
	struct stat stat;
	lstat(path, &stat);
	int new = stat.st_mtime > 1700000000, read = stat.st_atime > 1700000000;
	say("times %s: %ld.%09ld %ld.%09ld", path, new ? -1 : stat.st_mtime,
	    new ? 0 : stat.st_mtim.tv_nsec, read ? -1 : stat.st_atime,
	    read ? 0 : stat.st_atim.tv_nsec);
}

CHECK(times_are_set_by_every_call_that_sets_them)
{
	int fd = make_file("file", "text");
	make_large("large", 100000);
	SHOW(symlink("file", "link"));
	struct timespec some[2] = {{1000, 5}, {2000, 123456789}};
	SHOW(utimensat(AT_FDCWD, "file", some, 0)), show_times("file");
	SHOW(utimensat(AT_FDCWD, "large", some, 0)), show_times("large");
	SHOW(utimensat(AT_FDCWD, "link", some, AT_SYMLINK_NOFOLLOW)), show_times("link");
	struct timespec part[2] = {{0, UTIME_OMIT}, {3000, 0}};
	SHOW(futimens(fd, part)), show_times("file");
	part[0].tv_nsec = UTIME_NOW, part[1].tv_nsec = UTIME_OMIT;
	SHOW(futimens(fd, part)), show_times("file");
	SHOW(utimes("file", (struct timeval[]){{4000, 1}, {5000, 2}})), show_times("file");
	SHOW(utime("file", &(struct utimbuf){6000, 7000})), show_times("file");
	SHOW(futimesat(AT_FDCWD, "file", (struct timeval[]){{1, 0}, {2, 0}})), show_times("file");
	SHOW(lutimes("link", (struct timeval[]){{8000, 1}, {9000, 2}})), show_times("link");
	SHOW(write(fd, "more", 4)), show_times("file");
	SHOW(utimensat(AT_FDCWD, "file", NULL, 0)), show_times("file");
	SHOW(utimensat(AT_FDCWD, "none", some, 0));
	some[0].tv_nsec = 2000000000;
	SHOW(utimensat(AT_FDCWD, "file", some, 0));
	/* What was written before is not newer than a time set afterwards. */
	fd = open("large", O_RDWR);
	SHOW(pwrite(fd, "x", 1, 90000));
	some[0].tv_nsec = 0;
	SHOW(futimens(fd, some));
	SHOW(close(fd)), show_times("large");
}

CHECK(the_mask_takes_bits_of_new_files)
{
	SHOW(umask(027));
	close(creat("file", 0777));
	SHOW(mkdir("dir", 0777));
	SHOW(mknod("node", S_IFREG | 0666, 0));
	pid_t pid = fork();
	if (pid == 0) {
		close(creat("child", 0777));
		SHOW(umask(077));
		_exit(0);
	}
	reap(pid);
	SHOW(umask(0));
	close(creat("all", 0666));
	show_names(".");
	show_stat("file"), show_stat("dir"), show_stat("node"), show_stat("child"), show_stat("all");
}

CHECK(statfs_tells_the_instance)
{
	struct statfs one, two;
	int fd = make_file("file", "text");
	IS(0, statfs(".", &one));
	IS(0, fstatfs(fd, &two));
	/* tmpfs where inotify tells everything, else one that nobody knows. */
	IS(1, one.f_type == 0x01021994 || one.f_type == 0x5346594d);
	IS(1, one.f_type == two.f_type);
	IS(255, one.f_namelen);
	IS(1, one.f_blocks > 0 && one.f_bavail <= one.f_blocks && one.f_bsize > 0);
	REFUSED(ENOENT, statfs("none", &one));
	struct stat stat_;
	IS(0, stat("file", &stat_));
	IS(65536, stat_.st_blksize);
}
