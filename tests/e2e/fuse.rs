//! The mount shows what the preload library shows, to programs that this cannot enter, and goes
//! whatever dies.
//!
//! A program of the tests without the variables of an instance is one that somebody started
//! elsewhere: it reaches the files through the kernel only.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, binary, process, skip};
use mayfly_tests::mount::{Bench, inside, is_mounted, server, wait_until};
use rustix::process::Signal;

const SUMS: &str = "find . -type f -exec md5sum {} + | sort -k2; find . -type l -printf '%p %l\n'";

#[test]
fn the_mount_shows_at_once_what_preloaded_programs_write_and_they_what_is_written_there()
-> Result<()> {
    let Some(bench) = Bench::new("both")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let status = instance.status()?;
    ensure!(status.get("access") == Some(&"both".into()), "the access is {:?}", status["access"]);
    let make = "mkdir -p a/b; seq 100000 > a/long; echo short > a/b/short; ln -s ../long a/b/link; \
                ln a/long hard; head -c 3000000 /dev/urandom > random";
    inside(&instance, make)?;
    let sums = inside(&instance, SUMS)?;
    ensure!(bench.outside(&format!("cd $M; {SUMS}"))? == sums, "what one wrote the other misreads");
    bench
        .outside("cd $M; cp -r a c; mv hard c/hard; echo more >> a/long; rm a/b/short; ls -la a")?;
    let sums = inside(&instance, SUMS)?;
    ensure!(sums.contains("c/b/short") && !sums.contains(" ./a/b/short"), "not moved: {sums}");
    ensure!(bench.outside(&format!("cd $M; {SUMS}"))? == sums, "they differ after changes outside");
    bench.outside("rm -r $M/*; test -z \"$(ls -A $M)\"")?;
    ensure!(inside(&instance, "ls -A")?.is_empty(), "removed outside, still seen inside");
    bench.finish(&instance)
}

#[test]
fn open_files_see_each_others_writes_cuts_and_appends_across_the_two() -> Result<()> {
    let Some(bench) = Bench::new("open")? else { return Ok(()) };
    let instance = bench.start("both")?;
    // The outside shell keeps the file open while a preloaded one changes it.
    let attach = r#"eval "$("$0" env --name fuse)"; exec bash -c "$1""#;
    let script = format!(
        r#"within() {{ bash -c '{attach}' {} "$1"; }}
        exec 3<> $M/file; printf 0123456789 >&3
        within 'printf ABC >> $MAYFLY_MOUNT/file; stat -c %s $MAYFLY_MOUNT/file'
        printf D >> $M/file; stat -L -c %s /dev/fd/3; cat $M/file; echo
        within 'truncate -s 4 $MAYFLY_MOUNT/file'; stat -L -c %s /dev/fd/3; cat $M/file; echo
        within 'rm $MAYFLY_MOUNT/file; echo other > $MAYFLY_MOUNT/file'
        printf EF >&3; stat -L -c '%s %h' /dev/fd/3; cat $M/file"#,
        binary::mayfly()?.display()
    );
    let expected = "13\n14\n0123456789ABCD\n4\n0123\n12 0\nother\n";
    let seen = bench.outside(&script)?;
    ensure!(seen == expected, "expected {expected:?}, got {seen:?}");
    bench.finish(&instance)
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_opened_through_the_mount_at_each_try() -> Result<()> {
    const OPENS: u32 = 6_000;
    let Some(bench) = Bench::new("replaced")? else { return Ok(()) };
    if !skip::unless_installed("fuse: replaced names", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let program = bench.compile("replace.c", &[])?;
    let instance = bench.start("both")?;
    inside(&instance, "echo a > name")?;
    let replace = program.display();
    let script =
        format!("cd \"$MAYFLY_MOUNT\"; {replace} name stop 1 & {replace} name stop 2; wait $!");
    let replacing = instance.shell("replacing", &script).start()?;
    let (name, mut others) = (bench.mount.join("name"), 0);
    let mut last = 0;
    for number in 0..OPENS {
        let file = fs::File::open(&name).with_context(|| format!("open number {number}"))?;
        let id = file.metadata()?.ino();
        others += u32::from(id != last);
        last = id;
        drop(file);
        // By its path, which is looked up and then used as well.
        fs::set_permissions(&name, fs::Permissions::from_mode(0o644))
            .with_context(|| format!("chmod number {number}"))?;
    }
    fs::write(bench.mount.join("stop"), "")?;
    let end = replacing.wait()?;
    ensure!(end.code == 0, "who replaces the name ends with {}", end.code);
    ensure!(others > OPENS / 100, "the name was another file's at {others} opens only");
    bench.finish(&instance)
}

/// Bytes that a process has read by read and its like: not those that it has spliced.
fn bytes_read(process: u32) -> Result<u64> {
    let counters = fs::read_to_string(format!("/proc/{process}/io"))?;
    let read = counters.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(read.context("no rchar")?.parse()?)
}

#[test]
fn long_reads_of_a_local_object_are_not_copied_by_the_process_that_serves_the_mount() -> Result<()>
{
    const MIB: u64 = 1 << 20;
    let Some(bench) = Bench::new("long")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let copy = bench.scratch.join("copy");
    let whole =
        format!("cmp $M/long {0}; dd if=$M/long bs=1M status=none | cmp - {0}", copy.display());
    let make = format!("head -c 33554431 /dev/urandom > long; cp long {}", copy.display());
    inside(&instance, &make)?;
    let server = server(&bench, &bench.mount)?;
    let before = bytes_read(server)?;
    bench.outside(&whole)?;
    let copied = bytes_read(server)? - before;
    ensure!(copied < MIB, "{copied} bytes went through the process");
    // Where no page begins, at the end, and beyond it.
    for (skip, count) in [(4097, 1_500_000), (33_000_001, MIB), (33_554_431, 70_000)] {
        let piece = |file: &Path, bs| {
            format!(
                "dd if={} iflag=skip_bytes,count_bytes skip={skip} count={count} bs={bs} \
                 status=none | md5sum",
                file.display()
            )
        };
        let script =
            format!("{}; {}", piece(&bench.mount.join("long"), 700_001), piece(&copy, 512));
        let seen = bench.outside(&script)?;
        let sums: Vec<&str> = seen.lines().collect();
        ensure!(sums.len() == 2 && sums[0] == sums[1], "{count} bytes at {skip}: {seen}");
    }
    bench.finish(&instance)
}

#[test]
fn who_reads_while_others_cut_and_fill_a_file_gets_bytes_that_were_there() -> Result<()> {
    let Some(bench) = Bench::new("cutting")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = "cd \"$MAYFLY_MOUNT\"; yes a | head -c 3000000 > f; touch ready; \
                  for i in 1 2 3 4 5 6 7 8; do for c in b c; do \
                  truncate -s 100 f; yes $c | head -c 3000000 > f; \
                  yes $c | head -c 3000000 | dd of=f bs=300k conv=notrunc status=none; done; done; \
                  touch stop";
    let cutting = instance.shell("cutting", script).start()?;
    let look = "cd $M; while ! test -e ready; do sleep 0.01; done; \
                while ! test -e stop; do dd if=f bs=1M status=none | tr -d 'abc\\n\\000' | \
                head -c 9; done; wc -c < f; tr -d 'c\\n' < f | wc -c";
    let seen = bench.outside(look)?;
    ensure!(cutting.wait()?.code == 0, "who cuts the file fails");
    ensure!(seen == "3000000\n0\n", "{seen:?}");
    bench.finish(&instance)
}

#[test]
fn attributes_space_and_nameless_files_are_the_same_on_both_sides() -> Result<()> {
    let Some(bench) = Bench::new("attributes")? else { return Ok(()) };
    if !skip::unless_installed("fuse: attributes", &["python3"], "python3") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    let python = |text: &str| format!("python3 -c 'import os; {text}'");
    let set =
        r#"open("f", "w"); os.setxattr("f", "user.a", b"one"); os.setxattr(".", "user.d", b"d")"#;
    inside(&instance, &python(set))?;
    let look = r#"print(os.listxattr("f"), os.getxattr("f", "user.a"), os.getxattr(".", "user.d"));
os.setxattr("f", "user.b", b"two"); os.removexattr("f", "user.a");
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(fd, b"text"); os.setxattr(fd, "user.t", b"t");
os.link("/proc/self/fd/%d" % fd, "named", src_dir_fd=0, follow_symlinks=True);
big = os.open("big", os.O_CREAT | os.O_RDWR); os.posix_fallocate(big, 0, 1 << 20);
os.pwrite(big, b"x", 4 << 20); print(os.lseek(big, 1 << 21, os.SEEK_DATA) > 1 << 21);
out = os.open("copy", os.O_CREAT | os.O_RDWR);
print(os.copy_file_range(big, out, 8 << 20, 0), os.fstat(out).st_size)"#;
    let seen = bench.outside(&format!("cd $M; {}", python(look)))?;
    let expected = "['user.a'] b'one' b'd'\nTrue\n4194305 4194305\n";
    ensure!(seen == expected, "outside: {seen:?}");
    let look = r#"print(os.listxattr("f"), os.getxattr("named", "user.t"), open("named").read());
print(os.stat("big").st_blocks >= 2048, open("copy", "rb").read() == open("big", "rb").read())"#;
    let seen = inside(&instance, &python(look))?;
    ensure!(seen == "['user.b'] b't' text\nTrue True\n", "inside: {seen:?}");
    bench.finish(&instance)
}

/// Both ends of each are opened from either side, under a name made on either side.
#[test]
fn pipes_and_sockets_are_the_same_on_both_sides() -> Result<()> {
    let Some(bench) = Bench::new("special")? else { return Ok(()) };
    if !skip::unless_installed("sockets on both sides", &["python3"], "python3") {
        return Ok(());
    }
    let instance = bench.start("both")?;
    inside(&instance, "mkfifo made-inside; mkdir sub")?;
    bench.outside("mkfifo $M/made-outside; test -p $M/made-inside")?;
    for pipe in ["made-inside", "made-outside"] {
        for reads_inside in [true, false] {
            let (read, write) = (format!("timeout 10 cat {pipe}"), format!("echo hello > {pipe}"));
            let (here, there) = if reads_inside { (read, write) } else { (write, read) };
            let there = format!("cd $M; {there}");
            let other = Job::new(&bench.scratch, "other", "bash").args(["-ec", &there]);
            let other = other.env("M", bench.mount.clone()).start()?;
            let here = inside(&instance, &here)?;
            let there = String::from_utf8_lossy(&other.wait()?.stdout).into_owned();
            ensure!(format!("{here}{there}") == "hello\n", "{pipe}: {here:?} and {there:?}");
        }
    }
    let serve = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('sub/socket'); \
                 s.listen(); open('ready', 'w').close(); c, _ = s.accept(); \
                 c.sendall(c.recv(9).upper())";
    let ask = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('sub/socket'); \
               s.sendall(b'hello'); print(s.recv(9).decode())";
    let wait = "until test -e ready; do sleep 0.02; done";
    let serve = format!("timeout 20 python3 -c \"{serve}\"");
    let there = format!("cd $M; {serve}");
    let other = Job::new(&bench.scratch, "server", "bash").args(["-ec", &there]);
    let other = other.env("M", bench.mount.clone()).start()?;
    let asked = inside(&instance, &format!("{wait}; python3 -c \"{ask}\"; rm ready sub/socket"))?;
    other.wait()?;
    ensure!(asked == "HELLO\n", "a server outside answers {asked:?}");
    let server = instance.shell("server", &format!("cd \"$MAYFLY_MOUNT\"; {serve}")).start()?;
    let asked =
        bench.outside(&format!("cd $M; {wait}; python3 -c \"{ask}\"; ls -F sub; rm -r *"))?;
    server.wait()?;
    ensure!(asked == "HELLO\nsocket=\n", "a server inside answers {asked:?}");
    bench.finish(&instance)
}

#[test]
fn a_static_program_works_in_the_mount_as_on_a_local_disk() -> Result<()> {
    let Some(bench) = Bench::new("static")? else { return Ok(()) };
    if !skip::unless_installed("fuse: static programs", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let program = bench.compile("files.c", &["-static"])?;
    let instance = bench.start("fuse")?;
    ensure!(instance.status()?["access"] == "fuse", "the access is {:?}", instance.status()?);
    let native = bench.scratch.join("native");
    fs::create_dir(&native)?;
    let run = |label, place: &Path| {
        Job::new(&bench.scratch, label, &program).args([place]).run_ok().map(|end| end.stdout)
    };
    let (expected, seen) = (run("native", &native)?, run("mounted", &bench.mount)?);
    ensure!(
        expected == seen,
        "natively:\n{}in the mount:\n{}",
        String::from_utf8_lossy(&expected),
        String::from_utf8_lossy(&seen)
    );
    // The program itself lies in the mount, and is started and mapped from there.
    let copy = bench.mount.join("program");
    fs::copy(&program, &copy)?;
    let inner = bench.mount.join("inner");
    fs::create_dir(&inner)?;
    let end = Job::new(&bench.scratch, "there", &copy).args([&inner]).run_ok()?;
    ensure!(end.stdout == expected, "a program in the mount sees something else");
    bench.finish(&instance)
}

#[test]
fn a_go_program_works_in_the_mount() -> Result<()> {
    let Some(bench) = Bench::new("go")? else { return Ok(()) };
    if !skip::unless_installed("fuse: Go", &["go"], "golang-go") {
        return Ok(());
    }
    let (source, program) =
        (binary::workspace().join("tests/apps/fuse/main.go"), bench.scratch.join("program"));
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source])
        .env("CGO_ENABLED", "0")
        .status()?;
    ensure!(built.success(), "go build failed");
    let instance = bench.start("both")?;
    let native = bench.scratch.join("native");
    fs::create_dir(&native)?;
    let run = |place: &Path| {
        Job::new(&bench.scratch, "go", &program).args([place]).run_ok().map(|end| end.stdout)
    };
    ensure!(run(&native)? == run(&bench.mount)?, "natively it prints something else");
    bench.finish(&instance)
}

#[test]
fn git_tar_and_make_work_through_the_mount_alone() -> Result<()> {
    let Some(bench) = Bench::new("tools")? else { return Ok(()) };
    if !skip::unless_installed("fuse: tools", &["git", "tar", "make", "gcc"], "git tar make gcc") {
        return Ok(());
    }
    let instance = bench.start("fuse")?;
    let script = r#"cd $M; mkdir source; cd source; git init -q .
        git config user.email a@b; git config user.name a
        printf 'int main(void) { return 7; }\n' > main.c
        printf 'main: main.c\n\tcc -o main main.c\n' > Makefile
        for i in $(seq 200); do echo $i > file$i; done
        git add . ; git commit -qm one; git clone -q . ../clone; cd ../clone; git fsck --full
        make -s; ./main || echo ended with $?
        tar cf ../all.tar . ; mkdir ../out; tar xf ../all.tar -C ../out
        diff -r . ../out && echo same
        ../out/main || echo ended with $?"#;
    let seen = bench.outside(script)?;
    ensure!(seen == "ended with 7\nsame\nended with 7\n", "it prints {seen:?}");
    bench.finish(&instance)
}

#[test]
fn ten_thousand_names_are_listed_and_removed_through_the_mount() -> Result<()> {
    let Some(bench) = Bench::new("many")? else { return Ok(()) };
    let instance = bench.start("both")?;
    inside(&instance, "mkdir many; cd many; seq -f 'name %g' 10000 | xargs -d '\\n' touch")?;
    bench.outside("touch $M/many/$'new\\nline' $M/many/$'\\xff\\xfe'")?;
    let listed: Vec<_> = fs::read_dir(bench.mount.join("many"))?.collect::<Result<_, _>>()?;
    ensure!(listed.len() == 10_002, "{} entries", listed.len());
    let strange = listed.iter().filter(|entry| {
        matches!(entry.file_name().as_bytes(), b"new\nline" | b"\xff\xfe") && entry.path().exists()
    });
    ensure!(strange.count() == 2, "names of any bytes are missing");
    // Entries keep their directory open.
    drop(listed);
    let count = bench.outside("ls -l $M/many | wc -l; rm -r $M/many; ls $M")?;
    ensure!(count.starts_with("10003\n") || count.starts_with("10004\n"), "ls -l: {count}");
    bench.finish(&instance)
}

/// A program that holds a lock until it is told to end.
struct Holder {
    child: std::process::Child,
}

impl Holder {
    fn start(mut command: Command) -> Result<Holder> {
        use std::io::{BufRead, BufReader};
        use std::process::Stdio;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(line == "held\n", "instead of holding the lock: {line:?}");
        Ok(Holder { child })
    }

    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        ensure!(self.child.wait()?.success(), "the holder failed");
        Ok(())
    }
}

/// Whether a process has a handler for this signal.
fn catches(pid: u32, signal: Signal) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.context("procfs tells")?.trim(), 16)?;
    Ok(caught >> (signal.as_raw() - 1) & 1 == 1)
}

#[test]
fn locks_exclude_each_other_across_the_two_and_waits_end() -> Result<()> {
    let Some(bench) = Bench::new("locks")? else { return Ok(()) };
    if !skip::unless_installed("fuse: locks", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let preloaded = bench.compile("lock.c", &[])?;
    let outside = bench.scratch.join("lock-static");
    fs::rename(bench.compile("lock.c", &["-static"])?, &outside)?;
    let preloaded = match preloaded.exists() {
        true => preloaded,
        false => bench.compile("lock.c", &[])?,
    };
    let instance = bench.start("both")?;
    let file = bench.mount.join("file");
    for kind in ["flock", "fcntl"] {
        let arguments = |what: &str| [kind.into(), what.into(), file.clone().into_os_string()];
        let there = |what: &str| {
            let job = Job::new(&bench.scratch, "there", &outside);
            job.args(arguments(what)).run_ok().map(|end| end.stdout)
        };
        let here = |what: &str| {
            let script = format!("{} {kind} {what} \"$MAYFLY_MOUNT/file\"", preloaded.display());
            instance.shell("here", &script).run_ok().map(|end| end.stdout)
        };
        let hold_there = || {
            let mut command = Command::new(&outside);
            command.args(arguments("hold"));
            command
        };
        // Held outside: nobody inside gets it, nor another outside.
        let holder = Holder::start(hold_there())?;
        ensure!(here("try")? == b"busy\n", "{kind}: held outside, taken inside");
        ensure!(there("try")? == b"busy\n", "{kind}: held outside, taken outside");
        if kind == "fcntl" {
            ensure!(here("test")? == b"taken\n" && there("test")? == b"taken\n", "F_GETLK");
        }
        // A wait inside ends when the lock outside is given up.
        let script = format!("{} {kind} hold \"$MAYFLY_MOUNT/file\"", preloaded.display());
        let waiting = instance.shell("waiting", &script).start()?;
        std::thread::sleep(Duration::from_millis(200));
        holder.end()?;
        let outcome = waiting.wait()?;
        ensure!(outcome.stdout == b"held\n", "{kind}: the wait inside did not end well");
        // Held outside again: a wait outside is interrupted by a signal and does not keep others
        // from being served.
        let holder = Holder::start(hold_there())?;
        let job = Job::new(&bench.scratch, "interrupted", &outside);
        let mut waiting = job.args(arguments("hold")).start()?;
        wait_until("it handles the signal", || catches(waiting.pid(), Signal::USR1))?;
        std::thread::sleep(Duration::from_millis(200));
        bench.outside("ls $M > /dev/null; echo x > $M/other; cat $M/other")?;
        // Before it waits a signal interrupts nothing.
        wait_until("a signal interrupts it", || {
            process::signal(waiting.pid(), Signal::USR1);
            waiting.is_over()
        })?;
        ensure!(waiting.wait()?.stdout == b"interrupted\n", "{kind}: a signal is not noticed");
        // A killed holder holds nothing.
        let pid = holder.child.id();
        ensure!(process::kill(pid), "the holder has ended");
        drop(holder.end());
        wait_until("the lock of a killed program is free", || Ok(here("try")? == b"held\n"))?;
    }
    bench.finish(&instance)
}

#[test]
fn calls_through_the_mount_wait_for_a_daemon_that_was_killed() -> Result<()> {
    let Some(bench) = Bench::new("killed")? else { return Ok(()) };
    let instance = bench.start("both")?;
    let script = "cd $M; for i in $(seq 600); do echo $i > f$i; cat f$i; done";
    let job = Job::new(&bench.scratch, "work", "bash").args(["-ec", script]);
    let mut work = job.env("M", bench.mount.clone()).start()?;
    let mut kills = 0;
    while !work.is_over()? {
        std::thread::sleep(Duration::from_millis(150));
        if let Ok(daemon) = instance.daemon_pid() {
            kills += u32::from(daemon != 0 && process::kill(daemon));
        }
    }
    let outcome = work.wait()?;
    let expected: String = (1..=600).map(|number| format!("{number}\n")).collect();
    ensure!(outcome.stdout == expected.as_bytes(), "a call failed or read something else");
    ensure!(kills > 1, "the daemon was killed {kills} times only");
    bench.finish(&instance)
}

#[test]
fn a_killed_fuse_process_leaves_no_mount_and_the_instance_goes_on() -> Result<()> {
    let Some(bench) = Bench::new("dead")? else { return Ok(()) };
    let instance = bench.start("both")?;
    inside(&instance, "echo text > file")?;
    ensure!(process::kill(server(&bench, &bench.mount)?), "it has ended");
    wait_until("the mount is gone", || Ok(!bench.is_mounted()))?;
    wait_until("status says so", || Ok(instance.status()?["access"] == "preload"))?;
    ensure!(inside(&instance, "cat file")? == "text\n", "preloaded programs are not served");
    wait_until("nobody can write below the mount point", || {
        Ok(fs::write(bench.mount.join("x"), "")
            .is_err_and(|error| error.raw_os_error() == Some(40)))
    })?;
    bench.finish(&instance)
}

#[test]
fn an_instance_ends_while_a_shell_works_in_its_mount() -> Result<()> {
    let Some(bench) = Bench::new("busy")? else { return Ok(()) };
    let instance = bench.start("fuse")?;
    fs::create_dir(bench.mount.join("dir"))?;
    let script = "cd $M/dir; exec 3> file; echo in > ../in; \
                  while test -e ../in; do sleep 0.05; done; echo x >&3 || echo cut off";
    let job = Job::new(&bench.scratch, "shell", "bash").args(["-c", script]);
    let shell = job.env("M", bench.mount.clone()).start()?;
    wait_until("the shell is there", || Ok(bench.mount.join("in").exists()))?;
    instance.stop()?;
    ensure!(!bench.is_mounted(), "it is still mounted");
    let outcome = shell.wait()?;
    ensure!(outcome.stdout == b"cut off\n", "the shell writes on");
    bench.expect_nothing()
}

#[test]
fn a_supervisor_that_is_killed_takes_its_mounts_with_it() -> Result<()> {
    let Some(bench) = Bench::new("cut")? else { return Ok(()) };
    let _instance = bench.start("both")?;
    let supervisor = process::marked(bench.scratch.mark())
        .into_iter()
        .find(|process| process.command.contains(" __supervise "));
    ensure!(process::kill(supervisor.context("no supervisor")?.pid), "it has ended");
    wait_until("the mount is gone", || Ok(!bench.is_mounted()))?;
    // The directories of a dead instance go when its name is taken again.
    let instance = bench.start("both")?;
    ensure!(bench.is_mounted(), "it is not mounted again");
    bench.finish(&instance)
}

#[test]
fn a_dead_mount_is_found_and_taken_away_by_doctor() -> Result<()> {
    let Some(bench) = Bench::new("doctor")? else { return Ok(()) };
    let _instance = bench.start("both")?;
    let server = server(&bench, &bench.mount)?;
    let supervisor = process::marked(bench.scratch.mark())
        .into_iter()
        .find(|process| process.command.contains(" __supervise "))
        .context("no supervisor")?;
    // Stopped, it cannot clean up after the other; then both are dead.
    process::signal(supervisor.pid, Signal::STOP);
    ensure!(process::kill(server) && process::kill(supervisor.pid), "they have ended");
    wait_until("nobody serves the mount", || {
        Ok(fs::read_dir(&bench.mount).is_err_and(|error| error.raw_os_error() == Some(107)))
    })?;
    let doctor = |clean: &[&str]| {
        let job = Job::new(&bench.scratch, "doctor", binary::mayfly()?).args(["doctor"]);
        job.args(clean).run_ok().map(|end| String::from_utf8_lossy(&end.stdout).into_owned())
    };
    let point = bench.mount.to_string_lossy().into_owned();
    ensure!(doctor(&[])?.contains(&point) && bench.is_mounted(), "doctor does not just look");
    ensure!(doctor(&["--clean"])?.contains(&point) && !bench.is_mounted(), "it is still there");
    let instance = bench.start("preload")?;
    bench.finish(&instance)
}

#[test]
fn a_running_instance_is_mounted_at_a_further_place() -> Result<()> {
    let Some(bench) = Bench::new("further")? else { return Ok(()) };
    let instance = bench.start("preload")?;
    inside(&instance, "echo text > file")?;
    let point = bench.scratch.join("point");
    fs::create_dir(&point)?;
    instance.command("mount").args([&point]).run_ok()?;
    ensure!(fs::read(point.join("file"))? == b"text\n", "the mount shows something else");
    fs::write(point.join("other"), "more\n")?;
    ensure!(inside(&instance, "cat other")? == "more\n", "what was written there is not here");
    let refused = instance.command("mount").args([&point]).run()?;
    ensure!(refused.code != 0, "it was mounted twice at one place");
    let umount = Command::new("umount").arg(&point).status()?;
    ensure!(umount.success(), "umount failed");
    wait_until("status forgets it", || {
        Ok(instance.status()?["mounts"].as_array().is_some_and(Vec::is_empty))
    })?;
    instance.command("mount").args([&point]).run_ok()?;
    bench.finish(&instance)?;
    ensure!(!is_mounted(&point), "it is still mounted after the end");
    Ok(())
}

#[test]
fn run_with_access_auto_mounts_where_that_is_possible() -> Result<()> {
    let Some(bench) = Bench::new("auto")? else { return Ok(()) };
    let script = r#"stat -f -c %T "$MAYFLY_MOUNT"; env -i stat -f -c %T "$0"; exit 3"#;
    let job = Job::new(&bench.scratch, "run", binary::mayfly()?);
    let run = job.args(["run", "--access", "auto", "--mount"]).args([&bench.mount]);
    let outcome = run.args(["--", "bash", "-c", script]).args([&bench.mount]).run()?;
    ensure!(outcome.code == 3, "the status 3 became {}", outcome.code);
    bench.expect_nothing()
}

#[test]
fn status_says_what_auto_took_and_who_has_mounted_it() -> Result<()> {
    let Some(bench) = Bench::new("ways")? else { return Ok(()) };
    if !skip::unless_installed("fuse: ways to mount", &["fusermount3"], "fuse3") {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    for way in ["root", "fusermount3"].into_iter().filter(|way| root || *way != "root") {
        let instance = Instance::named(&bench.scratch, "fuse")?;
        let start = instance.command("start").args(["--access", "auto", "--mount"]);
        start.args([&bench.mount]).env("MAYFLY_MOUNT_BY", way).run_ok()?;
        let status = instance.status()?;
        ensure!(status["access"] == "both", "{way}: auto took {}", status["access"]);
        ensure!(status["mounted_by"] == way, "{way}: mounted by {}", status["mounted_by"]);
        bench.outside("echo through > $M/file; cat $M/file")?;
        bench.finish(&instance)?;
    }
    Ok(())
}
