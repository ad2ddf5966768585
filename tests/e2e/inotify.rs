//! inotify on what is in the instance: the kernel's events, in the kernel's order, for what
//! processes of the node do, whatever the access, the shards and the nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};
use mayfly_tests::mount::wait_until;

const DEADLINE: Duration = Duration::from_secs(120);

/// Prints what it is told of the directory `$1` until a file `end` is made there.
const LISTEN: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.inotify_init1(0)
assert libc.inotify_add_watch(queue, os.fsencode(sys.argv[1]), 0x3ce) > 0, ctypes.get_errno()
print('listens', flush=True)
while True:
    data = os.read(queue, 65536)
    while data:
        number, mask, cookie, length = struct.unpack_from('iIII', data)
        name, data = data[16:16 + length].rstrip(b'\0').decode(), data[16 + length:]
        if name == 'end':
            sys.exit()
        print(f'{mask:x} {name}', flush=True)
";

fn program() -> PathBuf {
    binary::workspace().join("tests/apps/watches.py")
}

fn listener(scratch: &Scratch) -> Result<PathBuf> {
    let path = scratch.join("listen.py");
    fs::write(&path, LISTEN)?;
    Ok(path)
}

fn start<'a>(scratch: &'a Scratch, options: &[&str]) -> Result<Instance<'a>> {
    Instance::start_with(scratch, "inotify", &scratch.join("mount"), options)
}

/// The run directories of the instance's nodes.
fn run_dirs(scratch: &Scratch) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![scratch.path().to_owned()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.file_name().is_some_and(|name| name == "ofd") {
                found.push(directory.clone());
            } else if path.is_dir() && !path.is_symlink() && path != scratch.join("mount") {
                left.push(path);
            }
        }
    }
    found
}

/// Files that stand for watched ones, in all run directories.
fn standing(scratch: &Scratch) -> usize {
    let count = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().count();
    let kinds = ["watched/directories", "watched/files", "watched/names"];
    run_dirs(scratch).iter().flat_map(|run| kinds.map(|kind| count(run.join(kind)))).sum()
}

/// The step and the lines around the first one that is not the same in both, if any.
fn difference(told: &str, seen: &str) -> Option<String> {
    let (told, seen): (Vec<&str>, Vec<&str>) = (told.lines().collect(), seen.lines().collect());
    let longer = told.len().max(seen.len());
    let at = (0..longer).find(|&at| told.get(at) != seen.get(at))?;
    let step = told[..at].iter().rfind(|line| !line.starts_with(' ')).unwrap_or(&"the first step");
    let around = |lines: &[&str]| lines[at.min(lines.len())..lines.len().min(at + 8)].join("\n");
    Some(format!(
        "after `{step}`, natively:\n{}\nin the instance:\n{}",
        around(&told),
        around(&seen)
    ))
}

/// The program that takes each step gets the same events natively and in an instance that is
/// started with these options.
fn tells_the_same(options: &[&str]) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("inotify")?;
    let native = scratch.join("native");
    fs::create_dir(&native)?;
    let counts = scratch.join("counts");
    let job = Job::new(&scratch, "native", "python3").args([&program(), &native, &counts]);
    let told = job.deadline(DEADLINE).run_ok()?.stdout;
    let instance = start(&scratch, options)?;
    let (program, counts) = (program().display().to_string(), counts.display());
    let script = format!("python3 {program} \"$MAYFLY_MOUNT\" {counts}");
    let seen = instance.shell("watches", &script).deadline(DEADLINE).run_ok()?.stdout;
    let (told, seen) = (String::from_utf8_lossy(&told), String::from_utf8_lossy(&seen));
    ensure!(told.contains("by four 400"), "the program came to its end: {told}");
    if let Some(difference) = difference(&told, &seen) {
        bail!("{options:?}: {difference}");
    }
    instance.stop()
}

#[test]
fn the_instance_tells_what_the_kernel_tells() -> Result<()> {
    tells_the_same(&["--access", "preload"])
}

#[test]
fn the_instance_tells_what_the_kernel_tells_where_it_is_mounted() -> Result<()> {
    tells_the_same(&[])
}

#[test]
fn three_shards_tell_what_the_kernel_tells() -> Result<()> {
    tells_the_same(&["--shards", "3", "--access", "preload"])
}

#[test]
fn four_nodes_tell_what_the_kernel_tells_of_their_own_processes() -> Result<()> {
    tells_the_same(&["--nodes", "local:4"])
}

/// Who writes through the mount, from outside, is heard by a program that is served.
#[test]
fn what_the_mount_is_used_for_is_told() -> Result<()> {
    if !skip::unless_mountable("inotify and the mount") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("inotify")?;
    let instance = start(&scratch, &[])?;
    let directory = scratch.join("mount/dir");
    fs::create_dir(&directory)?;
    let script = format!("exec python3 {} {}", listener(&scratch)?.display(), directory.display());
    let listening = instance.shell("listen", &script).deadline(DEADLINE).start()?;
    let place = |name: &str| directory.join(name);
    wait_until("somebody watches", || Ok(standing(&scratch) > 0))?;
    // It is between the file that stands for the directory and its watch now.
    sleep(Duration::from_millis(300));
    fs::write(place("a"), "text")?;
    fs::rename(place("a"), place("b"))?;
    fs::remove_file(place("b"))?;
    fs::create_dir(place("c"))?;
    fs::remove_dir(place("c"))?;
    fs::write(place("end"), "")?;
    let heard = listening.wait()?;
    let heard = String::from_utf8_lossy(&heard.stdout).into_owned();
    let expected = "listens\n100 a\n2 a\n8 a\n40 a\n80 b\n200 b\n40000100 c\n40000200 c\n";
    ensure!(heard == expected, "heard {heard}");
    instance.stop()
}

/// The kernel's files go when nobody watches any more, whichever way the watchers ended, and come
/// again for the next one; a daemon that was killed meanwhile makes no difference.
#[test]
fn what_stands_for_watched_files_goes_with_those_who_watch() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("inotify")?;
    let instance = start(&scratch, &["--access", "preload"])?;
    let script = "cd \"$MAYFLY_MOUNT\"; mkdir dir; for n in 1 2 3; do echo $n > dir/$n; done";
    instance.shell("make", script).run_ok()?;
    for end in [process::kill, process::terminate] {
        let script = format!(
            "python3 {} \"$MAYFLY_MOUNT/dir\" > {} & echo $! > {}; wait; true",
            listener(&scratch)?.display(),
            scratch.join("heard").display(),
            scratch.join("pid").display()
        );
        let listening = instance.shell("listen", &script).deadline(DEADLINE).start()?;
        let heard = || fs::read_to_string(scratch.join("heard")).unwrap_or_default();
        wait_until("it listens", || Ok(heard().contains("listens")))?;
        ensure!(standing(&scratch) == 4, "a directory and a link for each of three names");
        ensure!(process::kill(instance.daemon_pid()?), "the daemon is killed");
        instance.shell("use", "cd \"$MAYFLY_MOUNT/dir\"; echo 4 > 4; rm 4").run_ok()?;
        wait_until(
            "it is told",
            || Ok(heard().contains("100 4\n") && heard().contains("200 4\n")),
        )?;
        let pid = fs::read_to_string(scratch.join("pid"))?.trim().parse().context("a process")?;
        ensure!(end(pid), "the listener is there");
        listening.wait()?;
        wait_until("nothing is left", || Ok(standing(&scratch) == 0))?;
        fs::remove_file(scratch.join("heard"))?;
    }
    instance.stop()
}

#[test]
fn a_directory_with_too_many_names_is_not_watched() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("inotify")?;
    let instance = start(&scratch, &["--access", "preload"])?;
    let script = r"
import ctypes, errno, os
os.chdir(os.environ['MAYFLY_MOUNT']); os.mkdir('full'); os.mkdir('other')
for n in range(65536): os.close(os.open(f'full/{n}', os.O_CREAT))
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.inotify_init1(0)
assert libc.inotify_add_watch(queue, b'full', 0x100) > 0, ctypes.get_errno()
os.rename('full/1', 'other/1'); os.rename('other', 'full/other')
os.close(os.open('full/one-more', os.O_CREAT))
assert libc.inotify_add_watch(libc.inotify_init1(0), b'full', 0x100) > 0, 'it is watched'
assert libc.inotify_add_watch(queue, b'missing', 0x100) < 0
os.mkdir('more')
for n in range(65537): os.close(os.open(f'more/{n}', os.O_CREAT))
assert libc.inotify_add_watch(queue, b'more', 0x100) < 0
assert ctypes.get_errno() == errno.ENOSPC, ctypes.get_errno()
";
    let path = scratch.join("full.py");
    fs::write(&path, script)?;
    let script = format!("python3 {}", path.display());
    instance.shell("full", &script).deadline(DEADLINE).run_ok()?;
    instance.stop()
}

/// It looks at the file system's type first, and polls where it does not know it: which finds a
/// new file under the name after five times a second. So it does over several nodes, of which the
/// others tell nothing.
#[test]
fn tail_waits_for_a_log_by_inotify_where_it_is_told_everything() -> Result<()> {
    for (options, by_inotify) in
        [(&["--access", "preload"][..], true), (&["--nodes", "local:2"][..], false)]
    {
        let _turn = Turn::take()?;
        let scratch = Scratch::new("inotify")?;
        let instance = start(&scratch, options)?;
        let (out, pid) = (scratch.join("out"), scratch.join("pid"));
        let script = format!(
            "cd \"$MAYFLY_MOUNT\"; echo one > log; tail -n +1 -F log > {} 2>&1 & echo $! > {}; \
             wait; true",
            out.display(),
            pid.display()
        );
        let tail = instance.shell("tail", &script).deadline(DEADLINE).start()?;
        let said = || fs::read_to_string(&out).unwrap_or_default();
        wait_until("the first line", || Ok(said().contains("one")))?;
        let number = fs::read_to_string(&pid)?.trim().parse().context("a process")?;
        if by_inotify {
            wait_until("it watches", || Ok(watches(number)))?;
        }
        let rotate = "cd \"$MAYFLY_MOUNT\"; echo two >> log; mv log log.1; echo three > log";
        instance.shell("rotate", rotate).run_ok()?;
        wait_until("the line of the new file", || Ok(said().contains("three")))?;
        ensure!(watches(number) == by_inotify, "{options:?}: tail's way of waiting");
        ensure!(process::kill(number), "tail is there");
        tail.wait()?;
        instance.stop()?;
    }
    Ok(())
}

/// Has the process an inotify descriptor with a watch?
fn watches(pid: u32) -> bool {
    let infos = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fdinfo"));
    infos
        .into_iter()
        .flatten()
        .flatten()
        .any(|info| fs::read_to_string(info.path()).is_ok_and(|text| text.contains("inotify wd")))
}
