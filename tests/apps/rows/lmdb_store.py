"""LMDB: a writer and readers in other processes on one map, both ways of writing, a full map."""

import hashlib
import os
import random
import signal
import sys

import lmdb

WRITE_MAP = sys.argv[1] == "writemap"
PATH = os.path.join(os.environ["APP_DIR"], "store")
MAP_BYTES = 64 << 20


def environment():
    return lmdb.open(PATH, map_size=MAP_BYTES, writemap=WRITE_MAP, max_dbs=2, max_readers=16)


def entries(seed, count):
    chance = random.Random(seed)
    for number in range(count):
        yield b"%d/%06d" % (seed, number), chance.randbytes(chance.randrange(1, 3000))


def in_child(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def write(seed):
    with environment() as store:
        for at, (key, value) in enumerate(entries(seed, 1500)):
            if at % 100 == 0:
                transaction = store.begin(write=True)
            transaction.put(key, value)
            if at % 100 == 99:
                transaction.commit()


def die():
    """Killed with a transaction open: the lock is free and nothing of it is seen."""
    store = environment()
    transaction = store.begin(write=True)
    for key, _ in entries(1, 1500):
        transaction.put(key, b"torn")
    os.kill(os.getpid(), signal.SIGKILL)


def check():
    digest = hashlib.sha256()
    with environment() as store, store.begin() as transaction:
        for key, value in transaction.cursor():
            digest.update(key + value)
        print(transaction.stat()["entries"], digest.hexdigest()[:16], flush=True)


def isolated():
    """A reader keeps what it saw while others commit."""
    with environment() as store, store.begin() as transaction:
        before = transaction.stat()["entries"]
        in_child(lambda: write(3))
        print("unchanged for a reader:", transaction.stat()["entries"] == before)


def full():
    with environment() as store:
        try:
            with store.begin(write=True) as transaction:
                for number in range(1000):
                    transaction.put(b"big%d" % number, bytes(1 << 20))
        except lmdb.MapFullError:
            print("a full map is told")


def main():
    assert [in_child(lambda: write(seed)) for seed in (1, 2)] == [0, 0]
    check()
    assert in_child(die) == signal.SIGKILL
    in_child(check)
    isolated()
    full()
    in_child(check)
    with environment() as store:
        os.mkdir(PATH + ".copy")
        store.copy(PATH + ".copy", compact=True)
    print(sorted(os.listdir(PATH)), sorted(os.listdir(os.environ["APP_DIR"])))


main()
