/* Names that change places. */
#include "check.h"

CHECK(exchange_swaps_two_names)
{
	close(make_file("a", "aaa")), close(make_file("b", "bbb"));
	SHOW(mkdir("d", 0755));
	close(make_file("d/inside", "text"));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE));
	show_file("a"), show_file("b");
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "none", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_EXCHANGE));
	show_names("a"), show_file("d");
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "a/inside", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE | RENAME_NOREPLACE));
	show_names(".");
}

static void show_link(const char *path)
{
	char target[100] = "";
	SHOW(readlink(path, target, sizeof target - 1));
	say("%s says %s", path, target);
}

static void show_links_of(const char *path)
{
	struct stat got;
	say("%s has %ld links", path, stat(path, &got) ? -1 : (long)got.st_nlink);
}

CHECK(exchange_swaps_directories_and_links_between_parents)
{
	mkdir("p", 0755), mkdir("q", 0755), mkdir("p/d", 0755), mkdir("q/e", 0700);
	mkdir("p/d/sub", 0755), mkdir("q/e/x", 0755), mkdir("q/e/y", 0755);
	close(make_file("p/d/one", "one")), close(make_file("q/file", "file"));
	int fd = open("p/d", O_RDONLY), open_file = open("q/file", O_RDWR);
	/* Two directories, neither of them empty. */
	SHOW(renameat2(AT_FDCWD, "p/d", AT_FDCWD, "q/e", RENAME_EXCHANGE));
	show_names("p/d"), show_names("q/e");
	show_stat("p/d"), show_stat("q/e");
	show_links_of("p"), show_links_of("q");
	SHOW(faccessat(fd, "../file", F_OK, 0));
	show_file("q/e/one");
	SHOW(rmdir("q/e"));
	/* A directory and a file: the counts of both parents change. */
	SHOW(renameat2(AT_FDCWD, "p/d", AT_FDCWD, "q/file", RENAME_EXCHANGE));
	show_links_of("p"), show_links_of("q");
	show_file("p/d"), show_names("q/file");
	SHOW(write(open_file, "more", 4));
	show_file("p/d");
	SHOW(rmdir("p/d"));
	SHOW(unlink("q/file"));
	/* Symbolic links, as they are. */
	SHOW(symlink("q/nothing", "link"));
	SHOW(renameat2(AT_FDCWD, "link", AT_FDCWD, "p/d", RENAME_EXCHANGE));
	show_file("link"), show_link("p/d");
	SHOW(renameat2(AT_FDCWD, "link", AT_FDCWD, "q", RENAME_EXCHANGE));
	show_names("link"), show_file("q");
	SHOW(renameat2(AT_FDCWD, "link", AT_FDCWD, "q", RENAME_EXCHANGE));
	/* Two names of one file, one name twice. */
	close(make_file("a", "aaa")), SHOW(link("a", "b"));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "a", RENAME_EXCHANGE));
	show_stat("a");
	/* What would be below itself. */
	SHOW(renameat2(AT_FDCWD, "q", AT_FDCWD, "q/e/sub", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "q/e/sub", AT_FDCWD, "q", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "q/e", AT_FDCWD, "q/.", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "a/", AT_FDCWD, "q", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "q/", AT_FDCWD, "p/", RENAME_EXCHANGE));
	/* A working directory goes along. */
	SHOW(chdir("p/e/sub"));
	SHOW(renameat2(AT_FDCWD, "../../../p/e", AT_FDCWD, "../../../q", RENAME_EXCHANGE));
	show_names("..");
	show_names("../..");
	SHOW(mkdir("../new", 0755));
	show_links_of("..");
}
