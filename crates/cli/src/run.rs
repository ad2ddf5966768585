//! Starting and ending instances.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use anyhow::{Result, bail, ensure};
use mayfly_deploy::{
    Audience, Config, Durability, Lifeline, command, control, is_seen, launch,
    nodes::{Fleet, Launch, stop_all},
};

use crate::{
    arguments::{self, values::Transfer},
    fleet, instances, report, stage, tier,
};

pub(crate) fn run(run: &arguments::Run) -> Result<()> {
    let save = run.save.as_deref().map(check_target).transpose()?;
    let reported = run.report.as_deref().map(report::check_output).transpose()?;
    let saved = save.as_deref().map(Transfer::of_everything);
    let out: Vec<Transfer> = run.stage_out.iter().cloned().chain(saved).collect();
    let mut instance = run.make.instance(run.name.clone(), run.keep)?;
    instance.audience = Audience::Command;
    let (mut hold, config) = match run.nodes.launch(instance.clone())? {
        Some(many) => {
            fleet::expect_first_here(&many)?;
            let started = fleet::launch(&many)?;
            let config = instances::running(&started.members.name)?;
            (Hold::Many(started), config)
        }
        None => {
            let config = instance.make()?;
            (Hold::One(launch(&config)?), config)
        }
    };
    let command = if run.command.is_empty() { vec![shell()] } else { run.command.clone() };
    let brought = run.stage_in.iter().try_for_each(|one| stage::transfer_now(&config, "in", one));
    // Whoever is killed from here on leaves what was to be staged out.
    let keeps =
        !out.is_empty() && brought.is_ok() && config.options.durability()? != Durability::None;
    if let Hold::One(lifeline) = &mut hold
        && keeps
    {
        lifeline.keep()?;
    }
    let ended = brought.and_then(|()| command::run(&config, &command));
    stage::wait_for_all(&config);
    if let Some(output) = &reported {
        let name = match &hold {
            Hold::One(_) => &config.name,
            Hold::Many(many) => &many.members.name,
        };
        report::of_run(name, &command, output);
    }
    let saved = if ended.is_ok() { take_out(&config, &out) } else { Ok(()) };
    let flushed = tier::flush_last(&config);
    match hold {
        Hold::One(lifeline) => finish(lifeline, &config, ended, (saved, flushed)),
        // What several nodes have cannot be taken up again, so it goes on.
        Hold::Many(many) if saved.is_err() && keeps => {
            let name = many.members.name.clone();
            many.detach()?;
            eprintln!(
                "mayfly: the instance goes on, with what was not staged out: `mayfly stage out \
                 --name {name}` goes on, and then end it by `mayfly stop --name {name}`"
            );
            saved
        }
        Hold::Many(many) if flushed.is_err() => {
            many.detach()?;
            flushed
        }
        Hold::Many(many) => {
            let name = many.members.name.clone();
            let stopped = many.stop().map(|lost| fleet::say_lost(&name, &lost));
            let status = ended?;
            saved?;
            stopped?;
            command::end_like(status);
        }
    }
}

/// What an instance hangs on while its command runs.
enum Hold {
    One(Lifeline),
    Many(Fleet),
}

fn finish(
    lifeline: Lifeline,
    config: &Config,
    ended: Result<ExitStatus>,
    (saved, flushed): (Result<()>, Result<()>),
) -> Result<()> {
    // Without the daemon's memory the data directory is of no use.
    let failed = saved.is_err() || flushed.is_err();
    let rescue = failed && config.options.durability()? != Durability::None;
    let stopped = lifeline.stop(rescue).map(|lost| say_lost(config, lost.as_deref()));
    if rescue && saved.is_err() && stopped.is_ok() {
        eprintln!(
            "mayfly: the data are kept; `mayfly start --reopen {}` takes them up, and then `mayfly \
             stage out` goes on",
            config.data_dir.display()
        );
    }
    if config.keep && stopped.is_ok() {
        eprintln!("mayfly: the data are in {}", config.data_dir.display());
    }
    let status = ended?;
    saved?;
    flushed?;
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

/// Stages out in the order in which it was asked for. What fails keeps nothing that follows from
/// being tried; the last failure is the caller's to tell.
fn take_out(config: &Config, out: &[Transfer]) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    ensure!(control::lost(config)?.is_none(), "nothing is saved: the content was lost");
    let mut failed = None;
    for one in out {
        if let Err(error) = stage::transfer_now(config, "out", one)
            && let Some(earlier) = failed.replace(error)
        {
            eprintln!("mayfly: {earlier:#}");
        }
    }
    failed.map_or(Ok(()), Err)
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

pub(crate) fn start(start: &arguments::Start) -> Result<()> {
    if let Some(many) = many(start)? {
        return start_many(&many);
    }
    let config = match &start.reopen {
        Some(data_dir) => start.make.instance(start.name.clone(), true)?.reopen(data_dir)?,
        None => {
            let name = start.name.clone().unwrap_or_else(arguments::usual_name);
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
    if let Some(hint) = hint_without_mount(&config) {
        eprintln!("mayfly: {hint}");
    }
    Ok(())
}

/// What a shell that runs already has to be told where the instance is not mounted: it cannot be
/// entered by setting variables, as what it starts can.
pub(crate) fn hint_without_mount(config: &Config) -> Option<String> {
    (!is_seen(config)).then(|| {
        format!(
            "not mounted, so this shell's own redirections and `cd` do not reach it after `mayfly \
             env`: enter by `mayfly shell --name {}`, or run `exec \"$SHELL\"` afterwards",
            config.name
        )
    })
}

/// A shell of the user's in a running instance.
pub(crate) fn enter(wanted: &arguments::Entered) -> Result<()> {
    let config = instances::node(&wanted.which.name(), wanted.node)?;
    command::end_like(command::run(&config, &[shell()])?);
}

/// What is to be started when that is several nodes.
fn many(start: &arguments::Start) -> Result<Option<Launch>> {
    if start.reopen.is_some() {
        ensure!(
            !start.nodes.are_named() && start.nodes.daemons() == 1,
            "--reopen is for instances of one node"
        );
        return Ok(None);
    }
    let name = start.name.clone().unwrap_or_else(arguments::usual_name);
    start.nodes.launch(start.make.instance(Some(name), start.keep)?)
}

fn start_many(many: &Launch) -> Result<()> {
    let started = fleet::launch(many)?;
    let (name, count) = (started.members.name.clone(), started.members.nodes.len());
    started.detach()?;
    let Ok(config) = instances::node(&name, None) else {
        eprintln!("mayfly: {name:?} serves on {count} nodes, none of them here");
        return Ok(());
    };
    println!("{}", config.mount.display());
    eprintln!(
        "mayfly: {name:?} serves {} on {count} nodes; enter with: \
         eval \"$(mayfly env --name {name})\"",
        config.mount.display(),
    );
    if let Some(hint) = hint_without_mount(&config) {
        eprintln!("mayfly: {hint}");
    }
    Ok(())
}

pub(crate) fn mount(mount: &arguments::Mount) -> Result<()> {
    let arguments::Entered { which, node } = &mount.entered;
    control::mount(&instances::node(&which.name(), *node)?, &mount.point)
}

pub(crate) fn stop(wanted: &arguments::Stop) -> Result<()> {
    let name = &wanted.which.name();
    if let Ok(config) = instances::node(name, None) {
        stage::wait_for_all(&config);
    }
    if let Some(members) = instances::members(name)? {
        // What several nodes have cannot be taken up again, so they go on where that matters.
        let flushed = instances::any_node(name).map_or(Ok(()), |config| tier::flush_last(&config));
        match flushed {
            Err(error) if wanted.discard => eprintln!("mayfly: {error:#}; it ends all the same"),
            other => other?,
        }
        fleet::say_lost(name, &stop_all(&members)?);
        return Ok(());
    }
    let config = instances::running(name)?;
    let flushed = tier::flush_last(&config);
    say_lost(&config, control::stop(&config)?.as_deref());
    if config.keep {
        eprintln!("mayfly: the data are in {}", config.data_dir.display());
    }
    flushed
}
