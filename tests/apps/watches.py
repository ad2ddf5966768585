"""What inotify tells of changes in a directory, step by step: the same on a local disk and in the
instance. Reads are told of by the kernel alone, and IN_OPEN at another moment, so neither is asked
for. Arguments: the directory to work in, and where to write how many events each step had. If that
file is there, a step waits for that many, however slow the machine is."""

import ctypes
import os
import select
import struct
import subprocess
import sys

NAMES = {
    0x2: "MODIFY", 0x4: "ATTRIB", 0x8: "CLOSE_WRITE", 0x40: "MOVED_FROM", 0x80: "MOVED_TO",
    0x100: "CREATE", 0x200: "DELETE", 0x400: "DELETE_SELF", 0x800: "MOVE_SELF",
}
OTHERS = {0x8000: "IGNORED", 0x40000000: "ISDIR", 0x4000: "OVERFLOW"}
ALL = sum(NAMES)
ONLYDIR, DONT_FOLLOW, MASK_ADD, ONESHOT = 0x1000000, 0x2000000, 0x20000000, 0x80000000

QUIET_S, DEADLINE_S = 0.15, 10

counts = sys.argv[2]
expected = iter([int(line) for line in open(counts)] if os.path.exists(counts) else [])
counted = []

libc = ctypes.CDLL(None, use_errno=True)
queue = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
watches = {}


def watch(path, mask=ALL, name=None):
    number = libc.inotify_add_watch(queue, os.fsencode(path), ctypes.c_uint32(mask))
    if number < 0:
        return os.strerror(ctypes.get_errno())
    watches[number] = name or path
    return "ok"


def events():
    """As many as are expected, and all that come until none comes for a while, the descriptor's
    as poll tells of them."""
    cookies, told = {}, []
    count = next(expected, 0)
    while select.select([queue], [], [], QUIET_S if len(told) >= count else DEADLINE_S)[0]:
        data = os.read(queue, 65536)
        while data:
            number, mask, cookie, length = struct.unpack_from("iIII", data)
            name = data[16:16 + length].rstrip(b"\0")
            data = data[16 + length:]
            words = [word for bit, word in {**NAMES, **OTHERS}.items() if mask & bit]
            if cookie:
                words.append(f"cookie {cookies.setdefault(cookie, len(cookies))}")
            told.append((watches.get(number, number), os.fsdecode(name), " ".join(words)))
    counted.append(len(told))
    return told


def step(title, action):
    done = action()
    print(title, "" if done is None else done)
    for where, name, what in events():
        print("   ", ascii(where), ascii(name), what)


def write(path, text="text", mode="w"):
    with open(path, mode) as file:
        file.write(text)


def run(script):
    subprocess.run(["sh", "-c", script], check=True)


os.chdir(sys.argv[1])
os.makedirs("dir/inner")
os.makedirs("other")
os.makedirs("apart")
write("dir/old", "as it was")
write("apart/far", "as it was")
os.symlink("dir", "link")
os.symlink("old", "dir/pointer")

step("watch", lambda: [watch(path) for path in ("dir", "other", "dir/old", "dir/inner")])
step("what cannot be watched", lambda: [
    watch("missing"), watch("dir/old/below"), watch("dir/old", ALL | ONLYDIR),
    watch("link", ALL | ONLYDIR | DONT_FOLLOW)])
step("by a link it is the same watch", lambda: [watch("link/", name="dir"), len(watches)])
step("a file is made and written", lambda: write("dir/new"))
step("in small writes", lambda: [write("dir/new", "more", "a") and None for _ in range(3)][0])
step("read", lambda: open("dir/new").read() and None)
step("by another program", lambda: run("echo more > dir/shell; echo again >> dir/shell"))
step("that ends without a close", lambda: run("exec 3> dir/ends; exec sh -c 'echo x >&3'"))
step("made by open alone", lambda: os.close(os.open("dir/empty", os.O_CREAT | os.O_RDONLY)))
step("cut", lambda: os.truncate("dir/new", 2))
step("cut by open", lambda: os.close(os.open("dir/new", os.O_WRONLY | os.O_TRUNC)))
step("mode", lambda: os.chmod("dir/new", 0o600))
step("times", lambda: os.utime("dir/new", (1, 2)))
step("attribute", lambda: os.setxattr("dir/new", "user.key", b"value"))
step("of a watched directory", lambda: os.chmod("dir", 0o755))
step("of a directory in it", lambda: os.chmod("dir/inner", 0o755))
step("of a watched file", lambda: os.chmod("dir/old", 0o600))
step("what was there is written", lambda: write("dir/old", "more", "a"))
held = open("dir/old", "r+")
step("written by an open one", lambda: (held.write("x"), held.flush()) and None)
step("mkdir", lambda: os.mkdir("dir/sub"))
step("in a directory that is not watched", lambda: write("dir/sub/deep"))
step("symlink", lambda: os.symlink("anywhere", "dir/soft"))
step("fifo", lambda: os.mkfifo("dir/fifo"))
step("hard link", lambda: os.link("dir/new", "dir/hard"))
step("hard link of a watched file", lambda: os.link("dir/old", "apart/hard"))
step("rename", lambda: os.rename("dir/new", "dir/named"))
step("rename over another", lambda: os.rename("dir/named", "dir/shell"))
step("rename of one name to the other", lambda: os.rename("dir/shell", "dir/hard"))
step("to a watched directory", lambda: os.rename("dir/hard", "other/come"))
step("written there", lambda: write("other/come", "x", "a"))
step("to where nobody watches", lambda: os.rename("other/come", "apart/gone"))
step("written there", lambda: write("apart/gone", "x", "a"))
step("from where nobody watches", lambda: os.rename("apart/far", "other/near"))
step("written then", lambda: write("other/near", "x", "a"))
step("a directory moves", lambda: os.rename("dir/sub", "other/sub"))
step("a watched file moves", lambda: os.rename("dir/old", "dir/older"))
step("and its open one is written", lambda: (held.write("y"), held.flush()) and None)
step("it is closed", lambda: held.close())
step("a watched directory moves", lambda: os.rename("dir/inner", "apart/outer"))
step("and is used there", lambda: write("apart/outer/file"))
step("unlink", lambda: os.unlink("dir/empty"))
step("of a watched file with another name", lambda: os.unlink("dir/older"))
step("and its last name", lambda: os.unlink("apart/hard"))
step("by another program", lambda: run("rm dir/shell dir/soft dir/fifo dir/ends dir/pointer"))
step("a name again", lambda: (write("dir/new"), os.unlink("dir/new"), os.mkdir("dir/new"))[0])
step("rmdir", lambda: os.rmdir("dir/new"))
step("strange names", lambda: [write(f"dir/{name}") for name in (
    "new\nline", " ", "\udcff\udcfe", "ä" * 127, "n" * 255)][0])
step("all goes", lambda: [os.unlink(entry) for entry in sorted(
    entry.path for entry in os.scandir("dir"))] and os.rmdir("dir"))
step("the name again", lambda: os.mkdir("dir"))
step("is not what was watched", lambda: write("dir/file"))
step("once", lambda: watch("dir", 0x100 | ONESHOT))
step("told of", lambda: write("dir/first"))
step("and no more", lambda: write("dir/second"))
last = [number for number, name in watches.items() if name == "other"][0]
step("removed", lambda: libc.inotify_rm_watch(queue, last))
step("nothing more", lambda: write("other/file"))
step("/dev/shm besides", lambda: watch("/dev/shm", 0x100))


def many():
    for number in range(500):
        write(f"apart/many/{number}")
    os.sync()


os.mkdir("apart/many")
for number in range(300):
    write(f"apart/many/before{number}")
step("watch a full directory", lambda: watch("apart/many", 0x300))
many()
print("made", len(events()))
run("rm apart/many/*")
print("removed", len(events()))


def children(count):
    """Several processes at once: each change is told once."""
    script = "import sys,os\nfor n in range(100): open(f'apart/many/{sys.argv[1]}-{n}','w').close()"
    running = [subprocess.Popen([sys.executable, "-c", script, str(n)]) for n in range(count)]
    for child in running:
        child.wait()


children(4)
print("by four", len(events()))
with open(counts, "w") as file:
    file.writelines(f"{count}\n" for count in counted)
