//! The `mayfly` command.

mod arguments;
mod bench;
mod fleet;
mod fsck;
mod instances;
mod layout;
mod logs;
mod manual;
mod metrics;
mod nodes;
mod output;
mod report;
mod run;
mod show;
mod site;
mod stage;
mod tier;
mod top;

use mayfly_deploy::{command::CannotRun, size};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Do, Layout};

fn main() -> ExitCode {
    output::end_with_the_reader();
    let subcommand = Arguments::parse().subcommand;
    if let Err(error) = site::enter_job(&subcommand) {
        eprintln!("mayfly: {error:#}");
        return ExitCode::FAILURE;
    }
    if let Do::Fsck(wanted) = &subcommand {
        // Whether nothing is wrong and whether that could be seen are told apart.
        return fsck::fsck(wanted);
    }
    if let Do::Stager(wanted) = &subcommand {
        // Whether all is there, some of it, or nothing was begun.
        return stage::perform(wanted);
    }
    if let Do::Stage(wanted) = &subcommand {
        return stage::stage(wanted);
    }
    if let Do::SiteReach { run, host, program: _, subcommand } = &subcommand {
        // It ends as what it has started elsewhere.
        return site::reach(run, host, subcommand);
    }
    match perform(subcommand) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mayfly: {error:#}");
            if let Some(cannot) = error.downcast_ref::<CannotRun>() {
                return ExitCode::from(cannot.exit_code());
            }
            match error.downcast_ref::<stage::Partly>() {
                Some(_) => ExitCode::from(stage::PARTLY),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn perform(what: Do) -> Result<()> {
    match what {
        Do::Fsck(_) | Do::Stage(_) | Do::Stager(_) | Do::SiteReach { .. } => Ok(()),
        Do::Run(run) => run::run(&run),
        Do::Start(start) => run::start(&start),
        Do::Stop(wanted) => run::stop(&wanted),
        Do::Status(status) => show::status(&status),
        Do::Env(wanted) => show::environment(&wanted),
        Do::Shell(wanted) => run::enter(&wanted),
        Do::Mount(mount) => run::mount(&mount),
        Do::Doctor(doctor) => show::doctor(&doctor),
        Do::Metrics(wanted) => metrics::metrics(&wanted),
        Do::Report(wanted) => report::report(&wanted),
        Do::Top(wanted) => top::top(&wanted),
        Do::Logs(wanted) => logs::logs(&wanted),
        Do::Site(wanted) => site::site(&wanted),
        Do::SiteDoor { run } => mayfly_site::open_door(&run),
        Do::SiteAs { uid, command } => mayfly_site::become_and_run(uid, &command),
        Do::SiteEmpty { directory } => mayfly_site::empty(&directory),
        Do::Tier(wanted) => tier::tier(&wanted),
        Do::Layout(Layout::Get(wanted)) => layout::get(&wanted),
        Do::Layout(Layout::Set(wanted)) => layout::set(&wanted),
        Do::Help { words } => manual::help(&words),
        Do::Completions { shell } => manual::completions(shell),
        Do::Man { directory } => manual::write_pages(&directory),
        Do::Bench(bench) => bench::bench(&bench),
        Do::BenchWorker => mayfly_bench::worker(),
        Do::Relay => mayfly_deploy::nodes::run_relay(),
        Do::Node => mayfly_deploy::nodes::run_node(),
        Do::Supervise { run_dir } => mayfly_deploy::supervisor::run(&run_dir),
        Do::Daemon { run_dir } => mayfly_deploy::run_daemon(&run_dir),
        Do::Fuse { run_dir, point } => mayfly_deploy::run_fuse(&run_dir, &point),
        Do::Inside { run_dir, command } => mayfly_deploy::run_inside(&run_dir, &command),
        Do::StageHelper => stage::help(),
        Do::StageHands => stage::serve(),
        Do::Keep { run_dir } => mayfly_deploy::run_keeper(&run_dir),
        Do::KeepTier { run_dir } => mayfly_deploy::run_tier(&run_dir),
        Do::Image { cache, pid, request } => mayfly_deploy::make_image(&cache, pid, &request),
    }
}
