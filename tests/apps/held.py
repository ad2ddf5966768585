"""A client for the crash suite: holds files and locks and keeps writing until it is killed.

Usage: held.py DIRECTORY NUMBER. Prints `ready` once everything is held. An even number takes flock
locks, an odd one byte-range locks; each third one also forks a child that shares its open files.
"""

import fcntl
import os
import sys
import tempfile

directory, number = sys.argv[1], int(sys.argv[2])
files = [open(os.path.join(directory, f"held{number}.{i}"), "w+b", buffering=0) for i in range(5)]
unlinked = tempfile.TemporaryFile(dir=directory)
for file in files:
    if number % 2 == 0:
        fcntl.flock(file, fcntl.LOCK_EX)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX, 100, number)
if number % 3 == 0:
    os.fork()
print("ready", flush=True)
written = 0
while True:
    for file in [*files, unlinked]:
        file.write(bytes([number % 256]) * 3000)
    written += 1
    if written % 50 == 0:
        for file in [*files, unlinked]:
            file.truncate(0)
            file.seek(0)
