//! A file system that only remembers what it did.
//!
//! `MakeDirectory` writes its path down, as do releases and ends of sessions; `Lock` waits until it
//! is cancelled; the rest is ENOSYS. A commit is one `write` of a line: transaction number and
//! paths. The kernel keeps it when we are killed.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
};

use mayfly_types::{Errno, SessionId};
use mayfly_wire::Request;

use super::super::{Caller, Completion, Progress, Service};

pub(super) struct Ledger {
    file: File,
    committed: u64,
    open: Vec<String>,
    waiting: Vec<Caller>,
    answered: Vec<Completion>,
    pub(super) fail_commits: bool,
}

impl Ledger {
    pub(super) fn open(path: &Path) -> Ledger {
        let committed = read(path).len() as u64;
        let file = OpenOptions::new().append(true).create(true).open(path).expect("a ledger");
        let (open, waiting, answered) = (Vec::new(), Vec::new(), Vec::new());
        Ledger { file, committed, open, waiting, answered, fail_commits: false }
    }
}

/// The transactions in a ledger.
pub(super) fn read(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| line.split(' ').skip(1).map(str::to_owned).collect()).collect()
}

impl Service for Ledger {
    fn handle(&mut self, caller: Caller, request: Request<'_>, _body: &mut [u8]) -> Progress {
        match request {
            Request::Ping(_) => Progress::Replied(0, 0),
            Request::MakeDirectory(make) => {
                self.open.push(String::from_utf8_lossy(make.walk.path).into_owned());
                Progress::Replied(0, 0)
            }
            Request::Lock(_) => {
                self.waiting.push(caller);
                Progress::Pending
            }
            Request::Cancel(cancel) => {
                let asked =
                    |c: &Caller| c.session == caller.session && c.request_id == cancel.request_id;
                let status = Errno::EINTR.raw() as u32;
                let cancelled = self.waiting.extract_if(.., |c| asked(c));
                self.answered.extend(cancelled.map(|caller| Completion {
                    caller,
                    status,
                    body: Vec::new(),
                }));
                Progress::Replied(0, 0)
            }
            _ => Progress::Replied(Errno::ENOSYS.raw() as u32, 0),
        }
    }

    fn batch_transaction(&self) -> u64 {
        if self.open.is_empty() { 0 } else { self.committed + 1 }
    }

    fn committed_transaction(&self) -> u64 {
        self.committed
    }

    fn commit(&mut self) -> Result<u64, Errno> {
        if self.fail_commits {
            self.open.clear();
            return Err(Errno::ENOSPC);
        }
        let line = format!("{} {}\n", self.committed + 1, self.open.join(" "));
        self.file.write_all(line.as_bytes()).map_err(|_| Errno::EIO)?;
        self.open.clear();
        self.committed += 1;
        Ok(self.committed)
    }

    fn session_opened(&mut self, _session: SessionId, _pid: u32) {}

    fn session_closed(&mut self, session: SessionId) {
        self.waiting.retain(|caller| caller.session != session);
        self.open.push(format!("closed-{}", session.0));
    }

    fn open_released(&mut self, index: u32) {
        self.open.push(format!("released-{index}"));
    }

    fn completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.answered)
    }

    fn idle_work(&mut self) -> bool {
        false
    }
}
