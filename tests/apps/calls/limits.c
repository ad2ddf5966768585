/* Names, paths and numbers at the edge of what is allowed and beyond. */
#include "check.h"

CHECK(names_of_255_bytes_are_served_and_longer_ones_refused)
{
	char name[300];
	struct stat stat_;
	memset(name, 'n', sizeof name);
	name[255] = 0;
	SHOW(creat(name, 0600));
	SHOW(stat(name, &stat_));
	SHOW(rename(name, "short"));
	SHOW(rename("short", name));
	SHOW(access(name, F_OK));
	name[255] = 'n', name[256] = 0;
	SHOW(open(name, O_CREAT | O_RDWR, 0600));
	SHOW(mkdir(name, 0700));
	SHOW(rename("short", name));
	SHOW(symlink("x", name));
	SHOW(link("short", name));
	SHOW(stat(name, &stat_));
	SHOW(unlink(name));
	SHOW(mkdir("dir", 0700));
	char below[600];
	snprintf(below, sizeof below, "dir/%s/x", name);
	SHOW(stat(below, &stat_));
}

CHECK(paths_over_path_max_are_refused_and_deeper_trees_are_served)
{
	char path[5000] = "";
	for (int at = 0; at < 4094; at += 2)
		strcpy(path + at, "./");
	strcpy(path + 4094, "x");
	SHOW(strlen(path) == 4095);
	int fd = SHOW(open(path, O_CREAT | O_RDWR, 0600));
	SHOW(close(fd));
	strcpy(path + 4094, "./");
	SHOW(open(path, O_RDONLY));
	SHOW(access(path, F_OK));
	SHOW(chdir(path));
	SHOW(mkdir(path, 0700));
	SHOW(symlink(path, "link"));
	path[4095] = 0;
	SHOW(symlink(path, "link"));
	/* Deeper than a path can say: step by step. */
	char name[201];
	memset(name, 'd', 200);
	name[200] = 0;
	int wrong = 0;
	for (int at = 0; at < 30; at++)
		wrong += mkdir(name, 0700) != 0 || chdir(name) != 0;
	say("wrong %d", wrong);
	SHOW(syscall(SYS_getcwd, path, sizeof path) > 4096 || errno == ENAMETOOLONG);
	close(make_file("deep", "text"));
	show_file("deep");
	SHOW(unlink("deep"));
	wrong = 0;
	for (int at = 0; at < 30; at++)
		wrong += chdir("..") != 0 || rmdir(name) != 0;
	say("wrong %d", wrong);
	show_names("link");
}

CHECK(every_byte_but_slash_and_zero_may_be_in_a_name)
{
	char name[16];
	int made = 0, found = 0;
	for (int byte = 1; byte < 256; byte++) {
		if (byte == '/')
			continue;
		snprintf(name, sizeof name, "n%c%c", byte, byte);
		int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
		made += fd >= 0;
		close(fd);
	}
	DIR *stream = opendir(".");
	struct dirent *entry;
	while ((entry = readdir(stream)))
		found += entry->d_name[0] == 'n' && strlen(entry->d_name) == 3 &&
			 entry->d_name[1] == entry->d_name[2];
	closedir(stream);
	say("made %d, found %d", made, found);
	SHOW(creat("new\nline", 0600));
	SHOW(mkdir("\xff\xfe\xc3\x28", 0700));
	SHOW(creat("\xff\xfe\xc3\x28/\xed\xa0\x80", 0600));
	SHOW(symlink("\x80\n", "to"));
	char target[8] = "";
	SHOW(readlink("to", target, sizeof target));
	SHOW(strcmp(target, "\x80\n"));
	SHOW(chdir("\xff\xfe\xc3\x28"));
	char path[4096] = "";
	SHOW(getcwd(path, sizeof path) != NULL);
	SHOW(strcmp(strrchr(path, '/'), "/\xff\xfe\xc3\x28"));
	SHOW(unlink("\xed\xa0\x80"));
	SHOW(chdir(".."));
	SHOW(unlink("new\nline"));
}

CHECK(offsets_beyond_two_to_the_63_are_refused)
{
	int fd = make_file("file", "text");
	char byte;
	SHOW(lseek(fd, INT64_MIN, SEEK_SET));
	SHOW(lseek(fd, INT64_MIN, SEEK_END));
	SHOW(lseek(fd, INT64_MIN, SEEK_CUR));
	SHOW(lseek(fd, -5, SEEK_END));
	SHOW(lseek(fd, INT64_MAX, SEEK_END));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(pread(fd, &byte, 1, INT64_MIN));
	SHOW(pwrite(fd, &byte, 1, INT64_MIN));
	SHOW(pwrite(fd, &byte, 1, -1));
	SHOW(ftruncate(fd, INT64_MIN));
	SHOW(truncate("file", -1));
	SHOW(posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL));
	show_file("file");
}

CHECK(lengths_beyond_the_largest_file_are_refused)
{
	int fd = make_file("file", "text");
	REFUSED(EFBIG, ftruncate(fd, INT64_MAX));
	REFUSED(EFBIG, truncate("file", INT64_MAX));
	IS(-1, pwrite(fd, "x", 1, INT64_MAX));
	IS(-1, pwrite(fd, "x", 1, INT64_MAX - 5));
	IS(4, lseek(fd, 0, SEEK_END));
	IS(0, pread(fd, (char[4]){0}, 4, INT64_MAX - 10));
}

/* A call refuses a flag that it does not know before it looks at the path. */
CHECK(flags_that_a_call_does_not_know_are_refused)
{
	static const char *paths[] = {"file", "none", "", "dir", "file/x", "link"};
	static const int flags[] = {0x2, 0x100, 0x200, 0x400, 0x800, 0x8000, 0x6000, 0x100000, INT32_MIN};
	struct timespec times[2] = {{1, 0}, {2, 0}}, none[2] = {{1, 2000000000}, {2, 0}};
	struct stat stat_;
	struct statx statx_;
	close(make_file("file", "text"));
	mkdir("dir", 0755), symlink("none", "link");
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		const char *path = paths[i];
		say("%s", path);
		for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
			int flag = flags[k];
			say("%x", (unsigned)flag);
			SHOW(syscall(SYS_newfstatat, AT_FDCWD, path, &stat_, flag));
			SHOW(syscall(SYS_statx, AT_FDCWD, path, flag, 0xfff, &statx_));
			SHOW(syscall(439 /* faccessat2 */, AT_FDCWD, path, R_OK, flag));
			SHOW(syscall(SYS_utimensat, AT_FDCWD, path, times, flag));
			SHOW(syscall(SYS_fchownat, AT_FDCWD, path, -1, -1, flag));
			SHOW(syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, "none/x", flag));
			SHOW(syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, "none/x", flag & ~4));
		}
		SHOW(renameat2(AT_FDCWD, path, AT_FDCWD, "", RENAME_NOREPLACE | RENAME_EXCHANGE));
		SHOW(syscall(SYS_statx, AT_FDCWD, path, 0, 0x80000000, &statx_));
		SHOW(syscall(SYS_utimensat, AT_FDCWD, path, none, 0));
		SHOW(mknod(path, S_IFDIR | 0755, 0));
	}
	int fd = open("file", O_RDONLY);
	SHOW(posix_fadvise(fd, 0, 0, 99));
	SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	SHOW(fstatat(fd, "", &stat_, AT_EMPTY_PATH | 2));
	SHOW(futimens(fd, none));
	SHOW(linkat(AT_FDCWD, "/proc/self/fd/999", AT_FDCWD, "x", AT_SYMLINK_FOLLOW));
}
