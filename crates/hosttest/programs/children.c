// fork, vfork, posix_spawn, clone, exec, and what the children find.
#include "check.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static int finish(pid_t child) {
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static int cloned(void *argument) {
    return getppid() == HOOKED_PPID && *(int *)argument == 7 ? 0 : 1;
}

static void a_thread_that_forks(void) {
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) _exit(getppid() == HOOKED_PPID ? 0 : 1);
        CHECK(finish(child) == 0);
    }
}

static void *thread_main(void *unused) {
    a_thread_that_forks();
    return unused;
}

int main(int count, char **arguments) {
    if (count > 1) return getppid() == HOOKED_PPID && unpatched() == 0 ? 0 : 9;
    pid_t child = fork();
    if (child == 0) _exit(getppid() == HOOKED_PPID && spin_in_hook(10) == 10 ? 0 : 1);
    CHECK(finish(child) == 0);
    volatile int local = 1;
    child = vfork();
    if (child == 0) {
        local = getppid() == HOOKED_PPID ? 2 : 3;
        _exit(0);
    }
    CHECK(finish(child) == 0 && local == 2);
    child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", arguments[0], "again", NULL);
        _exit(1);
    }
    CHECK(finish(child) == 0);
    char *again[] = {arguments[0], "again", NULL};
    CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) == 0);
    CHECK(finish(child) == 0);
    static char stack[65536] __attribute__((aligned(16)));
    int value = 7;
    CHECK(finish(clone(cloned, stack + sizeof stack, SIGCHLD, &value)) == 0);
    CHECK(finish(clone(cloned, stack + sizeof stack, SIGCHLD | CLONE_VM, &value)) == 0);
    CHECK(system("exit 3") == 3 << 8);
    FILE *pipe = popen("echo from a child", "r");
    char line[64] = "";
    CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "from a child\n") == 0);
    CHECK(pclose(pipe) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread_main, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    execl("/proc/self/exe", arguments[0], "again", NULL);
    return 1;
}
