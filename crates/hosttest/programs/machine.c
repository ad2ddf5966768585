// The call itself: results, registers, the filter.
#include "check.h"
#include <fcntl.h>

static void vector_registers_survive(void) {
    uint64_t before[32], after[32];
    for (int i = 0; i < 32; i++) before[i] = 0x0101010101010101ull * (i + 1);
    register long r __asm__("rax") = 0;
    long (*call)(long, ...) = syscall;
    __asm__ volatile(
        "mov %[b], %%rbx\n mov %[a], %%r12\n mov %%rsp, %%r13\n and $-16, %%rsp\n sub $128, %%rsp\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu 16*\\n(%%rbx), %%xmm\\n\n .endr\n"
        "mov $124, %%edi\n mov $-50, %%rsi\n xor %%eax, %%eax\n call *%[f]\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu %%xmm\\n, 16*\\n(%%r12)\n .endr\n"
        "mov %%r13, %%rsp\n"
        : "=a"(r)
        : [b] "r"(before), [a] "r"(after), [f] "r"(call)
        : "rbx", "r12", "r13", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    CHECK(r == 50);
    CHECK(memcmp(before, after, sizeof before) == 0);
}

int main(void) {
    char bytes[64];
    CHECK(unpatched() == 0);
    CHECK(getppid() == HOOKED_PPID);
    CHECK(syscall(SYS_getppid) == HOOKED_PPID);
    CHECK(read(700, bytes, 33) == 33 && write(700, bytes, 7) == 7);
    errno = 0;
    CHECK(read(701, bytes, 1) == -1 && errno == EBADF);
    errno = 0;
    CHECK(read(-1, bytes, 1) == -1 && errno == EBADF);
    errno = 0;
    CHECK(syscall(SYS_read, 0x700000700L, bytes, 1) == -1 && errno == EBADF);
    errno = 0;
    CHECK(syscall(999) == -1 && errno == ENOSYS);
    errno = 0;
    CHECK(syscall(-1) == -1 && errno == ENOSYS);
    errno = 77;
    CHECK(getpid() == (int)syscall(SYS_getpid) && errno == 77);
    int fd = open("/dev/zero", O_RDONLY);
    CHECK(fd >= 0 && read(fd, bytes, 64) == 64 && close(fd) == 0);
    errno = 0;
    CHECK(open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT);
    vector_registers_survive();
    int before = dispatched();
    for (int i = 0; i < 100; i++) getppid();
    CHECK(dispatched() >= before + 101);
    return wrong != 0;
}
