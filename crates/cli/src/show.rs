//! Looking at instances.

use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use mayfly_deploy::{
    Counted, Report,
    containers::Needs,
    default_run_root, doctor, environment,
    machine::{self, Finding, Level},
    nodes::job,
    report, what_to_do,
};
use serde_json::{Value, json};

use crate::{arguments, fleet, instances, output::print as print_text, run, size, stage};

pub(crate) fn environment(wanted: &arguments::Env) -> Result<()> {
    if wanted.unset {
        return print_text(&environment::shell_lines_that_undo());
    }
    let name = match &wanted.job {
        Some(Some(id)) => format!("job-{id}"),
        Some(None) => {
            ensure!(job().is_some(), "--job: this is no batch job; say --job ID");
            arguments::usual_name()
        }
        None => wanted.entered.which.name(),
    };
    let config = instances::node(&name, wanted.entered.node)?;
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&Needs::of(&config)?)?);
        return Ok(());
    }
    if let Some(container) = wanted.container {
        let mut words = Needs::of(&config)?.words(container);
        words.push(b'\n');
        return print_text(&words);
    }
    if wanted.mpirun {
        let mut words = environment::mpirun_words(&config);
        words.push(b'\n');
        return print_text(&words);
    }
    if wanted.plain {
        return print_text(&environment::plain_lines(&config)?);
    }
    let mut lines = environment::shell_lines(&config);
    if let Some(hint) = run::hint_without_mount(&config) {
        lines.extend_from_slice(format!("# {hint}\n").as_bytes());
        eprintln!("mayfly: {hint}");
    }
    print_text(&lines)
}

pub(crate) fn status(wanted: &arguments::Status) -> Result<()> {
    if let Some(name) = &wanted.name {
        if let Some(members) = instances::members(name)? {
            let (value, trouble) = fleet::status(&members, wanted.json)?;
            if let Some(value) = value {
                println!("{}", serde_json::to_string_pretty(&value)?);
            }
            return trouble;
        }
        let report = report(instances::running(name)?)?;
        if wanted.json {
            println!("{}", serde_json::to_string_pretty(&with_stages(&report)?)?);
        } else {
            print(&report);
        }
        return report.trouble().map_or(Ok(()), |trouble| Err(anyhow!(trouble)));
    }
    let mut values = Vec::new();
    let names = instances::instances();
    for name in &names {
        match status_of(name, wanted.json) {
            Ok(value) => values.extend(value),
            Err(error) => eprintln!("mayfly: {error:#}"),
        }
    }
    if wanted.json {
        println!("{}", serde_json::to_string_pretty(&values)?);
    } else if names.is_empty() {
        println!("no instance is running in {}", default_run_root().display());
    }
    Ok(())
}

/// One of all instances; its trouble is told and does not count.
fn status_of(name: &str, as_json: bool) -> Result<Option<Value>> {
    if let Some(members) = instances::members(name)? {
        let (value, trouble) = fleet::status(&members, as_json)?;
        if let Err(trouble) = trouble {
            eprintln!("mayfly: {trouble}");
        }
        return Ok(value);
    }
    let report = report(instances::running(name)?)?;
    if let Some(trouble) = report.trouble() {
        eprintln!("mayfly: {trouble}");
    }
    if as_json {
        return with_stages(&report).map(Some);
    }
    print(&report);
    Ok(None)
}

fn with_stages(report: &Report) -> Result<Value> {
    let mut value = serde_json::to_value(report)?;
    value["stages"] = stage::running_here(&report.config.name);
    Ok(value)
}

pub(crate) fn doctor(wanted: &arguments::Doctor) -> Result<()> {
    let machine = if wanted.clean { Vec::new() } else { machine::look() };
    if wanted.json {
        let instances = doctor::dead_instances();
        let dead_instances: Vec<Value> = instances
            .iter()
            .map(|dead| json!({ "name": dead.name, "run_dir": dead.run_dir }))
            .collect();
        let dead_mounts = doctor::dead_mounts()?;
        let report = json!({
            "machine": machine, "dead_mounts": dead_mounts, "dead_instances": dead_instances,
        });
        println!("{report:#}");
        return enough(&machine);
    }
    for finding in &machine {
        print_finding(finding);
    }
    // First, since a mount may be in what is removed then.
    let mounts = mounts(wanted.clean)?;
    let instances = dead_instances(wanted.clean);
    if mounts.found + instances.found == 0 {
        println!("nothing dead is left");
    }
    ensure!(mounts.left == 0, "{} dead mounts are left; root can unmount them", mounts.left);
    ensure!(instances.left == 0, "{} dead instances are left", instances.left);
    enough(&machine)
}

fn print_finding(finding: &Finding) {
    let level = match finding.level {
        Level::Fine => "ok",
        Level::Less => "less",
        Level::Missing => "missing",
    };
    println!("{level:<8}{:<19}{}", finding.subject, finding.found);
    if let Some(advice) = &finding.advice {
        println!("{:27}{advice}", "");
    }
}

fn enough(machine: &[Finding]) -> Result<()> {
    let missing = machine.iter().filter(|finding| finding.level == Level::Missing);
    let missing: Vec<&str> = missing.map(|finding| finding.subject).collect();
    ensure!(missing.is_empty(), "Mayfly does not start here: {}", missing.join(", "));
    Ok(())
}

/// What was found dead, and what of it could not be cleared up.
#[derive(Default)]
struct Dead {
    found: usize,
    left: usize,
}

fn mounts(clean: bool) -> Result<Dead> {
    let mut dead = Dead::default();
    for point in doctor::dead_mounts()? {
        dead.found += 1;
        if !clean {
            println!("dead mount: {}; `mayfly doctor --clean` unmounts it", point.display());
        } else if doctor::clear(&point) {
            println!("unmounted {}", point.display());
        } else {
            dead.left += 1;
            eprintln!("mayfly: cannot unmount {}", point.display());
        }
    }
    Ok(dead)
}

fn dead_instances(clean: bool) -> Dead {
    let mut dead = Dead::default();
    for instance in doctor::dead_instances() {
        dead.found += 1;
        let run_dir = instance.run_dir.display();
        if !clean {
            println!("dead instance {:?}: {run_dir}", instance.name);
            println!("  {}", what_to_do(&instance.name, &instance.run_dir));
        } else if let Err(error) = doctor::remove(&instance) {
            dead.left += 1;
            eprintln!("mayfly: {error:#}");
        } else {
            println!("removed {run_dir}");
        }
    }
    dead
}

fn print(report: &Report) {
    let config = &report.config;
    let options = &config.options;
    let switch = |on: bool| if on { "on" } else { "off" };
    println!("{}", config.name);
    println!("  mount       {}", config.mount.display());
    match report.mounted_by {
        Some(way) => println!("  access      {}, mounted by {way}", report.access),
        None => println!("  access      {}", report.access),
    }
    for further in report.mounts.iter().filter(|point| **point != config.mount) {
        println!("  mounted at  {}", further.display());
    }
    print_data(config.data_class.as_deref(), &config.data_dir);
    for further in &config.further {
        print_data(further.class.as_deref(), &further.path);
    }
    println!("  metadata    {}", config.meta_dir.display());
    match &report.counted {
        Some(counted) => print_counted(report, counted),
        None => println!(
            "  daemon      process {}, does not answer; restarted {} times, {} processes attached",
            report.daemon_pid, report.restarts, report.sessions
        ),
    }
    for stage in stage::running(config) {
        println!("  stage       {stage}");
    }
    println!(
        "  options     chunk-size {}, layout {}, names {}, times {}, parent-check {}, locks {}, \
         durability {}, consistency {}, shards {}, deadline {} s{}{}",
        size::show(options.chunk_bytes),
        options.layout,
        options.names,
        options.times,
        switch(options.parent_check),
        switch(options.locks),
        options.durability,
        options.consistency,
        options.shards,
        options.deadline_seconds,
        options.cpus.as_ref().map_or(String::new(), |cpus| format!(", cpus {cpus}")),
        if config.keep { ", keep" } else { "" }
    );
}

fn print_data(class: Option<&str>, directory: &Path) {
    let class = class.map_or(String::new(), |class| format!(" ({class})"));
    println!("  data        {}{class}", directory.display());
}

fn print_counted(report: &Report, counted: &Counted) {
    println!(
        "  used        {} of {}, free {}",
        size::show(counted.used_bytes),
        size::show(counted.capacity_bytes),
        size::show(counted.free_bytes)
    );
    println!(
        "  holds       {} files, {} directories, {} objects, {} unlinked but open",
        counted.files, counted.directories, counted.objects, counted.orphans
    );
    println!(
        "  clients     {} processes, {} open files, {} locks",
        report.sessions, counted.open_files, counted.locks
    );
    println!(
        "  daemon      process {}, restarted {} times, {} requests, {} transactions",
        report.daemon_pid, report.restarts, counted.requests, counted.transactions
    );
    println!("  posted      {} files made without waiting", counted.posted);
    let waits = &counted.waits;
    println!(
        "  waits       {} polls ({} in vain), {} sleeps, {} moves",
        waits.polls + waits.polls_in_vain,
        waits.polls_in_vain,
        waits.sleeps,
        waits.moves
    );
}
