"""Random changes of files that are mapped, and printed so that two runs can be compared.

python3 mappings.py DIRECTORY SEED STEPS

The descriptor is closed as soon as a file is mapped, and the mapping lives on: while the file is
removed, replaced, cut, written, opened anew, and shared with children. Pages are touched only below
the file's length, which is why it is kept here.
"""

import ctypes
import os
import random
import sys
import zlib

# More than any file has.
ROOM = 65536
# Around the sizes at which a file moves from one place to another.
SIZES = [0, 1, 50, 4000, 4096, 4097, 9000, 20000, 60000]
READ_AND_WRITE, SHARED, PRIVATE = 3, 1, 2

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class File:
    """A file, whatever its names."""

    def __init__(self, size):
        self.size = size


def map_file(name, kind):
    descriptor = os.open(name, os.O_RDWR)
    address = libc.mmap(None, ROOM, READ_AND_WRITE, kind, descriptor, 0)
    os.close(descriptor)
    return address


def look(address, size):
    return zlib.crc32(ctypes.string_at(address, size)) if size else 0


def content(name):
    with open(name, "rb") as file:
        return zlib.crc32(file.read())


class Player:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = {}
        self.mappings = []
        self.descriptors = []

    def step(self):
        chance = self.random
        commands = [self.map, self.poke, self.peek, self.forget, self.make, self.make]
        commands += [self.map, self.poke, self.peek, self.rename, self.link, self.remove]
        commands += [self.rewrite, self.cut, self.append, self.read, self.let_child_write]
        commands += [self.open, self.write, self.cut_open, self.close]
        command = chance.choice(commands)
        name, other = (f"f{chance.randrange(6)}" for _ in range(2))
        size, byte, place = chance.choice(SIZES), chance.randrange(256), chance.random()
        try:
            shown = command(name, other, size, bytes([byte]), place)
        except OSError as error:
            shown = os.strerror(error.errno)
        return f"{command.__name__} {name} {other} {size}: {shown}"

    def make(self, name, other, size, byte, place):
        with open(name, "xb") as file:
            file.write(byte * size)
        self.names[name] = File(size)

    def map(self, name, other, size, byte, place):
        if place < 0.7:
            self.mappings.append((self.names.get(name), map_file(name, SHARED)))
            return None
        address = map_file(name, PRIVATE)
        shown = look(address, self.names[name].size)
        libc.munmap(address, ROOM)
        return shown

    def any(self, things, place):
        return things[int(place * len(things))] if things else (File(0), 0)

    def poke(self, name, other, size, byte, place):
        file, address = self.any(self.mappings, place)
        start = self.random.randrange(file.size) if file.size else 0
        ctypes.memset(address + start, byte[0], min(file.size - start, size))

    def peek(self, name, other, size, byte, place):
        file, address = self.any(self.mappings, place)
        return look(address, file.size)

    def forget(self, name, other, size, byte, place):
        if self.mappings:
            libc.munmap(self.mappings.pop(0)[1], ROOM)

    def remove(self, name, other, size, byte, place):
        os.unlink(name)
        del self.names[name]

    def rename(self, name, other, size, byte, place):
        os.rename(name, other)
        if self.names.get(other) is not self.names[name]:
            self.names[other] = self.names.pop(name)

    def link(self, name, other, size, byte, place):
        os.link(name, other)
        self.names[other] = self.names[name]

    def rewrite(self, name, other, size, byte, place):
        if name in self.names:
            with open(name, "wb") as file:
                file.write(byte * size)
            self.names[name].size = size

    def cut(self, name, other, size, byte, place):
        os.truncate(name, size)
        self.names[name].size = size

    def append(self, name, other, size, byte, place):
        file = self.names.get(name)
        if file and file.size < 60000:
            with open(name, "ab") as opened:
                opened.write(byte * 100)
            file.size += 100

    def read(self, name, other, size, byte, place):
        return content(name), os.stat(name).st_size == self.names[name].size

    def let_child_write(self, name, other, size, byte, place):
        file, address = self.any(self.mappings, place)
        child = os.fork()
        if child == 0:
            ctypes.memset(address, byte[0], min(file.size, 100))
            os._exit(0)
        return os.waitpid(child, 0)[1]

    def open(self, name, other, size, byte, place):
        self.descriptors.append((self.names.get(name), os.open(name, os.O_RDWR)))

    def write(self, name, other, size, byte, place):
        if self.descriptors:
            file, descriptor = self.any(self.descriptors, place)
            start = min(self.random.randrange(file.size + 5000), ROOM - 5000)
            os.pwrite(descriptor, byte * 3000, start)
            file.size = max(file.size, start + 3000)

    def cut_open(self, name, other, size, byte, place):
        if self.descriptors:
            file, descriptor = self.any(self.descriptors, place)
            os.ftruncate(descriptor, size)
            file.size = size

    def close(self, name, other, size, byte, place):
        if self.descriptors:
            os.close(self.descriptors.pop(0)[1])


def main():
    directory, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.chdir(directory)
    player = Player(seed)
    for number in range(steps):
        print(number, player.step(), flush=True)
    for name in sorted(player.names):
        print(name, content(name), os.stat(name).st_nlink)


main()
