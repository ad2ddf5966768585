/* Runs a command on a kernel that knows no system call newer than those of Linux 4.18: the later
 * ones have numbers from 424 on, and are answered with ENOSYS, as that kernel does. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIRST_LATER = 424 };

int main(int argc, char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_LATER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("cannot set the filter");
        return 125;
    }
    /* It does what it is for, or this test shows nothing. */
    if (syscall(SYS_close_range, 1000, 1000, 0) == 0 || errno != ENOSYS) {
        fprintf(stderr, "the filter does nothing\n");
        return 125;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 126;
}
