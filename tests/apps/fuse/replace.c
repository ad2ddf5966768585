/* replace NAME STOP WHO: replaces NAME by new files, as fast as it can, until STOP is there.
   Several can do so at a time, each as another WHO. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words) {
    char other[256];
    if (count != 4 ||
        snprintf(other, sizeof other, "%s.%s", words[1], words[3]) >= (int)sizeof other)
        return 2;
    for (long round = 0; round % 64 || access(words[2], F_OK); round++) {
        int fd = open(other, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || write(fd, "b", 1) != 1 || close(fd) || rename(other, words[1]))
            return perror(other), 1;
    }
    return 0;
}
