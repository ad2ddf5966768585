"""Program 3: what Python programs do to files. Prints only what every run must print alike."""

import hashlib
import mmap
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ["APP_DIR"])
# Around every size where something changes: empty, a page, an inline file, a chunk, several chunks.
SIZES = [0, 1, 7, 511, 4095, 4096, 4097, 16383, 16385, 65536, 524287, 524288, 524289]
SIZES += [1572865, 5000000]


def content(size, seed):
    return random.Random(seed).randbytes(size)


def short_hash(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def many_sizes():
    directory = ROOT / "sizes"
    directory.mkdir()
    for size in SIZES:
        path = directory / f"{size:07d}"
        path.write_bytes(content(size, size))
        assert path.stat().st_size == size
        assert path.read_bytes() == content(size, size), f"{path} differs"
    print("sizes", sum(p.stat().st_size for p in directory.iterdir()))


def random_access():
    path, model, rng = ROOT / "random", bytearray(), random.Random(5)
    with open(path, "w+b", buffering=0) as file:
        for _ in range(400):
            offset, length = rng.randrange(1 << 21), rng.randrange(1, 9000)
            data = rng.randbytes(length)
            file.seek(offset)
            assert file.write(data) == length
            if len(model) < offset + length:
                model.extend(bytes(offset + length - len(model)))
            model[offset : offset + length] = data
            at = rng.randrange(len(model))
            assert os.pread(file.fileno(), 5000, at) == bytes(model[at : at + 5000])
        file.truncate(700000)
        file.truncate(900000)
    del model[700000:]
    model.extend(bytes(200000))
    assert path.read_bytes() == bytes(model)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        assert view[650000:710000] == bytes(model[650000:710000])
    print("random", digest(path))


def walk_and_copy():
    tree = ROOT / "tree"
    for number in range(120):
        path = tree / f"a{number % 5}" / f"b{number % 7}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {number}\n" * number)
        path.chmod(0o600 + number % 2 * 0o44)
    (tree / "up").symlink_to("../tree/a0")
    (tree / "dangling").symlink_to("nowhere")
    os.link(tree / "a0/b0/file0", tree / "linked")
    assert os.stat(tree / "linked").st_nlink == 2
    shutil.copytree(tree, ROOT / "copy", symlinks=True)
    for top in ("tree", "copy"):
        walked = os.walk(ROOT / top)
        found = sorted((os.path.relpath(d, ROOT / top), sorted(n), sorted(f)) for d, n, f in walked)
        print("walk", len(found), short_hash(repr(found)))
    print("glob", len(list((ROOT / "copy").rglob("file1*"))))
    shutil.move(ROOT / "copy", ROOT / "moved")
    shutil.rmtree(ROOT / "moved" / "a1")
    os.replace(ROOT / "moved" / "linked", ROOT / "moved" / "a0" / "b0" / "file0")
    print("moved", sorted(os.listdir(ROOT / "moved")))


def temporary_files():
    with tempfile.TemporaryFile(dir=ROOT) as file:
        file.write(b"x" * 100000)
        file.seek(99990)
        print("temporary", file.read())
    with tempfile.NamedTemporaryFile("w", dir=ROOT) as file:
        file.write("named")
        file.flush()
        print("named", pathlib.Path(file.name).read_text())
    with tempfile.TemporaryDirectory(dir=ROOT) as directory:
        (pathlib.Path(directory) / "inside").touch()
    with tempfile.SpooledTemporaryFile(max_size=10, dir=ROOT) as file:
        file.write(b"rolled over to a file")
        file.seek(0)
        print("spooled", file.read())


def errors():
    for attempt in (
        lambda: os.open(ROOT / "sizes/0000001", os.O_CREAT | os.O_EXCL),
        lambda: os.rmdir(ROOT / "sizes"),
        lambda: os.open(ROOT / "absent", os.O_RDONLY),
        lambda: os.listdir(ROOT / "random"),
        lambda: os.open(ROOT / "random/below", os.O_RDONLY),
        lambda: os.mkdir(ROOT / "sizes"),
        lambda: os.readlink(ROOT / "random"),
        lambda: os.open(ROOT / ("n" * 256), os.O_CREAT),
        lambda: os.unlink(ROOT / "tree"),
    ):
        try:
            print("no error", attempt())
        except OSError as error:
            print(type(error).__name__, error.errno)


def pool_worker(number):
    directory = ROOT / "pool"
    path = directory / f"worker{number:03d}"
    path.write_bytes(content(3000 * number, number))
    with open(directory / "shared", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), bytes([number]) * 1000, number * 1000)
    with open(directory / "log", "ab", buffering=0) as file:
        file.write(b"worker %03d\n" % number)
    return digest(path)


def pool():
    (ROOT / "pool").mkdir()
    (ROOT / "pool" / "shared").touch()
    with multiprocessing.Pool(4) as workers:
        digests = workers.map(pool_worker, range(64))
    print("pool", short_hash("".join(digests)), digest(ROOT / "pool/shared"))
    log = ROOT / "pool" / "log"
    log.write_text("".join(sorted(log.read_text().splitlines(keepends=True))))


def subprocesses():
    with open(ROOT / "out", "w") as out, open(ROOT / "err", "w") as err:
        out.write("before\n")
        out.flush()
        program = "import sys; print('out', sys.stdin.read()); print('err', file=sys.stderr)"
        with open(ROOT / "tree/a1/b1/file1") as stdin:
            command = [sys.executable, "-c", program]
            where = ROOT / "tree"
            subprocess.run(command, stdin=stdin, stdout=out, stderr=err, cwd=where, check=True)
        out.write("after\n")
    for name in ("out", "err"):
        print(name, (ROOT / name).read_text().split())
    script = ROOT / "script.py"
    program = "import os; print(os.path.basename(__file__), os.getcwd())"
    script.write_text(f"#!{shutil.which('env')} python3\n{program}\n")
    script.chmod(0o755)
    result = subprocess.run([script], cwd=ROOT / "tree", capture_output=True, text=True, check=True)
    print("script", result.stdout.replace(str(ROOT), "ROOT").strip())


def main():
    os.umask(0o022)
    parts = [many_sizes, random_access, walk_and_copy, temporary_files, errors, pool, subprocesses]
    for part in parts:
        part()
        sys.stdout.flush()
    print("left", sorted(os.listdir(ROOT)))


if __name__ == "__main__":
    main()
