// Faults, backtraces from handlers, libraries opened late.
#include "check.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <setjmp.h>

static sigjmp_buf jump;
static volatile int found;
static void *fault_address;

static void fault(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    fault_address = info->si_addr;
    siglongjmp(jump, 1);
}

static __attribute__((noinline)) void blocked_here(void) {
    pause();
    __asm__ volatile("");
}

static void look(int sig) {
    (void)sig;
    void *frames[64];
    int count = backtrace(frames, 64);
    for (int i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)frames[i], here = (uintptr_t)blocked_here;
        found |= at >= here && at < here + 64;
    }
}

int main(void) {
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    for (int i = 0; i < 100; i++) {
        if (sigsetjmp(jump, 1) == 0) {
            *(volatile int *)(uintptr_t)(0x10 + 4 * i) = 1;
            CHECK(!"reached");
        }
        CHECK(fault_address == (void *)(uintptr_t)(0x10 + 4 * i));
    }
    void *warm[4];
    backtrace(warm, 4);
    signal(SIGALRM, look);
    ualarm(20000, 0);
    blocked_here();
    CHECK(found);
    void *library = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : NULL;
    CHECK(cosine && cosine(0.0) == 1.0);
    CHECK(dlopen("libnothing-of-this-name.so", RTLD_NOW) == NULL);
    CHECK(getppid() == HOOKED_PPID);
    return wrong != 0;
}
