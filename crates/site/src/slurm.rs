//! What is asked of Slurm, and said to it.

use std::{
    net::{IpAddr, ToSocketAddrs},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{Job, config::OnFailure};

/// A program of Slurm's; a prolog has no search path.
fn command(name: &str) -> Command {
    let places = ["/usr/bin", "/usr/local/bin", "/opt/slurm/bin"];
    let found = places.map(|place| std::path::Path::new(place).join(name));
    let found = found.into_iter().find(|path| path.exists()).unwrap_or_else(|| name.into());
    let mut command = Command::new(found);
    command.stdin(Stdio::null());
    command
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The address of a node under Slurm's name for it.
pub(crate) fn address(host: &str) -> Result<IpAddr> {
    let told = said(command("scontrol").args(["--oneliner", "show", "node", host]))?;
    let address = field(&told, "NodeAddr").with_context(|| format!("no address in {told:?}"))?;
    let mut found = (address, 0).to_socket_addrs().with_context(|| address.to_owned())?;
    found.next().map(|found| found.ip()).with_context(|| address.to_owned())
}

/// `NAME=VALUE` in what scontrol shows.
fn field<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    let mut words = told.split_whitespace().filter_map(|word| word.split_once('='));
    words.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The job's script; empty for one that has none.
pub(crate) fn script(job: &Job) -> String {
    said(command("scontrol").args(["write", "batch_script", &job.id, "-"])).unwrap_or_default()
}

/// Says at the job why it cannot go on, and takes it from its nodes.
pub(crate) fn refuse(job: &Job, why: &str, how: OnFailure) -> Result<()> {
    note(job, why)?;
    let mut take = match how {
        OnFailure::Hold => command("scontrol"),
        OnFailure::Cancel => command("scancel"),
    };
    if how == OnFailure::Hold {
        take.arg("requeuehold");
    }
    if said(take.arg(&job.id)).is_ok() || is_pending(job) {
        return Ok(());
    }
    // One without a script cannot go back into the queue.
    said(command("scancel").arg(&job.id)).map(drop)
}

/// Has another of its nodes put it back already?
fn is_pending(job: &Job) -> bool {
    let told = said(command("scontrol").args(["--oneliner", "show", "job", &job.id]));
    told.is_ok_and(|told| field(&told, "JobState") == Some("PENDING"))
}

/// What `scontrol show job` says as AdminComment.
pub(crate) fn note(job: &Job, text: &str) -> Result<()> {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let update = format!("AdminComment=mayfly: {line}");
    said(command("scontrol").args(["update", &format!("JobId={}", job.id), &update])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_what_scontrol_shows_are_found_by_whole_names() {
        let told = "NodeName=n1 NodeHostName=h XNodeAddr=no NodeAddr=10.0.0.7 Comment=a=b";
        assert_eq!(field(told, "NodeAddr"), Some("10.0.0.7"));
        assert_eq!(field(told, "Comment"), Some("a=b"));
        assert_eq!(field(told, "Host"), None);
    }
}
