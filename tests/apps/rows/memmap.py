"""numpy.memmap in each of its modes, with workers that write parts of one shared mapping."""

import hashlib
import multiprocessing
import os

import numpy

PATH = os.path.join(os.environ["APP_DIR"], "array")
ROWS, COLUMNS, WORKERS = 2000, 700, 4


def digest():
    with open(PATH, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def fill(worker):
    array = numpy.memmap(PATH, "f4", "r+", shape=(ROWS, COLUMNS))
    array[worker::WORKERS] = numpy.random.default_rng(worker).random((ROWS // WORKERS, COLUMNS))
    if worker % 2:
        array.flush()


def main():
    array = numpy.memmap(PATH, "f4", "w+", shape=(ROWS, COLUMNS))
    array[0] = 1
    with multiprocessing.Pool(WORKERS) as pool:
        pool.map(fill, range(WORKERS), chunksize=1)
    print("as the first process sees it", f"{array.sum(dtype='f8'):.3f}")
    print("in the file", digest())
    array *= 2
    array.flush()
    print("doubled", digest())
    copied = numpy.memmap(PATH, "f4", "c", shape=(ROWS, COLUMNS))
    copied[:] = 0
    print("private changes stay private", digest(), float(copied.sum()))
    part = numpy.memmap(PATH, "f4", "r", offset=COLUMNS * 4 * 1999, shape=(1, COLUMNS))
    print("the last row", f"{part.sum(dtype='f8'):.3f}")
    numpy.save(PATH + ".npy", numpy.arange(30000).reshape(100, 300))
    loaded = numpy.load(PATH + ".npy", mmap_mode="r+")
    loaded[5] = -1
    del loaded
    print("npy", int(numpy.load(PATH + ".npy").sum()))
    print(os.stat(PATH).st_size)


if __name__ == "__main__":
    main()
