// Shared by the programs: a check that says what is wrong, and the library's known answers.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

// Things found wrong; becomes the exit code by way of `wrong != 0`.
static int wrong;
#define CHECK(claim)                                                             \
    do {                                                                         \
        if (!(claim) && wrong++ < 20) {                                          \
            printf("%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #claim, errno); \
            fflush(stdout);                                                      \
        }                                                                        \
    } while (0)

#define HOOKED_PPID 4242
#define SLEEP_IN_HOOK -1000000000
static inline int dispatched(void) { return getpgid(-1); }
static inline int unpatched(void) { return getpgid(-2); }
static inline int deferred(void) { return getpgid(-3); }
static inline int spin_in_hook(int micros) { return getsid(-micros); }
