//! After a job.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    Direction, Job, Request, Site,
    door::DOOR,
    job::System,
    person::{self, Place},
    prolog::{finish, is_first, stage},
    remains::processes,
    slurm,
};

/// The end of an instance takes at most so long.
const STOP_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

impl Site {
    /// Keeps what was asked for until the epilog.
    pub(crate) fn keep_request(&self, job: &Job, request: &Request) -> Result<()> {
        Ok(fs::write(self.request(&job.id), serde_json::to_vec(request)?)?)
    }
}

/// Brings out what was asked for, ends the instance, and clears up. Other nodes than the first
/// wait for that, since they have a part of the data.
///
/// # Errors
/// Something of the job is left on this node.
pub fn epilog(site: &Site, job: &Job) -> Result<()> {
    // What another job, or none, has left is not this one's.
    let Some(job) = site.find(&job.id).filter(|noted| noted.uid == job.uid) else { return Ok(()) };
    let place = site.place(&job.id);
    site.note_end(&job.id)?;
    if !is_first(&job)? {
        wait_for_the_end(&place, site.stage_out_max + STOP_MAX);
    } else if place.run_root().join(job.instance()).exists() {
        end_instance(site, &job, &place)?;
    }
    site.clear(&job.id)
}

fn end_instance(site: &Site, job: &Job, place: &Place) -> Result<()> {
    if let Err(error) = bring_out(site, job, place) {
        let why = format!("not all was brought out: {error:#}");
        eprintln!("mayfly: job {}: {why}", job.id);
        if job.system == System::Slurm {
            // The job may be forgotten already.
            let _ = slurm::note(job, &why);
        }
    }
    let mut stop = person::command(job.uid, place)?;
    stop.args(["stop", "--name", &job.instance()]);
    if let Err(error) = finish(&mut stop, STOP_MAX) {
        eprintln!("mayfly: job {}: {error:#}", job.id);
    }
    Ok(())
}

fn bring_out(site: &Site, job: &Job, place: &Place) -> Result<()> {
    let Ok(text) = fs::read(site.request(&job.id)) else { return Ok(()) };
    let request: Request = serde_json::from_slice(&text)?;
    let until = Instant::now() + site.stage_out_max;
    let mut failed = None;
    for (from, to) in &request.stage_out {
        let left = until.saturating_duration_since(Instant::now());
        let mut command = stage(job, place, Direction::Out)?;
        // The job is over: what it has open no more changes.
        let done = finish(command.args(["--open", "copy", from, to]), left);
        if let Err(error) = done.with_context(|| format!("{from} to {to}")) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Until nothing of the job's instance runs here but its door, or for so long.
fn wait_for_the_end(place: &Place, at_most: Duration) {
    let until = Instant::now() + at_most;
    while Instant::now() < until && processes(place).into_iter().any(is_at_work) {
        std::thread::sleep(PAUSE);
    }
}

/// Does it serve a node, or hand on what other nodes are told or answer?
fn is_at_work(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let second = words.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    if second == DOOR.as_bytes() {
        // What it has started has ended only when all that it said was handed on.
        return has_children(pid);
    }
    [&b"__node"[..], b"__daemon", b"__supervise", b"__relay"].contains(&second)
}

fn has_children(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut told = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    told.any(|told| told.is_ok_and(|children| !children.trim().is_empty()))
}
