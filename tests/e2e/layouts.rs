//! Layouts of directories, set and looked at from outside and inside.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, binary, leftovers::Before};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);

fn start<'a>(scratch: &'a Scratch, name: &str, options: &[&str]) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    instance.command("start").args(options).run_ok()?;
    Ok(instance)
}

#[test]
fn a_directory_hands_its_layout_to_its_files_and_mayfly_shows_which_nodes_have_them() -> Result<()>
{
    let _turn = Turn::take()?;
    let scratch = Scratch::new("nodes-layout")?;
    let before = Before::look();
    let instance = start(&scratch, "laid", &["--nodes", "local:4", "--chunk-size", "64K"])?;
    let mount = instance.on_node(0, r#"cd "$MAYFLY_MOUNT" && mkdir wide plain && pwd"#)?;
    let mayfly = binary::mayfly()?;
    let layout = |what: &[&str]| -> Result<Outcome> {
        Job::new(&scratch, "layout", &mayfly).args(["layout"]).args(what).run()
    };
    let path = |name: &str| format!("{mount}/{name}");
    // From outside, through another node by a program, and inside.
    let set = layout(&["set", "stripe:3", "--chunk-size", "128K", &path("wide")])?;
    ensure!(set.code == 0, "{set:?}");
    let program = "import os
os.chdir(os.environ['MAYFLY_MOUNT']); os.mkdir('wide/below')
print(os.getxattr('wide/below', 'user.mayfly.layout').decode(), os.listxattr('wide'))
os.setxattr('plain', 'user.mayfly.layout', b'hash:2')
for name in ('wide/below/file', 'plain/file', 'file'):
    with open(name, 'wb') as file: file.write(bytes(1 << 20))";
    let told = instance.on_node(2, &format!("python3 -c \"{program}\""))?;
    ensure!(told == "stripe:3,chunk=128K []", "{told}");
    let get = format!("cd \"$MAYFLY_MOUNT\" && '{}' layout get --json", mayfly.display());
    let told = instance.on_node(1, &format!("{get} wide plain wide/below/file plain/file file"))?;
    let told: Value = serde_json::from_str(&told)?;
    let laid: Vec<(&str, usize)> = told
        .as_array()
        .context("a list")?
        .iter()
        .map(|laid| {
            let nodes = laid.get("nodes").and_then(Value::as_object).map_or(0, |nodes| nodes.len());
            (laid.get("layout").and_then(Value::as_str).unwrap_or_default(), nodes)
        })
        .collect();
    let wanted = [("stripe:3", 0), ("hash:2", 0), ("stripe:3", 3), ("hash:2", 2), ("home", 1)];
    ensure!(laid == wanted, "{told}");
    let table = layout(&["get", &path("wide/below/file")])?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    ensure!(table.contains("stripe:3  128.0 KiB") && table.contains("384.0 KiB"), "{table}");
    for (what, why) in [
        (["set", "raid", &path("wide")], "raid: choose home"),
        (["set", "stripe", &path("file")], "a file keeps the layout"),
        (["set", "stripe", "/tmp"], "not a file or directory of a running instance"),
        (["set", "stripe", &path("none")], "No such file or directory"),
    ] {
        let refused = layout(&what)?;
        ensure!(refused.code == 1 && refused.error().contains(why), "{refused:?}");
    }
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_local_file_is_on_the_node_of_the_program_that_makes_it() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("layouts-local")?;
    let instance = start(&scratch, "own", &["--nodes", "local:4", "--layout", "local"])?;
    for node in 0..4 {
        let program = format!(
            "import os
os.chdir(os.environ['MAYFLY_MOUNT'])
for number in range(20):
    name = '{node}-%d' % number
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.write(file, b'x' * (100 if number % 2 else 1 << 20))
    os.close(file)
    on = os.getxattr(name, 'user.mayfly.nodes').decode().split()
    assert on[::2] == ['{node}'], (name, on)
assert os.getxattr(name, 'user.mayfly.layout') == b'local,chunk=512K'"
        );
        instance.on_node(node, &format!("python3 -c \"{program}\""))?;
    }
    let rest = r#"cd "$MAYFLY_MOUNT" && cat * | wc -c && rm -r * && ls -A"#;
    ensure!(instance.on_node(1, rest)? == (40 * ((1 << 20) + 100)).to_string(), "all read them");
    instance.stop()
}

#[test]
fn pools_are_named_at_the_start_shown_by_status_and_chosen_by_directories() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("layouts-pool")?;
    let file = scratch.join("pools");
    fs::write(&file, "near=@[1-2] # a leaf\n")?;
    let file = file.to_str().context("plain text")?;
    let nodes = ["--nodes", "local:4", "--chunk-size", "64K"];
    let options = [&nodes[..], &["--pool-file", file, "--pool", "far=@0,@3"]].concat();
    let instance = start(&scratch, "pools", &options)?;
    let wanted = serde_json::json!([
        { "name": "far", "nodes": [0, 3] },
        { "name": "near", "nodes": [1, 2] },
    ]);
    let status = instance.status()?;
    ensure!(status.get("pools") == Some(&wanted), "{status}");
    let table = instance.command("status").run_ok()?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    ensure!(table.contains("pool near: nodes 1-2"), "{table}");
    let program = "import os
os.chdir(os.environ['MAYFLY_MOUNT'])
for pool, nodes in (('near', {'1', '2'}), ('far', {'0', '3'})):
    os.mkdir(pool)
    os.setxattr(pool, 'user.mayfly.layout', b'pool:' + pool.encode())
    for number in range(20):
        name = '%s/%d' % (pool, number)
        with open(name, 'xb') as file: file.write(b'x' * (500000 if number % 2 else 100))
        on = set(os.getxattr(name, 'user.mayfly.nodes').decode().split()[::2])
        assert on == nodes if number % 2 else on < nodes, (name, on)";
    instance.on_node(1, &format!("python3 -c \"{program}\""))?;
    instance.stop()?;
    let refused = Instance::named(&scratch, "bad")?.command("start");
    let refused = refused.args(nodes).args(["--pool", "near=nowhere"]).run()?;
    let why = "no node of the instance is on nowhere";
    ensure!(refused.code == 1 && refused.error().contains(why), "{refused:?}");
    Ok(())
}
