//! Dealing out to workers on other nodes, and hearing what became of it.

use std::{
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

use nix::{
    errno::Errno,
    unistd::{UnlinkatFlags, unlinkat},
};

use crate::{
    Note, Problem,
    copy::{parts::Large, settle::Stat, whole},
    remote::{
        Token, Worker,
        words::{Begin, Done, Down, Seen, Spot, What},
    },
    report::by_heart,
    stager::{PIECE_BYTES, Stager},
    walk::{
        queue::{Names, Turn},
        tree::{Dir, os},
    },
};

impl Stager<'_> {
    /// Those of the workers that see both sides of the tree; the others are named.
    pub(crate) fn joining<'a>(&self, workers: &'a [Worker], above: &Dir) -> Vec<&'a Worker> {
        let pair = &above.tree.pair;
        let look = || Stat::at(nix::fcntl::AT_FDCWD, &pair.source, true);
        let token = Token::make(self.stage, &pair.destination);
        let (Ok(before), Ok(token)) = (look(), token) else { return Vec::new() };
        // Each has its share, and what those would have that take no part is this one's.
        let share = self.options.bandwidth.map(|all| all / (workers.len() as u64 + 1));
        let begin = Begin { bandwidth: share, ..self.task(above, &token) };
        let looks: Vec<Result<Seen, String>> = thread::scope(|scope| {
            let looks = workers.iter().zip(1..).map(|(worker, node)| {
                let begin = Begin { node, ..begin.clone() };
                scope.spawn(move || match worker.is_gone() {
                    true => Err("it has ended".to_owned()),
                    false => worker.begin(begin, self.cancel),
                })
            });
            let looks: Vec<_> = looks.collect();
            looks
                .into_iter()
                .map(|look| look.join().unwrap_or_else(|_| Err(String::new())))
                .collect()
        });
        let Ok(after) = look() else { return Vec::new() };
        let judged = workers.iter().zip(looks).filter_map(|(worker, seen)| {
            let why = match seen {
                Ok(Seen { source: (inode, changed), token: read })
                    // A job may have changed it in between.
                    if inode == before.identity.1
                        && (before.changed..=after.changed).contains(&changed)
                        && read == token.bytes =>
                {
                    return Some(worker);
                }
                Ok(_) => "it sees another tree under this name".to_owned(),
                Err(why) => why,
            };
            self.notes.tell(Note::Without(worker.name(), &why));
            None
        });
        let joining: Vec<&Worker> = judged.collect();
        if let (Some(all), Some(share)) = (self.options.bandwidth, share) {
            self.pace.limit_bytes(all - share * joining.len() as u64);
        }
        joining
    }

    fn task(&self, above: &Dir, token: &Token) -> Begin {
        let (tree, options) = (&above.tree, self.options);
        let root = options.root.as_deref();
        let spot = |path: &Path| Spot::of(path, root);
        Begin {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: spot(&tree.pair.source),
            destination: spot(&tree.pair.destination),
            like: tree.pair.like.as_deref().map(spot),
            began: tree.began,
            newer: options.wanted.newer,
            touched: options.wanted.touched,
            larger: options.wanted.larger,
            smaller: options.wanted.smaller,
            changed: options.changed,
            follow: options.follow,
            verify: options.verify,
            sync: options.sync,
            open: options.open,
            idle: options.idle,
            streams: options.streams,
            bandwidth: None,
            stage: self.stage,
            node: 0,
            token: token.path.file_name().unwrap_or_default().as_bytes().to_vec(),
        }
    }

    /// Stands for a thread of a worker, until nothing is left to be done or it is gone.
    pub(crate) fn remote_thread(&self, worker: &Worker) {
        let mut buffer = vec![0; PIECE_BYTES];
        while !worker.is_gone()
            && let Some(turn) = self.queue.take()
        {
            match turn {
                Turn::Names(dir, names) if dir.is_above() || names.has_directories() => {
                    self.names(&dir, &names, &mut buffer);
                }
                Turn::Names(dir, names) => self.deal(worker, &dir, &names, &mut buffer),
                Turn::Part(large, part) => self.deal_part(worker, &large, part, &mut buffer),
            }
            self.queue.finish();
        }
    }

    fn deal(&self, worker: &Worker, dir: &Arc<Dir>, names: &Names, buffer: &mut [u8]) {
        let mut dealt = Names::default();
        let mut count = 0;
        for (kind, name) in names.iter() {
            if !self.is_over() && self.is_wanted(dir, name, false) {
                self.pace.file(|| self.is_over());
                dealt.push(kind, name);
                count += 1;
            } else {
                // It may be a directory, of which that was not asked.
                self.entry(dir, (kind, name), buffer);
            }
        }
        if count == 0 {
            return;
        }
        // Where only names decide, these are what the directory is made for.
        if !dir.tree.selection.by_attributes() {
            let _ = dir.target();
        }
        let (inner, is_named) = (dir.own_inner_path(), dir.is_named);
        let bytes = dealt.to_bytes();
        let asked = worker.link.ask(self.cancel, |id| Down::Names {
            id,
            inner,
            is_named,
            names: bytes.clone(),
        });
        let Some(done) = asked else {
            self.remove_half_done(dir, &dealt, worker.node.load(Relaxed));
            return self.names(dir, &dealt, buffer);
        };
        dir.adopt_made(done.made);
        self.take(&done);
        let left = Names::of(done.left);
        // They are ended by who looks at them here.
        for _ in left.iter().count()..count {
            self.end(dir);
        }
        self.names(dir, &left, buffer);
    }

    /// Removes what a node that is gone may have left of these.
    fn remove_half_done(&self, dir: &Dir, names: &Names, node: u32) {
        let Some(target) = dir.existing_target() else { return };
        for (_, name) in names.iter() {
            let temporary = whole::temporary_name((self.stage, node), os(name));
            let _ = unlinkat(target, temporary.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }

    fn deal_part(&self, worker: &Worker, large: &Arc<Large>, part: u64, buffer: &mut [u8]) {
        let dir = &large.dir;
        let inner = (!dir.is_above()).then(|| dir.own_inner_path());
        let name = large.name.as_bytes().to_vec();
        let (temporary, still) = (large.temporary.as_bytes().to_vec(), large.stat.still());
        let asked = match large.problem().is_some() || self.is_over() {
            true => None,
            false => worker.link.ask(self.cancel, |id| Down::Part {
                id,
                inner,
                name,
                temporary,
                part,
                still,
            }),
        };
        let Some(done) = asked else { return self.part(large, part, buffer) };
        // What it has copied counts when the file is whole.
        let problem = done.events.iter().find_map(|event| self.problem(&event.what));
        self.part_done(large, part, problem.map_or(Ok(()), Err), buffer);
    }

    /// Counts what was done elsewhere, and tells of what went wrong there.
    fn take(&self, done: &Done) {
        self.notes.counters.add(&done.counts);
        for event in &done.events {
            let path = event.path.clone().under(self.options.root.as_deref());
            match (&event.what, self.problem(&event.what)) {
                (_, Some(problem)) => self.notes.problem(&path, problem),
                (What::NotKept(text), _) => self.notes.tell(Note::NotKept(&path, text)),
                _ => {}
            }
        }
    }

    pub(crate) fn problem(&self, what: &What) -> Option<Problem> {
        Some(match what {
            What::Failed(doing, errno) => {
                Problem::Failed { doing: by_heart(doing), errno: Errno::from_raw(*errno) }
            }
            What::Changing => Problem::Changing,
            What::Differs => Problem::Differs,
            What::Special(what) => Problem::Special(by_heart(what)),
            What::Open => Problem::Open,
            What::Loop => Problem::Loop,
            What::Ended => Problem::Ended,
            What::NotKept(_) => return None,
        })
    }
}
