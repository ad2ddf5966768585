//! What the child processes do. Run as tests by hand they have nothing to do and pass.

use std::{fs::OpenOptions, io::Write, os::fd::AsFd, path::PathBuf, thread};

use mayfly_transport::{Answer, Patience, Transport};
use mayfly_types::FileId;
use mayfly_wire::{MakeDirectory, Walk};

use crate::serve::tests::{host::attach_to, ledger::Ledgers};

const THREADS: u32 = 3;

fn directory() -> Option<(PathBuf, u32)> {
    let directory = PathBuf::from(std::env::var_os("SERVE_TEST_DIRECTORY")?);
    Some((directory, std::env::var("SERVE_TEST_NUMBER").ok()?.parse().ok()?))
}

/// A request that the ledger writes down.
pub(super) fn make(path: &str) -> MakeDirectory<'_> {
    let walk = Walk { start: FileId::ROOT, flags: 0, path: path.as_bytes() };
    MakeDirectory { walk, mode: 0o755, uid: 0, gid: 0 }
}

#[test]
#[ignore = "a role of a child process"]
fn daemon() {
    let Some((directory, shards)) = directory() else { return };
    let channel = std::io::stdin().as_fd().try_clone_to_owned().expect("the channel");
    let ledgers = Ledgers::new(&directory, shards);
    crate::serve::run(channel, &directory.join("ofd"), shards, None, &ledgers).expect("served");
}

/// Makes requests until the file `stop` appears; writes each acknowledged one to `acknowledged`.
#[test]
#[ignore = "a role of a child process"]
fn client() {
    let Some((directory, number)) = directory() else { return };
    let attachment = attach_to(&directory.join("sock")).expect("attached");
    let transport = &attachment.transport;
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let directory = &directory;
            scope.spawn(move || {
                let acknowledged = directory.join("acknowledged");
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(acknowledged)
                    .expect("a file");
                for request in 0.. {
                    if request % 64 == 0 && directory.join("stop").exists() {
                        return;
                    }
                    let name = format!("{number}-{worker}-{request}");
                    let done = transport.exchange(&make(&name), Patience::Deadline, |answer| {
                        matches!(answer, Answer::Done(()))
                    });
                    assert!(done, "{name} failed");
                    file.write_all(format!("{name}\n").as_bytes()).expect("written");
                }
            });
        }
    });
}
