//! What processes ask for of files whose chunks are on several nodes.

use std::fs;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn, skip};
use serde_json::Value;

/// Writes and reads a piece of one chunk a hundred times each.
const PIECES: &str = r#"
import os, sys
file, at = os.open(os.environ["MAYFLY_MOUNT"] + "/file", os.O_RDWR), int(sys.argv[1]) << 16
for round in range(100):
    piece = bytes([round]) * 4096
    assert os.pwrite(file, piece, at + 100) == 4096
    assert os.pread(file, 4096, at + 100) == piece
"#;

#[test]
fn a_process_uses_chunks_of_its_own_node_without_a_request() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("nodes-own")?;
    let options = ["--nodes", "local:4", "--chunk-size", "64K", "--layout", "stripe"];
    let instance = Instance::named(&scratch, "own")?;
    instance.command("start").args(options).run_ok()?;
    let make = r#"head -c 524288 /dev/zero > "$MAYFLY_MOUNT/file""#;
    instance.shell("make", make).run_ok()?;
    let script = scratch.join("pieces.py");
    fs::write(&script, PIECES)?;
    for node in 0..4 {
        let mut without = 0;
        for chunk in 0..4 {
            let before = requests(&instance)?;
            let run = format!("python3 '{}' {chunk}", script.display());
            instance.shell("pieces", &run).env("MAYFLY_NODE", node.to_string()).run_ok()?;
            let asked = requests(&instance)? - before;
            eprintln!("chunk {chunk}, used on node {node}: {asked} requests");
            ensure!(!(100..200).contains(&asked), "{asked} requests: neither nor");
            without += usize::from(asked < 100);
        }
        ensure!(without == 1, "{without} of four chunks are used without requests");
    }
    instance.stop()
}

/// Requests that all daemons have executed.
fn requests(instance: &Instance<'_>) -> Result<u64> {
    let status = instance.status()?;
    let nodes = status.get("nodes").and_then(Value::as_array).context("a list of nodes")?;
    Ok(nodes.iter().filter_map(|node| node["requests"].as_u64()).sum())
}

/// Space and holes of a file that is given, step by step.
const SPARSE: &str = r#"
import os, subprocess, sys
path = sys.argv[1]
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
def extents():
    end, at, found = os.fstat(file).st_size, 0, []
    while at < end:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            found.append(error.errno)
            break
        at = os.lseek(file, start, os.SEEK_HOLE)
        found.append((start, at))
    return end, found
chunk = 1 << 16
os.ftruncate(file, 40 * chunk)
print(extents())
os.pwrite(file, b"x" * chunk, 3 * chunk)
os.pwrite(file, b"x" * 5 * chunk, 10 * chunk)
print(extents())
def fallocate(*arguments):
    subprocess.run(["fallocate", *map(str, arguments), path], check=True)
    print(extents(), os.fstat(file).st_blocks * 512 // chunk)
fallocate("-p", "-o", 11 * chunk, "-l", 2 * chunk)
fallocate("-o", 38 * chunk, "-l", 9 * chunk)
fallocate("-z", "-n", "-o", 3 * chunk, "-l", chunk)
print(sum(os.pread(file, 50 * chunk, 0)))
"#;

#[test]
fn space_and_holes_of_a_striped_file_are_those_of_a_local_one() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("nodes-sparse")?;
    let options = ["--nodes", "local:4", "--chunk-size", "64K", "--layout", "stripe"];
    let instance = Instance::named(&scratch, "sparse")?;
    instance.command("start").args(options).run_ok()?;
    let script = scratch.join("sparse.py");
    fs::write(&script, SPARSE)?;
    let run = |node: usize, file: &str| -> Result<String> {
        let run = format!("python3 '{}' \"{file}\"", script.display());
        let outcome = instance.shell("sparse", &run).env("MAYFLY_NODE", node.to_string()).run()?;
        ensure!(outcome.code == 0, "{outcome:?}");
        Ok(String::from_utf8(outcome.stdout)?)
    };
    let native = run(0, &scratch.join("file").display().to_string())?;
    for node in 0..4 {
        let mounted = run(node, "$MAYFLY_MOUNT/file")?;
        ensure!(mounted == native, "on node {node}:\n{mounted}natively:\n{native}");
    }
    instance.stop()
}

/// Maps a file that is on all nodes and writes to it.
const MAPPED: &str = r#"
import mmap, os
file = os.open(os.environ["MAYFLY_MOUNT"] + "/file", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"a" * (10 << 16), 0)
try:
    pages = mmap.mmap(file, 10 << 16)
    pages[70000], pages[300000] = b"bc"
    pages.flush()
    print((os.pread(file, 2, 70000) + os.pread(file, 2, 300000)).decode())
except OSError as error:
    print(error.errno)
"#;

#[test]
fn a_striped_file_is_mapped_through_the_mount_where_there_is_one() -> Result<()> {
    let mountable = skip::unless_mountable("a mapping of a striped file");
    for (access, said) in [("preload", "19"), ("both", "baca")] {
        if access == "both" && !mountable {
            continue;
        }
        let _turn = Turn::take()?;
        let scratch = Scratch::new("nodes-mapped")?;
        let options = ["--nodes", "local:4", "--chunk-size", "64K", "--layout", "stripe"];
        let instance = Instance::named(&scratch, "mapped")?;
        instance.command("start").args(options).args(["--access", access]).run_ok()?;
        let script = scratch.join("mapped.py");
        fs::write(&script, MAPPED)?;
        let outcome = instance.shell("map", &format!("python3 '{}'", script.display())).run()?;
        let heard = String::from_utf8(outcome.stdout)?;
        ensure!(heard.trim() == said, "with --access {access}: {heard}");
        instance.stop()?;
    }
    Ok(())
}
