//! Locks of processes on several nodes.

use std::{fs, thread};

use anyhow::{Result, ensure};
use mayfly_testkit::{Instance, Scratch, Turn};

const NODES: usize = 4;

/// Locks a file, and waits for that of the next node when all have theirs.
const IN_A_CIRCLE: &str = r#"
import errno, fcntl, os, sys, time
node, nodes, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def name(number):
    return "%s/circle-%d" % (os.environ["MAYFLY_MOUNT"], number % nodes)
mine, next = open(name(node), "a+"), open(name(node + 1), "a+")
fcntl.lockf(mine, fcntl.LOCK_EX)
open("%s/%d" % (words, node), "w").close()
while len(os.listdir(words)) < nodes:
    time.sleep(0.01)
try:
    fcntl.lockf(next, fcntl.LOCK_EX)
    print("served")
except OSError as error:
    print("told" if error.errno == errno.EDEADLK else error)
"#;

/// Runs `script` on all nodes at a time; what they print, in their order.
fn on_all_nodes(instance: &Instance<'_>, script: &str) -> Result<Vec<String>> {
    let on_node = |node: usize| {
        let label = format!("{}-on-{node}", instance.name());
        let job = instance.shell(&label, script).env("MAYFLY_NODE", node.to_string());
        let outcome = job.run_ok()?;
        Ok(String::from_utf8_lossy(&outcome.stdout).trim().to_owned())
    };
    let on_node = &on_node;
    thread::scope(|scope| {
        let running: Vec<_> = (0..NODES).map(|node| scope.spawn(move || on_node(node))).collect();
        running.into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

#[test]
fn one_of_a_circle_of_processes_on_four_nodes_is_told_and_the_others_go_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("locks-circle")?;
    let instance = Instance::named(&scratch, "circle")?;
    instance.command("start").args(["--nodes", "local:4"]).run_ok()?;
    for round in 0..3 {
        let words = scratch.join(format!("words-{round}"));
        fs::create_dir(&words)?;
        let words = words.display();
        let script = format!("timeout 60 python3 -c '{IN_A_CIRCLE}' $MAYFLY_NODE {NODES} {words}");
        let mut ends = on_all_nodes(&instance, &script)?;
        ends.sort();
        ensure!(ends == ["served", "served", "served", "told"], "{ends:?}");
    }
    instance.stop()
}
