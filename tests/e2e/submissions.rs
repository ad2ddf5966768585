//! What is submitted is seen by everybody at once, and nothing of it is lost.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Outcome, Scratch, Turn};

const PATIENCE: Duration = Duration::from_secs(10);

fn posted(instance: &Instance<'_>) -> Result<u64> {
    let status = instance.status()?;
    status["posted"].as_u64().with_context(|| format!("nothing is said of posts: {status}"))
}

/// How often an operation was asked for.
fn asked(instance: &Instance<'_>, op: &str) -> Result<u64> {
    let told = String::from_utf8(instance.command("metrics").run_ok()?.stdout)?;
    let op = format!(r#"op="{op}""#);
    let is_it = |line: &&str| line.starts_with("mayfly_answers_total") && line.contains(&op);
    let Some(line) = told.lines().find(is_it) else { return Ok(0) };
    let value = line.rsplit(' ').next().context("a line of a metric has a value")?;
    Ok(value.parse::<f64>()? as u64)
}

/// Runs parts of `apps/submissions.py`.
fn run(instance: &Instance<'_>, label: &str, parts: &str) -> Result<Outcome> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/submissions.py");
    let command =
        r#"at="$MAYFLY_MOUNT/$LABEL"; mkdir "$at" && exec python3 "$PROGRAM" "$at" $PARTS"#;
    let job = instance.shell(label, command).env("PROGRAM", &program).env("LABEL", label);
    job.env("PARTS", parts).run_ok()
}

fn holds(parts: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("posted")?;
    let instance = Instance::start(&scratch, "posted", &scratch.join("mount"))?;
    run(&instance, "once", parts)?;
    let posted = posted(&instance)?;
    ensure!(posted >= 20, "only {posted} files were made without waiting: this tests nothing");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn what_was_submitted_is_seen_by_every_process_at_once() -> Result<()> {
    holds("seen_at_once many")
}

#[test]
fn a_name_is_made_once_whoever_makes_it() -> Result<()> {
    holds("made_once removed_and_made_again")
}

#[test]
fn of_several_who_make_or_remove_a_name_one_does() -> Result<()> {
    holds("raced")
}

#[test]
fn directories_come_and_go_for_every_process_at_once() -> Result<()> {
    holds("directories")
}

#[test]
fn a_directory_is_removed_or_has_what_is_made_in_it() -> Result<()> {
    holds("rivals")
}

#[test]
fn trees_come_and_go_for_every_process_at_once() -> Result<()> {
    holds("trees")
}

#[test]
fn of_several_who_make_and_remove_a_tree_each_has_done_what_he_was_told() -> Result<()> {
    holds("forest")
}

#[test]
fn a_name_that_was_removed_is_gone_for_every_process_at_once() -> Result<()> {
    holds("gone_at_once")
}

#[test]
fn what_is_written_to_a_file_that_was_submitted_is_there_for_every_process_at_once() -> Result<()> {
    holds("written limited")
}

#[test]
fn a_file_that_outgrows_its_record_is_whole_for_every_process_at_once() -> Result<()> {
    holds("outgrown")
}

#[test]
fn a_file_that_is_overwritten_has_the_new_bytes_for_every_process_at_once() -> Result<()> {
    holds("overwritten overwritten_by_several copied_over")
}

#[test]
fn what_a_killed_process_had_overwritten_and_closed_is_there() -> Result<()> {
    holds("overwriter_killed")
}

#[test]
fn a_file_that_is_appended_to_and_cut_is_so_for_every_process_at_once() -> Result<()> {
    holds("appended appended_by_several unwritten")
}

#[test]
fn what_programs_append_and_overwrite_is_there() -> Result<()> {
    holds("programs locked onto_itself")
}

#[test]
fn what_a_killed_process_had_appended_and_closed_is_there() -> Result<()> {
    holds("appender_killed")
}

/// A shell's `>` over a small file waited four times.
#[test]
fn a_program_that_overwrites_small_files_asks_nobody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("overwritten")?;
    let instance = Instance::start(&scratch, "overwritten", &scratch.join("mount"))?;
    let script = r#"cd "$MAYFLY_MOUNT" && mkdir from to
for i in $(seq 300); do echo first $i > to/f$i; done
for i in $(seq 300); do echo second $i > to/f$i; done
for i in $(seq 300); do echo third $i > from/f$i; done && cp -r from/. to
for i in $(seq 300); do read -r x < to/f$i; [ "$x" = "third $i" ] || exit 1; done"#;
    instance.shell("write", r#"bash -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let waited = [asked(&instance, "open")?, asked(&instance, "write")?, asked(&instance, "stat")?];
    ensure!(waited.iter().all(|waited| *waited < 300), "{waited:?} of 600 were asked for");
    instance.stop()
}

/// A line that a shell or Python appends, and a file that is overwritten in place or cut, waited
/// three to six times.
#[test]
fn a_program_that_appends_to_small_files_and_cuts_them_asks_nobody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("appended")?;
    let instance = Instance::start(&scratch, "appended", &scratch.join("mount"))?;
    let script = r#"cd "$MAYFLY_MOUNT" && mkdir d && exec 9>> open_all_the_time
for i in $(seq 300); do echo first $i > d/f$i; done
for i in $(seq 300); do echo second $i >> d/f$i; echo $i >> d/log; done
python3 -c "$PYTHON" && truncate -s 8 d/f*
for i in $(seq 300); do read -r x < d/f$i; [ "$x" = "FIRST $i" ] || [ $i -gt 9 ] || exit 1; done
[ "$(wc -l < d/log)" = 300 ] && [ "$(tail -n 1 d/f7)" = "FIRST 7" ]"#;
    let python = r#"for i in range(1, 301):
    with open(f'd/f{i}', 'r+') as f:
        text = f.read()
        f.seek(0)
        f.write(text.upper())
        f.truncate()
    with open(f'd/f{i}', 'a') as f: f.write('third\n')
"#;
    let program = instance.shell("append", r#"bash -c "$SCRIPT""#).env("SCRIPT", script);
    program.env("PYTHON", python).run_ok()?;
    let ops = ["open", "write", "stat", "set_attr", "close"];
    let waited = ops.map(|op| asked(&instance, op));
    let waited = waited.into_iter().collect::<Result<Vec<u64>>>()?;
    // Of some 6,000; more on a busy machine, where what waits is executed before it is closed.
    let sum: u64 = waited.iter().sum();
    ensure!(sum < 2500, "{ops:?}: {waited:?} were asked for");
    instance.stop()
}

/// `tar x` waited for each of its files of more than 4 KiB, and for nothing else.
#[test]
fn a_program_that_makes_files_of_more_than_a_record_takes_asks_nobody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("outgrown")?;
    let instance = Instance::start(&scratch, "outgrown", &scratch.join("mount"))?;
    let script = r#"import os
d = os.environ['MAYFLY_MOUNT']
for i in range(300):
    fd = os.open(f'{d}/f{i}', os.O_CREAT | os.O_WRONLY)
    for _ in range(3): os.write(fd, b'x' * 8000)
    os.utime(fd, (1_000_000_000, 1_000_000_000))
    os.close(fd)
"#;
    instance.shell("make", r#"python3 -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let asked = asked(&instance, "grant")?;
    ensure!(asked < 60, "{asked} of 300 files were asked for");
    instance.stop()
}

/// `git add` waited for each of its objects.
#[test]
fn a_program_that_links_and_moves_its_files_asks_nobody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("linked")?;
    let instance = Instance::start(&scratch, "linked", &scratch.join("mount"))?;
    let script = r#"import os
d = os.environ['MAYFLY_MOUNT'] + '/objects'
os.mkdir(d)
for n in range(8): os.mkdir(f'{d}/{n}')
for i in range(400):
    fd = os.open(f'{d}/{i % 8}/tmp', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
    os.write(fd, b'x' * 1000)
    os.close(fd)
    os.link(f'{d}/{i % 8}/tmp', f'{d}/{i % 8}/o{i}')
    os.unlink(f'{d}/{i % 8}/tmp')
    os.rename(f'{d}/{i % 8}/o{i}', f'{d}/{(i + 1) % 8}/moved{i}')
"#;
    instance.shell("make", r#"python3 -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let waited = [asked(&instance, "link")?, asked(&instance, "rename")?];
    ensure!(waited.iter().all(|waited| *waited < 40), "of 400 files {waited:?} were asked for");
    instance.stop()
}

/// `tar x` over a tree asked for each name that was there, and `git add` for each file of the work
/// tree while an object waited.
#[test]
fn what_nothing_waits_about_is_known_without_asking() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("beside")?;
    let instance = Instance::start(&scratch, "beside", &scratch.join("mount"))?;
    let script = r#"import os
os.chdir(os.environ['MAYFLY_MOUNT'])
for d in ('tree', 'objects'):
    os.mkdir(d)
    for i in range(300): os.close(os.open(f'{d}/f{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
for i in range(300):
    assert os.stat(f'tree/f{i}').st_nlink == 1
    try: os.open(f'objects/f{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError: pass
    else: raise AssertionError(i)
    open(f'tree/f{i}').close()
    os.unlink(f'objects/f{i}')
    assert not os.path.exists(f'objects/f{i}') and not os.path.exists(f'tree/none{i}')
"#;
    instance.shell("make", r#"python3 -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let waited = [asked(&instance, "open")?, asked(&instance, "stat")?];
    ensure!(waited.iter().all(|waited| *waited < 150), "{waited:?} of 900 were asked for");
    instance.stop()
}

#[test]
fn what_is_told_of_files_that_wait_is_so_for_every_process() -> Result<()> {
    holds("temporary extended nowhere")
}

/// `rsync` had nine requests for each file, `cp -a` eight, `git add` two for each directory of
/// objects, and Python's `tempfile` one for each file.
#[test]
fn tools_ask_for_little() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tools")?;
    let instance = Instance::start(&scratch, "tools", &scratch.join("mount"))?;
    let script = r#"import os, subprocess
os.chdir(os.environ['MAYFLY_MOUNT'])
os.mkdir('from'), os.mkdir('to'), os.mkdir('objects')
for i in range(300):
    with open(f'from/f{i}', 'w') as f: f.write('x' * 1000)
subprocess.run(['cp', '-a', 'from', 'copied'], check=True)
os.chdir('to')
for i in range(300):
    fd = os.open(f'.f{i}', os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.fchmod(fd, 0o600)
    os.write(fd, b'x' * 1000)
    os.close(fd)
    assert os.stat(f'.f{i}').st_size == 1000
    os.rename(f'.f{i}', f'f{i}')
    assert os.getcwd().endswith('/to')
os.chdir('../objects')
for i in range(300):
    assert not os.path.exists(f'{i}/f')
    try: os.open(f'{i}/f', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileNotFoundError: os.mkdir(str(i))
    os.close(os.open(f'{i}/f', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
"#;
    instance.shell("make", r#"python3 -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let ops = ["open", "close", "stat", "write", "path_of", "list_xattr", "get_xattr", "set_xattr"];
    let asked = ops.map(|op| asked(&instance, op));
    let asked = asked.into_iter().collect::<Result<Vec<u64>>>()?;
    // Of some 5,500; more on a busy machine, where what waits is executed before the next look.
    let xattrs: u64 = asked.iter().rev().take(2).sum();
    let sum: u64 = asked.iter().sum();
    ensure!(xattrs < 60 && sum < 3000, "{ops:?}: {asked:?} were asked for");
    instance.stop()
}

/// `git` maps each file of 32 KiB and more, for which it had three requests.
#[test]
fn a_short_private_mapping_shows_the_file_and_asks_nobody() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("shortly")?;
    let instance = Instance::start(&scratch, "shortly", &scratch.join("mount"))?;
    // That of Python keeps a duplicate of the descriptor.
    let script = r#"import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
os.chdir(os.environ['MAYFLY_MOUNT'])
for i in range(40):
    with open(f'f{i}', 'wb') as f: f.write(b'%05d' % i * 8000)
for turn in range(5):
    for i in range(40):
        fd = os.open(f'f{i}', os.O_RDONLY)
        at = libc.mmap(None, 40000, 1, 2, fd, 0)
        os.close(fd)
        if turn == 4: os.unlink(f'f{i}')
        assert ctypes.string_at(at, 40000) == b'%05d' % i * 8000, i
        libc.munmap(at, 40000)
"#;
    instance.shell("map", r#"python3 -c "$SCRIPT""#).env("SCRIPT", script).run_ok()?;
    let asked = asked(&instance, "grant")?;
    ensure!(asked < 60, "{asked} of 200 mappings were asked for");
    instance.stop()
}

#[test]
fn files_that_outgrow_their_records_keep_to_limits_and_threads() -> Result<()> {
    holds("outgrown_at_limits outgrown_by_threads")
}

#[test]
fn a_description_that_was_promised_is_one_as_any_other() -> Result<()> {
    holds("used")
}

#[test]
fn a_directory_that_is_moved_or_removed_takes_its_names_along() -> Result<()> {
    holds("ways")
}

#[test]
fn what_was_submitted_has_the_time_owner_and_name_of_its_making() -> Result<()> {
    holds("times modes")
}

#[test]
fn attributes_that_were_changed_are_seen_by_every_process_at_once() -> Result<()> {
    holds("attributes owners")
}

/// A file was written, its mode was set, and then its times: they were those of the write.
#[test]
fn times_and_modes_that_were_set_stay_until_something_is_written() -> Result<()> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/attributes.py");
    let play =
        r#"for seed in $(seq 20); do python3 "$PROGRAM" "$AT/$seed" "$seed" 300 || exit; done"#;
    let _turn = Turn::take()?;
    let scratch = Scratch::new("attributes")?;
    let natively = scratch.join("native");
    std::fs::create_dir(&natively)?;
    let mut bash = std::process::Command::new("bash");
    let played = bash.args(["-c", play]).env("PROGRAM", &program).env("AT", &natively).status()?;
    ensure!(played.success(), "the program does not hold of a local file system");
    for options in [&[][..], &["--shards", "3"], &["--nodes", "local:4", "--layout", "local"]] {
        let instance = Instance::named(&scratch, "attributes")?;
        instance.command("start").args(options).run_ok()?;
        let command = format!(r#"AT="$MAYFLY_MOUNT"; {play}"#);
        instance.shell("random", &command).env("PROGRAM", &program).run_ok()?;
        instance.expect_nothing_held(PATIENCE)?;
        instance.stop()?;
    }
    Ok(())
}

#[test]
fn a_file_that_takes_the_place_of_another_is_seen_by_every_process_at_once() -> Result<()> {
    holds("replaced")
}

#[test]
fn a_second_name_and_another_directory_are_seen_by_every_process_at_once() -> Result<()> {
    holds("linked")
}

#[test]
fn a_symbolic_link_leads_where_it_says_for_every_process_at_once() -> Result<()> {
    holds("symlinks")
}

#[test]
fn what_a_process_sees_of_a_new_file_is_what_everybody_sees() -> Result<()> {
    holds("looked absent")
}

#[test]
fn a_file_is_copied_without_asking() -> Result<()> {
    holds("copied")
}

#[test]
fn what_a_killed_process_had_submitted_is_there() -> Result<()> {
    holds("killed")
}

#[test]
fn a_daemon_that_is_killed_loses_nothing_that_was_submitted() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("kposted")?;
    let instance = Instance::start(&scratch, "kposted", &scratch.join("mount"))?;
    let kills = instance.beside_kills(|| {
        (0..4).try_for_each(|round| run(&instance, &format!("r{round}"), "").map(drop))
    })?;
    eprintln!("the daemon was killed {kills} times, {} files were posted", posted(&instance)?);
    ensure!(kills >= 3, "only {kills} kills");
    instance.expect_nothing_held(PATIENCE)?;
    instance.stop()
}

#[test]
fn nothing_is_made_after_the_end_of_the_instance() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("posted-end")?;
    let instance = Instance::start(&scratch, "posted-end", &scratch.join("mount"))?;
    let script = r#"import os, sys
d = os.environ['MAYFLY_MOUNT']
for i in range(30): os.close(os.open(f'{d}/a{i}', os.O_CREAT | os.O_WRONLY))
print('ready', flush=True)
sys.stdin.readline()
try: os.open(f'{d}/late', os.O_CREAT | os.O_WRONLY)
except OSError: print('refused', flush=True)
"#;
    let fifo = scratch.join("go");
    let command = r#"mkfifo "$GO"; python3 -c "$SCRIPT" < "$GO""#;
    let job = instance.shell("late", command).env("SCRIPT", script).env("GO", &fifo).start()?;
    let mut go = open_when_there(&fifo)?;
    let output = scratch.join("late.out");
    for _ in 0..500 {
        if std::fs::read(&output)?.starts_with(b"ready") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    instance.stop()?;
    std::io::Write::write_all(&mut go, b"\n")?;
    let outcome = job.wait()?;
    ensure!(outcome.stdout == b"ready\nrefused\n", "{}", String::from_utf8_lossy(&outcome.stdout));
    Ok(())
}

fn open_when_there(fifo: &Path) -> Result<std::fs::File> {
    for _ in 0..500 {
        if fifo.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::OpenOptions::new().write(true).open(fifo).context("the program has not begun")
}
