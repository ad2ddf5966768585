/* How the kernel and the process of a mount can hand requests and data to each other, and what
 * each way costs.
 *
 *   gcc -O2 -Wall -pthread -o fuse-ways bench/fuse-ways.c
 *   ./fuse-ways DIRECTORY [ROUNDS]      (as root)
 *
 * For each way a process serves a mount with one file, which is another one in DIRECTORY. The ways
 * take turns in every round; what is printed are medians over the rounds: microseconds for a call,
 * and of processor time of both processes together. Caller and server are on one processor, as
 * those of Mayfly are while one call follows the other. WAY=NAME measures one of them only.
 *
 *   copy         read and writev of /dev/fuse; data are read into a buffer and copied out of it
 *   splice       the same, but data are spliced from the file through a pipe
 *   uring        the request comes with the completion of the last one's answer (FUSE over
 *                io_uring, Linux 6.14; needs Y in /sys/module/fuse/parameters/enable_uring before)
 *   passthrough  the kernel reads and writes the other file by itself (Linux 6.9, CAP_SYS_ADMIN)
 *   writeback    the kernel's page cache, which writes later
 *
 * Then: what happens to other opens of a file that one has open by passthrough, and which length a
 * writer of a mount with writeback sees when somebody else has made the file longer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES = 64 << 20, DATA_BYTES = 1 << 20, SPLICE_BYTES = 1 << 19 };
enum { PROCESSORS = 64, ENTRIES = 4, ROUNDS = 15, ROUNDS_MAX = 1000 };
enum { COPY, SPLICE, URING, PASSTHROUGH, WRITEBACK, WAYS };
static const char *NAMES[WAYS] = {"copy", "splice", "uring", "passthrough", "writeback"};

/* From linux/fuse.h and linux/io_uring.h, of which older machines have not all. */
enum { LOOKUP = 1, FORGET, GETATTR, SETATTR, OPEN = 14, READ, WRITE, RELEASE = 18, FLUSH = 25 };
enum { INIT = 26, FORGETS = 42 };
enum { OPEN_DIRECT = 1, OPEN_PARALLEL = 1 << 6, OPEN_PASSTHROUGH = 1 << 7 };
enum { REGISTER = 1, COMMIT_AND_FETCH };
static const uint64_t BIG_WRITES = 1 << 5, WRITEBACK_CACHE = 1 << 16, MAX_PAGES = 1 << 22;
static const uint64_t INIT_EXT = 1 << 30, USE_PASSTHROUGH = 1ull << 37, OVER_URING = 1ull << 41;
struct in { uint32_t bytes, opcode; uint64_t unique, node; uint32_t uid, gid, pid, extra; };
struct out { uint32_t bytes; int32_t error; uint64_t unique; };
struct attr {
    uint64_t node, size, blocks, times[3];
    uint32_t ns[3], mode, links, uid, gid, device, block, flags;
};
struct entry { uint64_t node, generation, valid[2]; uint32_t valid_ns[2]; struct attr attr; };
struct attributes { uint64_t valid; uint32_t valid_ns, padding; struct attr attr; };
struct transfer {
    uint64_t handle, offset;
    uint32_t bytes, flags;
    uint64_t owner;
    uint32_t open_flags, padding;
};
struct opened { uint64_t handle; uint32_t flags; int32_t backing; };
struct init {
    uint32_t major, minor, readahead, flags;
    uint16_t background, congested;
    uint32_t write_bytes, tick;
    uint16_t pages, alignment;
    uint32_t flags2, depth;
    uint16_t rest[12];
};
struct ring_header {
    char in_out[128], op[128];
    uint64_t flags, commit;
    uint32_t payload_bytes, padding;
    uint64_t rest;
};
struct sqe {
    uint8_t opcode, flags;
    uint16_t priority;
    int32_t fd;
    uint32_t command, pad;
    uint64_t address;
    uint32_t count, pad2;
    uint64_t user_data, pad3, cmd_flags, commit;
    uint16_t queue;
    uint8_t rest[62];
};
struct cqe { uint64_t user_data; int32_t result; uint32_t flags; };
struct ring_offsets { uint32_t head, tail, mask, entries, more[4]; uint64_t address; };
struct ring_params {
    uint32_t sq_entries, cq_entries, flags, cpu, idle, features, workers, rest[3];
    struct ring_offsets sq, cq;
};
_Static_assert(sizeof(struct sqe) == 128 && sizeof(struct ring_params) == 120, "the kernel's");
_Static_assert(sizeof(struct entry) == 128 && sizeof(struct attributes) == 104, "the kernel's");
_Static_assert(sizeof(struct init) == 64, "the kernel's");

struct server {
    int way, device, file, other, backing, pipe[2], processors;
    /* Opens that are to be answered in another way, for the questions at the end. */
    volatile int *odd;
};

static void check(long result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

static void stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    check(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static struct attr attributes_of(struct server *server, uint64_t node) {
    struct stat stat;
    check(fstat(server->file, &stat), "fstat");
    struct attr attr = {.node = node, .links = 1, .mode = S_IFDIR | 0755, .block = 65536};
    if (node != 1)
        attr.mode = S_IFREG | 0644, attr.size = stat.st_size;
    return attr;
}

static int backing(struct server *server, int file) {
    struct { int32_t fd; uint32_t flags; uint64_t padding; } map = {.fd = file};
    return ioctl(server->device, _IOW(229, 1, map), &map);
}

/* Fills the answer, after `argument`; its length or minus an errno. */
static long perform(struct server *server, const struct in *in, const void *argument,
                    const char *data, char *answer) {
    memset(answer, 0, sizeof(struct entry));
    const struct transfer *transfer = argument;
    switch (in->opcode) {
    case LOOKUP:
        *(struct entry *)answer = (struct entry){.node = 2, .attr = attributes_of(server, 2)};
        return sizeof(struct entry);
    case GETATTR:
    case SETATTR:
        *(struct attributes *)answer = (struct attributes){.attr = attributes_of(server, in->node)};
        return sizeof(struct attributes);
    case OPEN: {
        struct opened opened = {.handle = 1};
        if (server->way != WRITEBACK)
            opened.flags = OPEN_DIRECT | OPEN_PARALLEL;
        if (server->way == PASSTHROUGH && *server->odd != 1) {
            opened.flags = OPEN_PASSTHROUGH;
            opened.backing = *server->odd == 2 ? backing(server, server->other) : server->backing;
            if (!opened.backing)
                opened.backing = server->backing = backing(server, server->file);
            if (opened.backing < 0)
                return -errno;
        }
        memcpy(answer, &opened, sizeof opened);
        return sizeof opened;
    }
    case READ: {
        long got = pread(server->file, answer, transfer->bytes, transfer->offset);
        return got < 0 ? -errno : got;
    }
    case WRITE: {
        long put = pwrite(server->file, data, transfer->bytes, transfer->offset);
        if (put < 0)
            return -errno;
        *(uint32_t *)answer = put;
        return 8;
    }
    case RELEASE:
    case FLUSH:
        return 0;
    default:
        return -ENOSYS;
    }
}

static long greet(struct server *server, char *answer) {
    uint64_t flags = BIG_WRITES | MAX_PAGES | INIT_EXT;
    if (server->way == PASSTHROUGH)
        flags |= USE_PASSTHROUGH;
    if (server->way == URING)
        flags |= OVER_URING;
    if (server->way == WRITEBACK)
        flags |= WRITEBACK_CACHE;
    /* A pipe of a user has no place for more than that and a header. */
    uint16_t pages = (server->way == SPLICE ? SPLICE_BYTES : DATA_BYTES) / 4096;
    struct init init = {.major = 7, .minor = 40, .readahead = 131072, .flags = flags,
                        .background = 16, .congested = 12, .write_bytes = DATA_BYTES, .tick = 1,
                        .pages = pages, .flags2 = flags >> 32, .depth = 1};
    memcpy(answer, &init, sizeof init);
    return sizeof init;
}

static void reply(struct server *server, uint64_t unique, char *answer, long bytes) {
    struct out out = {sizeof out + (bytes > 0 ? bytes : 0), bytes < 0 ? bytes : 0, unique};
    struct iovec parts[] = {{&out, sizeof out}, {answer, out.bytes - sizeof out}};
    /* A caller that was killed needs no answer. */
    if (writev(server->device, parts, 2) < 0 && errno != ENOENT)
        perror("writev of /dev/fuse");
}

static void reply_by_splice(struct server *server, uint64_t unique,
                            const struct transfer *transfer) {
    loff_t offset = transfer->offset;
    struct stat stat;
    check(fstat(server->file, &stat), "fstat");
    long rest = stat.st_size - offset;
    long bytes = rest < 0 ? 0 : rest < transfer->bytes ? rest : transfer->bytes;
    struct out out = {sizeof out + bytes, 0, unique};
    struct iovec part = {&out, sizeof out};
    check(vmsplice(server->pipe[1], &part, 1, 0), "vmsplice");
    for (long done = 0; done < bytes;) {
        long now = splice(server->file, &offset, server->pipe[1], NULL, bytes - done, 0);
        check(now - 1, "splice from the file");
        done += now;
    }
    long sent = splice(server->pipe[0], NULL, server->device, NULL, out.bytes, 0);
    check(sent, "splice to /dev/fuse");
}

/* Serves what comes over /dev/fuse; `first` only. */
static void serve_device(struct server *server, int first) {
    size_t bytes = DATA_BYTES + 4096;
    char *request = aligned_alloc(4096, bytes), *answer = aligned_alloc(4096, bytes);
    for (;;) {
        long got = read(server->device, request, bytes);
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (got < 0)
            return;
        struct in *in = (struct in *)request;
        char *argument = request + sizeof *in, *data = argument + sizeof(struct transfer);
        if (in->opcode == FORGET || in->opcode == FORGETS)
            continue;
        if (in->opcode == READ && server->way == SPLICE)
            reply_by_splice(server, in->unique, (struct transfer *)argument);
        else if (in->opcode == INIT)
            reply(server, in->unique, answer, greet(server, answer));
        else
            reply(server, in->unique, answer, perform(server, in, argument, data, answer));
        if (first)
            return;
    }
}

struct queue { struct server *server; int number; };

/* Serves the requests of one processor over a ring. */
static void *serve_ring(void *given) {
    struct queue *queue = given;
    struct server *server = queue->server;
    stay_on(queue->number);
    /* COOP_TASKRUN, SQE128, SINGLE_ISSUER */
    struct ring_params params = {.flags = 1 << 8 | 1 << 10 | 1 << 12};
    int ring = syscall(425, 16, &params);
    check(ring, "io_uring_setup");
    size_t bytes = params.sq.address + params.cq.address + 65536;
    int memory = PROT_READ | PROT_WRITE, shared = MAP_SHARED | MAP_POPULATE;
    char *rings = mmap(NULL, bytes, memory, shared, ring, 0);
    bytes = params.sq_entries * sizeof(struct sqe);
    struct sqe *sqes = mmap(NULL, bytes, memory, shared, ring, 0x10000000);
    check(rings == MAP_FAILED || sqes == MAP_FAILED ? -1 : 0, "mmap of a ring");
    uint32_t *sq_tail = (uint32_t *)(rings + params.sq.tail);
    uint32_t *array = (uint32_t *)(rings + params.sq.more[2]);
    uint32_t *cq_head = (uint32_t *)(rings + params.cq.head);
    uint32_t *cq_tail = (uint32_t *)(rings + params.cq.tail);
    uint32_t sq_mask = *(uint32_t *)(rings + params.sq.mask);
    uint32_t cq_mask = *(uint32_t *)(rings + params.cq.mask);
    struct cqe *cqes = (struct cqe *)(rings + params.cq.more[1]);
    static __thread struct iovec parts[ENTRIES][2];
    uint32_t pending = 0;
    for (int at = 0; at < ENTRIES; at++) {
        parts[at][0] = (struct iovec){aligned_alloc(4096, 4096), sizeof(struct ring_header)};
        parts[at][1] = (struct iovec){aligned_alloc(4096, DATA_BYTES), DATA_BYTES};
        uint32_t place = *sq_tail & sq_mask;
        sqes[place] = (struct sqe){.opcode = 46, .fd = server->device, .command = REGISTER,
                                   .address = (uint64_t)parts[at], .count = 2,
                                   .user_data = at, .queue = queue->number};
        array[place] = place;
        __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
        pending++;
    }
    for (;;) {
        long entered = syscall(426, ring, pending, 1, 1 /* GETEVENTS */, NULL, 0);
        if (entered < 0 && errno != EINTR)
            check(entered, "io_uring_enter");
        pending -= entered > 0 ? entered : 0;
        while (*cq_head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) {
            struct cqe done = cqes[*cq_head & cq_mask];
            __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
            if (done.result == -ENOTCONN || done.result == -ECANCELED)
                return NULL;
            check(done.result, "a request over io_uring");
            struct ring_header *header = parts[done.user_data][0].iov_base;
            char *payload = parts[done.user_data][1].iov_base;
            struct in *in = (struct in *)header->in_out;
            struct out out = {sizeof out, 0, in->unique};
            /* The answer to a write goes over its data once they are written. */
            char answer[sizeof(struct entry)];
            int is_write = in->opcode == WRITE;
            char *to = is_write ? answer : payload;
            long bytes = perform(server, in, header->op, payload, to);
            if (is_write && bytes > 0)
                memcpy(payload, answer, bytes);
            out.error = bytes < 0 ? bytes : 0;
            out.bytes += bytes > 0 ? bytes : 0;
            memcpy(header->in_out, &out, sizeof out);
            header->payload_bytes = bytes > 0 ? bytes : 0;
            uint32_t place = *sq_tail & sq_mask;
            sqes[place] = (struct sqe){.opcode = 46, .fd = server->device,
                                       .command = COMMIT_AND_FETCH, .user_data = done.user_data,
                                       .commit = header->commit, .queue = queue->number};
            array[place] = place;
            __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
            pending++;
        }
    }
}

static void serve(struct server *server) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (server->way == SPLICE) {
        check(pipe(server->pipe), "pipe");
        check(fcntl(server->pipe[1], F_SETPIPE_SZ, DATA_BYTES), "F_SETPIPE_SZ");
    }
    serve_device(server, 1);
    if (server->way == URING)
        for (int number = 0; number < server->processors; number++) {
            static struct queue queues[PROCESSORS];
            static pthread_t threads[PROCESSORS];
            queues[number] = (struct queue){server, number};
            pthread_create(&threads[number], NULL, serve_ring, &queues[number]);
        }
    serve_device(server, 0);
    exit(0);
}

static double now(clockid_t clock) {
    struct timespec time;
    check(clock_gettime(clock, &time), "clock_gettime");
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

struct work { const char *name; int calls; size_t bytes; int writes; };
static const struct work WORK[] = {
    {"fstat", 4000, 0, 0},         {"read 8K", 4000, 8192, 0},    {"write 8K", 4000, 8192, 1},
    {"read 64K", 512, 65536, 0},   {"read 256K", 256, 262144, 0}, {"read 1M", 64, 1 << 20, 0},
    {"write 1M", 64, 1 << 20, 1},
};
enum { WORKS = sizeof WORK / sizeof *WORK };
static char data[DATA_BYTES];

static void work(int file, const struct work *work) {
    for (int call = 0; call < work->calls; call++) {
        off_t offset = call * work->bytes % FILE_BYTES;
        struct stat stat;
        long done = !work->bytes   ? fstat(file, &stat)
                    : work->writes ? pwrite(file, data, work->bytes, offset)
                                   : pread(file, data, work->bytes, offset);
        if (done != (long)work->bytes)
            check(-1, work->name);
    }
}

static int compare(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static void say_open(const char *what, const char *path, int flags) {
    int file = open(path, flags);
    printf("  %s: %s\n", what, file < 0 ? strerror(errno) : "opens");
    if (file >= 0)
        close(file);
}

int main(int count, char **words) {
    if (count < 2)
        return fprintf(stderr, "a directory, as root\n"), 2;
    int rounds = count > 2 ? atoi(words[2]) : ROUNDS;
    char place[256], path[400];
    check(rounds > 0 && rounds <= ROUNDS_MAX ? 0 : -1, "1 to 1000 rounds");
    snprintf(place, sizeof place, "%s/fuse-ways.%d", words[1], getpid());
    check(mkdir(place, 0700), place);
    int files[WAYS + 1], below[WAYS], other;
    pid_t servers[WAYS] = {0};
    clockid_t clocks[WAYS + 1];
    volatile int *odd = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    stay_on(0);
    other = open(place, O_TMPFILE | O_RDWR, 0600);
    check(other, "a file");
    const char *only = getenv("WAY");
    for (int way = 0; way <= WAYS; way++) {
        if (only && way < WAYS && strcmp(only, NAMES[way])) {
            files[way] = -1;
            continue;
        }
        int file = open(place, O_TMPFILE | O_RDWR, 0600);
        check(file, "a file");
        for (off_t at = 0; at < FILE_BYTES; at += DATA_BYTES)
            check(pwrite(file, data, DATA_BYTES, at), "write");
        clocks[way] = CLOCK_PROCESS_CPUTIME_ID;
        files[way] = file;
        if (way == WAYS)
            break;
        below[way] = file;
        snprintf(path, sizeof path, "%s/%s", place, NAMES[way]);
        check(mkdir(path, 0700), path);
        struct server server = {.way = way, .file = file, .other = other, .odd = odd};
        server.processors = sysconf(_SC_NPROCESSORS_CONF);
        check(server.processors <= PROCESSORS ? 0 : -1, "fewer processors");
        server.device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        check(server.device, "/dev/fuse");
        char options[100];
        snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0",
                 server.device);
        check(mount("fuse-ways", path, "fuse", MS_NOSUID | MS_NODEV, options), "mount");
        servers[way] = fork();
        check(servers[way], "fork");
        if (!servers[way])
            serve(&server);
        close(server.device);
        strcat(path, "/file");
        files[way] = open(path, O_RDWR);
        if (files[way] < 0)
            printf("%s: %s\n", NAMES[way], strerror(errno));
        else
            check(clock_getcpuclockid(servers[way], &clocks[way]), "clock");
    }
    static double took[WAYS + 1][WORKS][ROUNDS_MAX], cost[WAYS + 1][WORKS][ROUNDS_MAX];
    for (int round = -1; round < rounds; round++)
        for (int kind = 0; kind < WORKS; kind++)
            for (int way = 0; way <= WAYS; way++) {
                if (files[way] < 0)
                    continue;
                double start = now(CLOCK_MONOTONIC), there = now(clocks[way]);
                double here = now(CLOCK_PROCESS_CPUTIME_ID);
                work(files[way], &WORK[kind]);
                double end = now(CLOCK_MONOTONIC), spent = now(CLOCK_PROCESS_CPUTIME_ID) - here;
                if (way < WAYS)
                    spent += now(clocks[way]) - there;
                if (round >= 0) {
                    took[way][kind][round] = (end - start) / WORK[kind].calls;
                    cost[way][kind][round] = spent / WORK[kind].calls;
                }
            }
    printf("%-12s", "us (cpu us)");
    for (int kind = 0; kind < WORKS; kind++)
        printf("%20s", WORK[kind].name);
    for (int way = 0; way <= WAYS; way++) {
        if (files[way] < 0)
            continue;
        printf("\n%-12s", way < WAYS ? NAMES[way] : "no mount");
        for (int kind = 0; kind < WORKS; kind++)
            printf("%10.2f (%7.2f)", median(took[way][kind], rounds),
                   median(cost[way][kind], rounds));
    }
    printf("\n");
    if (files[PASSTHROUGH] >= 0) {
        snprintf(path, sizeof path, "%s/%s/file", place, NAMES[PASSTHROUGH]);
        printf("while one has the file open by passthrough:\n");
        say_open("another one that reads by passthrough", path, O_RDONLY);
        *odd = 1;
        say_open("one that writes by requests", path, O_WRONLY);
        say_open("one that reads by requests", path, O_RDONLY);
        *odd = 2;
        say_open("one by passthrough of another file", path, O_RDONLY);
        *odd = 0;
    }
    if (files[WRITEBACK] >= 0) {
        struct stat stat;
        check(pwrite(files[WRITEBACK], "x", 1, 0), "write");
        check(pwrite(below[WRITEBACK], "more", 4, FILE_BYTES), "write");
        check(fstat(files[WRITEBACK], &stat), "fstat");
        printf("writeback: the file is %d bytes longer, a writer's fstat says %lld\n", 4,
               (long long)stat.st_size - FILE_BYTES);
    }
    for (int way = 0; way < WAYS; way++) {
        if (servers[way] <= 0)
            continue;
        close(files[way]);
        snprintf(path, sizeof path, "%s/%s", place, NAMES[way]);
        umount2(path, MNT_DETACH);
        kill(servers[way], SIGKILL);
        waitpid(servers[way], NULL, 0);
        rmdir(path);
    }
    rmdir(place);
    return 0;
}
