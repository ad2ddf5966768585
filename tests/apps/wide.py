"""Lists a directory of very many files, and says how much memory that took.

Usage: wide.py COUNT DAEMON_PID, in an empty directory. Prints as JSON how many entries were found
once, and by how many KiB this process and the daemon grew at most while they were read.
"""

import json
import os
import sys

count, daemon = int(sys.argv[1]), sys.argv[2]
LOOK_EVERY = 20_000
MAKERS = 2


def anonymous_kib(process):
    """Memory of its own, without pages of files."""
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def make(numbers):
    for number in numbers:
        os.close(os.open(f"file{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))


makers = []
for first in range(MAKERS):
    child = os.fork()
    if child == 0:
        make(range(first, count, MAKERS))
        os._exit(0)
    makers.append(child)
failed = [child for child in makers if os.waitpid(child, 0)[1] != 0]

seen, once = bytearray(b"\1" * count), 0
with os.scandir(".") as entries:
    next(entries)
before = {process: anonymous_kib(process) for process in ("self", daemon)}
most = dict(before)
with os.scandir(".") as entries:
    for index, entry in enumerate(entries):
        number = int(entry.name.removeprefix("file"))
        once += seen[number]
        seen[number] = 0
        if index % LOOK_EVERY == 0:
            most = {process: max(most[process], anonymous_kib(process)) for process in most}
grown = {process: most[process] - before[process] for process in most}
said = {"failed": len(failed), "once": once, "self": grown["self"], "daemon": grown[daemon]}
print(json.dumps(said))
