//! What it costs to give a process the descriptor of a local object: opening it by its path, or the
//! daemon opening it and passing it over a unix socket. Prints CPU time of both sides together,
//! since on a busy node that is what an open costs. `cargo run --release -p handover`.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

const ROUNDS: u32 = 100_000;
const FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

fn by_path(directory: &OwnedFd, name: &str) -> Result<()> {
    drop(openat(directory, name, FLAGS, Mode::empty())?);
    Ok(())
}

fn passed(directory: &OwnedFd, name: &str, ends: &(OwnedFd, OwnedFd)) -> Result<()> {
    let object = openat(directory, name, FLAGS, Mode::empty())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [object.as_fd()];
    ensure!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for one descriptor");
    sendmsg(&ends.0, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&ends.1, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            received.for_each(drop);
        }
    }
    Ok(())
}

fn nanoseconds(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..ROUNDS / 10 {
        step()?;
    }
    let start = Instant::now();
    for _ in 0..ROUNDS {
        step()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS))
}

fn measure(place: &Path) -> Result<()> {
    let place = tempfile::tempdir_in(place).context("a directory for the object")?;
    std::fs::create_dir(place.path().join("3f"))?;
    let name = "3f/000100000000003f.1";
    File::create(place.path().join(name))?;
    let directory = rustix::fs::open(place.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let path = nanoseconds(|| by_path(&directory, name))?;
    let socket = nanoseconds(|| passed(&directory, name, &ends))?;
    println!(
        "{:<24} open by path {path:7.0} ns   opened by the daemon and passed {socket:7.0} ns",
        place.path().parent().unwrap_or(Path::new("/")).display().to_string()
    );
    Ok(())
}

fn main() -> Result<()> {
    for place in std::env::args_os().skip(1) {
        measure(Path::new(&place))?;
    }
    if std::env::args_os().len() < 2 {
        measure(Path::new("/dev/shm"))?;
        measure(&std::env::temp_dir())?;
    }
    Ok(())
}
