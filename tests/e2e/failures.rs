//! Nodes that fail while others need them: stopped, killed for good, or with a full disk. What
//! needs them ends with the right error in time, what does not goes on, and what comes back is
//! whole.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn, leftovers::Before, process, skip};
use mayfly_tests::{
    hosts::{hosts_of_their_own, template},
    looks::{self, Look, look_at_all, make_all},
};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(15);
/// Files in the mount; with three nodes some are at home on each.
const FILES: usize = 48;
/// `--deadline` of these instances, seconds.
const DEADLINE: u64 = 3;
/// What starting processes takes on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn three<'a>(scratch: &'a Scratch, name: &str) -> Result<Instance<'a>> {
    let instance = Instance::named(scratch, name)?;
    let deadline = DEADLINE.to_string();
    let options = ["--nodes", "local:3", "--names", "spread", "--deadline", &deadline];
    instance.command("start").args(options).run_ok()?;
    instance.shell("make", &make_all(FILES)).run_ok()?;
    Ok(instance)
}

/// How it went with each of the files, all read at the same time on the first node.
fn look(instance: &Instance<'_>, label: &str) -> Result<Vec<Look>> {
    look_at_all(instance, label, FILES, |job| job)
}

fn expect_a_part_is_lost(instance: &Instance<'_>, label: &str) -> Result<usize> {
    looks::expect_a_part_is_lost(&look(instance, label)?, Duration::from_secs(DEADLINE))
}

#[test]
fn a_stopped_node_gives_eio_after_the_chosen_deadline_while_others_go_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("failures-stop")?;
    let before = Before::look();
    let instance = three(&scratch, "halt")?;
    let shown = instance.status()?;
    let option = shown.pointer("/nodes/0/options/deadline_seconds");
    ensure!(option == Some(&DEADLINE.into()), "the deadline is {option:?} in {shown}");
    let victim = instance.daemon_pid_of(2)?;
    process::signal(victim, Signal::STOP);
    let outcome = expect_a_part_is_lost(&instance, "stopped");
    process::signal(victim, Signal::CONT);
    outcome?;
    looks::expect_all_is_there(&look(&instance, "again")?)?;
    instance.stop()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}

/// A request that met what a stopped node held kept its lane in the daemon when its process had
/// given up; after 16 of them the process was refused everything, whoever had it.
#[test]
fn a_process_that_gives_up_many_requests_asks_live_nodes_on() -> Result<()> {
    if !skip::unless_installed("requests given up", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("failures-given-up")?;
    let instance = three(&scratch, "givenup")?;
    let victim = instance.daemon_pid_of(2)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("apps/given_up.py");
    let command = r#"exec python3 "$SCRIPT" "$MAYFLY_MOUNT" "$VICTIM" "$DEADLINE""#;
    let job = instance.shell("give-up", command).env("SCRIPT", &script);
    let job = job.env("VICTIM", victim.to_string()).env("DEADLINE", DEADLINE.to_string());
    let outcome = job.deadline(Duration::from_secs(300)).run_ok();
    process::signal(victim, Signal::CONT);
    outcome?;
    instance.stop()
}

/// Names that only live nodes have are made and removed, and the others are refused in time.
const CHANGE: &str = r#"
for i in $(seq 24); do
    name="$MAYFLY_MOUNT/new-$i"
    if ! said=$( { echo text > "$name" && rm "$name"; } 2>&1 ); then
        case "$said" in *"Input/output error"*) ;; *) echo "$said"; exit 1;; esac
    fi & pids="$pids $!"
done
for pid in $pids; do wait $pid || exit 1; done
"#;

#[test]
fn a_node_that_is_lost_for_good_takes_its_part_and_no_more() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("failures-lost")?;
    let instance = three(&scratch, "lost")?;
    let daemon = instance.daemon_pid_of(2)?;
    let supervisor = process::parent(daemon).context("a daemon has a supervisor")?;
    for victim in [supervisor, daemon] {
        process::signal(victim, Signal::KILL);
    }
    let lost = expect_a_part_is_lost(&instance, "first")?;
    let start = Instant::now();
    instance.shell("change", CHANGE).run_ok()?;
    let took = start.elapsed();
    ensure!(took < 2 * (Duration::from_secs(DEADLINE) + SLACK), "changes took {took:?}");
    ensure!(expect_a_part_is_lost(&instance, "later")? == lost, "another part than before");
    // The dead node is named, and cleared up.
    let stopped = instance.command("stop").run()?;
    let error = String::from_utf8_lossy(&stopped.stderr).into_owned();
    ensure!(error.contains("node 2"), "stop says nothing of the dead node: {error}");
    Ok(())
}

/// A file system of its own for one host; unmounted when this goes.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Notes the skip where nobody may mount.
    fn mount(at: PathBuf) -> Result<Option<SmallDisk>> {
        fs::create_dir_all(&at)?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96M", "mayfly-small"])
            .arg(&at)
            .output()?;
        if mounted.status.success() {
            return Ok(Some(SmallDisk(at)));
        }
        let why = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
        skip::note("a full disk of one node", &format!("mounting needs root: {why}"));
        Ok(None)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Files of 8 MiB until the small disk can have no more: what it refuses is ENOSPC and nothing
/// else. Then everything goes, and there is room again.
const FILL: &str = r#"
cd "$MAYFLY_MOUNT"
full=0; whole=0
for i in $(seq 40); do
    if said=$(dd if=/dev/zero of=big-$i bs=1M count=8 2>&1); then
        whole=$((whole + 1))
        test "$(stat -c %s big-$i)" = 8388608 || { echo "big-$i is torn"; exit 1; }
    else
        case "$said" in
            *"No space left on device"*) full=$((full + 1)); rm -f big-$i;;
            *) echo "$said"; exit 1;;
        esac
    fi
done
echo "$whole whole, $full refused"
test $full -ge 3 && test $whole -ge 16 || exit 1
rm -f big-*
for i in $(seq 40); do
    dd if=/dev/zero of=big-$i bs=1M count=1 2> said || { cat said; exit 1; }
done
rm -f big-*
"#;

#[test]
fn a_full_disk_of_one_node_is_enospc_there_and_nowhere_else() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("failures-full")?;
    let Some(small) = SmallDisk::mount(scratch.join("h2/tmp"))? else { return Ok(()) };
    let before = Before::look();
    let launcher = template(&hosts_of_their_own(&scratch)?);
    let options = ["--nodes", "h1,h2", "--launcher", &launcher, "--net", "lo", "--names", "spread"];
    let instance = Instance::named(&scratch, "full")?;
    instance.command("start").args(options).run_ok()?;
    let here = scratch.join("h1/run");
    let outcome = instance.shell("fill", FILL).env("XDG_RUNTIME_DIR", &here).run()?;
    ensure!(outcome.code == 0, "{outcome:?}");
    instance.command("stop").run_ok()?;
    before.expect_nothing_since(&scratch, &[], PATIENCE)?;
    drop(small);
    Ok(())
}
