/* Four ranks write one HDF5 file: collective and independent, contiguous and chunked; then every
 * rank reads everything. Usage: parallel_hdf5 FILE. */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 1000 };

static int rank, ranks;

static hid_t good(hid_t id, const char *what) {
    if (id < 0) {
        fprintf(stderr, "rank %d: %s failed\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return id;
}

static int value(hsize_t row, hsize_t column) { return (int)(row * 1009 + column * 31); }

static hid_t open_file(const char *path, int create) {
    hid_t access = good(H5Pcreate(H5P_FILE_ACCESS), "access list");
    good(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL), "mpio");
    hid_t file = create ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access)
                        : H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return good(file, "opening the file");
}

static hid_t transfer(H5FD_mpio_xfer_t how) {
    hid_t list = good(H5Pcreate(H5P_DATASET_XFER), "transfer list");
    good(H5Pset_dxpl_mpio(list, how), "transfer");
    return list;
}

/* Every ranks-th row is the rank's own. */
static void write(hid_t file, const char *name, int chunked, H5FD_mpio_xfer_t how) {
    hsize_t whole[2] = {(hsize_t)ROWS * ranks, COLUMNS}, chunk[2] = {10, 300};
    hsize_t start[2] = {rank, 0}, stride[2] = {ranks, 1}, count[2] = {ROWS, COLUMNS};
    hid_t space = good(H5Screate_simple(2, whole, NULL), "space");
    hid_t create = good(H5Pcreate(H5P_DATASET_CREATE), "create list");
    if (chunked) good(H5Pset_chunk(create, 2, chunk), "chunk");
    hid_t set = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, create, H5P_DEFAULT);
    good(set, "dataset");
    int *data = malloc(sizeof(int) * ROWS * COLUMNS);
    for (hsize_t i = 0; i < ROWS; i++) {
        for (hsize_t j = 0; j < COLUMNS; j++) data[i * COLUMNS + j] = value(rank + i * ranks, j);
    }
    hid_t memory = good(H5Screate_simple(2, count, NULL), "memory");
    good(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL), "rows");
    hid_t list = transfer(how);
    good(H5Dwrite(set, H5T_NATIVE_INT, memory, space, list, data), "write");
    free(data);
    H5Pclose(list);
    H5Sclose(memory);
    H5Dclose(set);
    H5Pclose(create);
    H5Sclose(space);
}

static void check(hid_t file, const char *name) {
    hsize_t rows = (hsize_t)ROWS * ranks;
    int *data = malloc(sizeof(int) * rows * COLUMNS);
    hid_t set = good(H5Dopen2(file, name, H5P_DEFAULT), name);
    hid_t list = transfer(H5FD_MPIO_COLLECTIVE);
    good(H5Dread(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, list, data), "read");
    for (hsize_t i = 0; i < rows * COLUMNS; i++) {
        if (data[i] != value(i / COLUMNS, i % COLUMNS)) good(-1, "comparing");
    }
    free(data);
    H5Pclose(list);
    H5Dclose(set);
    if (rank == 0) printf("%s: verified by %d ranks\n", name, ranks);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *path = argc > 1 ? argv[1] : "parallel.h5";
    hid_t file = open_file(path, 1);
    write(file, "collective", 0, H5FD_MPIO_COLLECTIVE);
    write(file, "independent", 0, H5FD_MPIO_INDEPENDENT);
    write(file, "chunked, collective", 1, H5FD_MPIO_COLLECTIVE);
    write(file, "chunked, independent", 1, H5FD_MPIO_INDEPENDENT);
    good(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush");
    good(H5Fclose(file), "close");
    file = open_file(path, 0);
    check(file, "collective");
    check(file, "independent");
    check(file, "chunked, collective");
    check(file, "chunked, independent");
    good(H5Fclose(file), "close");
    MPI_Finalize();
    return 0;
}
