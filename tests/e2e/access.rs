//! What a user gets who knows no option: the way in, what lies beneath the mount, exit codes.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{
    Instance, Job, Outcome, Scratch, Turn, binary, leftovers::Before, process, skip,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Runs `script` in a shell that has only evaluated what `mayfly env` prints.
fn after_env(scratch: &Scratch, name: &str, script: &str) -> Result<Outcome> {
    let attach = format!(r#"eval "$("$0" env --name "$1")"; {script}"#);
    let job = Job::new(scratch, "after-env", "bash").args(["-c", &attach]);
    job.args([binary::mayfly()?.as_os_str(), name.as_ref()]).run()
}

#[test]
fn without_an_option_the_shell_that_evaluated_env_writes_itself() -> Result<()> {
    if !skip::unless_mountable("access without an option") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-default")?;
    let instance = Instance::start(&scratch, "plain", &scratch.join("mount"))?;
    let script = r#"echo by-the-shell > "$MAYFLY_MOUNT/file" && cat "$MAYFLY_MOUNT/file""#;
    let outcome = after_env(&scratch, "plain", script)?;
    ensure!(outcome.code == 0 && text(&outcome.stdout) == "by-the-shell", "{outcome:?}");
    ensure!(outcome.stderr.is_empty(), "nothing has to be done: {}", text(&outcome.stderr));
    instance.stop()
}

/// Who evaluated `mayfly env` in his shell, and changed to the mount, had all relative paths of the
/// programs that he started go through the kernel's mount: a create took 100 microseconds there,
/// and 2 where the shell was one of the instance's own.
#[test]
fn programs_that_such_a_shell_starts_in_the_mount_are_served_there() -> Result<()> {
    if !skip::unless_mountable("programs started in the mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-within")?;
    let instance = Instance::start(&scratch, "within", &scratch.join("mount"))?;
    // The further mount is none of the instance's, where there can be one.
    let script = r#"cd "$MAYFLY_MOUNT" && mkdir d other && cd d &&
        bash -c 'for number in $(seq 300); do : > file-$number; done; rm file-7; pwd -P' &&
        ls | wc -l && cd ../other && bash -c 'echo text > file' && cat file &&
        if mount -t tmpfs none . 2> /dev/null; then
            cd "$PWD" && bash -c 'echo beneath > file' && cat "$MAYFLY_MOUNT/other/file"
            cd / && umount "$MAYFLY_MOUNT/other"
        fi"#;
    let outcome = after_env(&scratch, "within", script)?;
    let said = text(&outcome.stdout);
    let mount = scratch.join("mount");
    ensure!(outcome.code == 0, "{outcome:?}");
    ensure!(said.starts_with(&format!("{}/d\n299\ntext", mount.display())), "{said}");
    let report = instance.command("report").args(["--json"]).run_ok()?;
    let report: serde_json::Value = serde_json::from_slice(&report.stdout)?;
    let processes = report["processes"].as_array().context("processes")?;
    let creates = |process: &serde_json::Value| -> u64 {
        let ways = process["operations"]["create"].as_object();
        ways.map_or(0, |ways| ways.values().filter_map(serde_json::Value::as_u64).sum())
    };
    let made = processes.iter().find(|process| creates(process) == 300);
    ensure!(made.is_some_and(|process| process["name"] == "bash"), "{processes:#?}");
    instance.stop()
}

#[test]
fn without_a_mount_env_says_what_to_do_and_mayfly_shell_does_it() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-alone")?;
    let instance = Instance::named(&scratch, "alone")?;
    let started = instance.command("start").args(["--access", "preload"]).run_ok()?;
    for said in [text(&started.stderr), text(&instance.command("env").run_ok()?.stdout)] {
        let helps = said.contains("mayfly shell --name alone") && said.contains(r#"exec "$SHELL""#);
        ensure!(helps, "{said}");
    }
    let script = r#"echo x > "$MAYFLY_MOUNT/file""#;
    let outcome = after_env(&scratch, "alone", script)?;
    ensure!(outcome.code != 0, "the shell is not served: {outcome:?}");
    let program = scratch.join("shell");
    fs::write(&program, format!("#!/bin/sh\n{script}\ncat \"$MAYFLY_MOUNT/file\"\nexit 9\n"))?;
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let inside = instance.command("shell").env("SHELL", program).run()?;
    ensure!(inside.code == 9 && text(&inside.stdout) == "x", "{inside:?}");
    instance.stop()
}

/// What the kernel says in a mount namespace without the mount, and where the mount has died.
const WRITE_BENEATH: &str = r#"
mkdir "$2"
mount --bind / "$2"
for try in 'echo x > file' 'mkdir directory' 'ln -s x link'; do
    if (cd "$2$1" && eval "$try") 2> "$2.err"; then echo "$try: made"; fi
    test -s "$2.err" || echo "$try: said nothing"
done
ls -A "$2$1"
"#;

#[test]
fn nothing_can_be_made_beneath_the_mount() -> Result<()> {
    if !skip::unless_mountable("beneath the mount") || !skip::unless_root("beneath the mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-beneath")?;
    let before = Before::look();
    let users = scratch.join("users");
    fs::create_dir(&users)?;
    for (name, mount) in [("own", scratch.join("made/for/it")), ("users", users.clone())] {
        let instance = Instance::start(&scratch, name, &mount)?;
        instance.shell("write", r#"echo text > "$MAYFLY_MOUNT/kept""#).run_ok()?;
        let seen = Job::new(&scratch, "without", "unshare").args(["-m", "sh", "-c"]);
        let seen = seen.args([WRITE_BENEATH, "sh"]).args([&mount, &scratch.join("bound")]);
        let seen = text(&seen.run_ok()?.stdout);
        ensure!(seen.is_empty(), "{name}: {seen}");
        fs::remove_dir(scratch.join("bound"))?;
        ensure!(fs::read(mount.join("kept"))? == b"text\n", "{name}: the mount is not what it was");
        kill_mount(&scratch, &mount)?;
        ensure!(fs::write(mount.join("file"), "x").is_err(), "{name}: it was written beneath");
        instance.stop()?;
    }
    ensure!(fs::read_dir(&users)?.next().is_none(), "the user's directory is not empty");
    fs::write(users.join("file"), "x").context("the user's directory is not what it was")?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

/// Ends the process of the mount, and waits until nothing is mounted.
fn kill_mount(scratch: &Scratch, mount: &Path) -> Result<()> {
    let all = process::marked(scratch.mark());
    let server = all.iter().find(|process| process.command.contains(" __fuse "));
    ensure!(process::kill(server.context("nothing is mounted")?.pid), "it had gone");
    let deadline = std::time::Instant::now() + PATIENCE;
    while fs::read_link(mount).is_err() {
        ensure!(std::time::Instant::now() < deadline, "the link does not come back");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A row of the table of exit codes: the arguments behind `mayfly`, and the status.
const EXIT_CODES: [(&[&str], i32); 8] = [
    (&["run", "--", "true"], 0),
    (&["run", "--", "sh", "-c", "exit 7"], 7),
    (&["run", "--", "sh", "-c", "kill -KILL $$"], 137),
    (&["run", "--", "sh", "-c", "kill -TERM $$"], 143),
    (&["run", "--", "no-such-program"], 127),
    (&["run", "--", "/etc/passwd"], 126),
    (&["stop", "--name", "nobody"], 1),
    (&["run", "--no-such-option"], 2),
];

#[test]
fn exit_codes_are_those_of_the_table() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-codes")?;
    for (arguments, code) in EXIT_CODES {
        let outcome = Job::new(&scratch, "coded", binary::mayfly()?).args(arguments).run()?;
        let error = text(&outcome.stderr);
        ensure!(outcome.code == code, "{arguments:?}: {}, not {code}\n{error}", outcome.code);
    }
    Ok(())
}

#[test]
fn a_command_whose_output_nobody_reads_on_ends_without_a_word() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-reader")?;
    let script = "{ sleep 0.3; \"$0\" status; echo $? >&2; } | true";
    let job = Job::new(&scratch, "unread", "bash").args(["-c", script]).args([binary::mayfly()?]);
    let outcome = job.run_ok()?;
    // 128 and the number of SIGPIPE.
    ensure!(text(&outcome.stderr).trim() == "141", "{}", text(&outcome.stderr));
    Ok(())
}

/// A static program with a note as Go's linker writes it.
const LIKE_GOS: &str = r#"
#include <unistd.h>
__asm__(".section .note.go.buildid,\"a\",@note\n.long 4, 4, 4\n"
        ".ascii \"Go\\0\\0\"\n.long 0\n.text");
int main(int c, char **v) { return access(v[c - 1], 0) ? 9 : 0; }
"#;

#[test]
fn a_go_program_that_would_not_find_the_instance_is_named_once() -> Result<()> {
    if !skip::unless_installed("access: programs like Go's", &["gcc"], "gcc libc6-dev") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("access-static")?;
    let (source, program) = (scratch.join("look.c"), scratch.join("look"));
    fs::write(&source, LIKE_GOS)?;
    let compile = Job::new(&scratch, "cc", "gcc").args(["-static", "-o"]);
    compile.args([&program, &source]).run_ok()?;
    let script = r#"echo text > "$MAYFLY_MOUNT/file"; "$LOOK" /; "$LOOK" "$MAYFLY_MOUNT/file"
                    first=$?; (cd "$MAYFLY_MOUNT"; "$LOOK" file); exit $((first * 10 + $?))"#;
    for (access, code, times) in [("preload", 99, 1), ("auto", 0, 0)] {
        if access == "auto" && !skip::unless_mountable("access: programs like Go's in a mount") {
            continue;
        }
        let job = Job::new(&scratch, "run", binary::mayfly()?).env("LOOK", &program);
        let seen = job.args(["run", "--access", access, "--", "sh", "-c", script]).run()?;
        let told = text(&seen.stderr);
        let message = format!("mayfly: {} is not served", program.display());
        ensure!(seen.code == code && told.matches(&message).count() == times, "{seen:?}");
    }
    Ok(())
}
