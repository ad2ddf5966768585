//! What a batch system runs around a job.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_site::{Job, Part, Request, Site};

use crate::{
    arguments::{self, Do, Half},
    output,
};

/// So much of a script is looked at, bytes; the lines that count are at its beginning.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

pub(crate) fn site(wanted: &arguments::Site) -> Result<()> {
    match wanted {
        arguments::Site::Prolog { config, only } => {
            let (site, job) = of_environment(&config.config)?;
            let part = match only {
                None => Part::All,
                Some(Half::Ready) => Part::Ready,
                Some(Half::Start) => Part::Start,
            };
            mayfly_site::prolog(&site, &job, part)
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
    let Some(root) = mayfly_site::run_root(site, &job.id) else { return Ok(()) };
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = Command::new(program);
    command.env(mayfly_site::RUN_ROOT, &root).args(["env", "--plain", "--name", &job.instance()]);
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", complaint.trim());
    output::print(&output.stdout)
}

/// Names the operator's file where it is another one.
const SITE: &str = "MAYFLY_SITE";

/// In a job that has an instance by its site, begins anew with where that is, unless something has
/// told this process already: Slurm's TaskProlog does, other systems have none.
pub(crate) fn enter_job(subcommand: &Do) -> Result<()> {
    let looks_for_one = matches!(
        subcommand,
        Do::Stop(_)
            | Do::Status(_)
            | Do::Env(_)
            | Do::Shell(_)
            | Do::Mount(_)
            | Do::Fsck(_)
            | Do::Metrics(_)
            | Do::Report(_)
            | Do::Top(_)
            | Do::Stage(_)
            | Do::Layout(_)
    );
    if !looks_for_one || std::env::var_os(mayfly_site::RUN_ROOT).is_some() {
        return Ok(());
    }
    let Some(id) = mayfly_deploy::nodes::job() else { return Ok(()) };
    let config = std::env::var_os(SITE).map_or_else(|| mayfly_site::CONFIG.into(), PathBuf::from);
    let node = mayfly_deploy::nodes::this_host();
    // A machine without that file, or with one that is not for us, is none of such a site.
    let Ok(site) = Site::load(&config, &node) else { return Ok(()) };
    let Some(root) = mayfly_site::run_root(&site, &id) else { return Ok(()) };
    let mut command = Command::new(std::env::current_exe().context("cannot find the program")?);
    command.args(std::env::args_os().skip(1)).env(mayfly_site::RUN_ROOT, root);
    bail!("cannot begin anew in the job's instance: {}", command.exec())
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
