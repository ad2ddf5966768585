//! The space of several nodes is one: it is full when all of them are.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Job, Random, Scratch, Turn, binary, skip};

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
if sys.argv[1] == "allocate":
    os.posix_fallocate(file, 0, count << 16)
    assert os.stat(path).st_blocks * 512 >= count << 16
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
    for way in ["write", "append", "allocate"] {
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

/// A script of these tests, with its arguments.
fn app(name: &str, arguments: &str) -> String {
    let path = binary::workspace().join("tests/apps/space").join(name);
    format!("exec python3 '{}' {arguments}", path.display())
}

fn three<'a>(scratch: &'a Scratch, name: &str) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    // Beside kills a request of many steps takes long on a busy machine.
    let start = ["--nodes", "local:3", "--capacity", "64M", "--deadline", "60"];
    instance.command("start").args(start).run_ok()?;
    Ok(instance)
}

/// A file of so many bytes, outside.
fn make_outside(path: &Path, count: usize) -> Result<()> {
    let mut random = Random::for_suite("space");
    let words = (0..count / 8).flat_map(|_| random.below(u64::MAX).to_le_bytes());
    Ok(fs::write(path, words.collect::<Vec<u8>>())?)
}

#[test]
fn what_is_done_to_a_file_on_nodes_beside_its_own_is_done_as_in_memory() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-tail")?;
    let instance = three(&scratch, "tail")?;
    let mounts = skip::unless_mountable("space: mappings of files that outgrow their node");
    let mapped = if mounts { "mapped: shown" } else { "mapped: refused" };
    for node in [0, 2] {
        let said = instance.on_node(node, &app("tail.py", ""))?;
        ensure!(said == mapped, "{said}");
        instance.command("fsck").run_ok()?;
    }
    instance.stop()
}

#[test]
fn what_processes_append_while_their_file_outgrows_its_node_is_there_once() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-append")?;
    let instance = three(&scratch, "append")?;
    for way in ["flag", "later", "each"] {
        instance.on_node(0, &app("appenders.py", &format!("{way} 4 300")))?;
        instance.command("fsck").run_ok()?;
    }
    instance.stop()
}

#[test]
fn a_file_outgrows_its_node_while_daemons_are_killed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-kills")?;
    let instance = three(&scratch, "kills")?;
    // The node that dies is the file's home, then one of those at which the file goes on.
    for node in [0, 1] {
        let mut rounds = 0;
        let kills = instance.beside_kills(|| {
            for way in ["flag", "later", "each"] {
                instance.on_node(node, &app("appenders.py", &format!("{way} 3 500")))?;
                rounds += 1;
            }
            Ok(())
        })?;
        eprintln!("node {node}: {kills} kills in {rounds} files");
        ensure!(kills >= 3, "only {kills} kills");
        instance.command("fsck").run_ok()?;
    }
    instance.stop()
}

#[test]
fn a_file_on_nodes_beside_its_own_is_staged_in_and_out() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-stage")?;
    let instance = three(&scratch, "stage")?;
    let stage = |way: &str, from: &str, to: &str| {
        let stage = Job::new(&scratch, way, binary::mayfly()?);
        stage.args(["stage", way, "--name", "stage", "--verify", from, to]).run_ok()
    };
    let path = |name: &str| scratch.join(name).display().to_string();
    fs::create_dir(scratch.join("from"))?;
    make_outside(&scratch.join("from/one"), 96 << 20)?;
    stage("in", &path("from"), "case")?;
    let there = instance.on_node(1, "stat -c %s $MAYFLY_MOUNT/case/one")?;
    ensure!(there == "100663296", "{there}");
    stage("out", "case", &path("to"))?;
    let is_same = fs::read(scratch.join("from/one"))? == fs::read(scratch.join("to/one"))?;
    ensure!(is_same, "other bytes came out");
    instance.stop()
}

/// Maps a file, and looks at it at both ends and around what its first node has.
const MAPPED: &str = r#"
import mmap, sys
path, like = sys.argv[1:]
want = open(like, "rb").read()
file = open(path, "r+b")
with mmap.mmap(file.fileno(), 0) as memory:
    assert memory[:] == want
    for at in [0, 14 << 20, (15 << 20) - 5, 15 << 20, (15 << 20) + 700000, 16 << 20, len(want) - 9]:
        memory[at:at + 9] = b"by a map!"
        want = want[:at] + b"by a map!" + want[at + 9:]
    memory.flush()
file.seek(0)
assert file.read() == want
open(like, "wb").write(want)
"#;

#[test]
fn a_file_on_nodes_beside_its_own_is_read_written_and_mapped_through_a_mount() -> Result<()> {
    if !skip::unless_mountable("space: files that outgrow their node through a mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("space-mount")?;
    let instance = three(&scratch, "mount")?;
    let script = scratch.join("mapped.py");
    fs::write(&script, MAPPED)?;
    for (node, made_by) in [(0, "mount"), (1, "process")] {
        let point = scratch.join(format!("point-{node}"));
        fs::create_dir(&point)?;
        instance.command("mount").args(["--node", &node.to_string()]).args([&point]).run_ok()?;
        let (file, like) = (point.join("one"), scratch.join("like"));
        make_outside(&like, 24 << 20)?;
        // It is made where there is room, and then there is little.
        let make = r#"cd "$MAYFLY_MOUNT"; : > one; fallocate -l 48M beside"#;
        instance.on_node(node, make)?;
        if made_by == "process" {
            let like = like.display();
            instance.on_node(node, &format!("cat '{like}' > \"$MAYFLY_MOUNT/one\""))?;
        } else {
            fs::copy(&like, &file)?;
        }
        let python = Job::new(&scratch, "mapped", "python3");
        python.args([&script, &file, &like]).deadline(Duration::from_secs(60)).run_ok()?;
        let seen = instance.on_node(2, &format!("cmp $MAYFLY_MOUNT/one '{}'", like.display()))?;
        ensure!(seen.is_empty(), "{seen}");
        fs::remove_file(&file)?;
        fs::remove_file(point.join("beside"))?;
    }
    instance.command("fsck").run_ok()?;
    instance.stop()
}
