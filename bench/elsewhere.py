#!/usr/bin/env python3
"""Small sequential writes and reads of a file at another node, against large ones.

    bench/elsewhere.py [path of mayfly] [--runs N] [--size MiB]

For each consistency an instance of four nodes on this machine. Its second node makes a directory.
One process on the first node writes and reads a file in it, in pieces of 8 KiB and of 1 MiB by
turns. Open and close are inside the clock. Prints the medians, and the ratio of small to large.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time

SMALL, LARGE = 8 << 10, 1 << 20
NAME = f"elsewhere-{os.getpid()}"


def measure(size_bytes, runs):
    """In a process of the instance: lines of what was done, piece and MiB a second."""
    path = os.environ["MAYFLY_MOUNT"] + "/there/file"
    for piece in (SMALL, LARGE) * runs:
        block, count = os.urandom(piece), size_bytes // piece
        begun = time.perf_counter()
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        for number in range(count):
            os.pwrite(file, block, number * piece)
        os.close(file)
        written = time.perf_counter()
        file = os.open(path, os.O_RDONLY)
        for number in range(count):
            assert len(os.pread(file, piece, number * piece)) == piece
        os.close(file)
        read = time.perf_counter()
        os.unlink(path)
        print("write", piece, size_bytes / (written - begun) / (1 << 20))
        print("read", piece, size_bytes / (read - written) / (1 << 20))


def on_node(mayfly, node, command):
    """What a shell on a node of the instance prints."""
    enter = f'eval "$({shlex.quote(mayfly)} env --name {NAME} --node {node})"; '
    shell = ["sh", "-c", enter + command]
    return subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout


def rates(mayfly, consistency, arguments):
    """By what was done and the piece: the rates of all runs."""
    start = [mayfly, "start", "--name", NAME, "--nodes", "local:4", "--consistency", consistency]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        on_node(mayfly, 1, 'mkdir "$MAYFLY_MOUNT/there"')
        inner = [sys.executable, os.path.abspath(__file__), "--inside"]
        inner += ["--size", str(arguments.size), "--runs", str(arguments.runs)]
        text = on_node(mayfly, 0, shlex.join(inner))
    finally:
        subprocess.run([mayfly, "stop", "--name", NAME], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for line in text.splitlines():
        what, piece, rate = line.split()
        found.setdefault((what, int(piece)), []).append(float(rate))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mayfly", nargs="?", default="mayfly")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return measure(arguments.size << 20, arguments.runs)
    form = "{:12} {:6} {:>10} {:>7} {:>13} {:>6}"
    print(form.format("consistency", "", "8 KiB: µs", "MiB/s", "1 MiB: MiB/s", "ratio"))
    for consistency in ("strict", "session"):
        found = rates(arguments.mayfly, consistency, arguments)
        for what in ("write", "read"):
            small, large = (statistics.median(found[what, piece]) for piece in (SMALL, LARGE))
            each_us = SMALL / (1 << 20) / small * 1e6
            figures = [f"{each_us:.1f}", f"{small:.0f}", f"{large:.0f}", f"{small / large:.2f}"]
            print(form.format(consistency, what, *figures))
    return None


if __name__ == "__main__":
    main()
