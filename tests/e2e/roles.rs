//! Instances whose nodes do not all do the same: `--servers`, `--metadata-nodes`, `--clients`.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, leftovers::Before, process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);
/// Of four nodes the first only uses what the others have, and the last has bytes and no programs.
const APART: [&str; 10] = [
    "--nodes",
    "local:4",
    "--servers",
    "@[1-3]",
    "--metadata-nodes",
    "@1,@2",
    "--clients",
    "@[0-2]",
    "--layout",
    "stripe",
];

fn start<'a>(scratch: &'a Scratch, name: &str) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    instance.command("start").args(APART).run_ok()?;
    Ok(instance)
}

fn nodes(status: &Value) -> Result<&Vec<Value>> {
    status.get("nodes").and_then(Value::as_array).context("status has no list of nodes")
}

fn number(of: &Value, field: &str) -> Result<u64> {
    of.get(field).and_then(Value::as_u64).with_context(|| format!("no number {field} in {of}"))
}

/// Files in which a node keeps the content of files.
fn objects(node: &Value) -> Result<usize> {
    fn count(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
    }
    let directory = node.get("object_dir").and_then(Value::as_str).context("an object_dir")?;
    Ok(count(Path::new(directory)))
}

/// Names in two directories, a large file, and a directory that moves to another parent.
const WORK: &str = r#"
set -e
cd "$MAYFLY_MOUNT"
mkdir -p one/deep two
for number in $(seq 40); do echo "text $number" > one/deep/$number; done
head -c 3000000 /dev/urandom | tee two/large | cksum
mv one/deep two/deep
rm two/deep/7
ls two/deep | wc -l
cat two/deep/40
cksum < two/large
"#;

#[test]
fn a_node_that_is_only_a_client_stores_nothing_and_its_programs_do_everything() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("roles")?;
    let before = Before::look();
    let instance = start(&scratch, "apart")?;
    let said = instance.on_node(0, WORK)?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 4 && lines[0] == lines[3], "{said}");
    ensure!(lines[1..3] == ["39", "text 40"], "{said}");
    // Its directories are dealt out, since it owns no names itself.
    let many = r#"cd "$MAYFLY_MOUNT" && for number in $(seq 16); do mkdir "d$number"; done"#;
    instance.on_node(0, many)?;
    let others = instance.on_node(1, r#"cd "$MAYFLY_MOUNT" && cksum < two/large"#)?;
    ensure!(others == lines[0], "{others}");
    let status = instance.status()?;
    let all = nodes(&status)?;
    let roles = all.iter().map(|node| {
        let has =
            |role: &str| node.get("roles").and_then(|roles| roles.get(role)) == Some(&true.into());
        [has("server"), has("metadata"), has("client")]
    });
    let expected =
        [[false, false, true], [true, true, true], [true, true, true], [true, false, false]];
    ensure!(roles.eq(expected), "{status}");
    for (node, stores, names) in [(0, 0, false), (1, 1, true), (2, 1, true), (3, 1, false)] {
        let report = &all[node];
        ensure!(objects(report)? == stores, "{report}");
        let found = number(report, "files")? + number(report, "directories")?;
        ensure!((found > 0) == names, "{report}");
        ensure!((number(report, "capacity_bytes")? > 0) == (stores > 0), "{report}");
    }
    let table = String::from_utf8(instance.command("status").run_ok()?.stdout)?;
    for role in ["client", "all", "server"] {
        ensure!(table.contains(&format!("  {role} ")), "{table}");
    }
    let refused = instance.command("env").args(["--node", "3"]).run()?;
    ensure!(refused.error().contains("serves no programs"), "{}", refused.error());
    for (node, is_there) in [("apart", true), ("apart@3", false)] {
        let library = scratch.join("run/mayfly").join(node).join("libmayfly_preload.so");
        ensure!(library.exists() == is_there, "{}", library.display());
    }
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn nobody_misses_a_client_that_is_lost() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("roles-lost")?;
    let instance = start(&scratch, "lost")?;
    instance.on_node(0, WORK)?;
    let status = instance.status()?;
    let daemon = u32::try_from(number(&nodes(&status)?[0], "daemon_pid")?)?;
    let supervisor = process::parent(daemon).context("a daemon has a supervisor")?;
    // In this order nobody starts the daemon again.
    for pid in [supervisor, daemon] {
        ensure!(process::kill(pid), "it is gone already");
    }
    let began = Instant::now();
    let script = r#"
set -e
cd "$MAYFLY_MOUNT"
mkdir more && echo text > more/file && cat more/file two/deep/1
cksum < two/large > /dev/null
mv two/deep/1 more/one && mkdir -p more/sub && mv more/sub moved
rm -r more moved two/large && ls two/deep | wc -l && ls"#;
    let said = instance.on_node(1, script)?;
    ensure!(said == "text\ntext 1\n38\none\ntwo", "{said}");
    ensure!(began.elapsed() < Duration::from_secs(6), "it took {:?}", began.elapsed());
    // It had used this directory a moment before, and may believe in the name for as long again.
    let moved =
        instance.on_node(2, r#"cd "$MAYFLY_MOUNT" && mv two/deep deep && ls deep | wc -l"#)?;
    ensure!(moved == "38", "{moved}");
    let ended = instance.command("stop").run()?;
    ensure!(ended.error().contains("node 0 on"), "{}", ended.error());
    Ok(())
}

#[test]
fn lists_of_roles_that_contradict_the_nodes_or_each_other_are_refused() -> Result<()> {
    let scratch = Scratch::new("roles-refused")?;
    let refused = |options: &[&str], why: &str| {
        let job = Job::new(&scratch, "refused", binary::mayfly()?).args(["run"]);
        let outcome = job.args(options).args(["--", "true"]).run()?;
        let error = outcome.error();
        ensure!(outcome.code != 0 && error.contains(why), "{options:?}: {error}");
        anyhow::Ok(())
    };
    refused(&["--servers", "a"], "--servers is for several nodes")?;
    let of_two =
        |options: &[&str], why: &str| refused(&[&["--nodes", "local:2"], options].concat(), why);
    of_two(&["--clients", ""], "the list is empty")?;
    of_two(&["--servers", "elsewhere"], "no node of the instance is on elsewhere")?;
    of_two(&["--servers", "@0", "--clients", "@0"], "it would do nothing")?;
    of_two(&["--servers", "@0", "--metadata-nodes", "@1"], "not among --servers")?;
    of_two(&["--metadata-nodes", "@1"], "would have no bytes")?;
    of_two(&["--clients", "@1"], "runs the command on the first node")
}
