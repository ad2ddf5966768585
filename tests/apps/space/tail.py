"""What is done to a file that has outgrown its node, beside the same done to bytes in memory.

Another file fills the node of 64 MiB but for some 15, as soon as the one that is tried is made: so
its end has to be at other nodes. Where they begin is not told, so what is done is done all around.
"""

import ctypes
import errno
import mmap
import os
import time

MOUNT = os.environ["MAYFLY_MOUNT"]
MIB = 1 << 20
CAPACITY = 16 * MIB
FILLER = MOUNT + "/filler"
SIZE = CAPACITY * 3 // 2
# The head ends somewhere here.
BORDERS = range(CAPACITY - 4 * MIB, CAPACITY + MIB, MIB // 4)
HOLE, ZERO, KEEP = 2, 16, 1

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, offset, length):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def free():
    of = os.statvfs(MOUNT)
    return of.f_bavail * of.f_frsize


def wait_for_free(least):
    for _ in range(200):
        if free() >= least:
            return
        time.sleep(0.05)
    raise AssertionError("%d bytes are free and not %d" % (free(), least))


def fill_node(count):
    file = os.open(FILLER, os.O_WRONLY | os.O_CREAT)
    fallocate(file, 0, 0, count)
    os.close(file)


def make_outgrowing(name):
    """While its node is nearly empty, so that it is made there, and filled then."""
    os.unlink(FILLER)
    wait_for_free(FREE[0] - MIB)
    of = Pair(name)
    fill_node(48 * MIB)
    return of


FREE = []


def pattern(number, length):
    lines = range(number * 1_000_003, number * 1_000_003 + -(-length // 16))
    return b"".join(b"%015d\n" % line for line in lines)[:length]


class Pair:
    """A file, and what should be in it."""

    def __init__(self, name, flags=0):
        self.path = MOUNT + "/" + name
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | flags, 0o644)
        self.bytes = bytearray()

    def write(self, at, data):
        assert os.pwrite(self.file, data, at) == len(data)
        self.extend(at)
        self.bytes[at:at + len(data)] = data

    def append(self, data):
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        assert os.write(file, data) == len(data)
        os.close(file)
        self.bytes += data

    def extend(self, end):
        self.bytes += bytes(max(0, end - len(self.bytes)))

    def truncate(self, size):
        os.ftruncate(self.file, size)
        del self.bytes[size:]
        self.extend(size)

    def allocate(self, mode, at, length):
        fallocate(self.file, mode, at, length)
        if not mode & KEEP:
            self.extend(at + length)
        if mode & (HOLE | ZERO):
            end = min(at + length, len(self.bytes))
            self.bytes[at:end] = bytes(max(0, end - at))

    def blocks(self):
        of, by_name = os.fstat(self.file), os.stat(self.path)
        assert of.st_blocks == by_name.st_blocks, (of, by_name)
        return of.st_blocks * 512

    def expect_space(self, length, what):
        taken = self.blocks()
        assert length <= taken <= length + MIB // 4, "%s: %d of %d" % (what, taken, length)

    def check(self, what):
        size = os.fstat(self.file).st_size
        assert size == len(self.bytes) == os.stat(self.path).st_size, (what, size, len(self.bytes))
        at = 0
        while piece := os.pread(self.file, 4 * MIB, at):
            if piece != self.bytes[at:at + len(piece)]:
                want = self.bytes[at:at + len(piece)]
                first = next(at for at in range(len(piece)) if piece[at] != want[at])
                raise AssertionError("%s: another byte at %d" % (what, at + first))
            at += len(piece)
        assert at == size, (what, at, size)

    def fill(self, size=SIZE):
        while len(self.bytes) < size:
            at = len(self.bytes)
            self.write(at, pattern(at >> 16, min(1 << 16, size - at)))

    def close(self):
        os.close(self.file)


def cuts(of):
    of.fill()
    of.check("made")
    of.expect_space(SIZE, "made")
    of.truncate(SIZE - 3 * MIB - 123)
    of.check("cut in its tail")
    of.expect_space(SIZE - 3 * MIB - 123, "cut in its tail")
    before = of.blocks()
    of.truncate(SIZE + 5 * MIB + 7)
    of.check("made longer")
    assert of.blocks() - before <= MIB, (before, of.blocks())
    for border in reversed(BORDERS):
        of.truncate(border + 1)
        of.truncate(border + MIB)
    of.check("cut all around the border")
    of.truncate(MIB + 5)
    of.check("cut into its head")
    of.expect_space(MIB + 5, "cut into its head")
    of.fill()
    of.check("written again")
    of.truncate(0)
    of.check("emptied")
    of.expect_space(0, "emptied")
    of.fill()
    of.check("written once more")


def ranges(of):
    of.write(CAPACITY - 2 * MIB - 77, pattern(3, 3 * MIB))
    for border in BORDERS:
        of.write(border - 5, pattern(border, 10))
    of.append(pattern(5, 100_000))
    of.check("written and appended")
    size = len(of.bytes)
    of.allocate(0, size - MIB, 2 * MIB)
    of.check("lengthened by fallocate")
    of.expect_space(len(of.bytes), "lengthened by fallocate")
    of.allocate(KEEP, len(of.bytes), MIB)
    of.check("space taken behind the end")
    before = of.blocks()
    of.allocate(KEEP | HOLE, CAPACITY - 4 * MIB, 5 * MIB)
    of.check("a hole over the border")
    assert before - of.blocks() >= 5 * MIB - MIB // 4, (before, of.blocks())
    hole = os.lseek(of.file, 0, os.SEEK_HOLE)
    data = os.lseek(of.file, CAPACITY - 3 * MIB, os.SEEK_DATA)
    assert (hole, data) == (CAPACITY - 4 * MIB, CAPACITY + MIB), (hole, data)
    of.allocate(ZERO, CAPACITY + MIB // 2, MIB)
    of.allocate(ZERO | KEEP, len(of.bytes) - 5000, MIB)
    of.check("zeroed")
    of.allocate(0, CAPACITY - 4 * MIB, 5 * MIB)
    of.check("the hole has its space again")
    of.write(CAPACITY - 4 * MIB, pattern(9, 5 * MIB))
    of.check("the hole is filled")


def copies(of):
    other = Pair("copy")
    for start, length in [(CAPACITY - 3 * MIB - 11, 4 * MIB), (len(of.bytes) - 4096, 8192)]:
        at = len(other.bytes)
        done = 0
        want = min(length, len(of.bytes) - start)
        copy = lambda: os.copy_file_range(
            of.file, other.file, length - done, start + done, at + done)
        while count := copy():
            done += count
        assert done == want, (done, want)
        other.bytes += of.bytes[start:start + done]
    other.check("copied out of the file")
    done = 0
    place = CAPACITY - 2 * MIB
    while done < 3 * MIB:
        done += os.copy_file_range(other.file, of.file, 3 * MIB - done, done, place + done)
    of.bytes[CAPACITY - 2 * MIB:CAPACITY + MIB] = other.bytes[:3 * MIB]
    of.check("copied into the file")
    os.unlink(other.path)
    other.close()


def lengths_first(before):
    """Its length, or its space, comes before its bytes."""
    of = make_outgrowing("first")
    of.truncate(SIZE)
    of.expect_space(0, "only made longer")
    pieces = list(range(0, SIZE, MIB))
    for at in reversed(pieces):
        of.write(at, pattern(at, MIB))
    of.check("written from its end")
    os.unlink(of.path)
    of.close()
    of = make_outgrowing("space")
    of.write(0, pattern(1, 5000))
    of.allocate(0, 0, SIZE)
    of.expect_space(SIZE, "space taken at once")
    of.check("space taken at once")
    of.fill()
    os.unlink(of.path)
    of.close()
    of = make_outgrowing("kept")
    of.write(0, pattern(1, 50_000))
    of.allocate(KEEP, 50_000, SIZE)
    of.check("space behind its end")
    os.ftruncate(of.file, 1 << 40)
    assert os.pwrite(of.file, b"end", (1 << 40) - 3) == 3
    assert os.pread(of.file, 10, (1 << 40) - 5) == b"\0\0end"
    assert of.blocks() < MIB
    try:
        fallocate(of.file, 0, 0, 1 << 40)
        raise AssertionError("there was space")
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    os.unlink(of.path)
    of.close()
    wait_for_free(before - MIB // 4)


def mapped(of):
    """Through a mount, if the instance has one; refused without, as of other nodes' files."""
    try:
        memory = mmap.mmap(of.file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    except OSError as error:
        assert error.errno == errno.ENODEV, error
        return "refused"
    for border in BORDERS:
        assert memory[border - 100:border + 100] == of.bytes[border - 100:border + 100], border
    memory.close()
    return "shown"


def names(of, before):
    small = MOUNT + "/small"
    with open(small, "w") as file:
        file.write("small")
    os.rename(of.path, MOUNT + "/other")
    of.path = MOUNT + "/other"
    of.check("renamed")
    os.rename(small, of.path)
    assert open(of.path).read() == "small"
    of.path = "/dev/fd/%d" % of.file
    size = os.fstat(of.file).st_size
    assert os.pread(of.file, MIB, CAPACITY) == of.bytes[CAPACITY:CAPACITY + MIB]
    assert size == len(of.bytes) and os.fstat(of.file).st_nlink == 0
    assert free() < before - CAPACITY
    of.close()
    os.unlink(MOUNT + "/other")
    wait_for_free(before - MIB // 4)
    # Over a file with a tail, and one that is emptied by an open.
    for way in ["over", "open", "unlink"]:
        of = make_outgrowing("again")
        of.fill()
        of.close()
        if way == "over":
            with open(small, "w") as file:
                file.write("small")
            os.rename(small, of.path)
        elif way == "open":
            os.close(os.open(of.path, os.O_WRONLY | os.O_TRUNC))
            assert os.stat(of.path).st_size == 0
        else:
            os.unlink(of.path)
        wait_for_free(before - MIB // 4)
        if way == "open":
            of = Pair("again")
            of.fill()
            of.check("written after O_TRUNC")
            of.close()
        if way != "unlink":
            os.unlink(of.path)
            wait_for_free(before - MIB // 4)


def main():
    FREE.append(free())
    fill_node(48 * MIB)
    before = free()
    of = make_outgrowing("file")
    cuts(of)
    ranges(of)
    copies(of)
    print("mapped:", mapped(of))
    names(of, before)
    lengths_first(before)
    os.unlink(FILLER)
    wait_for_free(FREE[0] - MIB)


main()
