//! Two nodes, each in a network namespace of its own, and two networks between them: the instance
//! keeps to the one that `--net` names.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, launcher, leftovers::Before};
use mayfly_tests::{
    looks::{self, look_at_all, make_all},
    namespaces::{Namespaces, ip, is_possible},
};
use serde_json::Value;

const SUITE: &str = "fabrics";
const PATIENCE: Duration = Duration::from_secs(15);

fn run_dir(scratch: &Scratch, host: &str) -> PathBuf {
    scratch.join(host).join("run")
}

fn addresses(status: &Value) -> Result<Vec<String>> {
    let nodes = status.get("nodes").and_then(Value::as_array).context("no nodes")?;
    let address = |node: &Value| Some(node.get("address")?.as_str()?.to_owned());
    nodes.iter().map(|node| address(node).context("no address")).collect()
}

/// Programs on both nodes.
fn use_both(scratch: &Scratch, instance: &Instance<'_>, hosts: &[String; 2]) -> Result<()> {
    let work = r#"cd "$MAYFLY_MOUNT" && mkdir "$DIR" && for i in $(seq 50); do
        echo "text $i" > "$DIR/$i"; done; cat "$DIR"/* | wc -l"#;
    for (host, directory) in hosts.iter().zip(["one", "two"]) {
        let job = instance.shell(directory, work).env("DIR", directory);
        let outcome = job.env("XDG_RUNTIME_DIR", run_dir(scratch, host)).run_ok()?;
        ensure!(outcome.stdout.trim_ascii() == b"50", "{outcome:?}");
    }
    Ok(())
}

#[test]
fn an_instance_keeps_to_the_network_that_it_was_given() -> Result<()> {
    let _turn = Turn::take()?;
    if !is_possible(SUITE) {
        return Ok(());
    }
    let namespaces = Namespaces::new()?;
    let scratch = Scratch::new("fabrics")?;
    let before = Before::look();
    let launcher = launcher::into_namespaces(&scratch)?;
    let list = namespaces.names.join(",");
    for (net, prefix, used, silent) in
        [("fab1", "10.78.0.", "fab1", "fab0"), ("10.77.0.0/24", "10.77.0.", "fab0", "fab1")]
    {
        let (used_before, silent_before) =
            (namespaces.bytes_of_first(used)?, namespaces.bytes_of_first(silent)?);
        let instance = Instance::named(&scratch, used)?;
        let options = ["--nodes", &list, "--launcher", &launcher, "--net", net];
        instance.command("start").args(options).args(["--ports", "7400-7409"]).run_ok()?;
        let here = run_dir(&scratch, &namespaces.names[0]);
        let there = instance.command("status").args(["--json"]).env("XDG_RUNTIME_DIR", &here);
        let addresses = addresses(&Instance::read_status(&there.run_ok()?)?)?;
        for address in &addresses {
            ensure!(address.starts_with(prefix) && address.contains(":740"), "{addresses:?}");
        }
        use_both(&scratch, &instance, &namespaces.names)?;
        let (host, port) = addresses[1].split_once(':').context("address and port")?;
        let connect = format!("exec 3<>/dev/tcp/{host}/{port} && echo hello >&3");
        Job::new(&scratch, "connect", "ip")
            .args(["netns", "exec", &namespaces.names[0], "bash", "-c", &connect])
            .run_ok()?;
        let (sent, leaked) = (
            namespaces.bytes_of_first(used)? - used_before,
            namespaces.bytes_of_first(silent)? - silent_before,
        );
        ensure!(sent > 0, "nothing went over {used}, where it should");
        ensure!(leaked == 0, "{leaked} bytes went over {silent}");
        instance.command("stop").run_ok()?;
    }
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

#[test]
fn a_node_that_is_not_on_the_network_fails_by_name() -> Result<()> {
    let _turn = Turn::take()?;
    if !is_possible(SUITE) {
        return Ok(());
    }
    let namespaces = Namespaces::new()?;
    let [a, b] = &namespaces.names;
    ip(&format!("-n {b} link del fab1"))?;
    ip(&format!("-n {a} link add fab1 type veth peer name end"))?;
    ip(&format!("-n {a} addr add 10.78.0.1/24 dev fab1"))?;
    let scratch = Scratch::new("fabrics-off")?;
    let before = Before::look();
    let (launcher, list) = (launcher::into_namespaces(&scratch)?, namespaces.names.join(","));
    let options = ["--nodes", &list, "--launcher", &launcher, "--net", "fab1"];
    let start = Instance::named(&scratch, "off")?.command("start").args(options);
    let outcome = start.run()?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let why = format!("{b} has no address on the interface fab1 (--net)");
    for word in ["1 of 2 nodes", &format!("node 1 on {b}"), &why] {
        ensure!(error.contains(word), "the error says nothing of {word:?}: {error}");
    }
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

/// `--deadline` of the instance that is cut, seconds.
const DEADLINE: u64 = 3;
const FILES: usize = 32;

#[test]
fn a_node_that_is_cut_off_gives_eio_in_time_and_is_whole_again_when_it_is_back() -> Result<()> {
    let _turn = Turn::take()?;
    if !is_possible(SUITE) {
        return Ok(());
    }
    let namespaces = Namespaces::new()?;
    let scratch = Scratch::new("fabrics-cut")?;
    let before = Before::look();
    let (launcher, list) = (launcher::into_namespaces(&scratch)?, namespaces.names.join(","));
    let deadline = DEADLINE.to_string();
    let options = ["--nodes", &list, "--launcher", &launcher, "--net", "fab0"];
    let instance = Instance::named(&scratch, "cut")?;
    let more = ["--deadline", &deadline, "--names", "spread"];
    instance.command("start").args(options).args(more).run_ok()?;
    let [a, b] = [0, 1].map(|which| run_dir(&scratch, &namespaces.names[which]));
    instance.shell("make", &make_all(FILES)).env("XDG_RUNTIME_DIR", &a).run_ok()?;
    let look = |label: &str, on: &PathBuf| {
        look_at_all(&instance, label, FILES, |job| job.env("XDG_RUNTIME_DIR", on))
    };
    let cut = |what: &str| ip(&format!("-n {} link set fab0 {what}", namespaces.names[1]));
    cut("down")?;
    let mut lost = 0;
    for (label, on) in [("here", &a), ("there", &b)] {
        let looks = look(label, on)?;
        lost += looks::expect_a_part_is_lost(&looks, Duration::from_secs(DEADLINE))?;
    }
    // What one side lacks the other has.
    ensure!(lost == FILES, "{lost} of {FILES} files are lost on one of two sides");
    cut("up")?;
    for (label, on) in [("here-again", &a), ("there-again", &b)] {
        looks::expect_all_is_there(&look(label, on)?)?;
    }
    instance.command("stop").run_ok()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
