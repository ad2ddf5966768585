//! Descriptors of preloaded programs that become the kernel's, since whom they are handed to cannot
//! be entered by the library: static programs, rings, requests of aio.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};

const PATIENCE: Duration = Duration::from_secs(15);

/// An instance with the library and a mount, and a static program.
struct Bench {
    _turn: Turn,
    scratch: Scratch,
    before: Before,
    program: PathBuf,
}

impl Bench {
    /// `None` after saying why.
    fn new(name: &str) -> Result<Option<Bench>> {
        let suite = format!("handover: {name}");
        if !skip::unless_mountable(&suite)
            || !skip::unless_installed(&suite, &["gcc"], "gcc libc6-dev")
        {
            return Ok(None);
        }
        let turn = Turn::take()?;
        let scratch = Scratch::new(name)?;
        let program = scratch.join("share");
        let job = Job::new(&scratch, "cc", "gcc").args(["-O1", "-Wall", "-static", "-o"]);
        job.args([&program, &apps().join("share.c")]).run_ok()?;
        Ok(Some(Bench { _turn: turn, scratch, before: Before::look(), program }))
    }

    fn start(&self, access: &str) -> Result<Instance<'_>> {
        let instance = Instance::named(&self.scratch, "handover")?;
        let start = instance.command("start").args(["--access", access, "--mount"]);
        start.args([self.scratch.join("mount")]).run_ok()?;
        Ok(instance)
    }

    /// What a script prints in the instance, on both outputs.
    fn inside(&self, instance: &Instance<'_>, script: &str) -> Result<String> {
        let script = format!("exec 2>&1; cd \"$MAYFLY_MOUNT\"; {script}");
        let job = instance.shell("inside", &script).env("STATIC", self.program.clone());
        let outcome = job.deadline(Duration::from_secs(60)).run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
    }

    fn finish(&self, instance: &Instance<'_>) -> Result<()> {
        instance.expect_nothing_held(PATIENCE)?;
        instance.stop()?;
        self.before.expect_nothing_since(&self.scratch, &[], PATIENCE)
    }
}

fn apps() -> PathBuf {
    binary::workspace().join("tests/apps/fuse")
}

#[test]
fn a_shell_and_static_programs_share_offsets_and_flags_as_on_a_local_disk() -> Result<()> {
    let Some(bench) = Bench::new("mixed")? else { return Ok(()) };
    let script = apps().join("mixed.sh");
    let native = bench.scratch.join("native/work");
    fs::create_dir_all(&native)?;
    let there = format!("exec 2>&1; cd {}; . {}", native.display(), script.display());
    let job = Job::new(&bench.scratch, "native", "bash").args(["-c", &there]);
    let native = job.env("STATIC", bench.program.clone()).run_ok()?.stdout;
    let instance = bench.start("both")?;
    let script = format!("mkdir work; cd work; . {}", script.display());
    let seen = bench.inside(&instance, &script)?;
    let native = String::from_utf8_lossy(&native);
    ensure!(native == seen, "natively:\n{native}in the instance:\n{seen}");
    ensure!(native.contains("static 3") && !native.contains("EBADF"), "it shows nothing: {native}");
    bench.finish(&instance)
}

#[test]
fn who_writes_at_once_over_one_offset_loses_nothing() -> Result<()> {
    let Some(bench) = Bench::new("atonce")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = r#"words=(); for i in $(seq 400); do words+=(write 3 "static $i
"); done
        exec 3> file
        ( for i in $(seq 400); do echo "child $i" >&3; done ) &
        $STATIC "${words[@]}" 2> /dev/null &
        for i in $(seq 400); do echo "shell $i" >&3; done; wait
        sort -u file | wc -l; wc -l < file"#;
    for _ in 0..3 {
        let seen = bench.inside(&instance, script)?;
        ensure!(seen == "1200\n1200\n", "of 1200 lines there are {seen}");
    }
    bench.finish(&instance)
}

#[test]
fn spawned_static_programs_inherit_files_with_and_without_a_name() -> Result<()> {
    let Some(bench) = Bench::new("spawned")? else { return Ok(()) };
    if !skip::unless_installed("handover: spawn", &["python3"], "python3") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    let script = r#"python3 -c '
import os, subprocess
static = os.environ["STATIC"]
def run(text, to):
    subprocess.run([static, "write", "1", text], stdout=to, stderr=subprocess.DEVNULL)
f = open("f", "w"); f.write("one\n"); f.flush(); run("two\n", f); f.write("three\n"); f.flush()
actions = [(os.POSIX_SPAWN_DUP2, f.fileno(), 1), (os.POSIX_SPAWN_CLOSE, 2)]
os.posix_spawn(static, [static, "write", "1", "four\n"], os.environ, file_actions=actions)
os.wait(); f.write("five\n"); f.close(); print(open("f").read().split())
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(fd, b"no "); run("name", fd)
os.lseek(fd, 0, 0); print(os.read(fd, 100))
fd = os.open("g", os.O_CREAT | os.O_RDWR); os.unlink("g"); run("gone", fd)
print(os.pread(fd, 100, 0), os.lseek(fd, 0, 1), os.fstat(fd).st_nlink)'"#;
    let seen = bench.inside(&instance, script)?;
    let expected = "['one', 'two', 'three', 'four', 'five']\nb'no name'\nb'gone' 4 0\n";
    ensure!(seen == expected, "{seen}");
    bench.finish(&instance)
}

#[test]
fn a_go_program_works_where_the_preloaded_shell_works() -> Result<()> {
    let Some(bench) = Bench::new("where")? else { return Ok(()) };
    if !skip::unless_installed("handover: Go", &["go"], "golang-go") {
        return Ok(());
    }
    let program = bench.scratch.join("program");
    let job = Job::new(&bench.scratch, "go", "go").args(["build", "-o"]);
    let job = job.args([&program, &apps().join("main.go")]).env("CGO_ENABLED", "0");
    job.env("HOME", bench.scratch.path()).deadline(Duration::from_secs(120)).run_ok()?;
    let instance = bench.start("both")?;
    let script = format!(
        "mkdir -p a/b; cd a/b; P={}; $P . > ../out; cp $P ../program; ../program . > ../again; \
         $P missing; /nonexistent; pwd -P | tail -c 5; ls; cmp ../out ../again && cat ../out",
        program.display()
    );
    let native = bench.scratch.join("native");
    fs::create_dir(&native)?;
    let natively = format!("exec 2>&1; cd {}; {script}", native.display());
    let native = Job::new(&bench.scratch, "native", "bash").args(["-c", &natively]).run_ok()?;
    let (native, seen) =
        (String::from_utf8_lossy(&native.stdout).into_owned(), bench.inside(&instance, &script)?);
    // The shell calls itself by the number of the line, the paths differ.
    let tail = |text: &str| text.lines().rev().take(8).collect::<Vec<_>>().join("\n");
    ensure!(tail(&native) == tail(&seen), "natively:\n{native}in the instance:\n{seen}");
    bench.finish(&instance)
}

#[test]
fn fio_with_io_uring_and_libaio_verifies_what_it_wrote_below_the_library() -> Result<()> {
    let Some(bench) = Bench::new("rings")? else { return Ok(()) };
    if !skip::unless_installed("handover: rings", &["fio"], "fio") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    let script = r#"for engine in io_uring libaio; do
            fio --name=v --filename=$engine --size=4m --ioengine=$engine --iodepth=16 \
                --rw=randwrite --bs=8k --verify=crc32c --verify_fatal=1 > log || cat log
            stat -c %s $engine
        done"#;
    let seen = bench.inside(&instance, script)?;
    ensure!(seen == "4194304\n4194304\n", "{seen}");
    bench.finish(&instance)
}

#[test]
fn descriptors_in_messages_reach_static_programs_with_their_offset() -> Result<()> {
    let Some(bench) = Bench::new("messages")? else { return Ok(()) };
    if !skip::unless_installed("handover: messages", &["python3"], "python3") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    let script = r#"
        python3 - "$STATIC" <<'END'
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
def send(fd, *words):
    child = subprocess.Popen([sys.argv[1], "receive", str(theirs.fileno()), "9", *words],
                             pass_fds=[theirs.fileno()])
    socket.send_fds(ours, [b"x"], [fd])
    child.wait()
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"first ")
send(fd, "where", "9", "write", "9", "second ")
os.write(fd, b"third")
os.lseek(fd, 0, os.SEEK_SET)
print(os.read(fd, 100).decode(), flush=True)
os.mkdir("d")
for name in range(5):
    open(f"d/{name}", "w").write("text")
directory = os.open("d", os.O_RDONLY)
send(directory, "open", "9", "3", "list", "9")
print(len(os.listdir(directory)), os.stat("4", dir_fd=directory).st_size)
END"#;
    let seen = bench.inside(&instance, script)?;
    // The other one has listed the directory to its end, for both.
    let expected = "receive 9\nwhere 6\nwrite 7\nfirst second third\n\
                    receive 9\nread 4\ntext\nlist 7\n0 4\n";
    ensure!(seen == expected, "{seen}");
    bench.finish(&instance)
}

/// A fork failed (EAGAIN) when another thread moved a file to the mount just then.
#[test]
fn a_program_forks_while_its_threads_hand_files_over() -> Result<()> {
    let Some(bench) = Bench::new("passing")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = format!("python3 '{}'", apps().join("passing.py").display());
    let seen = bench.inside(&instance, &script)?;
    ensure!(seen == "0 []\n", "{seen}");
    bench.finish(&instance)
}

#[test]
fn static_programs_inherit_directories_where_their_listing_stands() -> Result<()> {
    let Some(bench) = Bench::new("directories")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = "mkdir d; for i in 1 2 3; do echo $i > d/$i; done; exec 3< d; \
                  $STATIC list 3 list 3 seek 3 0 list 3 open 3 2; mv d e; $STATIC open 3 3; \
                  ls /proc/self/fd/3/";
    let seen = bench.inside(&instance, script)?;
    let expected = "list 5\nlist 0\nseek 0\nlist 5\nread 2\n2\n\nread 2\n3\n\n1\n2\n3\n";
    ensure!(seen == expected, "{seen}");
    bench.finish(&instance)
}

#[test]
fn without_a_mount_a_static_program_is_served_and_shares_offsets() -> Result<()> {
    let Some(bench) = Bench::new("served")? else { return Ok(()) };
    let script = "exec 3> f; echo a >&3; $STATIC write 3 b; echo c >&3; cat f";
    let instance = bench.start("preload")?;
    let seen = bench.inside(&instance, script)?;
    ensure!(seen == "write 1\na\nbc\n", "without a mount: {seen}");
    bench.finish(&instance)
}

#[test]
fn a_stranger_meets_ebadf_where_fcntl_has_locked() -> Result<()> {
    let Some(bench) = Bench::new("refused")? else { return Ok(()) };
    if !skip::unless_installed("handover: locks of fcntl", &["python3"], "python3") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    let script = r#"python3 - "$STATIC" 2>&1 <<END
import fcntl, os, subprocess, sys
def try_it(lock, kind):
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    lock(file)
    subprocess.run([sys.argv[1], "write", str(file), "b"], pass_fds=[file], check=True)
    print(os.fstat(file).st_size, flush=True)
    os.close(file)
try_it(lambda file: fcntl.lockf(file, fcntl.LOCK_EX), "process")
whole = b"\1\0" + bytes(30)
try_it(lambda file: fcntl.fcntl(file, fcntl.F_OFD_SETLK, whole), "description")
END"#;
    let seen = bench.inside(&instance, script)?;
    ensure!(seen == "write -1 EBADF\n0\nwrite -1 EBADF\n0\n", "locked: {seen}");
    bench.finish(&instance)
}

#[test]
fn a_lock_of_flock_goes_along_to_the_mount() -> Result<()> {
    let Some(bench) = Bench::new("flock")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = "exec 3> f; flock 3; echo a >&3; $STATIC write 3 b; echo c >&3; cat f; \
                  flock -n f true || echo still locked; flock -n 3 && echo its own; \
                  (flock -u 3); flock -n f true && echo free";
    let seen = bench.inside(&instance, script)?;
    ensure!(seen == "write 1\na\nbc\nstill locked\nits own\nfree\n", "locked: {seen}");
    // One that others have, too, stays so, and the last close ends it.
    let script = "echo > g; exec 3< g 4< g; flock -s 3; flock -s 4; $STATIC read 3 1; exec 4<&-; \
                  flock -n g true || echo still shared; exec 3<&-; flock -w 10 g true && echo free";
    let seen = bench.inside(&instance, script)?;
    ensure!(seen == "read 1\n\n\nstill shared\nfree\n", "shared: {seen}");
    bench.finish(&instance)
}

/// Whose program it is nobody else can say, so it takes root to try it.
#[test]
fn a_set_id_program_uses_what_it_inherits_and_opens_nothing_itself() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        skip::note("handover: set-id programs", "only root can make one of another user");
        return Ok(());
    }
    let Some(bench) = Bench::new("set-id")? else { return Ok(()) };
    let tool = bench.scratch.join("tool");
    fs::copy(&bench.program, &tool)?;
    let nobody = Some(65_534);
    std::os::unix::fs::chown(&tool, nobody, nobody)?;
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o4755))?;
    let instance = bench.start("both")?;
    let script = format!(
        "echo in > f; exec 3> g 4< f; echo before >&3; {0} write 3 tool where 3 read 4 9 cat f; \
         echo after >&3; cat g",
        tool.display()
    );
    let seen = bench.inside(&instance, &script)?;
    // The last one is the file that it has not opened.
    let expected = "write 4\nwhere 11\nread 3\nin\n\nread -1 EBADF\nbefore\ntoolafter\n";
    ensure!(seen == expected, "{seen:?}");
    bench.finish(&instance)
}

/// What `script` prints, which makes the file `ready` and waits until it is gone; meanwhile the
/// process with `command` in its command line is killed.
fn killing(bench: &Bench, instance: &Instance<'_>, command: &str, script: &str) -> Result<String> {
    let script = format!("exec 2>&1; cd \"$MAYFLY_MOUNT\"; {script}");
    let job = instance.shell("inside", &script).env("STATIC", bench.program.clone());
    let shell = job.start()?;
    let ready = bench.scratch.join("mount/ready");
    let deadline = Instant::now() + PATIENCE;
    while !fs::exists(&ready)? {
        ensure!(Instant::now() < deadline, "the shell does not come so far");
        std::thread::sleep(Duration::from_millis(20));
    }
    let marked = process::marked(bench.scratch.mark());
    let victim = marked.into_iter().find(|process| process.command.contains(command));
    ensure!(process::kill(victim.context("no such process")?.pid), "it has ended");
    instance.shell("go", "rm \"$MAYFLY_MOUNT/ready\"").run_ok()?;
    Ok(String::from_utf8_lossy(&shell.wait()?.stdout).into_owned())
}

const WAIT: &str = "touch ready; while test -e ready; do sleep 0.02; done";

#[test]
fn a_file_that_was_handed_over_fails_with_eio_when_the_mount_has_died() -> Result<()> {
    let Some(bench) = Bench::new("died")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = format!(
        "exec 3> f; exec 4> g; $STATIC write 3 static > /dev/null 2>&1 4>&-; {WAIT}; \
         echo lost 2> /dev/null >&3 || echo failed; echo kept >&4; cat g"
    );
    let seen = killing(&bench, &instance, " __fuse ", &script)?;
    ensure!(seen == "failed\nkept\n", "{seen}");
    bench.finish(&instance)
}

#[test]
fn without_the_process_that_keeps_files_descriptors_stay_with_the_library() -> Result<()> {
    let Some(bench) = Bench::new("keeper")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = format!("exec 3> f; {WAIT}; $STATIC write 3 b; echo c >&3; cat f");
    let seen = killing(&bench, &instance, " __keep ", &script)?;
    ensure!(seen == "write -1 EBADF\nc\n", "{seen}");
    bench.finish(&instance)
}
