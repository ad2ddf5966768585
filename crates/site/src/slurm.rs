//! What is asked of Slurm, and said to it.

use std::{
    net::{IpAddr, ToSocketAddrs},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{Job, config::OnFailure, job::System};

/// The components of a job get their nodes within that time.
const COMPONENTS_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// States of a job that nodes have no more work for, or none yet.
const OVER: [&str; 15] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "COMPLETING",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REVOKED",
    "SPECIAL_EXIT",
    "TIMEOUT",
];

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

/// What scontrol shows of a job: a line each of all that it consists of.
fn shown(job: &Job) -> Result<String> {
    said(command("scontrol").args(["--oneliner", "show", "job", &job.id]))
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

/// The job with all its components, of which the prolog of each knows only its own. What one of
/// them asks for is for all.
pub(crate) fn whole(job: &Job) -> Result<Job> {
    let mut whole = job.clone();
    if !job.is_component {
        return Ok(whole);
    }
    let until = Instant::now() + COMPONENTS_MAX;
    loop {
        let told = shown(job)?;
        if let Some(hosts) = hosts_of_all(&told) {
            let features = told.lines().filter_map(|line| field(line, "Features"));
            let features: Vec<&str> = features.chain([job.constraints.as_str()]).collect();
            whole.constraints = features.join("&");
            if whole.words().is_none() && told.lines().any(|line| line.contains(" Comment=mayfly"))
            {
                // The words are those of the first, whose prolog has them.
                "mayfly".clone_into(&mut whole.comment);
            }
            whole.hosts = hosts;
            return Ok(whole);
        }
        ensure!(Instant::now() < until, "not all components of job {} have nodes", job.id);
        thread::sleep(PAUSE);
    }
}

/// The lists of all components, once each has one, in their order.
fn hosts_of_all(told: &str) -> Option<String> {
    let mut lists = Vec::new();
    for line in told.lines().filter(|line| !line.trim().is_empty()) {
        let offset: u32 = field(line, "HetJobOffset")?.parse().ok()?;
        lists.push((offset, field(line, "NodeList").filter(|list| *list != "(null)")?));
    }
    lists.sort_unstable();
    let lists: Vec<&str> = lists.into_iter().map(|(_, list)| list).collect();
    (!lists.is_empty()).then(|| lists.join(","))
}

/// Has the job asked for the generic resource of that name? No name: no.
pub(crate) fn has_gres(job: &Job, name: &str) -> bool {
    if name.is_empty() || job.system != System::Slurm {
        return false;
    }
    shown(job).is_ok_and(|told| names_gres(&told, name))
}

/// `TresPerNode=gres:gpu:2,gres:mayfly` and the like, in what scontrol shows of a job.
fn names_gres(told: &str, name: &str) -> bool {
    let asked = told.split_whitespace().filter_map(|word| word.split_once('='));
    let asked = asked.filter(|(field, _)| field.starts_with("TresPer"));
    let mut resources = asked.flat_map(|(_, value)| value.split(','));
    resources.any(|resource| {
        let resource = resource.strip_prefix("gres:").or_else(|| resource.strip_prefix("gres/"));
        resource.is_some_and(|resource| resource.split([':', '=']).next() == Some(name))
    })
}

/// The job's script; empty for one that has none.
pub(crate) fn script(job: &Job) -> String {
    said(command("scontrol").args(["write", "batch_script", &job.id, "-"])).unwrap_or_default()
}

/// Says at the job why it cannot go on, and takes it from its nodes, unless it is over.
pub(crate) fn refuse(job: &Job, why: &str, how: OnFailure) -> Result<()> {
    // Slurm begins a job that is over once more when its prolog fails, and drains the node.
    if is_over(job) {
        return Ok(());
    }
    let taken = take(job, why, how);
    if taken.is_err() && is_over(job) { Ok(()) } else { taken }
}

fn take(job: &Job, why: &str, how: OnFailure) -> Result<()> {
    note(job, why)?;
    let mut take = match how {
        OnFailure::Hold => command("scontrol"),
        OnFailure::Cancel => command("scancel"),
    };
    if how == OnFailure::Hold {
        take.arg("requeuehold");
    }
    // Another of its nodes may have put it back already.
    if said(take.arg(&job.id)).is_ok() || is_over(job) {
        return Ok(());
    }
    // One without a script cannot go back into the queue.
    said(command("scancel").arg(&job.id)).map(drop)
}

/// Has it been cancelled, or put back, or ended in another way?
pub(crate) fn is_over(job: &Job) -> bool {
    shown(job).is_ok_and(|told| state_of(&told, &job.id).is_some_and(|state| OVER.contains(&state)))
}

/// The state of the job itself: an array, and a heterogeneous job, is shown with all that it
/// consists of when the number is that of the whole.
fn state_of<'a>(told: &'a str, id: &str) -> Option<&'a str> {
    let own = told.lines().find(|line| field(line, "JobId") == Some(id))?;
    field(own, "JobState")
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
    fn components_are_put_together_when_all_have_nodes() {
        let second = "JobId=5 HetJobId=4 HetJobOffset=1 ReqNodeList=(null) NodeList=n[2-3]";
        let first = "JobId=4 HetJobId=4 HetJobOffset=0 ReqNodeList=(null) NodeList=n1 Features=x";
        assert_eq!(hosts_of_all(&format!("{second}\n{first}\n")).as_deref(), Some("n1,n[2-3]"));
        let waits = "JobId=5 HetJobId=4 HetJobOffset=1 NodeList=(null)";
        assert_eq!(hosts_of_all(&format!("{first}\n{waits}\n")), None);
    }

    #[test]
    fn a_generic_resource_is_found_among_others_by_its_whole_name() {
        for told in [
            "JobId=3 TresPerNode=gres:mayfly Comment=x",
            "JobId=3 TresPerNode=gres:gpu:2,gres:mayfly:1 Comment=x",
            "JobId=3 TresPerNode=gres/mayfly:1",
            "JobId=3 TresPerJob=gres/gpu=2,gres/mayfly=2",
        ] {
            assert!(names_gres(told, "mayfly"), "{told}");
        }
        for told in ["JobId=3 Comment=gres:mayfly", "TresPerNode=gres:mayflyer,gres:gpu:mayfly"] {
            assert!(!names_gres(told, "mayfly"), "{told}");
        }
    }

    /// The last task of an array to begin has the array's number.
    #[test]
    fn the_state_of_a_task_of_an_array_is_its_own() {
        let other = "JobId=8 ArrayJobId=7 ArrayTaskId=1 JobName=x JobState=COMPLETED Reason=None";
        let own = "JobId=7 ArrayJobId=7 ArrayTaskId=2 JobName=x JobState=RUNNING Reason=Prolog";
        let told = format!("{other}\n{own}\n");
        assert_eq!(state_of(&told, "7"), Some("RUNNING"));
        assert_eq!(state_of(&told, "8"), Some("COMPLETED"));
        assert_eq!(state_of(&told, "9"), None);
    }

    #[test]
    fn fields_of_what_scontrol_shows_are_found_by_whole_names() {
        let told = "NodeName=n1 NodeHostName=h XNodeAddr=no NodeAddr=10.0.0.7 Comment=a=b";
        assert_eq!(field(told, "NodeAddr"), Some("10.0.0.7"));
        assert_eq!(field(told, "Comment"), Some("a=b"));
        assert_eq!(field(told, "Host"), None);
    }
}
