/* Extended attributes. */
#include "check.h"
#include <sys/xattr.h>

static void show_value(const char *path, const char *name)
{
	char value[70000];
	errno = 0;
	long count = getxattr(path, name, value, sizeof value);
	say("%s of %s: %ld %s", name, path, count, count < 0 ? strerror(errno) : "");
	if (count >= 0)
		show_bytes("value", value, count);
}

static int in_order(const void *one, const void *other)
{
	return strcmp(*(const char **)one, *(const char **)other);
}

/* The names that start with `user.`: the kernel may add others of its own. */
static void show_names_of(const char *path)
{
	char list[70000], *names[100];
	long bytes = llistxattr(path, list, sizeof list);
	int count = 0;
	for (char *name = list; bytes > 0 && name < list + bytes; name += strlen(name) + 1)
		if (strncmp(name, "user.", 5) == 0)
			names[count++] = name;
	qsort(names, count, sizeof *names, in_order);
	for (int i = 0; i < count; i++)
		say("%s has %s", path, names[i]);
	say("%s has %d", path, bytes < 0 ? -1 : count);
}

CHECK(extended_attributes_are_set_read_listed_and_removed)
{
	int fd = make_file("file", "text");
	mkdir("dir", 0755);
	symlink("file", "link");
	char value[100];
	SHOW(getxattr("file", "user.a", value, sizeof value));
	SHOW(listxattr("file", value, 0));
	SHOW(setxattr("file", "user.a", "one", 3, XATTR_REPLACE));
	SHOW(setxattr("file", "user.a", "one", 3, XATTR_CREATE));
	SHOW(setxattr("file", "user.a", "two", 3, XATTR_CREATE));
	SHOW(setxattr("file", "user.a", "three", 5, XATTR_REPLACE));
	SHOW(setxattr("file", "user.empty", NULL, 0, 0));
	SHOW(fsetxattr(fd, "user.binary", "\0\1\0\377", 4, 0));
	SHOW(setxattr("link", "user.through", "link", 4, 0));
	SHOW(setxattr("dir", "user.dir", "d", 1, 0));
	SHOW(setxattr(".", "user.here", "h", 1, 0));
	show_value("file", "user.a");
	show_value("link", "user.empty");
	show_value("file", "user.binary");
	show_value("dir", "user.dir");
	show_value(".", "user.here");
	show_names_of("file");
	show_names_of("dir");
	show_names_of("link");
	/* Sizes. */
	SHOW(getxattr("file", "user.a", NULL, 0));
	SHOW(getxattr("file", "user.a", value, 4));
	SHOW(fgetxattr(fd, "user.a", value, 5));
	SHOW(getxattr("file", "user.empty", value, 1));
	SHOW(lgetxattr("file", "user.through", value, sizeof value));
	SHOW(removexattr("file", "user.none"));
	SHOW(fremovexattr(fd, "user.empty"));
	SHOW(lremovexattr("file", "user.through"));
	SHOW(listxattr("dir", NULL, 0));
	SHOW(listxattr("dir", value, 3));
	SHOW(flistxattr(fd, value, sizeof value));
	show_names_of("file");
	/* They are the file's, whatever its names, its content and its mode. */
	SHOW(link("file", "second"));
	SHOW(rename("file", "dir/moved"));
	SHOW(ftruncate(fd, 100000));
	SHOW(fchmod(fd, 0600));
	show_value("second", "user.a");
	SHOW(setxattr("second", "user.a", "four", 4, 0));
	SHOW(unlink("dir/moved"));
	show_value("second", "user.a");
	SHOW(unlink("second"));
	SHOW(fgetxattr(fd, "user.a", value, sizeof value));
	SHOW(fsetxattr(fd, "user.late", "x", 1, 0));
	SHOW(fgetxattr(fd, "user.late", value, sizeof value));
	/* A new file of the old name has none. */
	make_file("file", "");
	show_names_of("file");
	SHOW(close(fd));
	SHOW(rmdir("dir"));
	mkdir("dir", 0755);
	show_names_of("dir");
}

CHECK(extended_attributes_refuse_what_a_local_file_system_refuses)
{
	int fd = make_file("file", "text"), path = open("file", O_PATH);
	symlink("file", "link");
	symlink("nothing", "dangling");
	char value[100], name[300] = "user.", big[70000] = "";
	memset(name + 5, 'n', 250);
	SHOW(setxattr("file", name, "v", 1, 0));
	SHOW(getxattr("file", name, value, sizeof value));
	name[255] = 'n';
	SHOW(setxattr("file", name, "v", 1, 0));
	SHOW(getxattr("file", name, value, sizeof value));
	SHOW(removexattr("file", name));
	SHOW(setxattr("file", "", "v", 1, 0));
	SHOW(setxattr("file", "user.", "v", 1, 0));
	SHOW(getxattr("file", "user.", value, sizeof value));
	SHOW(setxattr("file", "plain", "v", 1, 0));
	SHOW(getxattr("file", "plain", value, sizeof value));
	SHOW(removexattr("file", "other.name"));
	SHOW(setxattr("file", "user.a", "v", 1, 4));
	SHOW(setxattr("file", "user.a", "v", 1, XATTR_CREATE | XATTR_REPLACE));
	SHOW(setxattr("file", "user.a", big, 65537, 0));
	SHOW(setxattr("file", "user.a", (void *)8, 5, 0));
	SHOW(setxattr("file", (void *)8, "v", 1, 0));
	SHOW(setxattr("none", "user.a", "v", 1, 0));
	SHOW(setxattr("file/below", "user.a", "v", 1, 0));
	SHOW(setxattr("dangling", "user.a", "v", 1, 0));
	SHOW(getxattr("none", "user.a", value, sizeof value));
	SHOW(listxattr("none", value, sizeof value));
	SHOW(removexattr("none", "user.a"));
	/* Links have none in this namespace. */
	SHOW(lsetxattr("link", "user.a", "v", 1, 0));
	SHOW(lgetxattr("link", "user.a", value, sizeof value));
	SHOW(lremovexattr("link", "user.a"));
	SHOW(lsetxattr("dangling", "user.a", "v", 1, 0));
	/* Descriptors. */
	SHOW(fsetxattr(path, "user.a", "v", 1, 0));
	SHOW(fgetxattr(path, "user.a", value, sizeof value));
	SHOW(flistxattr(path, value, sizeof value));
	SHOW(fremovexattr(path, "user.a"));
	SHOW(fsetxattr(999, "user.a", "v", 1, 0));
	SHOW(fsetxattr(fd, "user.a", "v", 1, 0));
	SHOW(fgetxattr(fd, "user.a", (void *)8, 1));
	int reader = open("file", O_RDONLY);
	SHOW(fsetxattr(reader, "user.b", "v", 1, 0));
	char procfs[64];
	snprintf(procfs, sizeof procfs, "/proc/self/fd/%d", path);
	SHOW(setxattr(procfs, "user.c", "v", 1, 0));
	SHOW(getxattr(procfs, "user.c", value, sizeof value));
	show_names_of("file");
}

CHECK(cp_tar_and_python_keep_extended_attributes)
{
	make_file("file", "text");
	mkdir("dir", 0755);
	make_large("dir/large", 100000);
	SHOW(setxattr("file", "user.a", "one", 3, 0));
	SHOW(setxattr("dir", "user.b", "two", 3, 0));
	SHOW(setxattr("dir/large", "user.c", "three", 5, 0));
	SHOW(system("cp -a file copy && cp -a dir dir.copy 2>&1"));
	show_value("copy", "user.a");
	show_value("dir.copy", "user.b");
	show_value("dir.copy/large", "user.c");
	SHOW(system("tar --xattrs -cf all.tar file dir 2>&1 && mkdir out && "
		    "tar --xattrs -xf all.tar -C out 2>&1"));
	show_value("out/file", "user.a");
	show_value("out/dir", "user.b");
	show_value("out/dir/large", "user.c");
	SHOW(system("command -v python3 >/dev/null && python3 -c 'import os; "
		    "os.setxattr(\"file\", \"user.p\", b\"python\"); "
		    "print(os.getxattr(\"file\", \"user.p\"), sorted(os.listxattr(\"dir\"))); "
		    "os.removexattr(\"file\", \"user.a\")'"));
	show_names_of("file");
	SHOW(system("ls -l file dir >/dev/null 2>said; cp -p file again 2>>said; "
		    "test ! -s said"));
}

CHECK(other_namespaces_and_large_extended_attributes_are_refused)
{
	int fd = make_file("file", "text");
	char value[5000] = "";
	REFUSED(EOPNOTSUPP, getxattr("file", "security.capability", value, sizeof value));
	REFUSED(EOPNOTSUPP, getxattr("file", "system.posix_acl_access", value, sizeof value));
	REFUSED(EOPNOTSUPP, fgetxattr(fd, "security.selinux", value, sizeof value));
	REFUSED(EOPNOTSUPP, setxattr("file", "security.mayfly", "v", 1, 0));
	REFUSED(EOPNOTSUPP, setxattr("file", "trusted.mayfly", "v", 1, 0));
	REFUSED(EOPNOTSUPP, setxattr("file", "system.posix_acl_access", "v", 1, 0));
	IS(0, setxattr("file", "user.large", value, 4096, 0));
	REFUSED(ENOSPC, setxattr("file", "user.large", value, 4097, 0));
	IS(4096, getxattr("file", "user.large", NULL, 0));
	IS(0, setxattr("file", "user.2", value, 4096, 0));
	IS(0, setxattr("file", "user.3", value, 4096, 0));
	REFUSED(ENOSPC, setxattr("file", "user.4", value, 4096, 0));
	IS(0, setxattr("file", "user.4", value, 4000, 0));
	REFUSED(ENOSPC, setxattr("file", "user.5", value, 100, 0));
	IS(0, removexattr("file", "user.2"));
	IS(0, setxattr("file", "user.5", value, 100, 0));
}

struct arguments {
	uint64_t value;
	uint32_t size, flags;
	uint64_t more;
};

#define SETXATTRAT 463
#define GETXATTRAT 464
#define LISTXATTRAT 465
#define REMOVEXATTRAT 466

CHECK(extended_attributes_of_names_in_directories_are_served)
{
	mkdir("dir", 0755);
	int fd = make_file("dir/file", "text"), dir = open("dir", O_RDONLY | O_DIRECTORY);
	int named = open("dir/file", O_PATH);
	IS(0, symlinkat("file", dir, "link"));
	char value[100] = "";
	struct arguments set = {(uintptr_t)"value", 5, 0, 0}, get = {(uintptr_t)value, 100, 0, 0};
	IS(0, syscall(SETXATTRAT, dir, "file", 0, "user.a", &set, 16));
	IS(5, syscall(GETXATTRAT, dir, "link", 0, "user.a", &get, 24));
	IS(0, memcmp(value, "value", 5));
	REFUSED(ENODATA, syscall(GETXATTRAT, dir, "link", AT_SYMLINK_NOFOLLOW, "user.a", &get, 16));
	IS(5, syscall(GETXATTRAT, fd, "", AT_EMPTY_PATH, "user.a", &get, 16));
	IS(7, syscall(LISTXATTRAT, dir, "file", 0, value, 100));
	REFUSED(EBADF, syscall(GETXATTRAT, named, "", AT_EMPTY_PATH, "user.a", &get, 16));
	REFUSED(EINVAL, syscall(GETXATTRAT, dir, "file", 0x10, "user.a", &get, 16));
	REFUSED(EINVAL, syscall(SETXATTRAT, dir, "file", 0, "user.a", &set, 15));
	REFUSED(E2BIG, syscall(SETXATTRAT, dir, "file", 0, "user.a", &set, 5000));
	set.more = 1;
	REFUSED(E2BIG, syscall(SETXATTRAT, dir, "file", 0, "user.a", &set, 24));
	get.flags = 1;
	REFUSED(EINVAL, syscall(GETXATTRAT, dir, "file", 0, "user.a", &get, 16));
	IS(0, syscall(REMOVEXATTRAT, dir, "file", 0, "user.a"));
	IS(0, syscall(LISTXATTRAT, fd, "", AT_EMPTY_PATH, value, 100));
}
