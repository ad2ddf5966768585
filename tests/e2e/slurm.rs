//! Instances in jobs of a real Slurm: a controller and two of its node daemons on this machine, run
//! by the user of the test. Slurm calls the nodes otherwise than the machine calls itself, and
//! gives each task the directories of its node, so nothing is shared between them but the program.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Outcome, Scratch, Turn, binary, port, process, skip};

const PATIENCE: Duration = Duration::from_secs(30);
const SUITE: &str = "slurm";
const NODES: [&str; 2] = ["n1", "n2"];

/// Each node has a leaf switch of its own.
const TOPOLOGY: &str = "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n2\n\
                        SwitchName=spine Switches=leaf[1-2]\n";

/// The daemons of a cluster. They end with the scratch, whose mark they have.
struct Cluster<'a> {
    scratch: &'a Scratch,
    config: PathBuf,
}

fn find(name: &str) -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/sbin").join(name);
    skip::find(name).or_else(|| usual.is_file().then_some(usual))
}

fn is_possible() -> bool {
    let missing = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo"]
        .into_iter()
        .find(|name| find(name).is_none());
    if let Some(name) = missing {
        let packages = "slurmctld slurmd slurm-client munge";
        skip::note(SUITE, &format!("{name} not found; on Debian: {packages}"));
    }
    missing.is_none()
}

fn private(path: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    fs::write(path, bytes)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// What Slurm runs before each task: it prints the variables that the task gets.
fn prolog(scratch: &Scratch) -> String {
    let root = scratch.path().display();
    format!(
        "#!/bin/sh\n\
         echo export XDG_RUNTIME_DIR={root}/$SLURMD_NODENAME/run\n\
         echo export TMPDIR={root}/$SLURMD_NODENAME/tmp\n"
    )
}

fn said(scratch: &Scratch, program: &str, option: &str) -> Result<String> {
    let output = Job::new(scratch, program, program).args([option]).run_ok()?.stdout;
    Ok(String::from_utf8(output)?.trim().to_owned())
}

fn config(scratch: &Scratch) -> Result<String> {
    let root = scratch.path().display();
    let host = said(scratch, "uname", "-n")?;
    let user = said(scratch, "id", "-un")?;
    let (control, first, second) = (port::free()?, port::free()?, port::free()?);
    let mut text = format!(
        "ClusterName=mayfly\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\n\
         SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\nCredType=cred/munge\n\
         AuthInfo=socket={root}/munge\nStateSaveLocation={root}/state\n\
         SlurmdSpoolDir={root}/spool.%n\nSlurmctldPidFile={root}/ctld.pid\n\
         SlurmdPidFile={root}/slurmd.%n.pid\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nReturnToService=2\n\
         KillWait=5\nTaskProlog={root}/prolog\nTopologyPlugin=topology/tree\n\
         PartitionName=all Nodes=ALL Default=YES State=UP\n"
    );
    for (name, port) in NODES.iter().zip([first, second]) {
        text.push_str(&format!(
            "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 \
             RealMemory=500\n"
        ));
    }
    Ok(text)
}

impl<'a> Cluster<'a> {
    fn start(scratch: &'a Scratch) -> Result<Cluster<'a>> {
        for node in NODES {
            for directory in ["run", "tmp"] {
                let path = scratch.join(node).join(directory);
                fs::create_dir_all(&path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            }
        }
        fs::create_dir(scratch.join("state"))?;
        private(&scratch.join("prolog"), prolog(scratch), 0o755)?;
        let mut key = [0; 128];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        private(&scratch.join("munge.key"), key, 0o400)?;
        let path = scratch.join("slurm.conf");
        private(&path, config(scratch)?, 0o600)?;
        private(&scratch.join("topology.conf"), TOPOLOGY, 0o600)?;
        let cluster = Cluster { scratch, config: path };
        cluster.munged()?;
        cluster.daemon("slurmctld", "slurmctld", &["-D"])?;
        for node in NODES {
            cluster.daemon(&format!("slurmd-{node}"), "slurmd", &["-D", "-N", node])?;
        }
        cluster.await_nodes()?;
        Ok(cluster)
    }

    fn munged(&self) -> Result<()> {
        let file =
            |option: &str, name: &str| format!("{option}={}", self.scratch.join(name).display());
        let files = [
            file("--socket", "munge"),
            file("--key-file", "munge.key"),
            file("--pid-file", "munge.pid"),
            file("--seed-file", "munge.seed"),
            file("--log-file", "munge.log"),
        ];
        let arguments = ["--force", "--foreground"].map(str::to_owned).into_iter().chain(files);
        let arguments: Vec<String> = arguments.collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.daemon("munged", "munged", &arguments)?;
        let deadline = Instant::now() + PATIENCE;
        while !self.scratch.join("munge").exists() {
            ensure!(Instant::now() < deadline, "munged does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn daemon(&self, name: &str, program: &str, arguments: &[&str]) -> Result<()> {
        let program = find(program).context("it was there")?;
        self.job(name, program).args(arguments).start().map(drop)
    }

    fn job(&self, name: &str, program: impl AsRef<std::ffi::OsStr>) -> Job<'a> {
        Job::new(self.scratch, name, program).env("SLURM_CONF", self.config.as_os_str())
    }

    fn await_nodes(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = self.job("sinfo", "sinfo").args(["-h", "-t", "idle", "-o", "%D"]).run()?;
            if asked.stdout == b"2\n" {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&asked.stderr).into_owned();
            ensure!(Instant::now() < deadline, "the nodes are not idle: {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Submits a job for both nodes that runs `script`; with `--wait`, until its end.
    fn submit(&self, name: &str, script: &str, options: &[&str]) -> Result<Outcome> {
        let path = self.scratch.join(format!("{name}.sh"));
        let program = binary::mayfly()?;
        let head = format!(
            "#!/bin/sh\nset -e\neval \"$({})\"\nmayfly() {{ {} \"$@\"; }}\n",
            self.scratch.join("prolog").display(),
            program.display()
        );
        fs::write(&path, head + script)?;
        let output = format!("--output={}", self.output(name).display());
        let job = self.job(name, "sbatch").args(["--nodes=2", &output]).args(options);
        job.args([path]).run()
    }

    fn output(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{name}.output"))
    }

    fn run(&self, name: &str, script: &str) -> Result<String> {
        let outcome = self.submit(name, script, &["--wait"])?;
        let said = fs::read_to_string(self.output(name)).unwrap_or_default();
        let complaint = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 0, "the job failed: {said}{complaint}");
        Ok(said)
    }
}

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
    if !is_possible() {
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
fn an_instance_that_a_job_starts_serves_its_steps_on_every_node_until_it_is_stopped() -> Result<()>
{
    if !is_possible() {
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

#[test]
fn leaf_switches_of_slurm_are_pools_for_directories() -> Result<()> {
    if !is_possible() {
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
    if !is_possible() {
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
    if !is_possible() {
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
    if !is_possible() {
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
