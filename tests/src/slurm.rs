//! A real Slurm: a controller and two of its node daemons on this machine, run by the user of the
//! test.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Outcome, Scratch, binary, port, skip};

/// What has not happened by then never will.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What Slurm calls its nodes.
pub const NODES: [&str; 2] = ["n1", "n2"];

/// Each node has a leaf switch of its own.
const TOPOLOGY: &str = "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n2\n\
                        SwitchName=spine Switches=leaf[1-2]\n";

/// The daemons of a cluster. They end with the scratch, whose mark they have.
#[derive(Debug)]
pub struct Cluster<'a> {
    scratch: &'a Scratch,
    config: PathBuf,
}

fn find(name: &str) -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/sbin").join(name);
    skip::find(name).or_else(|| usual.is_file().then_some(usual))
}

/// Is a Slurm installed? `suite` is skipped otherwise.
#[must_use]
pub fn is_possible(suite: &str) -> bool {
    let missing = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo"]
        .into_iter()
        .find(|name| find(name).is_none());
    if let Some(name) = missing {
        let packages = "slurmctld slurmd slurm-client munge";
        skip::note(suite, &format!("{name} not found; on Debian: {packages}"));
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

/// What a cluster has beyond the usual.
#[derive(Debug, Default)]
pub struct Extra {
    /// Lines of slurm.conf.
    pub config: String,
    /// Features of each node.
    pub features: &'static str,
    /// A generic resource that each node has one of.
    pub gres: &'static str,
    /// Where the controller finds Mayfly.
    pub program: Option<PathBuf>,
}

fn config(scratch: &Scratch, extra: &Extra) -> Result<String> {
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
         KillWait=5\nTopologyPlugin=topology/tree\n\
         PartitionName=all Nodes=ALL Default=YES State=UP\n"
    );
    for (name, port) in NODES.iter().zip([first, second]) {
        text.push_str(&format!(
            "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 \
             RealMemory=500{}{}\n",
            match extra.features {
                "" => String::new(),
                features => format!(" Features={features}"),
            },
            match extra.gres {
                "" => String::new(),
                gres => format!(" Gres={gres}:1"),
            }
        ));
    }
    if !extra.gres.is_empty() {
        text.push_str(&format!("GresTypes={}\n", extra.gres));
    }
    text.push_str(&extra.config);
    Ok(text)
}

impl<'a> Cluster<'a> {
    /// One whose tasks have the directories of their nodes: see [`Cluster::start_with`].
    ///
    /// # Errors
    /// It does not start.
    pub fn start(scratch: &'a Scratch) -> Result<Cluster<'a>> {
        let path = scratch.join("prolog");
        private(&path, prolog(scratch), 0o755)?;
        // Heterogeneous jobs start with a turn of the second scheduler, every 30 s as a rule.
        let often = "SchedulerParameters=bf_interval=1";
        let config = format!("TaskProlog={}\n{often}\n", path.display());
        Cluster::start_with(scratch, &Extra { config, ..Extra::default() })
    }

    /// Starts a cluster of two nodes.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_with(scratch: &'a Scratch, extra: &Extra) -> Result<Cluster<'a>> {
        for node in NODES {
            for directory in ["run", "tmp"] {
                let path = scratch.join(node).join(directory);
                fs::create_dir_all(&path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            }
        }
        fs::create_dir(scratch.join("state"))?;
        let mut key = [0; 128];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        private(&scratch.join("munge.key"), key, 0o400)?;
        let path = scratch.join("slurm.conf");
        private(&path, config(scratch, extra)?, 0o644)?;
        private(&scratch.join("topology.conf"), TOPOLOGY, 0o644)?;
        if !extra.gres.is_empty() {
            let count = format!("Name={} Count=1\n", extra.gres);
            private(&scratch.join("gres.conf"), count, 0o644)?;
        }
        let cluster = Cluster { scratch, config: path };
        cluster.munged()?;
        let controller = find("slurmctld").context("it was there")?;
        let mut controller = cluster.job("slurmctld", controller).args(["-D"]);
        if let Some(program) = &extra.program {
            controller = controller.env("MAYFLY", program.as_os_str());
        }
        controller.start()?;
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

    /// A command of Slurm's.
    pub fn job(&self, name: &str, program: impl AsRef<std::ffi::OsStr>) -> Job<'a> {
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
    ///
    /// # Errors
    /// The script cannot be written.
    pub fn submit(&self, name: &str, script: &str, options: &[&str]) -> Result<Outcome> {
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

    /// Waits for the end of a job, or of all elements of an array. Was it a good one?
    ///
    /// # Errors
    /// It does not end.
    pub fn ends_well(&self, job: &str) -> Result<bool> {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let told = self.job("show", "scontrol").args(["-o", "show", "job", job]).run_ok()?;
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            let states = told.split_whitespace().filter_map(|word| word.strip_prefix("JobState="));
            let states: Vec<&str> = states.collect();
            let ended = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"];
            if states.iter().all(|state| ended.contains(state)) {
                return Ok(states.iter().all(|state| *state == "COMPLETED"));
            }
            ensure!(Instant::now() < deadline, "it does not end: {told}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What a job of that name prints.
    #[must_use]
    pub fn output(&self, name: &str) -> PathBuf {
        self.scratch.join(format!("{name}.output"))
    }

    /// What a job prints until its end, which must be a good one.
    ///
    /// # Errors
    /// It is none.
    pub fn run(&self, name: &str, script: &str) -> Result<String> {
        let outcome = self.submit(name, script, &["--parsable"])?;
        let complaint = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code == 0, "there is no job: {complaint}");
        let is_good = self.ends_well(String::from_utf8(outcome.stdout)?.trim())?;
        let said = fs::read_to_string(self.output(name)).unwrap_or_default();
        ensure!(is_good, "the job failed: {said}");
        Ok(said)
    }
}
