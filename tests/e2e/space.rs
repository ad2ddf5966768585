//! The space of several nodes is one: it is full when all of them are.

use std::fs;

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn};

/// One file of so many percent of what is free, each of its pages other than the others; read back
/// here, by another node's processes and after it was cut, and removed.
const ONE: &str = r#"
import hashlib, os, sys
mount = os.environ["MAYFLY_MOUNT"]
def free():
    of = os.statvfs(mount)
    return of.f_bavail * of.f_frsize
def block(number):
    return hashlib.sha512(b"%d" % number).digest() * 1024
path, before = mount + "/one", free()
count = before * 9 // 10 >> 16
append = sys.argv[1] == "append"
file = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_APPEND if append else 0))
for number in range(count):
    assert os.write(file, block(number)) == 1 << 16, number
size = os.fstat(file).st_size
assert size == count << 16, size
def check(file, count):
    for number in range(count):
        assert os.pread(file, 1 << 16, number << 16) == block(number), number
    assert os.pread(file, 1, count << 16) == b""
check(file, count)
# Over borders, and a reader that takes all at once.
for at in range(0, size - (3 << 20), 7 << 20):
    piece = os.pread(file, 3 << 20, at + 5)
    want = b"".join(block(number) for number in range(at >> 16, (at >> 16) + 49))[5:(3 << 20) + 5]
    assert piece == want, at
os.close(file)
assert os.stat(path).st_size == size
os.truncate(path, size - (10 << 20))
os.truncate(path, size)
file = os.open(path, os.O_RDWR)
check_end = os.pread(file, 20 << 20, size - (10 << 20))
assert check_end == bytes(10 << 20)
assert os.lseek(file, 0, os.SEEK_DATA) == 0
assert os.lseek(file, 0, os.SEEK_HOLE) == size - (10 << 20), os.lseek(file, 0, os.SEEK_HOLE)
os.fsync(file)
os.ftruncate(file, size - (10 << 20))
check(file, count - 160)
os.close(file)
print(before, count << 16, count - 160)
"#;

/// The same file, as another node sees it.
const SEEN: &str = r#"
import hashlib, os, sys
path, count = os.environ["MAYFLY_MOUNT"] + "/one", int(sys.argv[1])
file = open(path, "rb")
for number in range(count):
    assert file.read(1 << 16) == hashlib.sha512(b"%d" % number).digest() * 1024, number
assert file.read() == b""
"#;

#[test]
fn one_file_of_nine_tenths_of_all_nodes_fits_and_reads_the_same() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-one")?;
    let instance = Instance::named(&scratch, "one")?;
    instance.command("start").args(["--nodes", "local:4", "--capacity", "64M"]).run_ok()?;
    for (name, text) in [("one.py", ONE), ("seen.py", SEEN)] {
        fs::write(scratch.join(name), text)?;
    }
    for way in ["write", "append"] {
        let script = format!("python3 '{}' {way}", scratch.join("one.py").display());
        let outcome = instance.shell("one", &script).run()?;
        ensure!(outcome.code == 0, "{way}: {outcome:?}");
        let text = String::from_utf8(outcome.stdout)?;
        let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        let [before, written, count] = numbers[..] else { anyhow::bail!("{text}") };
        ensure!(before > 230 << 20 && written * 10 >= before * 8, "{text}");
        let seen = format!("python3 '{}' {count}", scratch.join("seen.py").display());
        instance.shell("seen", &seen).env("MAYFLY_NODE", "2").run_ok()?;
        instance.command("fsck").run_ok()?;
        let rest = r#"
            rm "$MAYFLY_MOUNT/one"
            for try in $(seq 100); do
                free=$(( $(stat -f -c '%a * %S' "$MAYFLY_MOUNT") ))
                test $free -gt 240000000 && exit 0
                sleep 0.1
            done
            exit 1"#;
        instance.shell("rest", rest).run_ok()?;
    }
    instance.stop()
}

/// Files of random sizes until there is no space; prints what was free and what they have.
const MANY: &str = r#"
import errno, os, random
mount, random = os.environ["MAYFLY_MOUNT"], random.Random(7)
of = os.statvfs(mount)
free, used, files = of.f_bavail * of.f_frsize, 0, []
try:
    while True:
        path = mount + "/file-%d" % len(files)
        files.append([path, 0])
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        left = int(2 ** random.uniform(12, 25))
        while left:
            count = os.write(file, bytes([len(files)]) * min(left, 1 << 16))
            left, used, files[-1][1] = left - count, used + count, files[-1][1] + count
        os.close(file)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
for number, (path, size) in enumerate(files):
    if os.path.exists(path):
        assert open(path, "rb").read() == bytes([number + 1]) * size, path
print(free, used)
"#;

#[test]
fn files_of_random_sizes_fill_all_nodes_before_there_is_no_space() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-many")?;
    let instance = Instance::named(&scratch, "many")?;
    instance.command("start").args(["--nodes", "local:4", "--capacity", "64M"]).run_ok()?;
    fs::write(scratch.join("many.py"), MANY)?;
    let script = format!("python3 '{}'", scratch.join("many.py").display());
    let outcome = instance.shell("many", &script).run()?;
    ensure!(outcome.code == 0, "{outcome:?}");
    let text = String::from_utf8(outcome.stdout)?;
    let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let [free, used] = numbers[..] else { anyhow::bail!("{text}") };
    eprintln!("{used} of {free} bytes, {} %", used * 100 / free);
    ensure!(used * 100 >= free * 97, "{used} of {free} bytes");
    instance.command("fsck").run_ok()?;
    instance.stop()
}
