//! The instance beside which the "with" side runs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A running instance; ended when dropped.
pub(crate) struct Instance {
    mayfly: PathBuf,
    name: String,
    /// What `mayfly env` says.
    pub(crate) environment: Vec<(String, String)>,
}

impl Instance {
    pub(crate) fn start() -> Result<Instance> {
        let mayfly = std::env::current_exe()?.with_file_name("mayfly");
        ensure!(
            mayfly.is_file(),
            "{} is missing: cargo build --release -p mayfly-cli",
            mayfly.display()
        );
        let name = format!("overhead-{}", std::process::id());
        run(Command::new(&mayfly).args(["start", "--name", &name]))?;
        let mut instance = Instance { mayfly, name, environment: Vec::new() };
        let lines = run(Command::new(&instance.mayfly).args(["env", "--name", &instance.name]))?;
        let variable = |line: &str| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('\'').to_owned()))
        };
        instance.environment = lines.lines().filter_map(variable).collect();
        Ok(instance)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new(&self.mayfly).args(["stop", "--name", &self.name])) {
            eprintln!("overhead: {error:#}");
        }
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
