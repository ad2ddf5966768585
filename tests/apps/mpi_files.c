/* Program 5: each rank writes a file of its own and its parts of shared files, and all ranks read
 * all of them back. Byte i of a shared file is pattern(i), so that every rank can check every byte.
 * Usage: mpi_files DIRECTORY. Rank 0 prints one line for each part; the first wrong byte aborts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 47008, BLOCK_COUNT = 24 };

static int rank, ranks;
static char directory[2048];

static unsigned char pattern(long offset, int seed) {
    unsigned long x = (unsigned long)offset * 2654435761u + (unsigned long)seed * 40503u;
    return (unsigned char)(x >> 13);
}

static void fail(const char *what) {
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static const char *name(const char *leaf, int number) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s%d", directory, leaf, number);
    return path;
}

static void fill(unsigned char *block, long offset, int seed) {
    for (long i = 0; i < BLOCK_BYTES; i++) block[i] = pattern(offset + i, seed);
}

static void check(const unsigned char *block, long offset, int seed, const char *what) {
    for (long i = 0; i < BLOCK_BYTES; i++) {
        if (block[i] != pattern(offset + i, seed)) {
            fprintf(stderr, "rank %d: %s: wrong byte at %ld\n", rank, what, offset + i);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void say(const char *part) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%s: verified by %d ranks\n", part, ranks);
    fflush(stdout);
}

static void own_files(unsigned char *block) {
    int fd = open(name("own", rank), O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0) fail("open own");
    for (long b = 0; b < BLOCK_COUNT; b++) {
        fill(block, b * BLOCK_BYTES, rank);
        if (write(fd, block, BLOCK_BYTES) != BLOCK_BYTES) fail("write own");
    }
    close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % ranks;
    fd = open(name("own", other), O_RDONLY);
    if (fd < 0) fail("open the neighbour's");
    for (long b = 0; b < BLOCK_COUNT; b++) {
        if (read(fd, block, BLOCK_BYTES) != BLOCK_BYTES) fail("read the neighbour's");
        check(block, b * BLOCK_BYTES, other, "own files");
    }
    close(fd);
    say("own files");
}

/* Blocks of a shared file go round the ranks; its size is right as soon as all have written. */
static void shared_posix(unsigned char *block) {
    int fd = open(name("posix", 0), O_CREAT | O_RDWR, 0644);
    if (fd < 0) fail("open shared");
    for (long b = rank; b < BLOCK_COUNT * ranks; b += ranks) {
        fill(block, b * BLOCK_BYTES, 77);
        if (pwrite(fd, block, BLOCK_BYTES, b * BLOCK_BYTES) != BLOCK_BYTES) fail("pwrite shared");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (lseek(fd, 0, SEEK_END) != (off_t)BLOCK_BYTES * BLOCK_COUNT * ranks) fail("size of shared");
    for (long b = 0; b < BLOCK_COUNT * ranks; b++) {
        if (pread(fd, block, BLOCK_BYTES, b * BLOCK_BYTES) != BLOCK_BYTES) fail("pread shared");
        check(block, b * BLOCK_BYTES, 77, "shared, POSIX");
    }
    close(fd);
    say("one shared file, POSIX");
}

static void expect(int code, const char *what) {
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(code, text, &length);
        fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The same pattern through MPI-IO: independent writes, then a strided view written collectively. */
static void shared_mpiio(unsigned char *block) {
    MPI_File file;
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    expect(MPI_File_open(MPI_COMM_WORLD, name("mpiio", 0), mode, MPI_INFO_NULL, &file), "open");
    for (long b = rank; b < BLOCK_COUNT; b += ranks) {
        fill(block, b * BLOCK_BYTES, 99);
        MPI_Offset at = (MPI_Offset)b * BLOCK_BYTES;
        expect(MPI_File_write_at(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
               "write_at");
    }
    expect(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Datatype strided;
    MPI_Type_vector(BLOCK_BYTES / 16, 16, 16 * ranks, MPI_BYTE, &strided);
    MPI_Type_commit(&strided);
    MPI_Offset start = (MPI_Offset)BLOCK_COUNT * BLOCK_BYTES;
    MPI_Offset mine = start + 16 * rank;
    expect(MPI_File_set_view(file, mine, MPI_BYTE, strided, "native", MPI_INFO_NULL), "view");
    for (long i = 0; i < BLOCK_BYTES; i++) {
        block[i] = pattern(mine + i / 16 * 16 * ranks + i % 16, 99);
    }
    expect(MPI_File_write_all(file, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
           "write_all");
    expect(MPI_File_close(&file), "close");
    MPI_Type_free(&strided);

    mode = MPI_MODE_RDONLY;
    expect(MPI_File_open(MPI_COMM_WORLD, name("mpiio", 0), mode, MPI_INFO_NULL, &file), "reopen");
    MPI_Offset size;
    expect(MPI_File_get_size(file, &size), "size");
    if (size != (MPI_Offset)BLOCK_BYTES * (BLOCK_COUNT + ranks)) fail("size of the MPI-IO file");
    for (long b = 0; b < BLOCK_COUNT + ranks; b++) {
        MPI_Offset at = (MPI_Offset)b * BLOCK_BYTES;
        expect(MPI_File_read_at_all(file, at, block, BLOCK_BYTES, MPI_BYTE, MPI_STATUS_IGNORE),
               "read");
        check(block, at, 99, "shared, MPI-IO");
    }
    expect(MPI_File_close(&file), "close");
    say("one shared file, MPI-IO");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(directory, sizeof directory, "%s", argc > 1 ? argv[1] : ".");
    unsigned char *block = malloc(BLOCK_BYTES);
    if (!block) fail("malloc");
    own_files(block);
    shared_posix(block);
    shared_mpiio(block);
    free(block);
    MPI_Finalize();
    return 0;
}
