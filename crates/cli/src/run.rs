//! Starting and ending instances.

use std::{
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use mayfly_deploy::{
    COPY, Config, Durability, Found, Lifeline, command, control, copy_tree, environment, launch,
};

use crate::{arguments, size};

pub(crate) fn run(run: &arguments::Run) -> Result<()> {
    let save = run.save.as_deref().map(check_target).transpose()?;
    let config = run.make.instance(run.name.clone(), run.keep)?.make()?;
    let lifeline = launch(&config)?;
    let command = if run.command.is_empty() { vec![shell()] } else { run.command.clone() };
    let ended = command::run(&config, &command);
    let saved = match &save {
        Some(target) if ended.is_ok() => save_what_is_there(&config, target),
        _ => Ok(()),
    };
    finish(lifeline, &config, ended, saved)
}

fn finish(
    lifeline: Lifeline,
    config: &Config,
    ended: Result<ExitStatus>,
    saved: Result<()>,
) -> Result<()> {
    // Without the daemon's memory the data directory is of no use.
    let rescue = saved.is_err() && config.options.durability()? != Durability::None;
    let stopped = lifeline.stop(rescue).map(|lost| say_lost(config, lost.as_deref()));
    if rescue && stopped.is_ok() {
        eprintln!(
            "mayfly: the data are kept; `mayfly start --reopen {}` takes them up",
            config.data_dir.display()
        );
    }
    if config.keep && stopped.is_ok() {
        eprintln!("mayfly: the data are in {}", config.data_dir.display());
    }
    let status = ended?;
    saved?;
    stopped?;
    command::end_like(status);
}

/// Tells the user of a loss that nothing else may have shown.
fn say_lost(config: &Config, lost: Option<&str>) {
    if let Some(how) = lost {
        eprintln!(
            "mayfly: the content of {:?} was lost before its end: the daemon died ({how}), and \
             with --durability none nothing outlives it",
            config.name
        );
    }
}

fn save_what_is_there(config: &Config, target: &Path) -> Result<()> {
    ensure!(control::lost(config)?.is_none(), "nothing is saved: the content was lost");
    save_to(config, target)
}

fn shell() -> OsString {
    std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

/// A target that has something in it would be mixed with the tree.
fn check_target(target: &Path) -> Result<PathBuf> {
    let target = std::path::absolute(target)?;
    match std::fs::read_dir(&target) {
        Ok(mut entries) => ensure!(
            entries.next().is_none(),
            "--save {}: that directory is not empty; choose a new one",
            target.display()
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = target.parent().unwrap_or(Path::new("/"));
            ensure!(
                parent.is_dir(),
                "--save {}: there is no {}",
                target.display(),
                parent.display()
            );
        }
        Err(error) => bail!("--save {}: {error}", target.display()),
    }
    Ok(target)
}

fn save_to(config: &Config, target: &Path) -> Result<()> {
    let status = Command::new(std::env::current_exe()?)
        .arg(COPY)
        .arg(&config.mount)
        .arg(target)
        .envs(environment::variables(config))
        .status()
        .context("cannot start the copy")?;
    ensure!(status.success(), "saving to {} failed", target.display());
    Ok(())
}

/// The copying process itself, served by the instance.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let bar = progress();
    let copied = copy_tree(from, to, &mut |so_far| {
        bar.set_message(format!("{} files, {}", so_far.files, size::show(so_far.bytes)));
        bar.tick();
    });
    bar.finish_and_clear();
    for failed in &copied.failed {
        eprintln!("mayfly: {failed}");
    }
    ensure!(copied.failed.is_empty(), "{} entries could not be saved", copied.failed.len());
    // Beside a command whose output somebody compares or parses, success is silent.
    if std::io::stderr().is_terminal() {
        eprintln!(
            "mayfly: saved {} files in {} directories, {}, to {}",
            copied.files,
            copied.directories,
            size::show(copied.bytes),
            to.display()
        );
    }
    Ok(())
}

fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} saving: {msg} ({elapsed})");
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

pub(crate) fn start(start: &arguments::Start) -> Result<()> {
    let config = match &start.reopen {
        Some(data_dir) => start.make.instance(start.name.clone(), true)?.reopen(data_dir)?,
        None => {
            let name = start.name.clone().unwrap_or_else(|| "default".to_owned());
            start.make.instance(Some(name), start.keep)?.make()?
        }
    };
    launch(&config)?.detach()?;
    println!("{}", config.mount.display());
    eprintln!(
        "mayfly: {:?} serves {}; enter with: eval \"$(mayfly env --name {})\"",
        config.name,
        config.mount.display(),
        config.name
    );
    Ok(())
}

/// The configuration of a running instance, or an error that says what there is instead.
pub(crate) fn running(name: &str) -> Result<Config> {
    match Found::look(name)? {
        Found::Running(config) => Ok(*config),
        Found::Stale(run_dir) => bail!(
            "the instance {name:?} is dead; it left {}. `mayfly start --name {name}` cleans up",
            run_dir.display()
        ),
        Found::Absent => bail!("no instance {name:?}; `mayfly status` lists those that run"),
    }
}

pub(crate) fn mount(mount: &arguments::Mount) -> Result<()> {
    control::mount(&running(&mount.name)?, &mount.point)
}

pub(crate) fn stop(name: &str) -> Result<()> {
    let config = running(name)?;
    say_lost(&config, control::stop(&config)?.as_deref());
    if config.keep {
        eprintln!("mayfly: the data are in {}", config.data_dir.display());
    }
    Ok(())
}
