// Runs into a bug of the library, with SIGABRT handled and blocked.
#include "check.h"

static void handler(int sig) { _exit(sig); }

int main(void) {
    sigset_t abort;
    sigemptyset(&abort);
    sigaddset(&abort, SIGABRT);
    signal(SIGABRT, handler);
    sigprocmask(SIG_BLOCK, &abort, NULL);
    getpgid(-4);
    return wrong != 0;
}
