/* share WORDS...: does to inherited descriptors and names what the words say, and prints the
   results.
   receive SOCKET NUMBER (a descriptor in a message, put at that number) |
   open FD NAME (and read) | list FD (how many names are left) | write FD TEXT |
   seek FD OFFSET | where FD | read FD BYTES | append FD | cat NAME | pause NAME */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void print(const char *what, long result) {
    fprintf(stderr, "%s %ld%s%s\n", what, result, result < 0 ? " " : "",
            result < 0 ? strerrorname_np(errno) : "");
}

static void show(int fd, int bytes) {
    char text[4096];
    long count = read(fd, text, bytes);
    print("read", count);
    if (count > 0)
        fprintf(stderr, "%.*s\n", (int)count, text);
}

static int receive(int socket) {
    char text[8], control[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {text, sizeof text};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    int got = -1;
    if (recvmsg(socket, &message, 0) >= 0 && CMSG_FIRSTHDR(&message))
        memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    return got;
}

int main(int count, char **words) {
    for (int at = 1; at < count;) {
        const char *what = words[at++], *word = words[at++];
        int fd = atoi(word);
        if (!strcmp(what, "write")) {
            const char *text = words[at++];
            print(what, write(fd, text, strlen(text)));
        } else if (!strcmp(what, "seek")) {
            print(what, lseek(fd, atol(words[at++]), SEEK_SET));
        } else if (!strcmp(what, "where")) {
            print(what, lseek(fd, 0, SEEK_CUR));
        } else if (!strcmp(what, "read")) {
            show(fd, atoi(words[at++]));
        } else if (!strcmp(what, "append")) {
            print(what, fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND));
        } else if (!strcmp(what, "cat")) {
            fd = open(word, O_RDONLY);
            show(fd, 4096);
            close(fd);
        } else if (!strcmp(what, "receive")) {
            int got = receive(fd);
            print(what, got < 0 ? -1 : dup2(got, atoi(words[at++])));
            close(got);
        } else if (!strcmp(what, "open")) {
            fd = openat(fd, words[at++], O_RDONLY);
            show(fd, 4096);
            close(fd);
        } else if (!strcmp(what, "list")) {
            DIR *names = fdopendir(dup(fd));
            int left = 0;
            while (names && readdir(names))
                left++;
            print(what, names ? left : -1);
        } else if (!strcmp(what, "pause")) {
            int there = open(word, O_WRONLY | O_CREAT, 0644);
            print(what, there < 0 ? -1 : 0);
            close(there);
            for (int tries = 0; !access(word, F_OK) && tries < 1000; tries++)
                usleep(10000);
        }
    }
    return 0;
}
