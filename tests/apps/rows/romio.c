/* What ROMIO does to files beyond plain reads and writes: data sieving (read, change and write back
 * under a lock), collective buffering, atomic mode, shared file pointers. Every rank checks every
 * byte. Usage: romio DIRECTORY. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 300, PIECE = 24, ROUNDS = 40, RECORD = 64 };

static int rank, ranks;
static char directory[2048];

static void expect(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void wrong(const char *what, long at) {
    fprintf(stderr, "rank %d: %s: wrong at %ld\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_File open_file(const char *leaf, MPI_Info info) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", directory, leaf);
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR;
    expect(MPI_File_open(MPI_COMM_WORLD, path, mode, info, &file), leaf);
    return file;
}

static void say(const char *part) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%s: verified by %d ranks\n", part, ranks);
    fflush(stdout);
}

static char piece_of(int writer, int number) {
    return (char)(1 + (writer * 37 + number * 11) % 250);
}

/* Each rank owns every ranks-th piece: with sieving it writes its neighbours' bytes back too. */
static void strided(const char *leaf, const char *sieve, const char *buffering, int together) {
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_ds_write", sieve);
    MPI_Info_set(info, "romio_ds_read", sieve);
    MPI_Info_set(info, "romio_cb_write", buffering);
    MPI_Info_set(info, "ind_wr_buffer_size", "4096");
    MPI_File file = open_file(leaf, info);
    MPI_Datatype view;
    MPI_Type_vector(PIECES, PIECE, PIECE * ranks, MPI_BYTE, &view);
    MPI_Type_commit(&view);
    expect(MPI_File_set_view(file, rank * PIECE, MPI_BYTE, view, "native", info), "view");
    static char mine[PIECES * PIECE];
    for (int i = 0; i < PIECES; i++) memset(mine + i * PIECE, piece_of(rank, i), PIECE);
    int bytes = sizeof mine;
    expect(together ? MPI_File_write_all(file, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                    : MPI_File_write(file, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE),
           "strided write");
    expect(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    static char back[PIECES * PIECE];
    expect(MPI_File_seek(file, 0, MPI_SEEK_SET), "seek");
    expect(MPI_File_read(file, back, bytes, MPI_BYTE, MPI_STATUS_IGNORE), "strided read");
    if (memcmp(mine, back, sizeof mine)) wrong("strided read", 0);
    expect(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", info), "whole view");
    for (int i = 0; i < PIECES; i++) {
        for (int writer = 0; writer < ranks; writer++) {
            char piece[PIECE];
            MPI_Offset at = (MPI_Offset)(i * ranks + writer) * PIECE;
            expect(MPI_File_read_at(file, at, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE), "read");
            for (int b = 0; b < PIECE; b++) {
                if (piece[b] != piece_of(writer, i)) wrong(leaf, at + b);
            }
        }
    }
    MPI_Type_free(&view);
    MPI_Info_free(&info);
    expect(MPI_File_close(&file), "close");
    say(leaf);
}

/* All ranks write the same bytes again and again; what is read is one rank's, never a mixture. */
static void atomic_mode(void) {
    MPI_File file = open_file("atomic", MPI_INFO_NULL);
    expect(MPI_File_set_atomicity(file, 1), "atomicity");
    static char block[20000];
    for (int round = 0; round < ROUNDS; round++) {
        memset(block, 1 + rank, sizeof block);
        expect(MPI_File_write_at(file, 0, block, sizeof block, MPI_BYTE, MPI_STATUS_IGNORE), "w");
        expect(MPI_File_read_at(file, 0, block, sizeof block, MPI_BYTE, MPI_STATUS_IGNORE), "r");
        for (size_t i = 1; i < sizeof block; i++) {
            if (block[i] != block[0]) wrong("atomic mode", (long)i);
        }
    }
    expect(MPI_File_close(&file), "close");
    say("atomic mode");
}

/* Records through the shared pointer: each one is there once and whole; ordered ones in order. */
static void shared_pointer(void) {
    MPI_File file = open_file("shared_pointer", MPI_INFO_NULL);
    char record[RECORD];
    int *seen = calloc((size_t)ranks * ROUNDS, sizeof *seen);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(record, sizeof record, "%d %d", rank, round);
        expect(MPI_File_write_shared(file, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "shared");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ranks * ROUNDS; i++) {
        int writer, round;
        MPI_Offset at = (MPI_Offset)i * RECORD;
        expect(MPI_File_read_at(file, at, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "read");
        if (sscanf(record, "%d %d", &writer, &round) != 2) wrong("shared pointer", i);
        if (seen[writer * ROUNDS + round]++) wrong("shared pointer, twice", i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    expect(MPI_File_seek_shared(file, 0, MPI_SEEK_SET), "seek shared");
    snprintf(record, sizeof record, "ordered %d", rank);
    expect(MPI_File_write_ordered(file, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "ordered");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int writer = 0; writer < ranks; writer++) {
        char wanted[RECORD];
        snprintf(wanted, sizeof wanted, "ordered %d", writer);
        MPI_Offset at = (MPI_Offset)writer * RECORD;
        expect(MPI_File_read_at(file, at, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "read");
        if (strcmp(record, wanted)) wrong("ordered", writer);
    }
    free(seen);
    expect(MPI_File_close(&file), "close");
    say("shared file pointer");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(directory, sizeof directory, "%s", argc > 1 ? argv[1] : ".");
    strided("data sieving", "enable", "disable", 0);
    strided("each piece by itself", "disable", "disable", 0);
    strided("collective buffering", "automatic", "enable", 1);
    atomic_mode();
    shared_pointer();
    MPI_Finalize();
    return 0;
}
