/* Ways to files, some of which were gone before. */
#include "check.h"

/* What ways to two names lead to, from here and from a directory on one of them. */
static void show_ways(void)
{
	show_stat("a/b/c/name");
	show_stat("x/name");
	show_stat("b/c/name");
	chdir("a"), show_stat("b/c/name"), chdir("..");
}

CHECK(a_way_leads_elsewhere_as_soon_as_a_directory_on_it_has_moved)
{
	mkdir("a", 0755), mkdir("a/b", 0755), mkdir("a/b/c", 0755), mkdir("x", 0755);
	close(make_file("a/b/c/name", "one")), close(make_file("x/name", "other"));
	show_ways();
	/* Another directory takes the place of one on the way, and back. */
	SHOW(renameat2(AT_FDCWD, "a/b/c", AT_FDCWD, "x", RENAME_EXCHANGE));
	show_ways();
	SHOW(renameat2(AT_FDCWD, "a/b/c", AT_FDCWD, "x", RENAME_EXCHANGE));
	show_ways();
	/* One further up goes, in another process. */
	pid_t pid = fork();
	if (pid == 0)
		_exit(rename("a/b", "b") != 0);
	reap(pid);
	show_ways();
	/* Links and files stand where directories were. */
	SHOW(symlink("../x", "a/b"));
	show_ways();
	SHOW(unlink("a/b"));
	SHOW(symlink("../b", "a/b"));
	show_ways();
	SHOW(unlink("a/b"));
	close(make_file("a/b", "file"));
	show_ways();
	SHOW(renameat2(AT_FDCWD, "a/b", AT_FDCWD, "b", RENAME_EXCHANGE));
	show_ways();
	/* An empty directory is replaced by one that is not. */
	SHOW(unlink("x/name"));
	show_ways();
	SHOW(rename("a/b/c", "x"));
	show_ways();
	/* One is removed, and what comes in its place is no directory. */
	SHOW(unlink("x/name"));
	show_ways();
	SHOW(rmdir("x"));
	show_ways();
	SHOW(symlink("a", "x"));
	close(make_file("a/name", "third"));
	show_ways();
	SHOW(unlink("x")), close(make_file("x", "file"));
	show_ways();
}
