// What a deferred signal looks like when it arrives.
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

static volatile int calls, value, code, blocked_inside, order[4], order_count;

static void note(int sig, siginfo_t *info, void *context) {
    (void)context;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    blocked_inside = sigismember(&mask, sig) + 2 * sigismember(&mask, SIGWINCH);
    value = info->si_value.sival_int;
    code = info->si_code;
    calls++;
    if (order_count < 4) order[order_count++] = sig;
}

static void install(int sig, int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGWINCH);
    CHECK(sigaction(sig, &action, NULL) == 0);
}

// The call that the main thread must be blocked in before a signal is sent; -1 for any.
static volatile int wanted_call = -1;
static void wait_for_main(void) {
    char path[64], line[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", getpid());
    do {
        usleep(5000);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(line, sizeof line, file)) strcpy(line, "-2");
        if (file) fclose(file);
    } while (wanted_call >= 0 && (line[0] < '0' || atoi(line) != wanted_call));
}

static void *sender(void *signals) {
    usleep(20000);
    for (int *sig = signals; *sig; sig++) {
        wait_for_main();
        siginfo_t info = {.si_signo = *sig, .si_code = SI_QUEUE, .si_value.sival_int = 5};
        // To the main thread; musl has no pthread_sigqueue.
        int before = calls;
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), *sig, &info) == 0);
        // On a busy machine the main thread is still in its call when the signal waits for it: the
        // next one would be merged with it.
        for (int tries = 0; wanted_call >= 0 && calls == before && tries < 1000; tries++)
            usleep(5000);
        usleep(20000);
    }
    return NULL;
}

static pthread_t send(int *signals) {
    pthread_t thread;
    calls = order_count = 0;
    pthread_create(&thread, NULL, sender, signals);
    return thread;
}

static void siginfo_and_mask_are_kept(void) {
    install(SIGUSR1, 0);
    int before = deferred();
    // On a busy machine the signal may come too late for one round.
    for (int round = 0; round < 50 && deferred() == before; round++) {
        pthread_t thread = send((int[]){SIGUSR1, 0});
        CHECK(spin_in_hook(100000) == 100000);
        pthread_join(thread, NULL);
    }
    CHECK(deferred() > before);
    CHECK(calls == 1 && value == 5 && code == SI_QUEUE);
    CHECK(blocked_inside == 3);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGWINCH));
}

static void several_are_all_delivered(void) {
    install(SIGUSR1, 0);
    install(SIGUSR2, 0);
    install(SIGRTMIN + 1, 0);
    pthread_t thread = send((int[]){SIGUSR2, SIGUSR1, SIGRTMIN + 1, 0});
    CHECK(spin_in_hook(150000) == 150000);
    pthread_join(thread, NULL);
    CHECK(calls == 3);
}

static void reset_is_not_spent_on_the_deferral(void) {
    struct sigaction old;
    install(SIGUSR1, SA_RESETHAND);
    pthread_t thread = send((int[]){SIGUSR1, 0});
    CHECK(spin_in_hook(100000) == 100000);
    pthread_join(thread, NULL);
    CHECK(calls == 1 && sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}

static void an_interrupted_call_fails_without_restart(void) {
    wanted_call = SYS_futex;
    install(SIGUSR1, 0);
    pthread_t thread = send((int[]){SIGUSR1, 0});
    errno = 0;
    CHECK(getsid(SLEEP_IN_HOOK) == -1 && errno == EINTR && calls == 1);
    pthread_join(thread, NULL);
}

static void an_interrupted_call_is_made_again_with_restart(void) {
    install(SIGUSR1, SA_RESTART);
    install(SIGUSR2, 0);
    int before = dispatched();
    pthread_t thread = send((int[]){SIGUSR1, SIGUSR1, SIGUSR2, 0});
    errno = 0;
    CHECK(getsid(SLEEP_IN_HOOK) == -1 && errno == EINTR);
    pthread_join(thread, NULL);
    CHECK(calls == 3 && order[0] == SIGUSR1 && order[2] == SIGUSR2);
    CHECK(dispatched() >= before + 3);
}

static int pipe_ends[2];
static void *writer(void *signals) {
    sender(signals);
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    return NULL;
}

// The kernel interrupts and restarts what is issued in a trampoline.
static void a_passed_call_is_interrupted_as_ever(void) {
    char byte;
    pthread_t thread;
    CHECK(pipe(pipe_ends) == 0);
    wanted_call = SYS_read;
    install(SIGUSR1, SA_RESTART);
    calls = 0;
    pthread_create(&thread, NULL, writer, (int[]){SIGUSR1, SIGUSR1, 0});
    CHECK(read(pipe_ends[0], &byte, 1) == 1 && calls == 2);
    pthread_join(thread, NULL);
    install(SIGUSR1, 0);
    calls = 0;
    pthread_create(&thread, NULL, writer, (int[]){SIGUSR1, 0});
    errno = 0;
    CHECK(read(pipe_ends[0], &byte, 1) == -1 && errno == EINTR && calls == 1);
    CHECK(read(pipe_ends[0], &byte, 1) == 1);
    pthread_join(thread, NULL);
    wanted_call = -1;
}

// Issued by the entry: nobody opens the other end.
static void an_open_that_waits_is_interrupted(void) {
    // Not near the end of a page, where the entry leaves it to the hook.
    char fifo[64] __attribute__((aligned(64)));
    sprintf(fifo, "/tmp/mayfly-fifo-%d", getpid());
    CHECK(mkfifo(fifo, 0600) == 0);
    wanted_call = SYS_openat;
    install(SIGUSR1, 0);
    int before = deferred(), looked = dispatched();
    pthread_t thread = send((int[]){SIGUSR1, 0});
    errno = 0;
    CHECK(syscall(SYS_openat, AT_FDCWD, fifo, O_RDONLY) == -1 && errno == EINTR && calls == 1);
    pthread_join(thread, NULL);
    CHECK(deferred() > before && dispatched() > looked && unlink(fifo) == 0);
    wanted_call = -1;
}

static void blocked_signals_stay_blocked(void) {
    sigset_t set, pending;
    install(SIGUSR1, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread = send((int[]){SIGUSR1, 0});
    CHECK(spin_in_hook(60000) == 60000);
    pthread_join(thread, NULL);
    CHECK(calls == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    CHECK(calls == 1);
}

static volatile int forking;
static void *disturb(void *unused) {
    while (forking) {
        syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
        usleep(50);
    }
    return unused;
}

static int is_blocked(int sig) {
    sigset_t mask;
    return pthread_sigmask(SIG_BLOCK, NULL, &mask) != 0 || sigismember(&mask, sig);
}

// A fork is issued inside the hook, where the signals of its parent may wait.
static void a_child_of_fork_has_its_parents_mask(void) {
    pthread_t thread;
    install(SIGUSR1, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int before = deferred();
    forking = 1;
    pthread_create(&thread, NULL, disturb, NULL);
    for (int child = 0; child < 200; child++) {
        // A C library may block all signals around its fork.
        pid_t pid = syscall(SYS_fork);
        if (pid == 0) {
            if (is_blocked(SIGUSR1) || !is_blocked(SIGUSR2)) _exit(1);
            calls = 0;
            kill(getpid(), SIGUSR1);
            _exit(calls == 1 && spin_in_hook(10) == 10 ? 0 : 2);
        }
        int status = -1;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        CHECK(pid > 0 && status == 0);
    }
    forking = 0;
    pthread_join(thread, NULL);
    CHECK(deferred() > before && !is_blocked(SIGUSR1) && is_blocked(SIGUSR2));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int main(void) {
    siginfo_and_mask_are_kept();
    several_are_all_delivered();
    reset_is_not_spent_on_the_deferral();
    an_interrupted_call_fails_without_restart();
    an_interrupted_call_is_made_again_with_restart();
    a_passed_call_is_interrupted_as_ever();
    an_open_that_waits_is_interrupted();
    a_child_of_fork_has_its_parents_mask();
    blocked_signals_stay_blocked();
    return wrong != 0;
}
