//! Session consistency between nodes: what a process writes in small pieces to another node's file
//! is taken by its own node and sent on in large ones, and who reads on is read ahead for. What was
//! closed or synced is seen by whoever opens later, on every node.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, process};
use rustix::process::Signal;

/// `--deadline` of these instances, seconds.
const DEADLINE: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(15);
/// The node that has the files, and the one that writes them.
const HOME: usize = 1;
const WRITER: usize = 0;

/// What the scripts share: blocks of 8 KiB, each other than the others.
const BEGIN: &str = r#"
import errno, hashlib, os, sys, time
mount, scratch = os.environ["MAYFLY_MOUNT"], os.environ["SCRATCH"]
there = mount + "/there/"
BLOCK = 8192
def block(number):
    return (hashlib.sha512(b"%d" % number).digest() * 128)[:BLOCK]
def say(word):
    open(scratch + "/" + word, "w").close()
def hear(word):
    while not os.path.exists(scratch + "/" + word):
        time.sleep(0.01)
def write_all(file, count):
    for number in range(count):
        assert os.pwrite(file, block(number), number * BLOCK) == BLOCK
def check_all(path, count):
    file = os.open(path, os.O_RDONLY)
    assert os.fstat(file).st_size == count * BLOCK, os.fstat(file).st_size
    for number in range(count):
        assert os.read(file, BLOCK) == block(number), number
    assert os.read(file, BLOCK) == b""
    os.close(file)
def fails(with_errno, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == with_errno, error
        return
    raise AssertionError("no error")
"#;

/// Four nodes, the second of which has a directory with its files.
struct Nodes<'a> {
    instance: Instance<'a>,
    scratch: &'a Scratch,
}

impl<'a> Nodes<'a> {
    fn start(scratch: &'a Scratch, further: &[&str]) -> Result<Nodes<'a>> {
        Nodes::with(scratch, "session", further)
    }

    fn with(scratch: &'a Scratch, consistency: &str, further: &[&str]) -> Result<Nodes<'a>> {
        let instance = Instance::named(scratch, "behind")?;
        let deadline = DEADLINE.to_string();
        let options = ["--nodes", "local:4", "--consistency", consistency, "--deadline", &deadline];
        instance.command("start").args(options).args(further).run_ok()?;
        instance.on_node(HOME, r#"mkdir "$MAYFLY_MOUNT/there""#)?;
        Ok(Nodes { instance, scratch })
    }

    /// A program on a node.
    fn python(&self, node: usize, label: &str, text: &str) -> Result<Job<'a>> {
        let script = self.scratch.join(format!("{label}.py"));
        fs::write(&script, format!("{BEGIN}{text}"))?;
        let command = format!("exec python3 '{}'", script.display());
        let job = self.instance.shell(label, &command).env("MAYFLY_NODE", node.to_string());
        Ok(job.env("SCRATCH", self.scratch.join("").into_os_string()))
    }

    fn run(&self, node: usize, label: &str, text: &str) -> Result<()> {
        self.python(node, label, text)?.run_ok().map(drop)
    }

    fn check_everywhere(&self, name: &str, blocks: usize) -> Result<()> {
        for node in 0..4 {
            let text = format!("check_all(there + {name:?}, {blocks})");
            self.run(node, &format!("check-{name}-{node}"), &text)?;
        }
        Ok(())
    }

    /// A program has said a word.
    fn hear(&self, word: &str) -> Result<()> {
        let began = Instant::now();
        while !self.scratch.join(word).exists() {
            ensure!(began.elapsed() < PATIENCE, "{word:?} is not said");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn say(&self, word: &str) -> Result<()> {
        Ok(fs::write(self.scratch.join(word), "")?)
    }

    /// Requests that node 0 has sent to the home so far.
    fn requests(&self) -> Result<u64> {
        let status = self.instance.status()?;
        let sent = status.pointer(&format!("/nodes/{WRITER}/activity/messages/{HOME}/requests"));
        Ok(sent.and_then(serde_json::Value::as_u64).unwrap_or(0))
    }
}

fn ended_well(outcome: Outcome) -> Result<()> {
    ensure!(outcome.code == 0, "{}", outcome.error());
    Ok(())
}

#[test]
fn who_opens_what_was_closed_or_synced_sees_all_of_it_on_every_node() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-close")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "closed", os.O_WRONLY | os.O_CREAT)
write_all(file, 300)
os.close(file)
file = os.open(there + "anyhow", os.O_RDWR | os.O_CREAT)
order = list(range(200))
for number in order[::2] + order[1::2][::-1] + order[:50]:
    os.pwrite(file, b"x" * BLOCK, number * BLOCK)
    os.pwrite(file, block(number)[:5000], number * BLOCK)
    os.pwrite(file, block(number)[5000:], number * BLOCK + 5000)
os.close(file)
file = os.open(there + "synced", os.O_WRONLY | os.O_CREAT)
write_all(file, 300)
os.fsync(file)
say("is-synced")
hear("was-seen")
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-synced")?;
    for (name, blocks) in [("closed", 300), ("anyhow", 200), ("synced", 300)] {
        nodes.check_everywhere(name, blocks)?;
    }
    nodes.say("was-seen")?;
    ended_well(running.wait()?)?;
    nodes.instance.command("fsck").run_ok()?;
    nodes.instance.stop()
}

#[test]
fn the_own_node_sees_at_once_what_is_written() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-own")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "own", os.O_RDWR | os.O_CREAT)
other = os.open(there + "own", os.O_RDWR)
for number in range(100):
    os.write(file, block(number))
    if number % 5 == 0:
        assert os.stat(there + "own").st_size == (number + 1) * BLOCK
    if number % 7 == 0:
        assert os.pread(other, BLOCK, number * BLOCK) == block(number)
    if number % 11 == 0:
        os.pwrite(other, b"over", number * BLOCK)
        assert os.pread(file, BLOCK, number * BLOCK) == b"over" + block(number)[4:]
        os.pwrite(file, block(number), number * BLOCK)
os.rename(there + "own", there + "renamed")
os.ftruncate(other, 90 * BLOCK)
assert os.lseek(file, 0, os.SEEK_END) == 90 * BLOCK
os.write(file, block(90))
say("is-written")
hear("was-seen")
os.dup2(file, 50)
os.write(50, block(91))
if os.fork() == 0:
    os.write(50, block(92))
    os._exit(0)
os.wait()
check_all(there + "renamed", 93)
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-written")?;
    nodes.run(WRITER, "beside", r#"check_all(there + "renamed", 91)"#)?;
    nodes.say("was-seen")?;
    ended_well(running.wait()?)?;
    nodes.check_everywhere("renamed", 93)?;
    nodes.instance.stop()
}

#[test]
fn small_writes_and_reads_become_few_requests() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-few")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let before = nodes.requests()?;
    let text = r#"
file = os.open(there + "few", os.O_WRONLY | os.O_CREAT)
write_all(file, 1280)
os.close(file)
"#;
    nodes.run(WRITER, "writer", text)?;
    let written = nodes.requests()?;
    ensure!(written - before < 200, "{} requests", written - before);
    nodes.run(WRITER, "reader", r#"check_all(there + "few", 1280)"#)?;
    let read = nodes.requests()? - written;
    ensure!(read < 200, "{read} requests");
    nodes.instance.stop()
}

#[test]
fn a_process_that_does_not_close_before_it_ends_has_closed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-exit")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "left", os.O_WRONLY | os.O_CREAT)
write_all(file, 100)
os._exit(0)
"#;
    nodes.run(WRITER, "writer", text)?;
    nodes.run(2, "reader", r#"check_all(there + "left", 100)"#)?;
    nodes.instance.stop()
}

#[test]
fn what_a_killed_process_was_told_is_written_arrives() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-killed")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "killed", os.O_WRONLY | os.O_CREAT)
write_all(file, 100)
os.kill(os.getpid(), 9)
"#;
    let outcome = nodes.python(WRITER, "writer", text)?.run()?;
    ensure!(outcome.code != 0, "{outcome:?}");
    let text = r#"
while os.stat(there + "killed").st_size < 100 * BLOCK:
    time.sleep(0.05)
check_all(there + "killed", 100)
"#;
    nodes.run(2, "reader", text)?;
    nodes.instance.expect_nothing_held(PATIENCE)?;
    nodes.instance.stop()
}

#[test]
fn a_full_instance_is_told_at_fsync_and_at_close() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-full")?;
    let nodes = Nodes::start(&scratch, &["--capacity", "64M"])?;
    let text = r#"
files = [os.open(there + name, os.O_WRONLY | os.O_CREAT) for name in ("one", "two")]
fill = os.open(there + "fill", os.O_WRONLY | os.O_CREAT)
done, step = 0, 1 << 20
while step >= 4096:
    try:
        done += os.pwrite(fill, bytes(step), done)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        step //= 2
# Less than a transfer, so that nothing is sent on yet.
for file in files:
    write_all(file, 40)
fails(errno.ENOSPC, os.fsync, files[0])
fails(errno.ENOSPC, os.close, files[1])
os.fsync(files[0])
os.close(files[0])
fails(errno.EBADF, os.close, files[1])
"#;
    nodes.run(WRITER, "writer", text)?;
    nodes.instance.stop()
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_closed_and_tells_who_wrote_anything_else() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-daemon")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "closed", os.O_WRONLY | os.O_CREAT)
write_all(file, 100)
os.close(file)
lost = [os.open(there + "lost%d" % number, os.O_RDWR | os.O_CREAT) for number in range(3)]
quiet = os.open(there + "lost0", os.O_RDWR)
for file in lost:
    write_all(file, 10)
say("is-written")
hear("is-killed")
os.fsync(quiet)
fails(errno.EIO, os.fsync, lost[0])
fails(errno.EIO, os.close, lost[1])
fails(errno.EIO, os.write, lost[2], b"x")
for file in lost[0], lost[2]:
    write_all(file, 10)
    os.close(file)
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-written")?;
    process::signal(nodes.instance.daemon_pid_of(WRITER)?, Signal::KILL);
    nodes.say("is-killed")?;
    ended_well(running.wait()?)?;
    nodes.check_everywhere("closed", 100)?;
    nodes.check_everywhere("lost0", 10)?;
    nodes.check_everywhere("lost2", 10)?;
    nodes.instance.stop()
}

#[test]
fn a_node_that_is_lost_is_told_at_close_in_bounded_time() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-lost")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
file = os.open(there + "lost", os.O_WRONLY | os.O_CREAT)
say("is-open")
hear("is-stopped")
write_all(file, 20)
began = time.monotonic()
fails(errno.EIO, os.close, file)
took = time.monotonic() - began
assert took < 2 * 3 + 2, took
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-open")?;
    let home = nodes.instance.daemon_pid_of(HOME)?;
    process::signal(home, Signal::STOP);
    nodes.say("is-stopped")?;
    let outcome = running.wait();
    process::signal(home, Signal::CONT);
    ended_well(outcome?)?;
    nodes.instance.stop()
}

/// Resident memory of a process, bytes.
fn resident(pid: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = text.split_whitespace().nth(1).context("statm")?;
    Ok(pages.parse::<u64>()? * 4096)
}

#[test]
fn the_memory_of_the_daemon_is_bounded_while_the_home_stands_still() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-memory")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let text = r#"
import threading
files = [os.open(there + "much%d" % number, os.O_WRONLY | os.O_CREAT) for number in range(8)]
say("is-open")
hear("is-stopped")
def write(file):
    write_all(file, 2000)
    os.close(file)
threads = [threading.Thread(target=write, args=(file,)) for file in files]
for thread in threads: thread.start()
for thread in threads: thread.join()
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-open")?;
    let (own, home) = (nodes.instance.daemon_pid_of(WRITER)?, nodes.instance.daemon_pid_of(HOME)?);
    let before = resident(own)?;
    process::signal(home, Signal::STOP);
    nodes.say("is-stopped")?;
    let began = Instant::now();
    let mut most = 0;
    while began.elapsed() < Duration::from_secs(DEADLINE) / 2 {
        most = most.max(resident(own)?);
        std::thread::sleep(Duration::from_millis(50));
    }
    process::signal(home, Signal::CONT);
    let outcome = running.wait()?;
    // 8 descriptions of 4 MiB each, and what the sockets and the lanes take.
    let grown = most.saturating_sub(before);
    ensure!(grown < 80 << 20, "{} MiB", grown >> 20);
    ensure!(grown > 8 << 20, "nothing was taken: {} MiB", grown >> 20);
    ended_well(outcome)?;
    for number in 0..8 {
        let check = format!(r#"check_all(there + "much{number}", 2000)"#);
        nodes.run(2, &format!("check-{number}"), &check)?;
    }
    nodes.instance.stop()
}

#[test]
fn who_reads_on_sees_what_others_had_closed_before_he_opened() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-ahead")?;
    let nodes = Nodes::start(&scratch, &[])?;
    let make = r#"
file = os.open(there + "read", os.O_WRONLY | os.O_CREAT)
write_all(file, 500)
os.close(file)
"#;
    nodes.run(HOME, "maker", make)?;
    let text = r#"
check_all(there + "read", 500)
file = os.open(there + "read", os.O_RDWR)
for number in range(100):
    assert os.read(file, BLOCK) == block(number)
say("is-reading")
hear("is-changed")
check = os.open(there + "read", os.O_RDONLY)
for number in range(600):
    assert os.read(check, BLOCK) == block(number + 1), number
assert os.read(check, BLOCK) == b""
# What this node writes itself is seen by who has read on, too.
os.lseek(check, 0, os.SEEK_SET)
for number in range(100):
    assert os.read(check, BLOCK) == block(number + 1)
    os.pwrite(file, b"here", (number + 1) * BLOCK)
    assert os.read(check, 4) == b"here", number
    os.lseek(check, (number + 1) * BLOCK, os.SEEK_SET)
    os.pwrite(file, block(number + 2), (number + 1) * BLOCK)
os.truncate(there + "read", 100 * BLOCK)
assert len(os.read(check, BLOCK)) == 0
"#;
    let running = nodes.python(WRITER, "reader", text)?.start()?;
    nodes.hear("is-reading")?;
    let change = r#"
file = os.open(there + "read", os.O_WRONLY)
for number in range(600):
    os.pwrite(file, block(number + 1), number * BLOCK)
os.close(file)
"#;
    nodes.run(2, "changer", change)?;
    nodes.say("is-changed")?;
    ended_well(running.wait()?)?;
    nodes.instance.stop()
}

#[test]
fn strict_consistency_sends_each_write_at_once() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("behind-strict")?;
    let nodes = Nodes::with(&scratch, "strict", &[])?;
    let text = r#"
file = os.open(there + "strict", os.O_WRONLY | os.O_CREAT)
write_all(file, 10)
say("is-written")
hear("was-seen")
"#;
    let running = nodes.python(WRITER, "writer", text)?.start()?;
    nodes.hear("is-written")?;
    nodes.check_everywhere("strict", 10)?;
    nodes.say("was-seen")?;
    ended_well(running.wait()?)?;
    nodes.instance.stop()
}
