/* mapped look FILE ASKED ANSWERS: maps a file and says what it sees there, in pipes.
   mapped change FILE ASKED ANSWERS ROUNDS SEED: changes the file in all ways, and compares what the
   other one sees at once with what it must. Ends with 0 when that was the same each time.
   mapped stop ASKED: ends the one that looks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH = 96 * 1024, PAGE = 4096, LOOKS = 64 };

/* 'l' looks at `count` bytes at `at`, 'd' stores `value` there, 's' has it written, too. */
struct asked {
    long what, at, count, value;
};
struct seen {
    long beyond; /* the end of the file */
    unsigned char bytes[LOOKS];
};

static void fail(const char *what, long one, long two) {
    printf("%s: %ld %ld (%s)\n", what, one, two, strerror(errno));
    exit(1);
}

static void whole(int fd, void *bytes, long count, int writes) {
    if ((writes ? write(fd, bytes, count) : read(fd, bytes, count)) != count)
        fail("the other one is gone", fd, count);
}

static sigjmp_buf back;

static void beyond(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void look(const char *name, int asked, int answers) {
    struct asked ask;
    int fd = open(name, O_RDWR);
    volatile unsigned char *map = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED)
        fail("map", fd, 0);
    signal(SIGBUS, beyond);
    while (read(asked, &ask, sizeof ask) == sizeof ask && ask.what != 'e') {
        struct seen seen = {0};
        if (sigsetjmp(back, 1))
            seen.beyond = 1;
        else if (ask.what == 'l')
            for (long i = 0; i < ask.count; i++)
                seen.bytes[i] = map[ask.at + i];
        else
            map[ask.at] = ask.value;
        if (ask.what == 's' && !seen.beyond && msync((void *)map, LENGTH, MS_SYNC))
            fail("msync", ask.at, 0);
        whole(answers, &seen, sizeof seen, 1);
    }
    exit(0);
}

static unsigned char model[LENGTH + LOOKS];
static long size;
static unsigned long state;

static long below(long bound) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (long)((state >> 33) % (unsigned long)bound);
}

static void cut(long to) {
    if (to < size)
        memset(model + to, 0, LENGTH - to);
    size = to;
}

static void put(long at, const char *bytes, long count) {
    memcpy(model + at, bytes, count);
    if (at + count > size)
        size = at + count;
}

/* One change; what it was. */
static const char *change(const char *name, int fd, int end) {
    static char bytes[LENGTH];
    long at = below(LENGTH), count = below(below(4) ? 300 : 20000) + 1;
    if (at + count > LENGTH)
        count = LENGTH - at;
    memset(bytes, 'a' + below(26), count);
    switch (below(9)) {
    case 0:
        if (ftruncate(fd, at))
            fail("ftruncate", at, 0);
        return cut(at), "ftruncate";
    case 1:
        if (truncate(name, at))
            fail("truncate", at, 0);
        return cut(at), "truncate";
    case 2:
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, count))
            fail("punch", at, count);
        return memset(model + at, 0, count), "punch";
    case 3:
        if (fallocate(fd, 0, at, count))
            fail("fallocate", at, count);
        return size = at + count > size ? at + count : size, "fallocate";
    case 4:
        if (size + count > LENGTH)
            return "nothing";
        if (write(end, bytes, count) != count)
            fail("append", size, count);
        return put(size, bytes, count), "append";
    case 5:
        if (below(3))
            return "nothing";
        if (close(open(name, O_WRONLY | O_TRUNC)))
            fail("O_TRUNC", 0, 0);
        return cut(0), "O_TRUNC";
    default:
        if (pwrite(fd, bytes, count, at) != count)
            fail("pwrite", at, count);
        return put(at, bytes, count), "pwrite";
    }
}

static void compare(int ask, int answers, long at, const char *what, long round) {
    struct asked asked = {'l', at, LOOKS, 0};
    struct seen seen;
    long whole_pages = (size + PAGE - 1) / PAGE * PAGE;
    if (at + LOOKS > LENGTH)
        asked.at = at = LENGTH - LOOKS;
    whole(ask, &asked, sizeof asked, 1);
    whole(answers, &seen, sizeof seen, 0);
    if (at + LOOKS > whole_pages) {
        if (!seen.beyond)
            printf("round %ld, %s: a page behind the end %ld at %ld\n", round, what, size, at),
                exit(1);
    } else if (seen.beyond || memcmp(seen.bytes, model + at, LOOKS)) {
        printf("round %ld, %s: at %ld of %ld%s %02x for %02x\n", round, what, at, size,
               seen.beyond ? " no page" : "", seen.bytes[0], model[at]);
        exit(1);
    }
}

/* A store that nobody has had written outlives that its neighbours are given up. */
static void store_beside(int ask, int answers, int fd) {
    struct asked asked = {'d', below(size), 1, '0' + below(10)};
    struct seen seen;
    long other = below(size);
    unsigned char now;
    whole(ask, &asked, sizeof asked, 1);
    whole(answers, &seen, sizeof seen, 0);
    if (seen.beyond)
        fail("nothing to store to", asked.at, size);
    if (other / PAGE != asked.at / PAGE) {
        if (pwrite(fd, "=", 1, other) != 1)
            fail("pwrite", other, 0);
        model[other] = '=';
    }
    model[asked.at] = asked.value;
    asked.what = 's';
    whole(ask, &asked, sizeof asked, 1);
    whole(answers, &seen, sizeof seen, 0);
    if (seen.beyond || pread(fd, &now, 1, asked.at) != 1 || now != asked.value)
        fail("the store is lost", asked.at, now);
    if (pread(fd, &now, 1, other) != 1 || now != model[other])
        fail("the write is lost", other, now);
}

static void store(int ask, int answers, int fd) {
    struct asked asked = {'s', below(size), 1, 'A' + below(26)};
    struct seen seen;
    unsigned char now;
    whole(ask, &asked, sizeof asked, 1);
    whole(answers, &seen, sizeof seen, 0);
    if (seen.beyond || pread(fd, &now, 1, asked.at) != 1 || now != asked.value)
        fail("stored and not read", asked.at, now);
    model[asked.at] = now;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    if (!strcmp(words[1], "stop")) {
        struct asked end = {'e', 0, 0, 0};
        whole(open(words[2], O_WRONLY), &end, sizeof end, 1);
        return 0;
    }
    int looks = !strcmp(words[1], "look");
    /* Open for both, so that nobody waits for the other one here. */
    int asked = open(words[3], O_RDWR), answers = open(words[4], O_RDWR);
    if (looks)
        look(words[2], asked, answers);
    int fd = open(words[2], O_RDWR), end = open(words[2], O_WRONLY | O_APPEND);
    if (fd < 0 || end < 0)
        fail("open", fd, end);
    size = read(fd, model, LENGTH);
    state = strtoul(words[6], 0, 10);
    for (long round = 0; round < atol(words[5]); round++) {
        const char *what = change(words[2], fd, end);
        long at = size ? below(size) : 0;
        compare(asked, answers, at, what, round);
        compare(asked, answers, size > LOOKS ? size - LOOKS : 0, what, round);
        compare(asked, answers, below(LENGTH), what, round);
        if (size && !below(3))
            store(asked, answers, fd);
        else if (size && !below(4))
            store_beside(asked, answers, fd);
    }
    return 0;
}
