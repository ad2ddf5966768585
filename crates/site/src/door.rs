//! The door of a node: starts programs of Mayfly for whoever has the job's key.
//!
//! It is the user's process. The prolog tells it the key and the ports through a pipe; it says on
//! which port it listens, and stays until the epilog ends it.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    key::Key,
    line::{self, CONTENT_BYTES, Ear, Frame, Voice},
};

/// The hidden subcommand.
pub const DOOR: &str = "__site-door";
/// What every hidden subcommand of Mayfly begins with.
const HIDDEN: &str = "__";
/// Nodes of a job are looked for on so many ports of the range.
const TRIES: u16 = 16;
/// Who calls proves within that time that he has the key.
const PROOF_MAX: Duration = Duration::from_secs(10);
/// So many programs run at a time.
const PROGRAMS_MAX: usize = 64;
/// What a node's programs need to find other nodes: in the job's run directory.
const KNOWN: &str = "reach.json";

/// What the prolog tells a door; and, but for the node, what whoever reaches one has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The job's key.
    pub(crate) key: Key,
    /// What the batch system calls this node.
    pub(crate) node: String,
    /// The first and the last port of the range.
    pub(crate) ports: (u16, u16),
    /// Where the search begins in it.
    pub(crate) from: u16,
}

impl Known {
    /// Ports in the order in which a job tries them for one of its nodes; several may share a host.
    pub(crate) fn candidates(&self, node: &str) -> impl Iterator<Item = u16> {
        let (first, last) = self.ports;
        let count = u32::from(last - first) + 1;
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        let from = u32::from(self.from) + (hasher.finish() >> 48) as u32;
        let steps = 0..count.min(u32::from(TRIES));
        steps.map(move |step| first + ((from + step) % count) as u16)
    }

    pub(crate) fn read(run: &Path) -> Result<Known> {
        let path = run.join(KNOWN);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn write(&self, run: &Path) -> Result<()> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(true).mode(0o600);
        let file = file.open(run.join(KNOWN))?;
        Ok(serde_json::to_writer(file, self)?)
    }
}

/// Serves a door; `run` is the job's run directory.
///
/// # Errors
/// Nothing sensible comes through the pipe, or no port is free.
pub fn open(run: &Path) -> Result<()> {
    let mut told = String::new();
    io::stdin().lock().read_line(&mut told)?;
    let known: Known = serde_json::from_str(&told).context("the prolog says nothing sensible")?;
    known.write(run)?;
    let listener = listen(&known)?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let key = known.key.of_door(&known.node);
    let running = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, or the caller has gone.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let (key, running) = (key.clone(), Arc::clone(&running));
        if running.fetch_add(1, AcqRel) >= PROGRAMS_MAX {
            running.fetch_sub(1, AcqRel);
            continue;
        }
        thread::spawn(move || {
            // Who has not the key hears nothing.
            let _ = serve(stream, &key);
            running.fetch_sub(1, AcqRel);
        });
    }
}

fn listen(known: &Known) -> Result<TcpListener> {
    let mut refused = None;
    for port in known.candidates(&known.node) {
        match TcpListener::bind(("0.0.0.0", port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = Some(error),
        }
    }
    let (first, last) = known.ports;
    Err(refused.unwrap_or_else(|| io::Error::other("no port")))
        .with_context(|| format!("no port of {first}-{last} is free for this job"))
}

fn serve(stream: TcpStream, key: &Key) -> Result<()> {
    stream.set_read_timeout(Some(PROOF_MAX))?;
    stream.set_nodelay(true)?;
    let (mut ear, voice) = line::answer(stream.try_clone()?, key)?;
    let started = match ear.hear()? {
        Some(Frame::Start(subcommand)) => start(&subcommand),
        _ => bail!("it does not say what to start"),
    };
    stream.set_read_timeout(None)?;
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            voice.say(&Frame::Error(format!("mayfly: {error:#}\n").into_bytes()))?;
            return voice.say(&Frame::Status(1));
        }
    };
    relay(&mut child, ear, &voice)
}

fn start(subcommand: &str) -> Result<Child> {
    ensure!(subcommand.starts_with(HIDDEN), "{subcommand:?} is not started through a door");
    let program: PathBuf = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = Command::new(program);
    command.arg(subcommand).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("cannot start it")
}

/// Hands everything on in both directions, until the program and all that it has started and that
/// speaks have ended.
fn relay(child: &mut Child, mut ear: Ear, voice: &Voice) -> Result<()> {
    let stdin = child.stdin.take().context("it has no standard input")?;
    let stdout = child.stdout.take().context("it has no standard output")?;
    let stderr = child.stderr.take().context("it has no standard error")?;
    // It goes on until the line is closed, which happens below.
    let hearing = thread::spawn(move || {
        let mut stdin = Some(stdin);
        while let Ok(Some(frame)) = ear.hear() {
            match frame {
                Frame::Bytes(bytes) => {
                    let written = stdin.as_mut().map(|stdin| stdin.write_all(&bytes));
                    if matches!(written, Some(Err(_))) {
                        stdin = None;
                    }
                }
                Frame::End => stdin = None,
                _ => break,
            }
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| pass_on(stderr, voice, Frame::Error));
        pass_on(stdout, voice, Frame::Bytes);
    });
    let _ = voice.say(&Frame::End);
    let status = child.wait()?;
    let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let _ = voice.say(&Frame::Status(u8::try_from(status.unwrap_or(1)).unwrap_or(1)));
    voice.close();
    let _ = hearing.join();
    Ok(())
}

pub(crate) fn pass_on(mut from: impl Read, voice: &Voice, frame: fn(Vec<u8>) -> Frame) {
    let mut buffer = vec![0; CONTENT_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if voice.say(&frame(buffer[..count].to_owned())).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_looks_for_its_doors_where_they_are_and_within_the_range() {
        let known = |first, last, from| Known {
            key: Key([0; 32]),
            node: "n".to_owned(),
            ports: (first, last),
            from,
        };
        let ports = |known: Known, node| known.candidates(node).collect::<Vec<_>>();
        let mut three = ports(known(10, 12, 1), "n");
        three.sort_unstable();
        assert_eq!(three, [10, 11, 12]);
        assert_eq!(ports(known(10, 10, 7), "n"), [10]);
        let many = ports(known(7400, 7499, 95), "n");
        assert_eq!(many.len(), 16);
        assert!(many.iter().all(|port| (7400..=7499).contains(port)));
        assert_ne!(many, ports(known(7400, 7499, 95), "m"));
        assert_eq!(ports(known(1, 65_535, 65_534), "n").len(), 16);
    }
}
