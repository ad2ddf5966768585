"""Threads whose requests meet what a stopped node holds: they give up, and their process goes on.

Usage: given_up.py MOUNT PID SECONDS. PID is the daemon of another node, SECONDS the deadline.
"""

import os
import signal
import sys
import threading
import time

FILES = 24
AT_ONCE = 12
CROWD = 48
TRIES = 20
EIO = 5

mount, victim, deadline = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def first(i):
    return f"{mount}/first-{i}"


def second(i):
    return f"{mount}/second-{i}"


def attempt(work, *paths):
    """The error number, 0 for none, and the seconds that it took."""
    start = time.monotonic()
    try:
        work(*paths)
        error = 0
    except OSError as failed:
        error = failed.errno
    return error, time.monotonic() - start


def all_at_once(work, items):
    threads = [threading.Thread(target=work, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def refused(work, names):
    """Those for which it cannot be done now."""
    found = set()

    def do(name):
        if attempt(work, name)[0] == EIO:
            found.add(name)

    for at in range(0, len(names), AT_ONCE):
        all_at_once(do, names[at : at + AT_ONCE])
    return found


def make(i):
    with open(first(i), "w") as file:
        file.write("text")


def stop():
    os.kill(victim, signal.SIGSTOP)


def go_on(names):
    os.kill(victim, signal.SIGCONT)
    end = time.monotonic() + 60
    while refused(os.stat, names):
        if time.monotonic() > end:
            sys.exit("names are held though all nodes run")


def stop_while_files_move(files):
    """The other node is stopped in the middle of renames, which then fail or wait for it."""

    def move(i):
        here, there = first(i), second(i)
        if not os.path.lexists(here):
            here, there = there, here
        while not attempt(os.rename, here, there)[0]:
            here, there = there, here

    stopper = threading.Timer(0.3, stop)
    stopper.start()
    all_at_once(move, files)
    stopper.join()


def hold_names(files):
    """Names that live nodes have, held by renames that wait for the stopped one. The other files
    are gone."""
    for _ in range(TRIES):
        stop_while_files_move(files)
        held = refused(os.unlink, [first(i) for i in files])
        if held:
            return sorted(held)
        go_on([second(i) for i in files])
        for i in files:
            if not os.path.lexists(second(i)):
                make(i)
    sys.exit("no rename was caught in its middle")


def give_up(held):
    """More threads than a process has requests at a time: each is told EIO at its deadline."""
    works = [os.unlink, lambda name: os.rename(name, name + "-moved")]
    said = []

    def meet(number):
        said.append(attempt(works[number % len(works)], held[number % len(held)]))

    for _ in range(2):
        all_at_once(meet, range(CROWD))
    wrong = [one for one in said if one[0] != EIO or one[1] > 2 * deadline + 5]
    if wrong:
        sys.exit(f"not given up in time: {wrong}")


def main():
    for i in range(FILES):
        make(i)
    # A file is at home where it was made.
    stop()
    dead = refused(os.stat, [first(i) for i in range(FILES)] + [second(i) for i in range(FILES)])
    live = [i for i in range(FILES) if first(i) not in dead]
    files = [i for i in live if second(i) in dead]
    live = [i for i in live if i not in files]
    go_on([second(i) for i in files])
    if not files or not live:
        sys.exit(f"one node has everything, or nothing: {dead}")

    held = hold_names(files)
    give_up(held)
    for i in live:
        error, took = attempt(os.stat, first(i))
        if error or took > deadline / 3:
            sys.exit(f"a file of a live node: error {error} after {took} seconds")

    go_on([name for i in files for name in (first(i), second(i))])
    for i in [i for i in files if first(i) in held]:
        there = [name for name in (first(i), second(i)) if os.path.lexists(name)]
        if len(there) != 1:
            sys.exit(f"file {i} is at {there}, where {held} were held")
    moved = [name for name in os.listdir(mount) if name.endswith("-moved")]
    if moved:
        sys.exit(f"done though it was given up: {moved}")
    print(f"{len(held)} of {len(files)} held, {len(live)} live")


main()
