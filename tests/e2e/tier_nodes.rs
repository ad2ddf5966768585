//! Origins of instances of several nodes: any node sees the same, each tree is fetched by one of
//! them, and what all have changed goes back.

use std::{fs, ops::Deref, path::Path, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, process};

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;

use bench::{Bench, keeper_of, text};

const NODES: usize = 4;
const TREES: usize = 12;
/// More than a small file has.
const LARGE_BYTES: usize = 300_000;

/// Trees with a small file, a large one, and a directory with one more.
fn plant(outside: &Path) -> Result<()> {
    for tree in 0..TREES {
        let tree_dir = outside.join(format!("t{tree}"));
        fs::create_dir_all(tree_dir.join("inner"))?;
        fs::write(tree_dir.join("small"), format!("small {tree}\n"))?;
        fs::write(tree_dir.join("large"), vec![b'a' + tree as u8; LARGE_BYTES])?;
        fs::write(tree_dir.join("inner/file"), format!("inner {tree}\n"))?;
    }
    Ok(())
}

struct Nodes<'a>(Bench<'a>);

impl<'a> Deref for Nodes<'a> {
    type Target = Bench<'a>;

    fn deref(&self) -> &Bench<'a> {
        &self.0
    }
}

impl<'a> Nodes<'a> {
    fn start(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Nodes<'a>> {
        let outside = scratch.join(format!("{name}-outside"));
        plant(&outside)?;
        let instance = Instance::named(scratch, name)?;
        let mount = scratch.join(format!("{name}-mnt"));
        let nodes = format!("local:{NODES}");
        let origin = format!("{}:in", text(&outside)?);
        let start = instance.command("start").args(["--nodes", &nodes, "--origin", &origin]);
        start.args(["--mount", text(&mount)?]).args(options).run_ok()?;
        Ok(Nodes(Bench { scratch, outside, instance }))
    }

    /// What a script prints that works in the directory with the origin, on one node.
    fn on(&self, node: usize, script: &str) -> Result<String> {
        self.instance.on_node(node, &format!("cd \"$MAYFLY_MOUNT/in\" && {{ {script}\n}}"))
    }

    fn expect(&self, node: usize, script: &str, wanted: &str) -> Result<()> {
        let got = self.on(node, script)?;
        ensure!(got == wanted, "node {node}: {script}: {got:?}, not {wanted:?}");
        Ok(())
    }

    /// What a command of the tier says.
    fn tier(&self, arguments: &[&str]) -> Result<String> {
        let outcome = self.0.tier(arguments)?.run_ok()?;
        let both = [outcome.stdout, outcome.stderr].concat();
        Ok(String::from_utf8_lossy(&both).into_owned())
    }

    /// Which nodes have read or written something outside, by their keepers' own counts.
    fn nodes_that_worked(&self) -> Result<usize> {
        let mut worked = 0;
        for node in 0..NODES {
            let daemon = self.instance.daemon_pid_of(node)?;
            let supervisor = process::parent(daemon).context("a daemon has a supervisor")?;
            let keeper = keeper_of(supervisor).context("a node has a keeper")?;
            let io = fs::read_to_string(format!("/proc/{keeper}/io"))?;
            let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
            let read: u64 = read.context("a process tells what it has read")?.trim().parse()?;
            worked += usize::from(read >= LARGE_BYTES as u64);
        }
        Ok(worked)
    }
}

const READ_ALL: &str =
    "find . | LC_ALL=C sort | cksum; cat t*/small t*/inner/file t*/large | cksum";

#[test]
fn all_nodes_see_the_same_and_each_file_is_fetched_once_by_the_node_that_has_it() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-read")?;
    let nodes = Nodes::start(&scratch, "read", &["--validate", "never"])?;
    let script = format!("cd {} && {{ {READ_ALL}; }}", text(&nodes.outside)?);
    let natively = Job::new(&scratch, "natively", "bash").args(["-c", &script]).run_ok()?;
    let wanted = String::from_utf8_lossy(&natively.stdout).trim().to_owned();
    let (nodes, wanted) = (&nodes, &wanted);
    thread::scope(|scope| {
        let read = |node| scope.spawn(move || nodes.expect(node, READ_ALL, wanted));
        let reads: Vec<_> = (0..NODES).map(read).collect();
        reads.into_iter().try_for_each(|read| read.join().unwrap_or_else(|_| bail!("it panicked")))
    })?;
    let small = |word: &str| (0..TREES).map(|tree| format!("{word} {tree}\n").len()).sum::<usize>();
    let bytes = TREES * LARGE_BYTES + small("small") + small("inner");
    ensure!(nodes.origin("cached_bytes")? == bytes as u64, "{}", nodes.tier(&["status"])?);
    let worked = nodes.nodes_that_worked()?;
    ensure!(worked > 1, "{worked} of {NODES} nodes have fetched something");
    // What was read is read again without the origin.
    for tree in 0..TREES {
        fs::write(nodes.outside.join(format!("t{tree}/small")), "other\n")?;
    }
    nodes.expect(2, READ_ALL, wanted)?;
    let told = nodes.tier(&["evict"])?;
    ensure!(told.contains(&format!("bytes of {TREES} files")), "{told}");
    nodes.expect(3, "cat t*/large | wc -c", &(TREES * LARGE_BYTES).to_string())?;
    nodes.instance.stop()
}

#[test]
fn what_every_node_has_changed_goes_back_and_is_seen_by_all_before() -> Result<()> {
    changed_by_every_node("through")
}

#[test]
fn that_is_so_when_names_are_changed_outside_later() -> Result<()> {
    changed_by_every_node("async")
}

fn changed_by_every_node(names: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-write")?;
    let nodes = Nodes::start(&scratch, "write", &["--shards", "2", "--names", names])?;
    for node in 0..NODES {
        nodes.on(
            node,
            &format!(
                "for t in t*; do echo {node} >> $t/small; echo new > $t/new{node}; done; \
                 mkdir made{node} made{node}/below; echo x > made{node}/below/file; \
                 mv made{node}/below made{node}/moved; mv made{node} named{node}; \
                 ln -s small t0/link{node}; chmod 600 t{node}/large; \
                 mv t{node}/inner t{node}/gone; \
                 rm -r t{}; printf y | dd of=t{node}/large bs=1 seek=7 conv=notrunc 2>/dev/null",
                TREES - 1 - node
            ),
        )?;
    }
    for node in 0..NODES {
        nodes.expect(
            node,
            "cat t4/small named3/moved/file t1/gone/file; readlink t0/link2",
            "small 4\n0\n1\n2\n3\nx\ninner 1\nsmall",
        )?;
        nodes.expect(node, "ls -d t* | wc -l; head -c 9 t2/large", "8\ncccccccyc")?;
    }
    let dirty = nodes.origin("dirty_files")?;
    ensure!(dirty > TREES as u64, "{dirty} dirty files");
    let told = nodes.tier(&["flush"])?;
    ensure!(told.contains(&format!("{dirty} files were written back")), "{told}");
    ensure!(nodes.origin("dirty_files")? == 0);
    ensure!(nodes.outside("t4/small")? == "small 4\n0\n1\n2\n3\n");
    ensure!(nodes.outside("named3/moved/file")? == "x\n");
    ensure!(nodes.outside("t3/gone/file")? == "inner 3\n");
    ensure!(nodes.outside("t2/large")?.starts_with("cccccccyc"));
    ensure!(!nodes.outside.join("t11").exists() && !nodes.outside.join("made1").exists());
    nodes.on(1, "echo last >> t5/small")?;
    nodes.instance.command("fsck").run_ok()?;
    nodes.instance.stop()?;
    ensure!(nodes.outside("t5/small")?.ends_with("3\nlast\n"), "the stop did not flush");
    Ok(())
}

#[test]
fn what_others_change_outside_is_seen_by_each_node_at_once_if_that_is_asked_for() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-seen")?;
    let nodes = Nodes::start(&scratch, "seen", &["--validate", "always"])?;
    for node in 0..NODES {
        nodes.on(node, READ_ALL)?;
    }
    for round in 0..3 {
        let before = format!("t{}", round + 4);
        fs::write(nodes.outside.join("t1/small"), format!("changed {round}\n"))?;
        fs::write(nodes.outside.join("t2/inner/added"), format!("{round}\n"))?;
        fs::rename(nodes.outside.join(&before), nodes.outside.join(format!("m{round}")))?;
        fs::remove_file(nodes.outside.join(format!("t{round}/large")))?;
        for node in 0..NODES {
            let gone = format!("ls -d {before} 2>/dev/null || echo none");
            nodes.expect(node, &gone, "none")?;
            nodes.expect(node, &format!("ls t{round}"), "inner\nsmall")?;
            nodes.expect(
                node,
                &format!("cat t1/small t2/inner/added m{round}/inner/file"),
                &format!("changed {round}\n{round}\ninner {}", round + 4),
            )?;
        }
    }
    // A directory that becomes a file, and a file that becomes a directory.
    fs::remove_dir_all(nodes.outside.join("t9"))?;
    fs::write(nodes.outside.join("t9"), "a file\n")?;
    fs::remove_file(nodes.outside.join("t8/small"))?;
    fs::create_dir(nodes.outside.join("t8/small"))?;
    for node in 0..NODES {
        nodes.expect(node, "cat t9; ls t8/small; stat -c %F t8/small", "a file\ndirectory")?;
    }
    nodes.instance.command("fsck").run_ok()?;
    nodes.instance.stop()
}

#[test]
fn nothing_is_lost_while_daemons_of_nodes_are_killed() -> Result<()> {
    worked_while_daemons_are_killed("through")
}

#[test]
fn nor_of_names_that_are_changed_outside_later() -> Result<()> {
    worked_while_daemons_are_killed("async")
}

fn worked_while_daemons_are_killed(names: &str) -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-kills")?;
    let nodes = Nodes::start(&scratch, "kills", &["--names", names])?;
    let work = |node: usize| {
        nodes.on(
            node,
            &format!(
                "for i in $(seq 1 25); do \
                 for t in t*; do echo {node}.$i >> $t/log{node} || exit 1; \
                 cmp -n 1000 $t/large $t/large || exit 1; done; mkdir d{node}.$i || exit 1; \
                 mv t3/log{node} t3/log{node}.now && mv t3/log{node}.now t3/log{node} || exit 1; \
                 done"
            ),
        )
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    let kills = thread::scope(|scope| {
        let killing = scope.spawn(|| {
            let mut kills = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(700));
                let daemon = nodes.instance.daemon_pid_of(kills % NODES);
                kills += usize::from(daemon.is_ok_and(process::kill));
            }
            kills
        });
        let work = &work;
        let jobs: Vec<_> = (0..2).map(|node| scope.spawn(move || work(node))).collect();
        let ended: Vec<Result<String>> = jobs
            .into_iter()
            .map(|job| job.join().unwrap_or_else(|_| bail!("it panicked")))
            .collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let kills = killing.join().unwrap_or(0);
        ended.into_iter().collect::<Result<Vec<_>>>().map(|_| kills)
    })?;
    ensure!(kills > 0, "nobody was killed");
    nodes.instance.stop()?;
    for node in 0..2 {
        let wanted: String = (1..=25).map(|i| format!("{node}.{i}\n")).collect();
        for tree in 0..TREES {
            let found = nodes.outside(&format!("t{tree}/log{node}"))?;
            ensure!(found == wanted, "t{tree}/log{node}: {found:?}");
        }
        ensure!(nodes.outside.join(format!("d{node}.25")).is_dir());
    }
    Ok(())
}

#[test]
fn an_instance_whose_files_cannot_be_written_back_goes_on_until_they_are() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-stay")?;
    let nodes = Nodes::start(&scratch, "stay", &[])?;
    nodes.on(1, "for t in t*; do echo precious > $t/small; done")?;
    let (there, away) = (nodes.outside.join("t7"), nodes.outside.join("../away"));
    fs::rename(&there, &away)?;
    let outcome = nodes.instance.command("stop").run()?;
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code != 0 && told.contains("could not be written back"), "{told}");
    ensure!(told.contains("t7/small") && told.contains("goes on"), "{told}");
    ensure!(nodes.origin("dirty_files")? == 1, "{}", nodes.tier(&["status"])?);
    fs::rename(&away, &there)?;
    nodes.instance.stop()?;
    for tree in 0..TREES {
        ensure!(nodes.outside(&format!("t{tree}/small"))? == "precious\n", "t{tree}/small");
    }
    Ok(())
}

#[test]
fn files_are_prefetched_pinned_and_flushed_and_an_origin_is_unlinked_at_all_nodes() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-nodes-verbs")?;
    let nodes = Nodes::start(&scratch, "verbs", &["--validate", "never", "--fsync-origin"])?;
    let mount = scratch.join("verbs-mnt/in");
    let told = nodes.tier(&["prefetch", text(&mount)?])?;
    ensure!(told.contains(&format!("{} files", 3 * TREES)), "{told}");
    nodes.tier(&["pin", text(&mount.join("t1"))?, text(&mount.join("t2"))?])?;
    ensure!(nodes.origin("pinned_files")? == 6, "{}", nodes.tier(&["status"])?);
    for tree in 0..TREES {
        fs::write(nodes.outside.join(format!("t{tree}/large")), "other")?;
    }
    nodes.tier(&["evict"])?;
    nodes.expect(3, "cat t1/large t2/large | wc -c", &(2 * LARGE_BYTES).to_string())?;
    nodes.expect(1, "cat t3/large", "other")?;
    let sync = "import os; f = open('t5/small', 'w'); f.write('synced\\n'); f.flush(); \
                os.fsync(f.fileno())";
    nodes.on(2, &format!("python3 -c \"{sync}\""))?;
    ensure!(nodes.outside("t5/small")? == "synced\n", "an fsync did not flush");
    nodes.on(0, "for t in t*; do echo ours > $t/small; done")?;
    nodes.tier(&["unlink", text(&mount)?])?;
    for tree in 0..TREES {
        ensure!(nodes.outside(&format!("t{tree}/small"))? == "ours\n", "t{tree}/small");
    }
    for node in 0..NODES {
        let wanted = format!("{}\n{}", node.min(1) + 1, node + 1);
        nodes.expect(node, "find . | wc -l; echo new >> own; wc -l < own", &wanted)?;
    }
    ensure!(process::kill(nodes.instance.daemon_pid_of(1)?), "a daemon was not killed");
    nodes.expect(1, "cat own | wc -l", "4")?;
    ensure!(!nodes.outside.join("own").exists());
    nodes.instance.command("fsck").run_ok()?;
    nodes.instance.stop()
}
