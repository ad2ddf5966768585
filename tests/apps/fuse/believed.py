"""What the kernel of a mount believes is true: a program of the mount looks at files again and
again, while others change them in each way there is.

believed.py MODE MAYFLY INSTANCE MOUNT SERVER [PLACE]: SERVER is the process of the mount, PLACE
what the other one works in: a second mount, or the number of a node; a preloaded process is the
rule.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

mode, mayfly, instance, mount, server = sys.argv[1:6]
place = sys.argv[6] if len(sys.argv) > 6 else ""
server = int(server)
REST = 1.3

FUNCTIONS = r'''
import os
def utime(path, times): os.utime(path, tuple(times))
def append(path, text):
    with open(path, "a") as file: file.write(text)
def write(path, text):
    with open(path, "r+") as file: file.write(text)
def replace(path, text):
    with open(path + ".new", "w") as file: file.write(text)
    os.rename(path + ".new", path)
def recreate(path, text):
    os.unlink(path)
    with open(path, "w") as file: file.write(text)
def look(path):
    try:
        stat = os.stat(path)
        with open(path) as file: text = file.read()
        return [stat.st_mode & 0o7777, stat.st_size, int(stat.st_mtime), stat.st_nlink, text]
    except OSError as error: return error.errno
def many(path, count):
    os.makedirs(path, exist_ok=True)
    for number in range(count):
        with open(f"{path}/f{number}", "w") as file: file.write("old")
'''

WORKER = FUNCTIONS + r'''
import json, sys
os.chdir(os.environ["PLACE"])
known = dict(globals())
for line in sys.stdin:
    what, *arguments = json.loads(line)
    try: said = (known.get(what) or getattr(os, what))(*arguments)
    except OSError as error: said = ["failed", error.errno]
    print(json.dumps(said), flush=True)
'''


class Worker:
    def __init__(self):
        env = dict(os.environ, PLACE=mount)
        script = 'eval "$("$0" env --name "$1")"; exec python3 -c "$2"'
        attach = ["bash", "-c", script, mayfly, instance]
        if place.startswith("/"):
            env["PLACE"], attach = place, ["python3", "-c"]
        elif place:
            env["MAYFLY_NODE"] = place
        self.process = subprocess.Popen(attach + [WORKER], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self.process.stdout.readline())

    def __call__(self, *what):
        self.begin(*what)
        said = self.end()
        assert not (isinstance(said, list) and said[:1] == ["failed"]), (what, said)
        return said


local = {}
exec(FUNCTIONS, local)
look = local["look"]


def believe(*paths):
    """Has the kernel believe all that it may."""
    for _ in range(3):
        for path in paths:
            try:
                os.stat(path)
            except OSError:
                pass
    for directory in {os.path.dirname(path) for path in paths}:
        for entry in os.scandir(directory):
            entry.stat(follow_symlinks=False)


def switches():
    """How often threads of the mount's process have slept or were kept waiting."""
    count = 0
    for task in os.listdir(f"/proc/{server}/task"):
        with open(f"/proc/{server}/task/{task}/status") as status:
            count += sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
    return count


CHANGES = [
    ("chmod", lambda path: ("chmod", path, 0o640), lambda was: [0o640] + was[1:]),
    ("times", lambda path: ("utime", path, [5, 77]), lambda was: was[:2] + [77] + was[3:]),
    ("truncate", lambda path: ("truncate", path, 1), lambda was: "o"),
    ("append", lambda path: ("append", path, "+more"), lambda was: "old+more"),
    ("write", lambda path: ("write", path, "new"), lambda was: "new"),
    ("replace", lambda path: ("replace", path, "other"), lambda was: "other"),
    ("recreate", lambda path: ("recreate", path, "again"), lambda was: "again"),
    ("unlink", lambda path: ("unlink", path), lambda was: 2),
    ("rename", lambda path: ("rename", path, path + ".moved"), lambda was: 2),
    ("link", lambda path: ("link", path, path + ".second"), lambda was: was[:3] + [2] + was[4:]),
]


def check(name, path, expected, was, seen):
    wanted = expected(was)
    if isinstance(wanted, str) and isinstance(seen, list):
        holds = seen[4] == wanted
    else:
        holds = seen == wanted
    assert holds, f"{name} of {path}: {was} became {wanted}, and the mount shows {seen}"


def changes():
    """Each change, many times, of files that the kernel believes."""
    worker, each = Worker(), 12
    for name, change, expected in CHANGES:
        worker("many", name, each)
        os.chdir(mount)
        time.sleep(REST)
        paths = [f"{name}/f{number}" for number in range(each)]
        believe(*paths)
        for path in paths:
            was = look(path)
            assert isinstance(was, list) and was[4] == "old", was
            os.stat(path)
            worker(*change(path))
            check(name, path, expected, was, look(path))
            if name == "rename":
                assert look(path + ".moved") == was, "the new name"
    # The same the other way: what a program of the mount has changed others see.
    for name, change, expected in CHANGES:
        worker("many", "back-" + name, each)
        time.sleep(REST)
        paths = [f"back-{name}/f{number}" for number in range(each)]
        believe(*paths)
        for path in paths:
            was = worker("look", path)
            what, *arguments = change(path)
            (local.get(what) or getattr(os, what))(*arguments)
            check(name, path, expected, was, worker("look", path))
            check(name, path, expected, was, look(path))


def directories():
    """Directories that are moved, removed and made anew, with a path that leads through them."""
    worker = Worker()
    os.chdir(mount)
    for turn in range(30):
        worker("makedirs", "above/below")
        worker("many", "above/below", 2)
        believe("above/below/f0", "above/below/f1")
        assert look("above/below/f0")[4] == "old"
        worker("rename", "above", "moved")
        assert look("above/below/f0") == 2, f"turn {turn}: a directory that was moved"
        assert look("moved/below/f0")[4] == "old"
        believe("moved/below/f0")
        worker("rename", "moved/below", "other")
        assert look("moved/below/f0") == 2 and look("other/f1")[4] == "old"
        # By a program of the mount, which its kernel knows: and then by somebody else.
        believe("other/f1")
        os.rename("other", "own")
        assert worker("look", "other/f1") == 2 and worker("look", "own/f1")[4] == "old"
        worker("unlink", "own/f0")
        worker("unlink", "own/f1")
        worker("rmdir", "own")
        assert look("own/f1") == 2 and not os.path.exists("own")
        worker("rmdir", "moved")


def submitted():
    """What preloaded programs do without asking, in a directory at which the mount looks."""
    worker = Worker()
    os.chdir(mount)
    worker("makedirs", "d")
    for turn in range(400):
        path = f"d/{turn}"
        assert not os.path.exists(path)
        worker("recreate" if turn % 7 == 3 and os.path.exists(path) else "append", path, "text")
        assert look(path)[4] == "text", turn
        if turn % 3 == 0:
            os.stat(path)
            os.stat(path)
            worker("replace", path, "more")
            assert look(path)[4] == "more", turn
        if turn % 4 == 0:
            worker("chmod", path, 0o600)
            assert os.stat(path).st_mode & 0o777 == 0o600, turn
        if turn % 5 == 0:
            os.stat(path)
            worker("unlink", path)
            assert not os.path.exists(path), turn
    assert sorted(os.listdir("d")) == sorted(str(turn) for turn in range(400) if turn % 5)


def asks():
    """The kernel answers by itself; nothing of that is seen otherwise."""
    worker = Worker()
    worker("many", "a/b/c", 50)
    os.chdir(mount)
    time.sleep(REST)
    paths = [f"a/b/c/f{number}" for number in range(50)]
    # What was just made is not at rest before the daemon has executed it.
    counts = []
    for _ in range(12):
        time.sleep(0.5)
        believe(*paths)
        before, began = switches(), time.monotonic()
        for _ in range(10):
            for path in paths:
                assert os.stat(path).st_size == 3
        counts.append(switches() - before)
        if counts[-1] < 100 and time.monotonic() - began < 1.5:
            return
    raise AssertionError(f"switches of the mount's process for 500 looks: {counts}")


def begin(call):
    """Calls it in a thread, and has what it returned in a list."""
    saw = []
    thread = threading.Thread(target=lambda: saw.append(call()), daemon=True)
    thread.start()
    thread.join(0.5)
    return saw, thread


def stopped():
    """The process of the mount stands still: who changes something waits until the kernel believes
    nothing any more, and what it is asked then waits, too."""
    worker = Worker()
    worker("many", "s", 3)
    os.chdir(mount)
    believed = 0
    for turn, (what, is_new) in enumerate([
        (("chmod", "s/f0", 0o600), lambda: os.stat("s/f0").st_mode & 0o777 == 0o600),
        (("unlink", "s/f1"), lambda: not os.path.exists("s/f1")),
        (("rename", "s", "t"), lambda: not os.path.exists("s") and os.path.exists("t/f2")),
    ]):
        time.sleep(2 * REST)
        believe("s/f0", "s/f1", "s/f2")
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            worker.begin(*what)
            time.sleep(0.3)
            # What the kernel believes it tells: nothing has returned.
            known, thread = begin(lambda: os.stat("s/f0"))
            believed += len(known)
            worker.end()
            took = time.monotonic() - began
            assert took < 8, f"turn {turn}: it took {took} s"
            saw, looker = begin(is_new)
            assert saw in ([], [True]), f"turn {turn}: the mount shows what was"
        finally:
            os.kill(server, signal.SIGCONT)
        looker.join(20)
        thread.join(20)
        assert saw == [True], f"turn {turn}: {saw}"
    assert believed, "the kernel believed nothing"


{"changes": changes, "directories": directories, "submitted": submitted, "asks": asks,
 "stopped": stopped}[mode]()
print("done")
