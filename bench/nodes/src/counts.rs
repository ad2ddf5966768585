//! What goes over the wire: data segments that a node's daemon sends, as the kernel counts them.
//! One process at a time has one frame in each; those of several travel together.

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::Scratch;

use crate::{
    instance::{self, mount},
    placing, processor, report,
};

const OPERATIONS: usize = 400;
const PROCESSES: usize = 8;
const PAYLOAD_BYTES: usize = 8 << 10;
/// Nodes of the instance in which a path is looked up from a node that has never seen it.
const NODES: usize = 8;
const COLD: usize = 3;
/// For what nobody waits for.
const SETTLE: Duration = Duration::from_millis(100);

pub(crate) fn run() -> Result<()> {
    warm()?;
    cold()
}

/// One process, and eight.
fn warm() -> Result<()> {
    let scratch = Scratch::new("nodes-counts")?;
    let instance = instance::start(&scratch, "counts", 2)?;
    let daemon = instance.daemon_pid_of(0)?.to_string();
    let said = instance::child(&instance, 0, &["__counts", "warm", &daemon])?;
    println!("\n| frames that a node sends, an operation at another node |  |\n|---|---:|");
    for line in said.lines() {
        let (name, count) = line.rsplit_once(' ').context("a name and a number")?;
        println!("| {} | {:.2} |", name.replace('_', " "), count.parse::<f64>()?);
    }
    instance.stop()
}

/// The first look at a path, the second, and the first after a rename above it.
fn cold() -> Result<()> {
    let scratch = Scratch::new("nodes-cold")?;
    let instance = instance::start(&scratch, "cold", NODES)?;
    instance::child(&instance, 0, &["__counts", "make"])?;
    let mut words: Vec<String> = vec![instance.daemon_pid_of(COLD)?.to_string()];
    words.extend(instance::processes(&instance)?.iter().map(u32::to_string));
    let look = |top: &str| -> Result<String> {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.splice(0..0, ["__counts", "look", top]);
        instance::child(&instance, COLD, &words)
    };
    let (first, second) = (look("top")?, look("top")?);
    instance::child(&instance, 0, &["__counts", "rename"])?;
    let third = look("moved")?;
    println!(
        "\n| stat of a path of depth | frames sent: first, again, after a rename above | processor \
         time of all nodes, µs |\n|---|---|---|"
    );
    for depth in DEPTHS {
        let of = |what: &str| -> String {
            let numbers = [&first, &second, &third].map(|said| report::numbers(said, what));
            numbers.map(|found| format!("{:.0}", report::median(&found))).join(", ")
        };
        println!(
            "| {depth} | {} | {} |",
            of(&format!("frames-{depth}")),
            of(&format!("time-{depth}"))
        );
    }
    instance.stop()
}

const DEPTHS: [usize; 3] = [1, 5, 20];

/// `top/1/2/…`, so that the file is so many names below the root.
fn deep(top: &str, depth: usize) -> String {
    let below: String = (1..depth).map(|level| format!("/{level}")).collect();
    format!("{top}-{depth}{below}")
}

/// Data segments that the sockets of a process have sent.
fn sent(pid: &str) -> Result<u64> {
    let mut inodes = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        let text = link.to_string_lossy().into_owned();
        inodes.extend(
            text.strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .map(str::to_owned),
        );
    }
    let output = Command::new("ss").args(["-tineHO"]).output().context("ss is in iproute2")?;
    let number = |line: &str, name: &str| -> Option<String> {
        let rest = line.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        Some(rest.to_owned())
    };
    let of = |line: &str| -> Option<u64> {
        let inode = number(line, "ino:")?;
        inodes.contains(&inode).then(|| number(line, "data_segs_out:")?.parse().ok()).flatten()
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(of).sum())
}

/// Prints how much one of `count` operations made the daemon send.
fn counted(pid: &str, name: &str, count: usize, work: impl FnOnce() -> Result<()>) -> Result<()> {
    std::thread::sleep(SETTLE);
    let before = sent(pid)?;
    work()?;
    std::thread::sleep(SETTLE);
    println!("{name} {}", (sent(pid)? - before) as f64 / count as f64);
    Ok(())
}

pub(crate) fn child(what: &str, words: &[&str]) -> Result<()> {
    match (what, words) {
        ("warm", [pid]) => warm_child(pid),
        ("loop", [kind, path]) => repeat(kind, Path::new(path)),
        ("make", []) => {
            for depth in DEPTHS {
                let path = mount()?.join(deep("top", depth));
                fs::create_dir_all(path.parent().context("it is below the mount")?)?;
                File::create(path)?;
            }
            Ok(())
        }
        ("rename", []) => {
            for depth in DEPTHS {
                let of = |top: &str| mount().map(|mount| mount.join(format!("{top}-{depth}")));
                fs::rename(of("top")?, of("moved")?)?;
            }
            Ok(())
        }
        ("look", [top, pid, processes @ ..]) => look_child(top, pid, processes),
        _ => anyhow::bail!("no such role: {what} {words:?}"),
    }
}

fn look_child(top: &str, pid: &str, processes: &[&str]) -> Result<()> {
    let processes: Vec<u32> = processes.iter().map(|pid| pid.parse()).collect::<Result<_, _>>()?;
    for depth in DEPTHS {
        let path = mount()?.join(deep(top, depth));
        counted(pid, &format!("frames-{depth}"), 1, || {
            let before = processor::time_ns(&processes);
            fs::metadata(&path)?;
            let used = processor::time_ns(&processes) - before;
            println!("time-{depth} {}", used as f64 / 1000.0);
            Ok(())
        })?;
    }
    Ok(())
}

fn warm_child(pid: &str) -> Result<()> {
    let directory = mount()?.join("d");
    fs::create_dir(&directory)?;
    let id = fs::metadata(&directory)?.ino();
    let paths: Vec<_> = placing::names_in(id, "f", 1, 2)
        .take(OPERATIONS)
        .map(|name| directory.join(name))
        .collect();
    File::create(directory.join(placing::names_in(id, "first", 1, 2).next().context("endless")?))?;
    let mut files = Vec::new();
    counted(pid, "create", OPERATIONS, || {
        for path in &paths {
            files.push(File::create(path)?);
        }
        Ok(())
    })?;
    counted(pid, "close,_which_nobody_waits_for", OPERATIONS, || {
        files.clear();
        Ok(())
    })?;
    counted(pid, "stat", OPERATIONS, || paths.iter().try_for_each(|path| stat(path)))?;
    let file = File::options().write(true).open(&paths[0])?;
    for offset in 0..PROCESSES * 2 {
        file.write_all_at(&[1; PAYLOAD_BYTES], (offset * PAYLOAD_BYTES) as u64)?;
    }
    let path = paths[0].display().to_string();
    for kind in ["stat", "write", "read"] {
        let name = format!("{kind},_{PROCESSES}_processes");
        counted(pid, &name, PROCESSES * OPERATIONS, || together(kind, &path))?;
    }
    counted(pid, "unlink", OPERATIONS, || Ok(paths.iter().try_for_each(fs::remove_file)?))
}

fn stat(path: &Path) -> Result<()> {
    fs::metadata(path)?;
    Ok(())
}

fn together(kind: &str, path: &str) -> Result<()> {
    let start =
        || Command::new(std::env::current_exe()?).args(["__counts", "loop", kind, path]).spawn();
    let children: Vec<Child> = (0..PROCESSES).map(|_| start()).collect::<Result<_, _>>()?;
    for mut child in children {
        ensure!(child.wait()?.success(), "a process failed");
    }
    Ok(())
}

fn repeat(kind: &str, path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut bytes = [1; PAYLOAD_BYTES];
    for _ in 0..OPERATIONS {
        match kind {
            "stat" => stat(path)?,
            "write" => file.write_all_at(&bytes, 0)?,
            _ => file.read_exact_at(&mut bytes, 0)?,
        }
    }
    Ok(())
}
