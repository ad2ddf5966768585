//! MPI's own launchers over two nodes that share nothing but programs: each has a network, mounts
//! and a host name of its own, and is reached by ssh. Ranks on the other node are in the instance.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Job, Outcome, Scratch, Turn, binary, leftovers::Before, process, skip};
use mayfly_tests::namespaces::{Namespaces, is_possible};

const SUITE: &str = "MPI launchers";
const PATIENCE: Duration = Duration::from_secs(15);
const HOSTS: [&str; 2] = ["n1", "n2"];

/// Both nodes, each with a server for ssh.
struct Nodes<'a> {
    scratch: &'a Scratch,
    servers: Vec<u32>,
    _namespaces: Namespaces,
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        for server in &self.servers {
            process::kill(*server);
        }
    }
}

/// What a node does before it serves: its directories stand at the same paths as the other one's.
const NODE: &str = r#"set -eu
hostname "$1"
mount --make-rprivate /
for name in run tmp; do mkdir -p "$2/$1/$name"; mount --bind "$2/$1/$name" "$2/$name"; done
mount --bind "$2/hosts" /etc/hosts
exec /usr/sbin/sshd -D -E "$2/$1.log" -f "$2/sshd_config""#;

impl<'a> Nodes<'a> {
    fn new(scratch: &'a Scratch) -> Result<Nodes<'a>> {
        let namespaces = Namespaces::new()?;
        fs::DirBuilder::new().recursive(true).mode(0o755).create("/run/sshd")?;
        for name in ["host_key", "user_key"] {
            let words = ["-q", "-t", "ed25519", "-N", "", "-f"];
            let job = Job::new(scratch, name, "ssh-keygen").args(words);
            job.args([scratch.join(name)]).run_ok()?;
        }
        let root = scratch.path().display();
        fs::write(scratch.join("hosts"), "127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n")?;
        for name in ["run", "tmp"] {
            fs::create_dir_all(scratch.join(name))?;
        }
        let (mark, value) = scratch.environment().remove(0);
        fs::write(
            scratch.join("sshd_config"),
            format!(
                "HostKey {root}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n\
                 AuthorizedKeysFile {root}/user_key.pub\nPermitRootLogin yes\n\
                 SetEnv {mark}={} XDG_RUNTIME_DIR={root}/run TMPDIR={root}/tmp\n",
                value.display()
            ),
        )?;
        // What is found first on the path of whoever starts a launcher.
        fs::create_dir_all(scratch.join("bin"))?;
        let ssh = scratch.join("bin/ssh");
        let options = "-o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR \
                       -o UserKnownHostsFile=/dev/null";
        let real = skip::find("ssh").context("it was there")?;
        let script =
            format!("#!/bin/sh\nexec {} -i {root}/user_key {options} \"$@\"\n", real.display());
        fs::write(&ssh, script)?;
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
        let mut nodes = Nodes { scratch, servers: Vec::new(), _namespaces: namespaces };
        for (host, namespace) in HOSTS.into_iter().zip(nodes._namespaces.names.clone()) {
            let job = Job::new(scratch, &format!("node-{host}"), "ip");
            let job = job.args(["netns", "exec", &namespace, "unshare", "--mount", "--uts"]);
            let job = job.args(["sh", "-c", NODE, "node", host]).args([scratch.path()]);
            nodes.servers.push(job.start()?.pid());
        }
        nodes.wait()?;
        Ok(nodes)
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let tried = self.on_first("wait", "ssh n1 true && ssh n2 true")?;
            if tried.code == 0 {
                return Ok(());
            }
            let error = String::from_utf8_lossy(&tried.stderr).into_owned();
            ensure!(Instant::now() < deadline, "the nodes cannot be reached: {error}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a script on the first node.
    fn on_first(&self, label: &str, script: &str) -> Result<Outcome> {
        let program = binary::mayfly()?;
        let directory = program.parent().context("a file is in a directory")?;
        let bin = self.scratch.join("bin");
        let usual = std::env::var("PATH").unwrap_or_default();
        let first = self.servers.first().context("the first node is there")?.to_string();
        let job = Job::new(self.scratch, label, "nsenter").args(["--target", &first]);
        let job = job.args(["--net", "--mount", "--uts", "--", "bash", "-c", script]);
        let path = format!("{}:{}:{usual}", bin.display(), directory.display());
        let job = job.env("PATH", path).env("XDG_RUNTIME_DIR", self.scratch.join("run"));
        job.env("TMPDIR", self.scratch.join("tmp")).deadline(Duration::from_secs(120)).run()
    }
}

fn nodes_are_possible() -> bool {
    let tools = ["sshd", "ssh", "ssh-keygen", "nsenter", "unshare", "mpirun.mpich"];
    let path = std::env::var("PATH").unwrap_or_default();
    let has = |tool: &&str| skip::find(tool).is_some() || is_file("/usr/sbin", tool);
    let missing: Vec<&str> = tools.into_iter().filter(|tool| !has(tool)).collect();
    if !missing.is_empty() {
        let packages = "openssh-server openssh-client util-linux mpich openmpi-bin";
        let missing = missing.join(" ");
        skip::note(SUITE, &format!("{missing} not found in {path}; on Debian: {packages}"));
        return false;
    }
    is_possible(SUITE)
}

fn is_file(directory: &str, name: &str) -> bool {
    PathBuf::from(directory).join(name).is_file()
}

/// Ranks write what they see, with the mount and without one.
fn expect_ranks(nodes: &Nodes<'_>, label: &str, access: &str, mpirun: &str) -> Result<()> {
    // A relative path on the other node is looked up by its launcher, which is not served.
    let rank = r#"echo "$(hostname) $(basename $MAYFLY_MOUNT)" > "$MAYFLY_MOUNT/$(hostname)""#;
    let script = format!(
        "mayfly run --nodes n1,n2 --launcher ssh --access {access} -- bash -c '\n\
         {mpirun} sh -c '\\''{rank}'\\'' && cd \"$MAYFLY_MOUNT\" && cat n1 n2'"
    );
    let outcome = nodes.on_first(label, &script)?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    ensure!(outcome.code == 0 && said == "n1 mnt\nn2 mnt\n", "{label}: {said}{error}");
    Ok(())
}

#[test]
fn ranks_on_other_nodes_are_in_the_instance_whose_launcher_starts_them() -> Result<()> {
    if !nodes_are_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("launchers")?;
    let before = Before::look();
    let nodes = Nodes::new(&scratch)?;
    let open_mpi = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi \
                    -H n1,n2 -np 2 $(mayfly env --mpirun)";
    for (label, mpirun) in [("mpich", "mpirun.mpich -hosts n1,n2 -n 2"), ("openmpi", open_mpi)] {
        for access in ["auto", "preload"] {
            expect_ranks(&nodes, &format!("{label}-{access}"), access, mpirun)?;
        }
    }
    drop(nodes);
    before.expect_nothing_since(&scratch, &[], PATIENCE)
}
