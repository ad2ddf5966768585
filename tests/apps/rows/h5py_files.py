"""HDF5 through h5py: datasets of every kind, resized, compressed, read by other processes.

HDF5_USE_FILE_LOCKING is the row's to set; `BEST_EFFORT` is not used.
"""

import multiprocessing
import os

import h5py
import numpy

PATH = os.path.join(os.environ["APP_DIR"], "data.h5")
# A child of fork would find the file open in the library that it inherits.
apart = multiprocessing.get_context("spawn")
LOCKED = os.environ["HDF5_USE_FILE_LOCKING"] == "TRUE"


def write():
    numbers = numpy.random.default_rng(7)
    with h5py.File(PATH, "w") as file:
        file["plain"] = numbers.random((300, 400))
        chunked = file.create_dataset(
            "deep/er/chunked", (1000, 500), "i8", chunks=(64, 64), compression="gzip", shuffle=True
        )
        for row in range(0, 1000, 100):
            chunked[row : row + 100] = numbers.integers(0, 100, (100, 500))
        grown = file.create_dataset("grown", (0,), "f4", maxshape=(None,), fletcher32=True)
        for _ in range(50):
            grown.resize((grown.shape[0] + 777,))
            grown[-777:] = numbers.random(777)
        text = file.create_dataset("text", (100,), h5py.string_dtype())
        text[:] = [f"line {i}" for i in range(100)]
        file["plain"].attrs["unit"] = "metre"
        file["link"] = h5py.SoftLink("/deep/er/chunked")


def sums(_):
    with h5py.File(PATH, "r") as file:
        return [
            f"{file['plain'][...].sum():.6f}",
            int(file["link"][::3, ::7].sum()),
            f"{file['grown'][...].sum(dtype='f8'):.6f}",
            file["text"][99].decode(),
            file["plain"].attrs["unit"],
        ]


def refused():
    """While one has the file open for writing, another process is kept out by a lock, if at all."""
    with h5py.File(PATH, "r+"):
        with apart.Pool(1) as pool:
            try:
                pool.map(sums, [0])
                return False
            except OSError as error:
                return "unable to lock file" in str(error)


def follow(_):
    """A second process reads what the first one appends (single writer, many readers)."""
    with h5py.File(PATH + ".swmr", "r", swmr=True) as file:
        file["grown"].refresh()
        return file["grown"].shape[0], int(file["grown"][...].sum())


def swmr():
    with h5py.File(PATH + ".swmr", "w", libver="latest") as file:
        grown = file.create_dataset("grown", (0,), "i8", maxshape=(None,), chunks=(100,))
        file.swmr_mode = True
        with apart.Pool(1) as pool:
            for step in range(1, 6):
                grown.resize((step * 250,))
                grown[-250:] = step
                grown.flush()
                print(pool.map(follow, [0]))


def main():
    write()
    with multiprocessing.Pool(3) as pool:
        found = pool.map(sums, range(6))
    assert all(one == found[0] for one in found)
    print(found[0])
    if LOCKED:
        print("kept out by a lock:", refused())
    with h5py.File(PATH, "r+") as file:
        del file["plain"]
        file["again"] = numpy.arange(100000)
    with h5py.File(PATH, "r") as file:
        print(sorted(file), int(file["again"][...].sum()))
    swmr()


if __name__ == "__main__":
    main()
