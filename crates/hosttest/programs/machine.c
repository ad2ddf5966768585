// The call itself: results, registers, the filter.
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

static void vector_registers_survive(long number, long first, long second, long expected) {
    uint64_t before[32], after[32];
    for (int i = 0; i < 32; i++) before[i] = 0x0101010101010101ull * (i + 1);
    long (*call)(long, ...) = syscall;
    long given[6] = {number, first, second, (long)before, (long)after, (long)call};
    register long r __asm__("rax") = (long)given;
    __asm__ volatile(
        "mov %%rax, %%r12\n mov 24(%%r12), %%r14\n"
        "mov %%rsp, %%r13\n and $-16, %%rsp\n sub $128, %%rsp\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu 16*\\n(%%r14), %%xmm\\n\n .endr\n"
        "mov (%%r12), %%rdi\n mov 8(%%r12), %%rsi\n mov 16(%%r12), %%rdx\n xor %%ecx, %%ecx\n"
        "xor %%eax, %%eax\n call *40(%%r12)\n mov 32(%%r12), %%r14\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movdqu %%xmm\\n, 16*\\n(%%r14)\n .endr\n"
        "mov %%r13, %%rsp\n"
        : "+a"(r)
        :
        : "r12", "r13", "r14", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    CHECK(r == expected);
    CHECK(memcmp(before, after, sizeof before) == 0);
}

// What a callee preserves is as before a call that the entry decides.
static void other_registers_survive(void) {
    long given[2] = {(long)"/nonexistent", (long)(long (*)(long, ...))syscall};
    register long r __asm__("rax") = (long)given;
    uint64_t changed;
    __asm__ volatile(
        "mov %%rsp, %%r13\n and $-16, %%rsp\n mov $257, %%edi\n mov $-100, %%rsi\n"
        "mov (%%rax), %%rdx\n"
        "mov $0x80000, %%ecx\n mov $7, %%r8d\n mov $8, %%r9d\n mov 8(%%rax), %%r12\n"
        "mov $0x5555, %%r14d\n mov $0x6666, %%r15d\n mov $0x7777, %%ebx\n xor %%eax, %%eax\n"
        "call *%%r12\n mov %%r13, %%rsp\n xor $0x5555, %%r14\n xor $0x6666, %%r15\n"
        "xor $0x7777, %%rbx\n or %%r15, %%r14\n or %%r14, %%rbx\n mov %%rbx, %%rdx\n"
        : "+a"(r), "=d"(changed)
        :
        : "rbx", "r12", "r13", "r14", "r15", "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11",
          "memory");
    CHECK(r == -1 && errno == ENOENT && changed == 0);
}

static int is_plain(const char *path) {
    int odd = strstr(path, "//") != NULL || strstr(path, "/.") != NULL;
    int known = !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6) ||
                !strncmp(path, "/mayfly/", 8);
    return path[0] == '/' && !odd && !known;
}

// Random texts at random places, with nothing readable behind some of them: what is not plain
// always reaches the dispatcher, what is plain does not unless a page ends near it, and the answer
// is the kernel's.
static void paths_are_decided_by_their_text(void) {
    static const char *const begins[] = {"/", "/", "/", "/dev/", "/proc/", "/mayfly/", "",
                                         "/projects/", "/devel/"};
    char *pages = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 2 * 4096, 4096, PROT_NONE) == 0);
    unsigned seed = 1;
    int decided = 0, asked = 0;
    for (int round = 0; round < 20000; round++) {
        char text[128];
        int length = sprintf(text, "%s", begins[rand_r(&seed) % 9]), more = rand_r(&seed) % 70;
        for (int i = 0; i < more; i++) {
            int slash = rand_r(&seed) % 12, dot = rand_r(&seed) % 12;
            text[length++] = slash == 0 ? '/' : dot == 0 ? '.' : "0abc-._z"[rand_r(&seed) % 8];
        }
        text[length] = 0;
        int at_end = rand_r(&seed) % 3 == 0;
        int offset = at_end ? 2 * 4096 - length - 1 : rand_r(&seed) % 8000;
        memset(pages, rand_r(&seed) % 2 ? '/' : '.', 2 * 4096);
        memcpy(pages + offset, text, length + 1);
        int before = dispatched();
        errno = 0;
        int fd = openat(-1, pages + offset, O_RDONLY);
        int error = errno, went = dispatched() - before - 1;
        // The path once more, by a call that is never looked at by its path.
        struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
        errno = 0;
        int other = syscall(SYS_openat2, -1, pages + offset, &how, sizeof how);
        CHECK((fd >= 0) == (other >= 0) && error == errno);
        if (fd >= 0) close(fd);
        if (other >= 0) close(other);
        int near_end = (offset & 4095) + length + 34 > 4096;
        if (!is_plain(text)) CHECK(went == 1);
        else if (!near_end) CHECK(went == 0);
        decided += went == 0;
        asked += went != 0;
    }
    CHECK(decided > 1000 && asked > 1000);
    munmap(pages, 3 * 4096);
}

static void bad_paths_are_the_kernels(void) {
    char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    memset(pages, 'a', 4096);
    memcpy(pages + 4000, "/nonexistent", 12);
    int before = deferred();
    const char *bad[] = {NULL, (char *)8, (char *)-4096, (char *)0x800000000000, pages + 4096,
                         pages + 4000};
    for (int i = 0; i < 6; i++) {
        errno = 0;
        CHECK(open(bad[i], O_RDONLY) == -1 && errno == EFAULT);
    }
    static char long_path[8192];
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[0] = '/';
    errno = 0;
    CHECK(open(long_path, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    CHECK(deferred() == before);
    // A failure that has to be looked at.
    char loop[64];
    sprintf(loop, "/tmp/mayfly-loop-%d", getpid());
    CHECK(symlink(loop, loop) == 0);
    errno = 0;
    CHECK(open(loop, O_RDONLY) == -1 && errno == ELOOP && unlink(loop) == 0);
    munmap(pages, 2 * 4096);
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
    vector_registers_survive(SYS_getsid, -50, 0, 50);
    vector_registers_survive(SYS_openat, AT_FDCWD, (long)"/nonexistent", -1);
    vector_registers_survive(SYS_openat, AT_FDCWD, (long)"/nonexistent/../none", -1);
    other_registers_survive();
    paths_are_decided_by_their_text();
    bad_paths_are_the_kernels();
    int before = dispatched();
    for (int i = 0; i < 100; i++) getppid();
    CHECK(dispatched() >= before + 101);
    return wrong != 0;
}
