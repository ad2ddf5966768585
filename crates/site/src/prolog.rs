//! Before a job.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    Direction, Job, REACH, Request, Site,
    door::{DOOR, Known},
    job::System,
    key::Key,
    person::{self, Place},
    slurm,
};

/// A door opens within that time.
const DOOR_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
/// Slurm is asked so often whether the job has been cancelled.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Of what a command says at most so much is told, bytes.
const COMPLAINT_BYTES: u64 = 4096;

/// What a prolog does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it: where the prologs of a job's nodes run at the same time.
    All,
    /// Makes this node ready, which has to come first on all nodes where they take turns.
    Ready,
    /// Starts the instance, on the first node; elsewhere nothing.
    Start,
}

/// Makes this node ready for the job, and, on the first of its nodes, starts the instance.
///
/// What goes wrong is the job's, not the node's: it is held or ended, with the reason.
///
/// # Errors
/// The job could not be told; only then the batch system shall look at the node.
pub fn prolog(site: &Site, job: &Job, part: Part) -> Result<()> {
    let job = &slurm::whole(job)?;
    if !job.asks(&site.feature) && !slurm::has_gres(job, &site.gres) {
        return Ok(());
    }
    let Err(error) = begin(site, job, part) else { return Ok(()) };
    match job.system {
        System::Slurm => {
            let why = format!("{error:#}");
            eprintln!("mayfly: job {}: {why}", job.id);
            slurm::refuse(job, &why, site.on_failure)
        }
        System::Other => Err(error.context(format!("job {}", job.id))),
    }
}

fn begin(site: &Site, job: &Job, part: Part) -> Result<()> {
    ensure!(job.uid != 0 || nix::unistd::geteuid().is_root(), "only root makes root's jobs ready");
    if part != Part::Start {
        // What an earlier run of the same job has left.
        site.clear(&job.id)?;
        let place = site.make(job)?;
        open_door(site, job, &place)?;
    }
    if part == Part::Ready || !is_first(job)? {
        return Ok(());
    }
    // What is noted is root's word for who the job belongs to.
    let noted = site.find(&job.id).filter(|noted| noted.uid == job.uid);
    ensure!(noted.is_some(), "this node was not made ready for the job");
    start(site, job, &site.place(&job.id))
}

/// Is this the first node of the job?
pub(crate) fn is_first(job: &Job) -> Result<bool> {
    Ok(first_host(&job.hosts)? == job.node)
}

/// The first of a list as Slurm and its kin write it: `a,b`, `n[01-16,20]`.
fn first_host(hosts: &str) -> Result<String> {
    let cut = hosts.find([',', '[']).unwrap_or(hosts.len());
    let (name, rest) = hosts.split_at(cut);
    if !rest.starts_with('[') {
        return Ok(name.to_owned());
    }
    let inner = rest[1..].split(']').next().unwrap_or_default();
    let number = inner.split([',', '-']).next().unwrap_or_default();
    let after = rest[1..].split_once(']').map_or("", |(_, after)| after);
    let suffix = after.split([',', '[']).next().unwrap_or_default();
    ensure!(!number.is_empty(), "the list of nodes {hosts:?} means nothing");
    ensure!(!after.starts_with('['), "the list of nodes {hosts:?} is not understood");
    Ok(format!("{name}{number}{suffix}"))
}

fn open_door(site: &Site, job: &Job, place: &Place) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    job.id.hash(&mut hasher);
    let known = Known {
        key: Key::of_site(&site.key)?.of_job(job),
        node: job.node.clone(),
        ports: (site.ports.first, site.ports.last),
        from: (hasher.finish() >> 48) as u16,
    };
    let mut command = person::command(job.uid, place)?;
    command.arg(DOOR).arg(&place.run).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    // What starts a prolog ends what belongs to its group.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut door = command.spawn().context("cannot start the door")?;
    let mut told = door.stdin.take().context("the door does not listen")?;
    let said = door.stdout.take().context("the door does not speak")?;
    writeln!(told, "{}", serde_json::to_string(&known)?)?;
    drop(told);
    let (sender, port) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(said).read_line(&mut line);
        let _ = sender.send(line);
    });
    let line = port.recv_timeout(DOOR_MAX).unwrap_or_default();
    if line.trim().parse::<u16>().is_ok() {
        return Ok(());
    }
    let _ = door.kill();
    let mut complaint = String::new();
    if let Some(stderr) = door.stderr.take() {
        let _ = stderr.take(COMPLAINT_BYTES).read_to_string(&mut complaint);
    }
    bail!("the door does not open: {}", complaint.trim())
}

fn start(site: &Site, job: &Job, place: &Place) -> Result<()> {
    let script = match job.system {
        System::Slurm => slurm::script(job),
        System::Other => String::new(),
    };
    let request = Request::parse(&site.options, job.words().unwrap_or_default(), &script)?;
    let over = watch(job);
    let is_over = || over.load(Relaxed);
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let launcher =
        format!("{} {REACH} {} {{host}} {{command}}", program.display(), place.run.display());
    let mut command = person::command(job.uid, place)?;
    command.args(["start", "--name", &job.instance(), "--nodes", &job.hosts, "--launcher"]);
    command.arg(launcher).args(["--start-timeout", &site.start_max.as_secs().to_string()]);
    command.args(request.start_options());
    finish_unless(&is_over, &mut command, site.start_max + DOOR_MAX)
        .context("the instance does not start")?;
    let until = Instant::now() + site.stage_in_max;
    for (from, to) in &request.stage_in {
        let mut command = stage(job, place, Direction::In)?;
        let left = until.saturating_duration_since(Instant::now());
        finish_unless(&is_over, command.args([from, to]), left)
            .with_context(|| format!("{from} was not brought in"))?;
    }
    // For the epilog, which knows the job's script no more. Without it nothing is brought out: what
    // has come in only in part must not go back over what it came from.
    site.keep_request(job, &request)
}

/// Becomes true when the job is over, as by scancel: it waits for its prolog, and so do its nodes.
fn watch(job: &Job) -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    if job.system == System::Slurm {
        let (job, tell) = (job.clone(), Arc::clone(&over));
        // It ends with the prolog.
        thread::spawn(move || {
            while !tell.load(Relaxed) {
                thread::sleep(ASK_EVERY);
                tell.store(slurm::is_over(&job), Relaxed);
            }
        });
    }
    over
}

/// `mayfly stage` as the user, without paths.
pub(crate) fn stage(job: &Job, place: &Place, direction: Direction) -> Result<Command> {
    let mut command = person::command(job.uid, place)?;
    command.args(["stage", direction.word(), "--quiet", "--name", &job.instance()]);
    Ok(command)
}

/// Runs a command to its end, or to the end of its time.
pub(crate) fn finish(command: &mut Command, within: Duration) -> Result<()> {
    finish_unless(&|| false, command, within)
}

/// The same, or until nobody wants it any more.
fn finish_unless(
    is_over: &dyn Fn() -> bool,
    command: &mut Command,
    within: Duration,
) -> Result<()> {
    // What it leaves behind must not hold a pipe of ours.
    let complaints = nameless()?;
    command.stdout(Stdio::null()).stderr(Stdio::from(complaints.try_clone()?));
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command.spawn().context("cannot start mayfly")?;
    let until = Instant::now() + within;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let is_over = is_over();
        if is_over || Instant::now() > until {
            let group = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            let _ = child.wait();
            ensure!(!is_over, "the job is over");
            bail!("it is not done after {} s", within.as_secs());
        }
        thread::sleep(PAUSE);
    };
    if status.success() {
        return Ok(());
    }
    let complaint = tail(complaints)?;
    bail!("{}", if complaint.is_empty() { status.to_string() } else { complaint })
}

/// A file without a name.
fn nameless() -> Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    let flags = nix::fcntl::OFlag::O_TMPFILE.bits();
    let file = options.read(true).write(true).mode(0o600).custom_flags(flags).open("/tmp");
    file.context("cannot make a file in /tmp")
}

/// The end of what was said, in one line.
fn tail(mut file: std::fs::File) -> Result<String> {
    use std::io::{Seek, SeekFrom};
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(COMPLAINT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(COMPLAINT_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(|line| line.trim().trim_start_matches("mayfly: "));
    Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list_is_found() {
        let cases = [
            ("n1", "n1"),
            ("n1,n2", "n1"),
            ("n[01-16,20]", "n01"),
            ("n[7,9]", "n7"),
            ("rack1-n[3-4]-ib,x", "rack1-n3-ib"),
            ("a,n[1-2]", "a"),
        ];
        for (hosts, first) in cases {
            assert_eq!(first_host(hosts).expect(hosts), first);
        }
        assert!(first_host("n[]").is_err());
        assert!(first_host("r[1-2][3-4]").is_err());
    }

    #[test]
    fn what_a_command_says_at_its_end_is_the_reason() {
        let within = Duration::from_secs(20);
        let mut command = Command::new("sh");
        let failed = finish(command.args(["-c", "echo mayfly: no room >&2; exit 1"]), within);
        assert_eq!(format!("{:#}", failed.expect_err("it fails")), "no room");
        let slow = finish(Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(format!("{:#}", slow.expect_err("it is slow")).contains("not done"));
        finish(&mut Command::new("true"), within).expect("it does nothing");
    }
}
