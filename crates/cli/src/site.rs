//! What a batch system runs around a job.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use mayfly_site::{Job, Request, Site};

use crate::arguments;

/// So much of a script is looked at, bytes; the lines that count are at its beginning.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

pub(crate) fn site(wanted: &arguments::Site) -> Result<()> {
    match wanted {
        arguments::Site::Prolog(config) => {
            let (site, job) = of_environment(&config.config)?;
            mayfly_site::prolog(&site, &job)
        }
        arguments::Site::Epilog(config) => {
            let (site, job) = of_environment(&config.config)?;
            mayfly_site::epilog(&site, &job)
        }
        arguments::Site::TaskProlog(config) => {
            let (site, job) = of_environment(&config.config)?;
            variables(&site, &job)
        }
        arguments::Site::Check { script } => check(script),
        arguments::Site::Clean(clean) => {
            let site = Site::load(&clean.config.config, &clean.node)?;
            let count = mayfly_site::clean(&site, clean.job.as_deref())?;
            println!("cleared up after {count} jobs");
            Ok(())
        }
        arguments::Site::Key { file } => mayfly_site::make_key(file),
    }
}

fn check(script: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    if script == Path::new("-") {
        std::io::stdin().lock().take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes)?;
    } else {
        let cannot = || format!("cannot read {}", script.display());
        let file = std::fs::File::open(script).with_context(cannot)?;
        file.take(SCRIPT_BYTES_MAX).read_to_end(&mut bytes).with_context(cannot)?;
    }
    Request::parse("", "", &String::from_utf8_lossy(&bytes)).map(drop)
}

fn of_environment(config: &Path) -> Result<(Site, Job)> {
    let job = Job::of_environment()?;
    Ok((Site::load(config, &job.node)?, job))
}

/// The variables of the job's instance on this node; nothing for a job that has none.
fn variables(site: &Site, job: &Job) -> Result<()> {
    let Some(root) = mayfly_site::run_root(site, job) else { return Ok(()) };
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = Command::new(program);
    command.env(mayfly_site::RUN_ROOT, &root).args(["env", "--plain", "--name", &job.instance()]);
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", complaint.trim());
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "export {}={}", mayfly_site::RUN_ROOT, root.display())?;
    Ok(stdout.write_all(&output.stdout)?)
}

pub(crate) fn reach(run: &Path, host: &str, subcommand: &str) -> ExitCode {
    match mayfly_site::reach(run, host, subcommand) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mayfly: {error:#}");
            ExitCode::FAILURE
        }
    }
}
