// A library that somebody preloads beside ours.
#include <unistd.h>

__attribute__((constructor)) static void say(void) {
    static const char line[] = "the other library\n";
    if (write(1, line, sizeof line - 1) < 0) _exit(1);
}
