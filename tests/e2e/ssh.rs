//! Nodes on hosts that are reached by ssh: two servers of ours on this machine's loopback, run by
//! the user of the test, with keys of their own. They give each session other directories, so
//! nothing is shared between their hosts but the program.

use std::{
    fs,
    net::TcpStream,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Outcome, Scratch, Turn, port, process, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);
const SUITE: &str = "ssh";

/// The `ssh` that is found first on `PATH`: it knows our servers.
struct Reach {
    path: String,
    _servers: [Server; 2],
}

/// A server. It writes over its own environment, so the suite's mark does not find it.
struct Server(Pid);

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody has waited for it, so the number is still its own.
        let _ended = kill_process(self.0, Signal::TERM);
    }
}

fn sshd() -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/sbin/sshd");
    skip::find("sshd").or_else(|| usual.is_file().then_some(usual))
}

fn is_possible() -> bool {
    let package = "openssh-server openssh-client";
    if sshd().is_none() {
        skip::note(SUITE, &format!("sshd not found; on Debian: {package}"));
        return false;
    }
    skip::unless_installed(SUITE, &["ssh", "ssh-keygen"], package)
}

fn user() -> Result<String> {
    let output = std::process::Command::new("id").arg("-un").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn key(scratch: &Scratch, name: &str) -> Result<()> {
    let arguments = ["-q", "-t", "ed25519", "-N", "", "-f"];
    let job = Job::new(scratch, name, "ssh-keygen").args(arguments);
    job.args([scratch.join(name)]).run_ok().map(drop)
}

/// Starts a server for the host `name`; its port.
fn serve(scratch: &Scratch, name: &str) -> Result<(u16, Server)> {
    let port = port::free()?;
    let root = scratch.path().display();
    for directory in ["run", "tmp"] {
        fs::create_dir_all(scratch.join(name).join(directory))?;
    }
    let mark = scratch.environment().remove(0);
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host_key\nPidFile none\nUsePAM no\n\
         AuthorizedKeysFile {root}/user_key.pub\nStrictModes no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n\
         SetEnv {}={} XDG_RUNTIME_DIR={root}/{name}/run TMPDIR={root}/{name}/tmp\n",
        mark.0,
        mark.1.display()
    );
    let path = scratch.join(format!("{name}.sshd"));
    fs::write(&path, config)?;
    let log = scratch.join(format!("{name}.log"));
    let program = sshd().context("it was there")?;
    let arguments = ["-D".as_ref(), "-E".as_ref(), log.as_os_str(), "-f".as_ref()];
    let server = Job::new(scratch, &format!("sshd-{name}"), program).args(arguments);
    let server = server.args([&path]).start()?;
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw);
    let server = Server(pid.context("a process has a number")?);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        ensure!(Instant::now() < deadline, "sshd does not answer: {said}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((port, server))
}

/// Servers for `n1` and `n2`, and nobody at `n3`.
fn servers(scratch: &Scratch) -> Result<Reach> {
    // Root's servers want an empty directory there.
    if rustix::process::geteuid().is_root() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create("/run/sshd")?;
    }
    key(scratch, "host_key")?;
    key(scratch, "user_key")?;
    let nobody = port::free()?;
    let ((first, one), (second, two)) = (serve(scratch, "n1")?, serve(scratch, "n2")?);
    let ports = [("n1", first), ("n2", second), ("n3", nobody)];
    let (root, user) = (scratch.path().display(), user()?);
    let mut config = format!(
        "Host *\n  HostName 127.0.0.1\n  User {user}\n  IdentityFile {root}/user_key\n  \
         IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  \
         LogLevel ERROR\n"
    );
    for (host, port) in ports {
        config.push_str(&format!("Host {host}\n  Port {port}\n"));
    }
    let path = scratch.join("ssh_config");
    fs::write(&path, config)?;
    let real = skip::find("ssh").context("it was there")?;
    let script = format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", real.display(), path.display());
    let programs = scratch.join("bin");
    fs::create_dir(&programs)?;
    fs::write(programs.join("ssh"), script)?;
    fs::set_permissions(programs.join("ssh"), fs::Permissions::from_mode(0o700))?;
    let path = std::env::var("PATH")?;
    let path = format!("{}:{path}", programs.display());
    Ok(Reach { path, _servers: [one, two] })
}

impl Reach {
    fn job<'a>(&self, instance: &Instance<'a>, subcommand: &str, options: &[&str]) -> Job<'a> {
        instance.command(subcommand).args(options).env("PATH", &self.path)
    }

    fn start(&self, instance: &Instance<'_>, options: &[&str]) -> Result<Outcome> {
        self.job(instance, "start", &[&["--launcher", "ssh"], options].concat()).run()
    }
}

/// Everything that nodes have made on the hosts.
fn left(scratch: &Scratch) -> Vec<PathBuf> {
    let directories = ["n1/run", "n1/tmp", "n2/run", "n2/tmp"];
    let entries = directories.map(|directory| fs::read_dir(scratch.join(directory)));
    entries.into_iter().flatten().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The relays end with the start; their connections a moment later, by the servers' leave.
fn expect_no_relay(scratch: &Scratch) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ssh = process::marked(scratch.mark());
        let ssh: Vec<_> =
            ssh.iter().filter(|process| process.command.contains("__relay")).collect();
        if ssh.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "relays or their ssh live on: {ssh:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes of the hosts, but not the servers.
fn expect_no_node(scratch: &Scratch) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let marked = process::marked(scratch.mark());
        let nodes: Vec<_> =
            marked.iter().filter(|process| process.command.contains("mayfly")).collect();
        let left = left(scratch);
        if nodes.iter().all(|process| process.command.contains("sshd")) && left.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left: {nodes:?} {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nodes_on_hosts_behind_ssh_outlive_its_sessions_and_leave_nothing() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ssh")?;
    let reach = servers(&scratch)?;
    let instance = Instance::named(&scratch, "far")?;
    let outcome = reach.start(&instance, &["--nodes", "n[1-2]"])?;
    ensure!(outcome.code == 0, "{}", String::from_utf8_lossy(&outcome.stderr));
    let on = |host: &str, subcommand: &str, options: &[&str]| {
        let directory = scratch.join(host).join("run");
        reach.job(&instance, subcommand, options).env("XDG_RUNTIME_DIR", directory).run_ok()
    };
    let status = Instance::read_status(&on("n2", "status", &["--json"])?)?;
    ensure!(status.get("serving") == Some(&2.into()), "{status}");
    for node in status.get("nodes").and_then(Value::as_array).context("nodes")? {
        let address = node.get("address").and_then(Value::as_str).context("an address")?;
        ensure!(address.starts_with("127.0.0.1:"), "that is not where ssh reached it: {address}");
    }
    expect_no_relay(&scratch)?;
    let script = r#"cd "$MAYFLY_MOUNT" && echo text > file && cat file"#;
    let shell = instance.shell("use", script).env("XDG_RUNTIME_DIR", scratch.join("n1/run"));
    ensure!(shell.run_ok()?.stdout == b"text\n", "node 0 does not serve");
    on("n1", "stop", &[])?;
    expect_no_node(&scratch)
}

#[test]
fn a_host_that_ssh_cannot_reach_or_without_the_program_is_named_and_nothing_is_left() -> Result<()>
{
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("ssh-not")?;
    let reach = servers(&scratch)?;
    let instance = Instance::named(&scratch, "not")?;
    let outcome = reach.start(&instance, &["--nodes", "n[1-3]"])?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code == 1, "{error}");
    for word in ["1 of 3 nodes", "node 2 on n3", "Connection refused"] {
        ensure!(error.contains(word), "the error says nothing of {word:?}: {error}");
    }
    expect_no_node(&scratch)?;
    let absent = ["--nodes", "n1", "--remote-path", "/nonexistent/mayfly"];
    let outcome = reach.start(&instance, &absent)?;
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    for word in ["node 0 on n1", "/nonexistent/mayfly"] {
        ensure!(error.contains(word), "the error says nothing of {word:?}: {error}");
    }
    expect_no_node(&scratch)
}
