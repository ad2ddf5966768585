//! What was copied is on the disk before the stage ends, whichever node has written it.

use std::thread;

use nix::unistd::syncfs;

use crate::{
    Note,
    remote::{Worker, words::Down},
    report::Problem,
    stager::Stager,
    walk::tree::Dir,
};

/// Of a node that has copied something and ended early.
const ENDED_EARLY: &str = "it ended before its file system was asked to keep what it has written; \
                           if that machine has crashed, copy again with --restart";

impl Stager<'_> {
    /// What was copied survives the machine from here on.
    pub(crate) fn sync(&self, above: &Dir, workers: &[&Worker]) {
        if !self.options.sync || self.options.dry_run {
            return;
        }
        thread::scope(|scope| {
            for worker in workers {
                scope.spawn(|| self.sync_elsewhere(worker, above));
            }
            if let Err(problem) = sync(above) {
                self.notes.problem(&above.tree.pair.destination, problem);
            }
        });
    }

    /// Has another node's machine keep what that has written.
    fn sync_elsewhere(&self, worker: &Worker, above: &Dir) {
        match worker.link.ask(self.cancel, |id| Down::Sync { id }) {
            Some(done) => {
                let problems = done.events.iter().filter_map(|event| self.problem(&event.what));
                for problem in problems {
                    self.notes.problem(&above.tree.pair.destination, problem);
                }
            }
            None if self.is_over() => {}
            // What a process wrote that was killed is there; of a machine that crashed who knows.
            None => self.notes.tell(Note::Without(worker.name(), ENDED_EARLY)),
        }
    }
}

/// Has the file system of the destination keep what this machine has written there.
pub(crate) fn sync(above: &Dir) -> Result<(), Problem> {
    syncfs(above.target()?).map_err(Problem::of("have the file system keep what was written"))
}
