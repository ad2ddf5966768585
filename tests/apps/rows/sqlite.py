"""Two processes torture one SQLite database; one more is killed in the middle of a transaction.

Usage: sqlite.py rollback|wal. Every change commutes with the other process's, so the rows at the
end are the same whoever came first.
"""

import hashlib
import os
import random
import signal
import sqlite3
import sys

MODE = {"rollback": "delete", "wal": "wal"}[sys.argv[1]]
PATH = os.path.join(os.environ["APP_DIR"], "bank.db")
ACCOUNTS, TRANSACTIONS = 50, 120


def connect():
    db = sqlite3.connect(PATH, timeout=60, isolation_level=None)
    assert db.execute(f"pragma journal_mode={MODE}").fetchone() == (MODE,)
    # Changed pages leave the cache before the transaction ends.
    db.execute("pragma cache_size=8")
    db.execute("pragma wal_autocheckpoint=50")
    return db


def make():
    db = connect()
    db.executescript(
        """create table account (id integer primary key, balance integer not null);
        create table note (process, number, text blob, primary key (process, number));
        create index by_text on note (text);"""
    )
    db.execute("begin")
    db.executemany("insert into account values (?, 1000)", [(i,) for i in range(ACCOUNTS)])
    db.execute("commit")
    db.close()


def transfer(db, chance):
    one, two = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randrange(100)
    db.execute("update account set balance = balance - ? where id = ?", (amount, one))
    db.execute("update account set balance = balance + ? where id = ?", (amount, two))


def worker(process):
    chance, db = random.Random(process), connect()
    for number in range(TRANSACTIONS):
        text = chance.randbytes(chance.randrange(1, 20000))
        db.execute("begin immediate")
        transfer(db, chance)
        db.execute("insert into note values (?, ?, ?)", (process, number, text))
        if number % 7 == 3:
            db.execute("savepoint inner")
            db.execute("delete from note where process = ?", (process,))
            db.execute("rollback to inner")
        if number % 5 == 4:
            db.execute("delete from note where process = ? and number = ?", (process, number - 2))
        db.execute("rollback" if number % 11 == 10 else "commit")
        # A reader never sees half of a transfer.
        (total,) = db.execute("select sum(balance) from account").fetchone()
        assert total == ACCOUNTS * 1000, total
    db.close()


def killed():
    """Leaves a transaction in the middle of its work, with pages already in the database file."""
    child = os.fork()
    if child == 0:
        db = connect()
        db.execute("begin immediate")
        db.execute("update account set balance = 0")
        db.execute("update note set text = zeroblob(9000)")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def check(db):
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    digest = hashlib.sha256()
    for table in ("account", "note"):
        for row in db.execute(f"select * from {table} order by 1, 2"):
            digest.update(repr(row).encode())
    (notes,) = db.execute("select count(*) from note").fetchone()
    print(notes, "notes", digest.hexdigest()[:16], flush=True)


def busy():
    """A lock that the other holds is told, and not waited for."""
    one, two = connect(), connect()
    two.execute("pragma busy_timeout=0")
    one.execute("begin exclusive")
    try:
        two.execute("begin immediate")
        print("no lock")
    except sqlite3.OperationalError as error:
        print(error)
    one.execute("rollback")


def main():
    make()
    children = []
    for process in (1, 2):
        child = os.fork()
        if child == 0:
            worker(process)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    check(connect())
    killed()
    db = connect()
    check(db)
    busy()
    db.execute("vacuum")
    check(db)
    db.close()
    print(sorted(os.listdir(os.environ["APP_DIR"])))


main()
