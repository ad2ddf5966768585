//! Starting a program on another node of the job, through its door.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    door::{Known, pass_on},
    line::{self, Ear, Frame, Voice},
    remains, slurm,
};

/// The hidden subcommand.
pub const REACH: &str = "__site-reach";
/// The prolog of another node may be later by so much.
const LATE_MAX: Duration = Duration::from_secs(45);
/// The same when the job is over: what does not answer then has ended.
const LATE_AT_END_MAX: Duration = Duration::from_secs(2);
const CONNECT_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts `mayfly SUBCOMMAND` on `host`, with our standard streams, and ends as it does.
///
/// # Errors
/// The host is not known, or its door cannot be found.
pub fn reach(run: &Path, host: &str, subcommand: &str) -> Result<ExitCode> {
    let known = Known::read(run)?;
    let over = remains::over(run);
    let patience = || if over.exists() { LATE_AT_END_MAX } else { LATE_MAX };
    let (ear, voice) = find(&known, host, &patience)?;
    voice.say(&Frame::Start(subcommand.to_owned()))?;
    let speaking = voice.clone();
    // It stands in a read of standard input when all is over, and ends with the process.
    thread::spawn(move || {
        pass_on(io::stdin().lock(), &speaking, Frame::Bytes);
        let _ = speaking.say(&Frame::End);
    });
    hand_out(ear)
}

fn hand_out(mut ear: Ear) -> Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    loop {
        match ear.hear()? {
            Some(Frame::Bytes(bytes)) => {
                stdout.write_all(&bytes)?;
                stdout.flush()?;
            }
            Some(Frame::Error(bytes)) => io::stderr().write_all(&bytes)?,
            Some(Frame::End) => {}
            Some(Frame::Status(status)) => return Ok(ExitCode::from(status)),
            Some(Frame::Start(_)) => bail!("the other node asks us to start something"),
            None => bail!("the other node has closed the line"),
        }
    }
}

/// The door of a host; one that opens later is waited for.
fn find(known: &Known, host: &str, patience: &dyn Fn() -> Duration) -> Result<(Ear, Voice)> {
    let addresses = addresses(host)?;
    let key = known.key.of_door(host);
    let since = Instant::now();
    loop {
        let mut why = None;
        for address in &addresses {
            for port in known.candidates(host) {
                match try_one(SocketAddr::new(*address, port), &key) {
                    Ok(line) => return Ok(line),
                    Err(error) => why = Some(error),
                }
            }
        }
        let patience = patience();
        if since.elapsed() > patience {
            let (first, last) = known.ports;
            let why = why.map_or_else(|| "no address".to_owned(), |why| format!("{why:#}"));
            bail!(
                "no door of this job at {host}, ports {first} to {last}, within {} s: {why}. Has \
                 the prolog run there (PrologFlags=Alloc), and are these ports open between nodes?",
                patience.as_secs()
            );
        }
        thread::sleep(PAUSE);
    }
}

fn try_one(address: SocketAddr, key: &crate::key::Key) -> Result<(Ear, Voice)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CONNECT_MAX))?;
    let line = line::call(stream.try_clone()?, key)?;
    stream.set_read_timeout(None)?;
    Ok(line)
}

/// By its name, or as the batch system knows it.
fn addresses(host: &str) -> Result<Vec<IpAddr>> {
    let found = (host, 0).to_socket_addrs().map(|found| found.map(|found| found.ip()).collect());
    match found {
        Ok(found) => Ok(found),
        Err(error) => slurm::address(host)
            .map(|address| vec![address])
            .with_context(|| format!("{host} has no address: {error}")),
    }
}
