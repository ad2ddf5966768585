//! Instances in jobs of a real Slurm: a controller and two of its node daemons on this machine, run
//! by the user of the test. Slurm calls the nodes otherwise than the machine calls itself, and
//! gives each task the directories of its node, so nothing is shared between them but the program.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use mayfly_testkit::{Scratch, Turn, binary, process};
use mayfly_tests::slurm::{Cluster, PATIENCE, is_possible};

const SUITE: &str = "slurm";

/// Nothing of Mayfly is in the directories of the nodes, and no process of it runs.
fn expect_nothing_left(scratch: &Scratch) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let marked = process::marked(scratch.mark());
        let ours = marked.iter().filter(|process| process.command.contains("mayfly __"));
        let ours: Vec<_> = ours.collect();
        let places = ["n1/run", "n1/tmp", "n2/run", "n2/tmp"];
        let entries = places.map(|place| fs::read_dir(scratch.join(place)));
        let left = entries.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
        let left: Vec<PathBuf> = left.collect();
        if ours.is_empty() && left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left: {ours:?} {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn run_serves_a_command_over_the_nodes_of_its_slurm_job() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm")?;
    let cluster = Cluster::start(&scratch)?;
    let script = "mayfly run --nodes job --name it -- sh -c '\n\
         echo text > \"$MAYFLY_MOUNT/file\"; cat \"$MAYFLY_MOUNT/file\"'\nmayfly doctor\n";
    let said = cluster.run("run", script)?;
    ensure!(said.starts_with("text\n"), "{said}");
    expect_nothing_left(&scratch)
}

#[test]
fn an_instance_of_a_heterogeneous_job_is_over_all_its_components() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-het")?;
    let cluster = Cluster::start(&scratch)?;
    let inside = "\"$MAYFLY\" status --json | grep -c '\"address\"'\n\
         echo by the first > \"$MAYFLY_MOUNT/file\"\n\
         srun --het-group=1 --overlap sh -c 'echo \"$SLURMD_NODENAME\"'\n";
    fs::write(scratch.join("inside.sh"), inside)?;
    let script = format!(
        "export MAYFLY={}\nmayfly run --nodes job -- sh {}\n",
        binary::mayfly()?.display(),
        scratch.join("inside.sh").display()
    );
    let first = ["--parsable", "--nodes=1", "--nodelist=n1", ":"];
    let options = [&first[..], &["--nodes=1", "--nodelist=n2"]].concat();
    let outcome = cluster.submit("het", &script, &options)?;
    let complaint = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 0, "there is no job: {complaint}");
    let is_good = cluster.ends_well(String::from_utf8(outcome.stdout)?.trim())?;
    let said = fs::read_to_string(cluster.output("het")).unwrap_or_default();
    ensure!(is_good && said == "2\nn2\n", "{said}");
    expect_nothing_left(&scratch)
}

#[test]
fn an_instance_that_a_job_starts_serves_its_steps_on_every_node_until_it_is_stopped() -> Result<()>
{
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-start")?;
    let cluster = Cluster::start(&scratch)?;
    let step = scratch.join("step.sh");
    let program = binary::mayfly()?;
    // What each task wrote is read by the other one.
    let task = format!(
        "eval \"$({} env --name it)\"\ncd \"$MAYFLY_MOUNT\"\n\
         echo \"of $SLURMD_NODENAME\" > \"$SLURM_PROCID\"\n\
         until [ -s \"$((1 - SLURM_PROCID))\" ]; do sleep 0.05; done\n\
         cat \"$((1 - SLURM_PROCID))\"\n",
        program.display()
    );
    fs::write(&step, task)?;
    let script = format!(
        "mayfly start --nodes job --name it\nmayfly status --name it\n\
         srun --label sh {}\nmayfly stop --name it\n",
        step.display()
    );
    let said = cluster.run("start", &script)?;
    for words in ["it, 2 nodes", "0: of n2", "1: of n1"] {
        ensure!(said.contains(words), "nothing of {words:?}: {said}");
    }
    expect_nothing_left(&scratch)
}

/// Two tasks on each of two nodes, and two daemons on each.
#[test]
fn tasks_of_a_step_use_the_daemons_of_their_node() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-ranks")?;
    let cluster = Cluster::start(&scratch)?;
    let step = scratch.join("step.sh");
    let task = format!(
        "eval \"$({} env --name it)\"\nmkdir \"$MAYFLY_MOUNT/$SLURM_PROCID\"\n\
         exec sh -c 'cd \"$MAYFLY_MOUNT/$SLURM_PROCID\"; for i in 1 2 3 4 5; do : > $i; done'\n",
        binary::mayfly()?.display()
    );
    fs::write(&step, task)?;
    let script = format!(
        "mayfly start --nodes job --daemons 2 --name it\n\
         srun --overcommit --ntasks=4 --ntasks-per-node=2 sh {}\n\
         mayfly metrics --name it --all-nodes | grep '^mayfly_files{{' | sed 's/.* /files /'\n\
         mayfly stop --name it\n",
        step.display()
    );
    let said = cluster.run("ranks", &script)?;
    ensure!(said.matches("files 5.0\n").count() == 4, "not all daemons have files: {said}");
    expect_nothing_left(&scratch)
}

#[test]
fn leaf_switches_of_slurm_are_pools_for_directories() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-pools")?;
    let cluster = Cluster::start(&scratch)?;
    let script = "mayfly start --nodes job --name it --pools topology\nmayfly status --name it\n\
         eval \"$(mayfly env --name it)\"\nsh -c 'mkdir \"$MAYFLY_MOUNT/d\"'\n\
         mayfly layout set pool:leaf2 \"$MAYFLY_MOUNT/d\"\n\
         sh -c 'head -c 100000 /dev/zero > \"$MAYFLY_MOUNT/d/file\"'\n\
         mayfly layout get --json \"$MAYFLY_MOUNT/d/file\" | tr -d ' \\n'\nmayfly stop --name it\n";
    let said = cluster.run("pools", script)?;
    for words in ["pool leaf1: nodes 0", "pool leaf2: nodes 1", "\"nodes\":{\"1\":"] {
        ensure!(said.contains(words), "nothing of {words:?}: {said}");
    }
    expect_nothing_left(&scratch)
}

/// In the shell that `salloc` opens, on a machine that is none of the job's.
#[test]
fn an_allocation_has_an_instance_that_is_looked_at_and_stopped_from_outside() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-salloc")?;
    let cluster = Cluster::start(&scratch)?;
    let script = scratch.join("inside.sh");
    let program = binary::mayfly()?;
    let inside = format!(
        "set -e\nmayfly() {{ {} \"$@\"; }}\nmayfly start --nodes job --name it\n\
         mayfly status\nmayfly start --nodes job --name it && exit 1\nmayfly stop --name it\n\
         mayfly status\n",
        program.display()
    );
    fs::write(&script, inside)?;
    let salloc = cluster.job("salloc", "salloc").args(["--nodes=2", "--quiet", "sh"]);
    let outcome = salloc.args([script]).run()?;
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 0, "{said}{complaint}");
    ensure!(said.contains("it, 2 nodes") && said.contains("no instance is running"), "{said}");
    ensure!(complaint.contains("was started from here on other hosts"), "{complaint}");
    expect_nothing_left(&scratch)
}

#[test]
fn a_slurm_job_that_is_cancelled_leaves_nothing_of_its_instance() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-cancel")?;
    let cluster = Cluster::start(&scratch)?;
    let script = "mayfly run --nodes job --name it -- sh -c 'echo serving; sleep 600'\n";
    let outcome = cluster.submit("cancelled", script, &["--parsable"])?;
    let job = String::from_utf8(outcome.stdout)?.trim().to_owned();
    let deadline = Instant::now() + PATIENCE;
    while fs::read_to_string(cluster.output("cancelled")).unwrap_or_default() != "serving\n" {
        ensure!(Instant::now() < deadline, "the instance does not serve");
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.job("scancel", "scancel").args([job]).run_ok()?;
    expect_nothing_left(&scratch)
}

#[test]
fn a_slurm_job_that_is_ended_brings_out_what_there_is_in_the_time_that_it_is_left() -> Result<()> {
    if !is_possible(SUITE) {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("slurm-out")?;
    let cluster = Cluster::start(&scratch)?;
    // All at once; and a signal ahead of the end, to every process of the job.
    for (name, how) in [("ended", &[][..]), ("signalled", &["--signal=TERM", "--full"])] {
        let to = scratch.join(format!("{name}-out"));
        let script = format!(
            "mayfly run --nodes job --name it --stage-out r:{} -- sh -c '\n\
             trap \"echo last > $MAYFLY_MOUNT/r/late; exit 0\" TERM\n\
             mkdir $MAYFLY_MOUNT/r; echo early > $MAYFLY_MOUNT/r/early\n\
             echo serving; while :; do sleep 0.1; done'\n",
            to.display()
        );
        let outcome = cluster.submit(name, &script, &["--parsable"])?;
        let job = String::from_utf8(outcome.stdout)?.trim().to_owned();
        let deadline = Instant::now() + PATIENCE;
        let said = || fs::read_to_string(cluster.output(name)).unwrap_or_default();
        while !said().contains("serving") {
            ensure!(Instant::now() < deadline, "the instance does not serve: {}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
        cluster.job("scancel", "scancel").args(how).args([job]).run_ok()?;
        expect_nothing_left(&scratch)?;
        let read = |file: &str| fs::read_to_string(to.join(file)).unwrap_or_default();
        ensure!(read("early") == "early\n" && read("late") == "last\n", "{name}: {}", said());
    }
    Ok(())
}
