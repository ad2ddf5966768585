// sigaction as the host sees it.
#include "check.h"
#include <spawn.h>

struct kernel_action { void *handler; unsigned long flags; void *restorer; uint64_t mask; };
extern char **environ;
static volatile int calls, calls_of_child, info_value;
static void childs(int sig) { calls_of_child += sig > 0; }
static void plain(int sig) { calls += sig > 0; }
static void with_info(int sig, siginfo_t *info, void *context) {
    calls++;
    info_value = info->si_value.sival_int + (context == NULL) + (sig == 0);
}
static void restorer(void) {}

static void reads_back_what_was_set(void) {
    struct kernel_action set = {plain, 0x04000000 | SA_RESTART | SA_RESETHAND, restorer, 0x5}, got;
    memset(&got, 1, sizeof got);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR2, &set, &got, 8) == 0);
    CHECK(got.handler == (void *)SIG_DFL && got.flags == 0 && got.mask == 0);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR2, NULL, &got, 8) == 0);
    CHECK(memcmp(&set, &got, sizeof got) == 0);
    set.flags = 0x04000000 | SA_SIGINFO | SA_ONSTACK;
    set.mask = ~0ull;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR2, &set, NULL, 8) == 0);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR2, NULL, &got, 8) == 0);
    // SIGKILL and SIGSTOP cannot be blocked; the kernel says so.
    CHECK(got.flags == set.flags && got.mask == (~0ull & ~(1ull << 8) & ~(1ull << 18)));
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    CHECK(sigaction(SIGUSR2, &ignore, &old) == 0 && (void *)old.sa_sigaction == (void *)plain);
    CHECK(sigaction(SIGUSR2, NULL, &old) == 0 && old.sa_handler == SIG_IGN);
}

static void mistakes_are_the_kernels(void) {
    struct sigaction action = {.sa_handler = plain};
    errno = 0;
    CHECK(sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_rt_sigaction, 65, &action, NULL, 8) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8) == -1 && errno == EFAULT);
    errno = 0;
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, (void *)8, 8) == -1 && errno == EFAULT);
}

static void handlers_get_their_arguments(void) {
    struct sigaction action = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    calls = 0;
    CHECK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 31}) == 0);
    CHECK(calls == 1 && info_value == 31);
}

static void reset_happens_at_delivery(void) {
    struct sigaction action = {.sa_handler = plain, .sa_flags = SA_RESETHAND}, old;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    calls = 0;
    raise(SIGUSR1);
    CHECK(calls == 1 && sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}

static void a_vfork_child_changes_its_own_dispositions_only(void) {
    struct sigaction action = {.sa_handler = plain}, old;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        signal(SIGUSR2, SIG_IGN);
        signal(SIGUSR1, childs);
        kill(getpid(), SIGUSR1);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    CHECK(calls_of_child == 1);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == plain);
    calls = 0;
    raise(SIGUSR1);
    CHECK(calls == 1);
    posix_spawnattr_t attributes;
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &all);
    char *arguments[] = {"true", NULL};
    CHECK(posix_spawnp(&child, "true", NULL, &attributes, arguments, environ) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    raise(SIGUSR1);
    CHECK(calls == 2);
}

static void a_suspended_thread_wakes(void) {
    struct sigaction action = {.sa_handler = plain};
    sigset_t blocked, none;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    calls = 0;
    ualarm(2000, 0);
    CHECK(sigsuspend(&none) == -1 && errno == EINTR && calls == 1);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

static void an_alternate_stack_is_used(void) {
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = plain, .sa_flags = SA_ONSTACK};
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    calls = 0;
    raise(SIGUSR1);
    CHECK(calls == 1);
}

int main(void) {
    reads_back_what_was_set();
    mistakes_are_the_kernels();
    handlers_get_their_arguments();
    reset_happens_at_delivery();
    a_vfork_child_changes_its_own_dispositions_only();
    a_suspended_thread_wakes();
    an_alternate_stack_is_used();
    return wrong != 0;
}
