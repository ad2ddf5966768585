/* files DIRECTORY: makes, reads, maps, lists, moves and removes there, and says what it saw. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void data(void) {
    char text[] = "0123456789", back[32] = {0};
    int fd = open("data", O_RDWR | O_CREAT | O_EXCL, 0644);
    if (fd < 0 || write(fd, text, 10) != 10 || pwrite(fd, "xy", 2, 100000) != 2)
        fail("write");
    if (pread(fd, back, 20, 4) != 20 || memcmp(back, "456789\0\0", 8))
        fail("read back");
    char *map = mmap(NULL, 100002, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED || map[100000] != 'x')
        fail("shared mapping");
    map[1] = 'M';
    if (msync(map, 100002, MS_SYNC) || munmap(map, 100002) || pread(fd, back, 3, 0) != 3)
        fail("written through a mapping");
    printf("mapped %.3s\n", back);
    map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED || map[1] != 'M')
        fail("private mapping");
    if (ftruncate(fd, 5) || unlink("data") || pread(fd, back, 32, 0) != 5)
        fail("unlinked and cut");
    struct stat now;
    if (fstat(fd, &now))
        fail("fstat of an unlinked file");
    printf("unlinked: %ld bytes, %ld links\n", (long)now.st_size, (long)now.st_nlink);
    close(fd);
    fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int other = open("log", O_WRONLY | O_APPEND);
    if (write(fd, "one ", 4) != 4 || write(other, "two ", 4) != 4 || write(fd, "three", 5) != 5)
        fail("append");
    close(fd), close(other);
    fd = open("log", O_RDONLY);
    printf("log: %.*s\n", (int)read(fd, back, 32), back);
    close(fd);
}

static void names(void) {
    struct stat one, two;
    if (mkdir("dir", 0750) || symlink("../log", "dir/link") || link("log", "dir/hard"))
        fail("make names");
    if (stat("dir/link", &one) || stat("dir/hard", &two) || one.st_ino != two.st_ino)
        fail("one file under two names");
    if (rename("dir/hard", "dir/new\nline\xff") || stat("dir/new\nline\xff", &two))
        fail("rename");
    printf("links %d\n", (int)two.st_nlink);
    if (!renameat2(AT_FDCWD, "log", AT_FDCWD, "dir/link", RENAME_NOREPLACE) || errno != EEXIST)
        fail("RENAME_NOREPLACE");
    if (renameat2(AT_FDCWD, "log", AT_FDCWD, "dir", RENAME_EXCHANGE) || stat("log", &one))
        fail("RENAME_EXCHANGE");
    printf("exchanged: %s\n", S_ISDIR(one.st_mode) ? "directory" : "file");
    DIR *dir = opendir("log");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count++;
    closedir(dir);
    printf("%d entries\n", count);
    if (!rmdir("log") || errno != ENOTEMPTY)
        fail("rmdir");
    if (unlink("log/link") || unlink("log/new\nline\xff") || rmdir("log") || unlink("dir"))
        fail("remove");
}

int main(int count, char **words) {
    if (count != 2 || chdir(words[1]))
        fail("chdir");
    data();
    names();
    return 0;
}
