//! Paths that lead by names of other nodes are followed by processes themselves, for as long as
//! what these stand for cannot have changed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn, process};
use rustix::process::Signal;

/// A process of node 2 works in a directory of its own below a directory of node 1 below the root,
/// which is node 0's. A process of node 0 moves the one of node 1 away, and back, and says so after
/// each. Whoever works by the old path finds nothing then, and makes nothing.
const MOVED: &str = r#"
import os, subprocess, sys
mount = os.environ["MAYFLY_MOUNT"]
mover = '''
import os, sys
mount = os.environ["MAYFLY_MOUNT"]
for line in sys.stdin:
    source, target = line.split()
    os.rename(f"{mount}/{source}", f"{mount}/{target}")
    print("moved", flush=True)
'''
def on(node, script):
    environment = dict(os.environ, MAYFLY_NODE=str(node))
    return subprocess.Popen([sys.executable, "-c", script], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
on(1, "import os; os.mkdir(os.environ['MAYFLY_MOUNT'] + '/above')").wait()
there, elsewhere = f"{mount}/above/own", f"{mount}/moved/own"
os.mkdir(there)
with on(0, mover) as other:
    def move(source, target):
        other.stdin.write(f"{source} {target}\n")
        other.stdin.flush()
        assert other.stdout.readline() == "moved\n"
    for turn in range(60):
        for number in range(40):
            os.close(os.open(f"{there}/{turn}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        for number in range(20):
            os.unlink(f"{there}/{turn}-{number}")
            os.close(os.open(f"{there}/{turn}-{20 + number}", os.O_RDONLY))
            assert os.stat(f"{there}/{turn}-{20 + number}").st_nlink == 1
        move("above", "moved")
        for work in (os.stat, os.unlink, os.listdir, lambda path: os.open(path, os.O_RDONLY),
                     lambda path: os.open(path + "-new", os.O_CREAT | os.O_WRONLY),
                     lambda path: os.mkdir(path + "-directory")):
            try:
                work(f"{there}/{turn}-30")
            except FileNotFoundError:
                continue
            raise SystemExit(f"turn {turn}: {work} goes by a path that leads nowhere")
        assert len(os.listdir(elsewhere)) == 20 * (turn + 1), turn
        move("moved", "above")
    other.stdin.close()
print("done")
"#;

#[test]
fn who_works_by_a_path_of_other_nodes_notices_when_a_directory_on_it_is_moved() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("elsewhere")?;
    let mount = scratch.join("tmp/mount");
    let instance = Instance::start_with(&scratch, "elsewhere", &mount, &["--nodes", "local:3"])?;
    let script = format!("python3 - <<'END'\n{MOVED}\nEND\n");
    ensure!(instance.on_node(2, &script)? == "done", "the script has ended early");
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

#[test]
fn nobody_goes_by_a_path_that_a_daemon_that_stands_still_was_not_told_of() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("stands-still")?;
    let mount = scratch.join("tmp/mount");
    let options = ["--nodes", "local:2", "--deadline", "6"];
    let instance = Instance::start_with(&scratch, "still", &mount, &options)?;
    instance.on_node(0, "mkdir \"$MAYFLY_MOUNT/above\"")?;
    let told = scratch.join("told");
    let script = format!("exec python3 - > {} <<'END'\n{GOES_ON}\nEND\n", told.display());
    let maker = instance.shell("maker", &script).env("MAYFLY_NODE", "1");
    let maker = maker.deadline(Duration::from_secs(120)).start()?;
    let said = || std::fs::read_to_string(&told).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !said().contains("ready") {
        ensure!(Instant::now() < deadline, "the maker has not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    let daemon = instance.daemon_pid_of(1)?;
    process::signal(daemon, Signal::STOP);
    let move_it = r#"mv -T "$MAYFLY_MOUNT/above" "$MAYFLY_MOUNT/other" && date +%s.%N"#;
    let mover = instance.shell("mover", move_it).env("MAYFLY_NODE", "0");
    let moved = mover.deadline(Duration::from_secs(60)).run_ok()?;
    let before = said();
    process::signal(daemon, Signal::CONT);
    let moved_at: f64 = String::from_utf8_lossy(&moved.stdout).trim().parse()?;
    let outcome = maker.wait()?;
    ensure!(outcome.code == 0, "the maker: {}", String::from_utf8_lossy(&outcome.stderr));
    let said = said();
    ensure!(said.ends_with("gone\n"), "the maker goes on after the directory was moved: {said}");
    let began = said.lines().filter_map(|line| line.parse::<f64>().ok());
    let late: Vec<f64> = began.filter(|began| *began > moved_at).collect();
    ensure!(late.is_empty(), "moved at {moved_at}, and files were made by the old path: {late:?}");
    ensure!(before.lines().count() > 1, "nothing was made while the daemon stood still");
    instance.stop()
}
