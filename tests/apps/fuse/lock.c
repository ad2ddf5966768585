/* lock flock|fcntl try|hold|test FILE
 *
 * try: takes the lock or says "busy". hold: waits for it, says "held", keeps it until standard
 * input ends. test: says who holds it (fcntl only). Statically linked for whoever the preload
 * library must not enter. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int interrupted;

static void note(int signal) {
    (void)signal;
    interrupted = 1;
}

static int take(int fd, const char *kind, int wait) {
    if (!strcmp(kind, "flock"))
        return flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock);
}

int main(int count, char **words) {
    if (count != 4)
        return 2;
    struct sigaction action = {.sa_handler = note};
    sigaction(SIGUSR1, &action, NULL);
    int fd = open(words[3], O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return perror("open"), 1;
    if (!strcmp(words[2], "test")) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_GETLK, &lock) < 0)
            return perror("F_GETLK"), 1;
        puts(lock.l_type == F_UNLCK ? "free" : "taken");
        return 0;
    }
    int wait = !strcmp(words[2], "hold");
    if (take(fd, words[1], wait) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return puts("busy"), 0;
        if (errno == EINTR && interrupted)
            return puts("interrupted"), 0;
        return perror("lock"), 1;
    }
    puts("held");
    fflush(stdout);
    char byte;
    if (wait)
        while (read(0, &byte, 1) > 0)
            ;
    return 0;
}
