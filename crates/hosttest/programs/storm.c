// Signals at every instant while calls are hooked.
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>

static uintptr_t library_start, library_end;
static volatile sig_atomic_t handled, inside, jumping, nesting;
static sigjmp_buf jump;

// Whether an address is in a mapping of an image other than a library's text: a trampoline.
static uintptr_t trampolines[8][2];
static int trampoline_count;
static void find_code(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        if (!strstr(line, ".img") && !strstr(line, "r-xp")) continue;
        if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) != 3) continue;
        // Not by the loader's list: an audit library is not in it.
        if (strstr(line, "libmayfly_preload")) library_start = start, library_end = end;
        if (strstr(line, ".img") && offset != 4096 && trampoline_count < 8) {
            trampolines[trampoline_count][0] = start;
            trampolines[trampoline_count++][1] = end;
        }
    }
    if (maps) fclose(maps);
}

static void handler(int sig, siginfo_t *info, void *raw) {
    (void)info;
    ucontext_t *context = raw;
    uintptr_t at = context->uc_mcontext.gregs[REG_RIP];
    int saved = errno;
    (void)sig;
    // When handlers nest, the one above may see the beginning of the wrapper of the one below.
    if (!nesting && at >= library_start && at < library_end) inside++;
    for (int i = 0; i < trampoline_count; i++)
        if (at >= trampolines[i][0] && at < trampolines[i][1]) inside++;
    if (getppid() != HOOKED_PPID) wrong = 1;
    handled++;
    errno = saved;
    if (jumping) siglongjmp(jump, 1);
}

static void storm(int sig, int which, int micros) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval timer = {{0, micros}, {0, micros}};
    if (!nesting) sigaddset(&action.sa_mask, SIGALRM), sigaddset(&action.sa_mask, SIGPROF);
    sigaction(sig, &action, NULL);
    setitimer(which, &timer, NULL);
}

static void calm(int which) {
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(which, &none, NULL);
}

static void calls_are_right_under_fire(int rounds) {
    char bytes[16];
    for (int i = 0; i < rounds; i++) {
        CHECK(getppid() == HOOKED_PPID);
        CHECK(spin_in_hook(3) == 3);
        CHECK(read(700, bytes, i % 16) == i % 16);
        CHECK(getpid() > 0);
        // One that the entry decides by itself, and one that it does not.
        CHECK(open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT);
        if (i % 16 == 0) CHECK(open("/nonexistent/../no", O_RDONLY) == -1 && errno == ENOENT);
    }
}

static void *thread_main(void *unused) {
    calls_are_right_under_fire(20000);
    return unused;
}

static void jumping_out_of_handlers_is_harmless(void) {
    static volatile int jumps;
    for (jumps = 0; jumps < 300; jumps++) {
        if (sigsetjmp(jump, 1) == 0) {
            jumping = 1;
            for (;;) spin_in_hook(20);
        }
        jumping = 0;
    }
}

int main(void) {
    find_code();
    CHECK(library_end > library_start);
    CHECK(trampoline_count >= 1);
    storm(SIGALRM, ITIMER_REAL, 60);
    storm(SIGPROF, ITIMER_PROF, 110);
    calls_are_right_under_fire(60000);
    nesting = 1;
    storm(SIGALRM, ITIMER_REAL, 60);
    storm(SIGPROF, ITIMER_PROF, 110);
    calls_are_right_under_fire(60000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread_main, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            calls_are_right_under_fire(10);
            _exit(wrong != 0);
        }
        int status = -1;
        while (waitpid(child, &status, 0) == -1 && errno == EINTR) continue;
        CHECK(status == 0);
    }
    calm(ITIMER_PROF);
    jumping_out_of_handlers_is_harmless();
    calm(ITIMER_REAL);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK(!sigismember(&mask, SIGALRM) && !sigismember(&mask, SIGPROF));
    CHECK(handled > 100);
    CHECK(inside == 0);
    CHECK(deferred() > 10);
    printf("%d handled, %d deferred, %d seen inside\n", handled, deferred(), inside);
    return wrong != 0;
}
