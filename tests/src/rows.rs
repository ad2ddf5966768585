//! The programs that people run: one script of `apps/rows/` for each.
//!
//! A row runs natively and in a fresh instance at the very same path. It prints only what every run
//! prints alike, verifies what it can by itself, and is small: each takes a second or a few.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::leftovers::Before;
use mayfly_testkit::{Job, Outcome, Scratch, Turn, binary, skip};

use crate::program::{LEFTOVER_PATIENCE, apps_dir, expect_same_text};
use crate::verdicts::Verdict;

/// How long one run may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// A script with what it needs.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its file in `apps/rows/`; a Python program ends with `.py`.
    pub script: &'static str,
    /// What follows it on the command line.
    pub arguments: &'static [&'static str],
    /// What is set for it.
    pub variables: &'static [(&'static str, &'static str)],
    /// What runs it, when that is neither bash nor Python.
    pub shell: Option<&'static str>,
    /// Programs without which it cannot run, by their names or paths.
    pub programs: &'static [&'static str],
    /// Python modules without which it cannot run.
    pub modules: &'static [&'static str],
    /// The Debian packages that have them all.
    pub packages: &'static str,
    /// Root becomes this user first, since the program refuses root.
    pub user: Option<&'static str>,
    /// Whether it needs user namespaces.
    pub namespaces: bool,
}

impl Row {
    /// A script that needs what these packages have.
    pub const fn new(script: &'static str, packages: &'static str) -> Self {
        Self {
            script,
            arguments: &[],
            variables: &[],
            shell: None,
            programs: &[],
            modules: &[],
            packages,
            user: None,
            namespaces: false,
        }
    }

    /// Its turn to run. A namespace has a copy of all mounts, which keeps those of other tests
    /// alive.
    ///
    /// # Errors
    /// The files that are locked for it cannot be made.
    pub fn turn(&self) -> Result<Turn> {
        if self.namespaces { Turn::alone() } else { Turn::take() }
    }

    /// Runs it both ways.
    ///
    /// # Errors
    /// It could not be tried.
    pub fn verdict(&self, turn: &Turn, scratch: &Scratch) -> Result<Verdict> {
        let command = match self.command() {
            Ok(command) => command,
            Err(missing) => return Ok(Verdict::Missing(missing)),
        };
        let before = Before::look();
        let native = self.native(turn, scratch, &command)?;
        let compared = self.mounted(turn, scratch, &command).and_then(|mounted| {
            let (there, here) = (native.elapsed, mounted.elapsed);
            eprintln!("{}: {there:.2?} natively, {here:.2?} in the mount", self.script);
            compare(&native, &mounted)?;
            before.expect_nothing_since(scratch, &[], LEFTOVER_PATIENCE)
        });
        Ok(match compared {
            Ok(()) => Verdict::Passes,
            Err(error) => Verdict::Fails(format!("{error:#}")),
        })
    }

    /// The command line, or what is missing.
    fn command(&self) -> Result<Vec<PathBuf>, String> {
        let missing = |what: &str| format!("{what} not found; on Debian: {}", self.packages);
        let lacks = |name: &&&str| skip::find(name).is_none() && !Path::new(name).is_file();
        if let Some(name) = self.programs.iter().chain(&self.shell).find(lacks) {
            return Err(missing(name));
        }
        if self.namespaces && said_by(Command::new("unshare").args(["--user", "id"])).is_none() {
            return Err("user namespaces are not allowed here".into());
        }
        let python = self.needs_python().then(|| python_with(self.modules));
        if python == Some(None) {
            return Err(missing(&format!("Python with {}", self.modules.join(", "))));
        }
        let python = python.flatten().unwrap_or_default();
        let own = self.script.ends_with(".py").then(|| python.clone());
        let interpreter = own.unwrap_or_else(|| PathBuf::from(self.shell.unwrap_or("bash")));
        let mut command = self.other_user()?;
        let rows = apps_dir().join("rows");
        command.extend([PathBuf::from("bash"), rows.join("run.sh"), python, interpreter]);
        command.push(rows.join(self.script));
        command.extend(self.arguments.iter().map(PathBuf::from));
        Ok(command)
    }

    fn needs_python(&self) -> bool {
        self.script.ends_with(".py") || !self.modules.is_empty()
    }

    /// What comes before the command so that root is an ordinary user: a namespace of its own, in
    /// which the files of the tests belong to that user.
    fn other_user(&self) -> Result<Vec<PathBuf>, String> {
        let Some(user) = self.user.filter(|_| rustix::process::geteuid().is_root()) else {
            return Ok(Vec::new());
        };
        let id = |option| said_by(Command::new("id").args([option, user]));
        let (Some(uid), Some(gid)) = (id("-u"), id("-g")) else {
            return Err(format!("no user {user}; on Debian: {}", self.packages));
        };
        let maps = [format!("--map-user={uid}"), format!("--map-group={gid}")];
        if said_by(Command::new("unshare").arg("--user").args(&maps).args(["id", "-u"])).is_none() {
            return Err(format!("root cannot become {user}: no user namespaces"));
        }
        let words = ["unshare", "--user", maps[0].as_str(), maps[1].as_str(), "--"];
        Ok(words.map(PathBuf::from).to_vec())
    }

    fn native(&self, _turn: &Turn, scratch: &Scratch, command: &[PathBuf]) -> Result<Outcome> {
        let mount = scratch.join("mount");
        std::fs::create_dir(&mount)?;
        let job = Job::new(scratch, "native", &command[0]).args(&command[1..]);
        let outcome = self.prepare(job).env("MAYFLY_MOUNT", &mount).run_ok().context("natively")?;
        scratch.rename("mount", "native")?;
        Ok(outcome)
    }

    fn mounted(&self, _turn: &Turn, scratch: &Scratch, command: &[PathBuf]) -> Result<Outcome> {
        let (mount, data) = (scratch.join("mount"), scratch.join("data"));
        let mayfly = binary::mayfly()?;
        // The instance has to be that user's too.
        let own = command.iter().position(|word| word == Path::new("bash")).unwrap_or(0);
        let (user, command) = command.split_at(own);
        let mut words: Vec<PathBuf> = user.to_vec();
        words.push(mayfly);
        words.extend(["run", "--times", "all", "--mount"].map(PathBuf::from));
        words.extend([mount, PathBuf::from("--data-dir"), data, PathBuf::from("--")]);
        words.extend(command.iter().cloned());
        let job = Job::new(scratch, "mounted", &words[0]).args(&words[1..]);
        self.prepare(job).run()
    }

    fn prepare<'a>(&self, job: Job<'a>) -> Job<'a> {
        let job = job.deadline(DEADLINE).env("ROW_SOURCES", apps_dir().join("rows"));
        self.variables.iter().fold(job, |job, (name, value)| job.env(name, *value))
    }
}

/// What the command prints, when it succeeds.
fn said_by(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A Python that has the modules: Debian's, whose packages have them, or the first one found.
fn python_with(modules: &[&str]) -> Option<PathBuf> {
    let import = modules.iter().map(|module| format!("import {module}\n")).collect::<String>();
    let candidates = ["/usr/bin/python3", "python3"].into_iter();
    candidates.map(PathBuf::from).find(|python| {
        said_by(Command::new(python).args(["-c", &format!("pass\n{import}")])).is_some()
    })
}

/// The first difference between what two runs printed, or the mount's own complaint.
fn compare(native: &Outcome, mounted: &Outcome) -> Result<()> {
    let error = String::from_utf8_lossy(&mounted.stderr);
    let said: Vec<&str> = error.lines().collect();
    let said = said.get(said.len().saturating_sub(10)..).unwrap_or(&[]).join("\n");
    expect_same_text("standard output", &native.stdout, &mounted.stdout)
        .with_context(|| format!("exit status {}", mounted.code))
        .with_context(|| said.clone())?;
    ensure!(mounted.code == 0, "exit status {}\n{said}", mounted.code);
    ensure!(!native.stdout.is_empty(), "it printed nothing that could be compared");
    Ok(())
}
