"""Many small files read in random order by several Python processes: mayfly:// beside `open`.

    python bench/python.py --files 10000 --dir /local/nvme

makes the same files in an instance and in a plain directory of the same file system, and reads all
of them, in the same random order, with so many worker processes: by the package, by a mount with
`open`, in a process that the preload library serves with `open`, and from the directory. The ways
take turns, round after round, another one first in each. Printed are the median of the rates, and
of the ratios to the directory's rate of the same round, each with the least and the most. Also the
time from `import mayfly` to the first open. The package has to be installed.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import mayfly
from mayfly.fs import MayflyFileSystem

SEED = 7
IMPORTS = 15


def sizes(count, smallest, largest):
    """Between the bounds, evenly over their logarithm: many small, few large."""
    numbers = random.Random(SEED)
    ratio = largest / smallest
    return [int(smallest * ratio ** numbers.random()) for _ in range(count)]


class ByPackage:
    """`fs.cat_file`, as fsspec's users read a whole small file."""

    def __init__(self, name, root):
        self.fs, self.root = MayflyFileSystem(instance=name), root

    def read(self, path):
        return len(self.fs.cat_file(f"{self.root}/{path}"))


class ByFile(ByPackage):
    """`fs.open(...).read()`."""

    def read(self, path):
        with self.fs.open(f"{self.root}/{path}") as file:
            return len(file.read())


class Plain:
    """`open(...).read()`."""

    def __init__(self, root):
        self.root = root

    def read(self, path):
        with open(f"{self.root}/{path}", "rb") as file:
            return len(file.read())


_way = None
_ready = None


def _begin(way, ready):
    global _way, _ready
    _way, _ready = way, ready


def _read(paths):
    _ready.wait()
    begun = time.perf_counter()
    total = sum(map(_way.read, paths))
    return begun, time.perf_counter(), total


def run(way, paths, workers):
    """Seconds from the first worker's first read to the last one's last, and the bytes read."""
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(workers)
    shares = [paths[number::workers] for number in range(workers)]
    with context.Pool(workers, _begin, (way, ready)) as pool:
        said = pool.map(_read, shares, chunksize=1)
    return max(end for _, end, _ in said) - min(begun for begun, _, _ in said), sum(
        total for _, _, total in said
    )


def preloaded(name, root, args):
    """The same by a process that the preload library serves: seconds and bytes."""
    shell = f'eval "$("{program()}" env --name {name})"; exec "$@"'
    words = [sys.executable, __file__, "--as-worker", root, "--files", str(args.files)]
    words += ["--workers", str(args.workers), "--order", str(args.order)]
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *words], capture_output=True, text=True, check=True
    )
    seconds, total = done.stdout.split()
    return float(seconds), int(total)


def program():
    from mayfly import _program

    return _program.path()


def names(count):
    return [f"{number % 64:02}/{number}" for number in range(count)]


def shuffled(count, turn):
    order = names(count)
    random.Random(SEED + turn).shuffle(order)
    return order


def make(args, fs, directory):
    """The files, in both places; how long that took."""
    data = os.urandom(args.largest)
    took = {}
    lengths = sizes(args.files, args.smallest, args.largest)
    for way, write in (("mayfly", fs.pipe_file), ("directory", _write)):
        root = "/data" if way == "mayfly" else directory
        begun = time.perf_counter()
        for number in range(64):
            fs.mkdir(f"/data/{number:02}") if way == "mayfly" else os.makedirs(
                f"{directory}/{number:02}"
            )
        for path, size in zip(names(args.files), lengths):
            write(f"{root}/{path}", data[:size])
        took[way] = time.perf_counter() - begun
    return took, sum(lengths)


def _write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def first_open(name):
    words = (
        "import time; begun = time.perf_counter(); import mayfly\n"
        f"mayfly.attach({name!r}).read_file('/data/00/0')\n"
        "print((time.perf_counter() - begun) * 1000)"
    )
    took = []
    for _ in range(IMPORTS):
        done = subprocess.run(
            [sys.executable, "-c", words], capture_output=True, check=True
        )
        took.append(float(done.stdout))
    return took


def span(numbers, digits):
    least, middle, most = min(numbers), statistics.median(numbers), max(numbers)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def measure(args, fs, name, mount, directory):
    took, total = make(args, fs, directory)
    print(
        f"{args.files} files, {total / 1e6:.0f} MB, {args.workers} workers, {args.turns} rounds"
    )
    for way, seconds in took.items():
        print(f"made one after the other, {way}: {args.files / seconds:.0f} files/s")
    ways = {
        "directory, open": lambda paths: run(Plain(directory), paths, args.workers),
        "mayfly://, cat_file": lambda paths: run(
            ByPackage(name, "/data"), paths, args.workers
        ),
        "mayfly://, fs.open": lambda paths: run(
            ByFile(name, "/data"), paths, args.workers
        ),
        "preload library, open": lambda _: preloaded(name, f"{mount}/data", args),
    }
    if os.path.ismount(mount):
        ways["FUSE mount, open"] = lambda paths: run(
            Plain(f"{mount}/data"), paths, args.workers
        )
    rates = {way: [] for way in ways}
    for turn in range(args.turns + 1):
        args.order = turn
        order = list(ways.items())
        for way, read in order[turn % len(order) :] + order[: turn % len(order)]:
            seconds, read_bytes = read(shuffled(args.files, turn))
            assert read_bytes == total, f"{way}: {read_bytes} bytes of {total}"
            # The first round warms what there is to be warmed.
            if turn:
                rates[way].append(args.files / seconds)
    beside = rates["directory, open"]
    for way, of_way in rates.items():
        ratios = [rate / other for rate, other in zip(of_way, beside, strict=True)]
        print(f"{way:24} {span(of_way, 0)} files/s, {span(ratios, 2)} of the directory")
    took = first_open(name)
    print(
        f"import mayfly and first open: {statistics.median(took):.1f} ms (best {min(took):.1f})"
    )


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--files", type=int, default=10_000)
    asked.add_argument("--smallest", type=int, default=4 << 10, help="bytes")
    asked.add_argument("--largest", type=int, default=128 << 10, help="bytes")
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--turns", type=int, default=5)
    asked.add_argument(
        "--dir", default=None, help="where both lie [the temporary directory]"
    )
    asked.add_argument("--as-worker", help=argparse.SUPPRESS)
    asked.add_argument("--order", type=int, default=0, help=argparse.SUPPRESS)
    args = asked.parse_args()
    if args.as_worker:
        return print(
            *run(Plain(args.as_worker), shuffled(args.files, args.order), args.workers)
        )
    place = tempfile.mkdtemp(prefix="mayfly-bench-", dir=args.dir)
    try:
        with mayfly.Instance(data_dir=place) as fs:
            mount = mayfly.find(fs.instance).mount
            measure(args, fs, fs.instance, mount, os.path.join(place, "plain"))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
