//! Paths that lead by names of other nodes are followed by processes themselves, and attributes of
//! their files looked at, for as long as these cannot have changed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, process};
use rustix::process::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// Two programs tell each other by files outside how far they are.
const TELL: &str = r#"
import os, time
mount, told = os.environ["MAYFLY_MOUNT"], os.environ["TOLD"]
def tell(what):
    open(f"{told}/{what}", "w").close()
def await_told(what):
    end = time.monotonic() + 60
    while not os.path.exists(f"{told}/{what}"):
        assert time.monotonic() < end, f"nobody says {what}"
        time.sleep(0.001)
"#;

const TURNS: &str = "60";

/// Moves the directory of node 1 away, and back, when it is told to.
const MOVES: &str = r#"
for turn in range(int(os.environ["TURNS"])):
    for source, target in (("above", "moved"), ("moved", "above")):
        await_told(f"{turn}-{source}")
        os.rename(f"{mount}/{source}", f"{mount}/{target}")
        tell(f"{turn}-is-{target}")
"#;

/// Works in a directory of its own below that, and by the old path when it was moved: whoever does
/// finds nothing, and makes nothing.
const WORKS: &str = r#"
there, elsewhere = f"{mount}/above/own", f"{mount}/moved/own"
os.mkdir(there)
for turn in range(int(os.environ["TURNS"])):
    for number in range(40):
        os.close(os.open(f"{there}/{turn}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    for number in range(20):
        os.unlink(f"{there}/{turn}-{number}")
        os.close(os.open(f"{there}/{turn}-{20 + number}", os.O_RDONLY))
        assert os.stat(f"{there}/{turn}-{20 + number}").st_nlink == 1
    tell(f"{turn}-above")
    await_told(f"{turn}-is-moved")
    for work in (os.stat, os.unlink, os.listdir, lambda path: os.open(path, os.O_RDONLY),
                 lambda path: os.open(path + "-new", os.O_CREAT | os.O_WRONLY),
                 lambda path: os.mkdir(path + "-directory")):
        try:
            work(f"{there}/{turn}-30")
        except FileNotFoundError:
            continue
        raise SystemExit(f"turn {turn}: {work} goes by a path that leads nowhere")
    assert len(os.listdir(elsewhere)) == 20 * (turn + 1), turn
    tell(f"{turn}-moved")
    await_told(f"{turn}-is-above")
"#;

/// The program, as a process of that node.
fn python<'a>(
    (scratch, instance): (&Scratch, &Instance<'a>),
    node: usize,
    program: &str,
) -> Result<Job<'a>> {
    let told = scratch.join("told");
    std::fs::create_dir_all(&told)?;
    let script = format!("exec python3 - <<'END'\n{TELL}{program}\nEND\n");
    let job = instance.shell(&format!("python-{node}"), &script).env("TOLD", told);
    Ok(job.env("TURNS", TURNS).env("MAYFLY_NODE", node.to_string()).deadline(PATIENCE))
}

/// One of the numbers that each node counts, in the order of the nodes.
fn counted(instance: &Instance<'_>, what: &str) -> Result<Vec<u64>> {
    let status = instance.status()?;
    let nodes = status.get("nodes").and_then(Value::as_array).context("status has no nodes")?;
    let at = format!("/activity/{what}");
    let of = |node: &Value| node.pointer(&at).and_then(Value::as_u64);
    Ok(nodes.iter().map(|node| of(node).unwrap_or_default()).collect())
}

#[test]
fn who_works_by_a_path_of_other_nodes_notices_when_a_directory_on_it_is_moved() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("elsewhere")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "elsewhere", &mount, &["--nodes", "local:3"])?;
    instance.on_node(1, "mkdir \"$MAYFLY_MOUNT/above\"")?;
    let mover = python((&scratch, &instance), 0, MOVES)?.start()?;
    python((&scratch, &instance), 2, WORKS)?.run_ok()?;
    let moved = mover.wait()?;
    ensure!(moved.code == 0, "the mover: {}", String::from_utf8_lossy(&moved.stderr));
    let unawaited = counted(&instance, "unawaited/create")?;
    ensure!(unawaited[2] > 100, "hardly anything was made without asking: {unawaited:?}");
    instance.stop()
}

/// A process of node 1 makes files in its own directory below one of node 0, while the daemon of
/// node 1 stands still: nobody can tell it that the path leads elsewhere. Each line that it prints
/// says when it began to make a file that it then made.
const GOES_ON: &str = r#"
import os, sys, time
mount = os.environ["MAYFLY_MOUNT"]
there = f"{mount}/above/own"
os.mkdir(there)
for number in range(2000):
    os.close(os.open(f"{there}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
print("ready", flush=True)
while True:
    began = time.time()
    try:
        os.stat(f"{there}/7")
        os.close(os.open(f"{there}/{began}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileNotFoundError:
        break
    print(began, flush=True)
    time.sleep(0.01)
print("gone", flush=True)
"#;

/// What a program said, line by line, whose node's daemon stood still while something was changed.
struct Said {
    /// Lines when the daemon was stopped, and a moment later.
    at_stop: [usize; 2],
    /// What it had said when the call that made the change had returned.
    before: String,
    /// When that was, seconds.
    changed_at: f64,
    /// All.
    all: String,
}

/// Runs the program on node 1 until it has said `ready`, stops that node's daemon, and lets it go
/// on when the shell command `change` has ended on node 0.
fn beside_a_stopped_daemon(
    (scratch, instance): (&Scratch, &Instance<'_>),
    program: &str,
    change: &str,
) -> Result<Said> {
    let told = scratch.join("told");
    let script = format!("exec python3 - > {} <<'END'\n{program}\nEND\n", told.display());
    let goes_on = instance.shell("goes-on", &script).env("MAYFLY_NODE", "1");
    let goes_on = goes_on.deadline(Duration::from_secs(120)).start()?;
    let said = || std::fs::read_to_string(&told).unwrap_or_default();
    let lines = || said().lines().count();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !said().contains("ready") {
        ensure!(Instant::now() < deadline, "the program has not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    let daemon = instance.daemon_pid_of(1)?;
    process::signal(daemon, Signal::STOP);
    let stopped = lines();
    std::thread::sleep(Duration::from_millis(300));
    let at_stop = [stopped, lines()];
    let change = instance.shell("change", &format!("{change} && date +%s.%N"));
    let change = change.env("MAYFLY_NODE", "0").deadline(Duration::from_secs(60));
    let changed = change.run_ok()?;
    let before = said();
    process::signal(daemon, Signal::CONT);
    let changed_at: f64 = String::from_utf8_lossy(&changed.stdout).trim().parse()?;
    let outcome = goes_on.wait()?;
    ensure!(outcome.code == 0, "the program: {}", String::from_utf8_lossy(&outcome.stderr));
    Ok(Said { at_stop, before, changed_at, all: said() })
}

#[test]
fn nobody_goes_by_a_path_that_a_daemon_that_stands_still_was_not_told_of() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stands-still")?;
    let mount = scratch.join("tmp/mount");
    let options = ["--nodes", "local:2", "--deadline", "6"];
    let instance = Instance::start_with(&scratch, "still", &mount, &options)?;
    instance.on_node(0, "mkdir \"$MAYFLY_MOUNT/above\"")?;
    let change = r#"mv -T "$MAYFLY_MOUNT/above" "$MAYFLY_MOUNT/other""#;
    let Said { before, changed_at, all, .. } =
        beside_a_stopped_daemon((&scratch, &instance), GOES_ON, change)?;
    ensure!(all.ends_with("gone\n"), "the maker goes on after the directory was moved: {all}");
    let began = all.lines().filter_map(|line| line.parse::<f64>().ok());
    let late: Vec<f64> = began.filter(|began| *began > changed_at).collect();
    ensure!(
        late.is_empty(),
        "moved at {changed_at}, and files were made by the old path: {late:?}"
    );
    ensure!(before.lines().count() > 1, "nothing was made while the daemon stood still");
    instance.stop()
}

/// Makes directories in the root, before and after somebody else works there.
const MAKES_AND_STAYS: &str = r#"
for number in range(200):
    os.mkdir(f"{mount}/{number}")
tell("made")
await_told("used")
for number in range(200):
    os.mkdir(f"{mount}/more-{number}")
"#;

const USES: &str = r#"
await_told("made")
own = f"{mount}/7/own"
os.mkdir(own)
for number in range(2000):
    os.close(os.open(f"{own}/{number}", os.O_CREAT | os.O_WRONLY))
tell("used")
"#;

#[test]
fn a_program_that_makes_directories_leaves_paths_through_them_to_other_nodes() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stays")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "stays", &mount, &["--nodes", "local:2"])?;
    let stays = python((&scratch, &instance), 0, MAKES_AND_STAYS)?.start()?;
    python((&scratch, &instance), 1, USES)?.run_ok()?;
    let outcome = stays.wait()?;
    ensure!(outcome.code == 0, "who stays: {}", String::from_utf8_lossy(&outcome.stderr));
    let unawaited = counted(&instance, "unawaited/create")?;
    ensure!(unawaited[1] > 1000, "of 2000 files {unawaited:?} were made without asking");
    instance.stop()
}

/// Makes files, lets somebody look, and changes each in one of the ways in which files change.
const CHANGES: &str = r#"
there = f"{mount}/set"
os.mkdir(there)
names = [f"{there}/{number}" for number in range(400)]
for name in names:
    with open(name, "wb") as file:
        file.write(b"some bytes")
time.sleep(1.5)
tell("made")
await_told("known")
def appends(name):
    with open(name, "ab") as file:
        file.write(b" and more")
def truncates(name):
    os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))
def replaces(name):
    with open(f"{there}/new", "wb") as file:
        file.write(b"new")
    os.rename(f"{there}/new", name)
ways = {
    "appends": appends, "truncates": truncates, "replaces": replaces, "removes": os.unlink,
    "renames": lambda name: os.rename(name, f"{name}-moved"),
    "links": lambda name: os.link(name, f"{name}-also"),
    "chmod": lambda name: os.chmod(name, 0o600),
    "cuts": lambda name: os.truncate(name, 3),
    "times": lambda name: os.utime(name, (7, 7)),
    "marks": lambda name: os.setxattr(name, "user.a", b"b"),
}
for number, name in enumerate(names[:100]):
    list(ways.values())[number % len(ways)](name)
    tell(f"changed-{number}")
    await_told(f"seen-{number}")
"#;

/// Looks at all files, twice, and at each again when it was changed.
const LOOKS: &str = r#"
await_told("made")
names = [f"{mount}/set/{number}" for number in range(400)]
facts = lambda name: (lambda it: (it.st_ino, it.st_size, it.st_nlink, it.st_mode, it.st_mtime_ns,
                                  it.st_ctime_ns))(os.stat(name))
listed = [f"{mount}/set/{name}" for name in os.listdir(f"{mount}/set")]
known = {name: facts(name) for name in listed}
assert known == {name: facts(name) for name in names}
before = [known[name] for name in names]
assert all(it[1] == 10 for it in before)
tell("known")
for number, name in enumerate(names[:100]):
    # Nobody else makes it known again.
    facts(names[200 + number])
    await_told(f"changed-{number}")
    way = number % 10
    try:
        now = facts(name)
        assert way not in (3, 4), f"{number}: it is there still"
        assert now != before[number], f"{number}: {now} is as it was"
        size = (19, 0, 3, 0, 0, 10, 10, 3, 10, 10)[way]
        assert now[1] == size, f"{number}: {now[1]} bytes"
    except FileNotFoundError:
        assert way in (3, 4), number
    tell(f"seen-{number}")
"#;

#[test]
fn attributes_of_other_nodes_files_are_looked_at_without_asking_and_are_never_old() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("known")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "known", &mount, &["--nodes", "local:3"])?;
    let changes = python((&scratch, &instance), 1, CHANGES)?.start()?;
    let looks = python((&scratch, &instance), 2, LOOKS)?.run()?;
    ensure!(looks.code == 0, "who looks: {}", String::from_utf8_lossy(&looks.stderr));
    let outcome = changes.wait()?;
    ensure!(outcome.code == 0, "who changes: {}", String::from_utf8_lossy(&outcome.stderr));
    // Some of the first look, and each that was changed once more.
    let asked = counted(&instance, "answers/stat")?;
    ensure!((100..300).contains(&asked[2]), "of 1,000 looks {asked:?} were asked for");
    instance.stop()
}

/// Looks at a file of node 0 while the daemon of its own node stands still. Each line says when it
/// began to look, and how long the file was.
const KEEPS_LOOKING: &str = r#"
import os, time
name = os.environ["MAYFLY_MOUNT"] + "/file"
for _ in range(10):
    os.stat(name)
print("ready", flush=True)
while True:
    began = time.time()
    size = os.stat(name).st_size
    print(began, size, flush=True)
    if size != 5:
        break
    time.sleep(0.01)
"#;

/// Of lines that say when somebody began to look, and how many bytes he saw.
fn nothing_is_seen_as_before(all: &str, changed_at: f64) -> Result<()> {
    for line in all.lines().filter(|line| line.contains(' ')) {
        let (looked_at, size) = line.split_once(' ').context("two words")?;
        let late = looked_at.parse::<f64>()? > changed_at;
        ensure!(!late || size == "6", "changed at {changed_at}, and then seen as before: {line}");
    }
    Ok(())
}

#[test]
fn nobody_believes_attributes_of_whose_change_a_stopped_daemon_was_not_told() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("keeps-looking")?;
    let mount = scratch.join("tmp/mount");
    let options = ["--nodes", "local:2", "--deadline", "6"];
    let instance = Instance::start_with(&scratch, "looking", &mount, &options)?;
    instance.on_node(0, "printf 12345 > \"$MAYFLY_MOUNT/file\"; sleep 1.5")?;
    let change = r#"printf 6 >> "$MAYFLY_MOUNT/file""#;
    let Said { at_stop: [began, after], changed_at, all, .. } =
        beside_a_stopped_daemon((&scratch, &instance), KEEPS_LOOKING, change)?;
    ensure!(after > began + 5, "nobody looked while the daemon stood still");
    nothing_is_seen_as_before(&all, changed_at)?;
    instance.stop()
}

/// Reads all files, twice, and keeps each open over a change of it.
const READS: &str = r#"
await_told("made")
def read(name):
    with open(name, "rb", buffering=0) as file:
        return file.read(100)
listed = [f"{mount}/set/{name}" for name in os.listdir(f"{mount}/set")]
for _ in range(2):
    assert all(read(name) == b"some bytes" for name in listed)
tell("known")
old = b"some bytes"
by_descriptor = (old + b" and more", b"", old, old, old, old, old, b"som", old, old)
by_name = (old + b" and more", b"", b"new", None, None, old, old, b"som", old, old)
for number in range(100):
    name = f"{mount}/set/{number}"
    kept = os.open(name, os.O_RDONLY)
    assert os.read(kept, 4) == b"some", number
    tell(f"open-{number}")
    await_told(f"changed-{number}")
    way = number % 10
    found = os.pread(kept, 100, 0)
    assert found == by_descriptor[way], f"{number}: what is open has {found}"
    assert os.fstat(kept).st_nlink == (1, 1, 0, 0, 1, 2, 1, 1, 1, 1)[way], f"{number}: links"
    rest = os.read(kept, 100)
    assert rest == found[4:], f"{number}: the rest is {rest}"
    try:
        found = read(name)
    except FileNotFoundError:
        found = None
    assert found == by_name[way], f"{number}: by its name it has {found}"
    os.close(kept)
    tell(f"seen-{number}")
"#;

#[test]
fn small_files_of_other_nodes_are_read_without_asking_and_are_never_old() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("contents")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "contents", &mount, &["--nodes", "local:3"])?;
    let changes =
        CHANGES.replace("    list(ways", "    await_told(f\"open-{number}\")\n    list(ways");
    let changes = python((&scratch, &instance), 1, &changes)?.start()?;
    let reads = python((&scratch, &instance), 2, READS)?.run()?;
    ensure!(reads.code == 0, "who reads: {}", String::from_utf8_lossy(&reads.stderr));
    let outcome = changes.wait()?;
    ensure!(outcome.code == 0, "who changes: {}", String::from_utf8_lossy(&outcome.stderr));
    // Some of the first pass, and each that was changed once more.
    let asked = counted(&instance, "answers/open")?;
    ensure!((90..350).contains(&asked[2]), "of 1,000 opens {asked:?} were asked for");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

/// Keeps small files of node 0 open while something happens, and then reads them.
const KEEPS_OPEN: &str = r#"
await_told("made")
read = lambda name: os.read(os.open(name, os.O_RDONLY), 100)
names = sorted(os.listdir(f"{mount}/set"))
for name in names[6:]:
    with open(f"{mount}/set/{name}", "rb", buffering=0) as file:
        assert file.read(100) == name.encode()
kept = {name: os.open(f"{mount}/set/{name}", os.O_RDONLY) for name in names[:6]}
tell("open")
await_told("removed")
for name, file in kept.items():
    assert not os.path.exists(f"{mount}/set/{name}"), name
    found = os.pread(file, 100, 0)
    assert found == name.encode(), f"{name} has {found}"
    assert os.fstat(file).st_nlink == 0
"#;

const MAKES_TO_KEEP: &str = r#"
os.mkdir(f"{mount}/set")
for number in range(100):
    with open(f"{mount}/set/{number}", "wb") as file:
        file.write(b"%d" % number)
time.sleep(1.5)
tell("made")
"#;

/// What happens while a process of node 1 has files open that are removed behind it.
fn kept_open_over(label: &str, event: impl FnOnce(&Instance<'_>) -> Result<()>) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new(label)?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, label, &mount, &["--nodes", "local:2"])?;
    python((&scratch, &instance), 0, MAKES_TO_KEEP)?.run_ok()?;
    let keeps = python((&scratch, &instance), 1, KEEPS_OPEN)?.start()?;
    let told = |what: &str| scratch.join("told").join(what);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !told("open").exists() {
        ensure!(Instant::now() < deadline, "nothing was opened");
        std::thread::sleep(Duration::from_millis(5));
    }
    event(&instance)?;
    instance.on_node(0, "rm -r \"$MAYFLY_MOUNT/set\"")?;
    std::fs::write(told("removed"), "")?;
    let outcome = keeps.wait()?;
    ensure!(outcome.code == 0, "who reads: {}", String::from_utf8_lossy(&outcome.stderr));
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

fn kill_daemon_of(instance: &Instance<'_>, node: usize) -> Result<()> {
    ensure!(process::kill(instance.daemon_pid_of(node)?), "there was no daemon");
    Ok(())
}

#[test]
fn a_file_of_another_node_stays_open_for_longer_than_its_lease() -> Result<()> {
    kept_open_over("kept-long", |_| {
        std::thread::sleep(Duration::from_secs(8));
        Ok(())
    })
}

#[test]
fn a_file_of_another_node_stays_open_when_that_daemon_is_killed() -> Result<()> {
    kept_open_over("kept-home", |instance| kill_daemon_of(instance, 0))
}

#[test]
fn a_file_of_another_node_stays_open_when_the_own_daemon_is_killed() -> Result<()> {
    kept_open_over("kept-own", |instance| kill_daemon_of(instance, 1))
}

/// As [`KEEPS_LOOKING`], of what the file holds.
const KEEPS_READING: &str = r#"
import os, time
mount = os.environ["MAYFLY_MOUNT"]
def read(name):
    file = os.open(f"{mount}/{name}", os.O_RDONLY)
    try:
        return len(os.read(file, 100))
    finally:
        os.close(file)
for name in os.listdir(mount) * 3:
    read(name)
print("ready", flush=True)
while True:
    began = time.time()
    size = read("file")
    print(began, size, flush=True)
    if size != 5:
        break
    time.sleep(0.01)
"#;

#[test]
fn nobody_reads_what_a_stopped_daemon_was_not_told_to_forget() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("keeps-reading")?;
    let mount = scratch.join("tmp/mount");
    let options = ["--nodes", "local:2", "--deadline", "8"];
    let instance = Instance::start_with(&scratch, "reading", &mount, &options)?;
    let make = "cd \"$MAYFLY_MOUNT\"; for n in 1 2 3 4 5 6 7 8; do echo $n > $n; done
        printf 12345 > file; sleep 1.5";
    instance.on_node(0, make)?;
    let change = r#"printf 6 >> "$MAYFLY_MOUNT/file""#;
    let Said { at_stop: [began, after], changed_at, all, .. } =
        beside_a_stopped_daemon((&scratch, &instance), KEEPS_READING, change)?;
    ensure!(after > began + 5, "nobody read while the daemon stood still");
    nothing_is_seen_as_before(&all, changed_at)?;
    instance.stop()
}
