"""Processes append to one file while it outgrows its node: each record is there once.

Takes how they append, how many processes there are, and how many records each has.
"""

import fcntl
import os
import sys
import time

PATH = os.environ["MAYFLY_MOUNT"] + "/log"
WAY, PROCESSES, RECORDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
BYTES = 8192
RWF_APPEND = 0x10


def record(process, number):
    return (b"%07d %07d\n" % (process, number)) * (BYTES // 16)


def opened():
    file = os.open(PATH, os.O_WRONLY | (os.O_APPEND if WAY == "flag" else 0))
    if WAY == "later":
        # Something is written at a place first, by leave for that.
        os.pwrite(file, bytes(BYTES), 0)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def append(process, file):
    for number in range(RECORDS):
        data = record(process, number)
        if WAY == "each":
            count = os.pwritev(file, [data], 0, RWF_APPEND)
        else:
            count = os.write(file, data)
        assert count == BYTES, count


def free():
    of = os.statvfs(os.environ["MAYFLY_MOUNT"])
    return of.f_bavail * of.f_frsize


before = free()
with open(PATH, "wb") as made:
    made.write(bytes(BYTES))
# Its node has some 4 MiB left from here on.
with open(PATH + "-beside", "wb") as beside:
    os.posix_fallocate(beside.fileno(), 0, 59 << 20)
shared = opened()
children = []
for process in range(PROCESSES):
    child = os.fork()
    if child == 0:
        # Half of them by one description.
        append(process, shared if process % 2 else opened())
        os._exit(0)
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert status == 0, status
seen = {}
with open(PATH, "rb") as file:
    assert file.read(BYTES) == bytes(BYTES)
    while data := file.read(BYTES):
        process, number = map(int, data[:16].split())
        assert data == record(process, number), (process, number)
        # As each process wrote them, and none twice.
        assert number == seen.get(process, -1) + 1, (process, number, seen)
        seen[process] = number
assert seen == {process: RECORDS - 1 for process in range(PROCESSES)}, seen
os.close(shared)
os.unlink(PATH)
os.unlink(PATH + "-beside")
for _ in range(200):
    if free() > before - (1 << 20):
        break
    time.sleep(0.05)
else:
    raise AssertionError("%d bytes are free, before it were %d" % (free(), before))
