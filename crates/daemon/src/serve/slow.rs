//! Requests that took longer than the instance's `--slow`: a line in the log for each.
//!
//! Nothing is measured for it while requests are answered soon ([`Late`] says how that can be), so
//! where the time went is told as far as that was seen in passing: until this thread was awake,
//! until the request was left to wait, until its answer was known, and until that was shown.

use std::{
    fmt::{self, Display, Formatter},
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use mayfly_sys::arch::cycles;
use mayfly_transport_shm::{
    layout::{Hold, NodeRegion},
    server::Late,
};
use mayfly_types::{FileId, OpenRef, SessionId};
use mayfly_wire::{Request, Target, Walk};

use crate::{log, maps::HashMap, name_of};

/// Lines in a second, of all shards together.
const LINES_PER_SECOND_MAX: u32 = 16;
/// Bytes of a path that are shown, its last ones.
const PATH_BYTES_MAX: usize = 512;
/// No processor counts fewer cycles in a millisecond. What took so many is looked at closely.
const CYCLES_PER_MS_MIN: u64 = 500_000;

/// The cause for which a request waited that was not answered at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// For another node.
    Node(u32),
    /// For other shards, here or elsewhere, or for what is set aside by other requests.
    Shards,
    /// For the disk, or for what other requests hold.
    Disk,
    /// For what an origin has.
    Origin,
}

impl Waited {
    /// The same for counting.
    pub(super) fn hold(self) -> Hold {
        match self {
            Waited::Node(_) => Hold::Node,
            Waited::Shards => Hold::Shards,
            Waited::Disk => Hold::Held,
            Waited::Origin => Hold::Origin,
        }
    }
}

impl Display for Waited {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Waited::Node(node) => write!(to, "node {node}"),
            Waited::Shards => to.write_str("shards"),
            Waited::Disk => to.write_str("disk"),
            Waited::Origin => to.write_str("origin"),
        }
    }
}

/// What is known of an answer besides the request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Course {
    /// It was not answered at once.
    pub(super) waited: Option<Waited>,
    /// When the answer was known then, in cycles.
    pub(super) answered: u64,
}

/// What a shard's thread keeps in mind for it.
#[derive(Debug)]
pub(super) struct Slow {
    /// `None`: nothing is told.
    after: Option<Duration>,
    node: &'static NodeRegion,
    /// When it was last woken, or began.
    awake: u64,
    processes: HashMap<SessionId, u32>,
}

/// Lines of this second.
#[derive(Debug)]
struct RecentLines {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

static RECENT_LINES: Mutex<RecentLines> =
    Mutex::new(RecentLines { since: None, lines: 0, left_out: 0 });

/// May there be another line now, and how many were left out before it?
fn may_say(recent: &mut RecentLines, now: Instant) -> Option<u64> {
    let is_over = recent.since.is_none_or(|since| now - since >= Duration::from_secs(1));
    if is_over {
        (recent.since, recent.lines) = (Some(now), 0);
    }
    if recent.lines >= LINES_PER_SECOND_MAX {
        recent.left_out += 1;
        return None;
    }
    recent.lines += 1;
    Some(std::mem::take(&mut recent.left_out))
}

impl Slow {
    /// Tells nothing.
    pub(super) fn new(node: &'static NodeRegion) -> Slow {
        Slow { after: None, node, awake: cycles(), processes: HashMap::default() }
    }

    /// From now on requests are told that take longer; the number of cycles that they take at
    /// least.
    pub(super) fn tell(&mut self, after: Duration) -> u64 {
        self.after = Some(after);
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        after_ms.saturating_mul(CYCLES_PER_MS_MIN)
    }

    /// The thread has slept, and goes on.
    pub(super) fn awake(&mut self) {
        self.awake = cycles();
    }

    pub(super) fn session_opened(&mut self, session: SessionId, pid: u32) {
        if self.after.is_some() {
            self.processes.insert(session, pid);
        }
    }

    pub(super) fn session_closed(&mut self, session: SessionId) {
        self.processes.remove(&session);
    }

    /// A request was answered.
    pub(super) fn answered(&self, late: &Late, course: Course) {
        self.line(late, course, "");
    }

    /// A request was given up by its client.
    pub(super) fn given_up(&self, late: &Late) {
        self.line(late, Course::default(), " given_up");
    }

    fn line(&self, late: &Late, course: Course, end: &str) {
        let head = &self.node.head;
        let ms =
            |from: u64, to: u64| (head.nanoseconds(to.saturating_sub(from)) + 500_000) / 1_000_000;
        let total_ms = ms(late.submitted, late.shown);
        if self.after.is_none_or(|after| u128::from(total_ms) < after.as_millis()) {
            return;
        }
        let mut recent = RECENT_LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = may_say(&mut recent, Instant::now()) else { return };
        drop(recent);
        if left_out > 0 {
            log::slow(format_args!("{left_out} lines more were left out"));
        }
        let request = Request::decode(late.op, &late.body).ok();
        let subject = request.map(|request| About { request, node: self.node });
        let subject = subject.map_or_else(String::new, |subject| subject.to_string());
        let (op, parts) = (name_of(late.op), Parts::of(late, course, self.awake));
        let pid = self.processes.get(&late.at.session).copied().unwrap_or(0);
        let parts = parts.shown(ms);
        log::slow(format_args!(
            "op={op}{subject} total_ms={total_ms}{parts} pid={pid} session={}{end}",
            late.at.session.0
        ));
    }
}

/// Where the time went, in cycles of the counter.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    asleep: (u64, u64),
    served: (u64, u64),
    waiting: Option<(u64, u64, Waited)>,
    commit: (u64, u64),
}

impl Parts {
    fn of(late: &Late, course: Course, awake: u64) -> Parts {
        let Late { submitted, left, shown, .. } = *late;
        let taken = if awake > submitted && awake < shown { awake } else { submitted };
        if left == 0 {
            let waiting = None;
            return Parts {
                asleep: (submitted, taken),
                served: (taken, shown),
                waiting,
                commit: (0, 0),
            };
        }
        // Woken since it was left is not woken for it.
        let taken = if taken <= left { taken } else { submitted };
        let answered = if course.answered == 0 { shown } else { course.answered };
        let waited = course.waited.unwrap_or(Waited::Shards);
        Parts {
            asleep: (submitted, taken),
            served: (taken, left),
            waiting: Some((left, answered, waited)),
            commit: (answered, shown),
        }
    }

    fn shown(&self, ms: impl Fn(u64, u64) -> u64) -> String {
        let of = |(from, to): (u64, u64)| ms(from, to);
        let mut text = format!(" asleep_ms={} served_ms={}", of(self.asleep), of(self.served));
        if let Some((from, to, waited)) = self.waiting {
            let commit = of(self.commit);
            text += &format!(" waiting_ms={} waits_for=\"{waited}\"", ms(from, to));
            text += &format!(" commit_ms={commit}");
        }
        text
    }
}

/// What a request is about, for people.
struct About<'a> {
    request: Request<'a>,
    node: &'static NodeRegion,
}

impl About<'_> {
    fn open(&self, to: &mut Formatter<'_>, open: OpenRef) -> fmt::Result {
        let entry = self.node.opens.get(open.index as usize);
        let file = entry.map_or(0, |entry| entry.id.load(Relaxed));
        write!(to, " file={file:016x}")
    }

    fn target(&self, to: &mut Formatter<'_>, target: &Target<'_>) -> fmt::Result {
        match target {
            Target::Path(walk) => path(to, "path", walk),
            Target::Open(open) => self.open(to, *open),
            Target::Directory(FileId(id)) => write!(to, " file={id:016x}"),
        }
    }
}

impl Display for About<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match &self.request {
            Request::Open(open) => path(to, "path", &open.walk),
            Request::MakeDirectory(make) => path(to, "path", &make.walk),
            Request::MakeSpecial(make) => path(to, "path", &make.walk),
            Request::Unlink(unlink) => path(to, "path", &unlink.walk),
            Request::Symlink(link) => path(to, "path", &link.at),
            Request::Rename(rename) => {
                path(to, "path", &rename.from)?;
                path(to, "to", &rename.to)
            }
            Request::Link(link) => {
                self.target(to, &link.from)?;
                path(to, "to", &link.to)
            }
            request => match (request.target(), request.open()) {
                (Some(target), _) => self.target(to, &target),
                (None, Some(open)) => self.open(to, open),
                (None, None) => Ok(()),
            },
        }
    }
}

/// A path as the request names it: from the root of the instance, or from a directory.
fn path(to: &mut Formatter<'_>, key: &str, walk: &Walk<'_>) -> fmt::Result {
    write!(to, " {key}=\"")?;
    let skipped = walk.path.len().saturating_sub(PATH_BYTES_MAX);
    if skipped > 0 {
        write!(to, "…")?;
    }
    for piece in walk.path[skipped..].utf8_chunks() {
        write!(to, "{}", piece.valid().escape_debug())?;
        for byte in piece.invalid() {
            write!(to, "\\x{byte:02x}")?;
        }
    }
    write!(to, "\"")?;
    match walk.path.first() {
        Some(b'/') => Ok(()),
        _ => write!(to, " below={:016x}", walk.start.0),
    }
}

#[cfg(test)]
mod tests {
    use mayfly_transport_shm::server::LaneRef;
    use mayfly_wire::Op;

    use super::*;

    fn late(left: u64) -> Late {
        let at = LaneRef { session: SessionId(1), lane: 0 };
        Late { at, op: Op::Stat, body: Vec::new(), submitted: 100, left, shown: 1000 }
    }

    fn parts(late: &Late, course: Course, awake: u64) -> String {
        Parts::of(late, course, awake).shown(|from, to| to - from)
    }

    #[test]
    fn all_of_the_time_is_somewhere() {
        let course = Course { waited: Some(Waited::Node(2)), answered: 990 };
        let shown = parts(&late(300), course, 150);
        let waits = " waiting_ms=690 waits_for=\"node 2\" commit_ms=10";
        assert_eq!(shown, format!(" asleep_ms=50 served_ms=150{waits}"));
        // Woken by the answer, not by the request.
        let shown = parts(&late(300), course, 980);
        assert_eq!(shown, format!(" asleep_ms=0 served_ms=200{waits}"));
        let at_once = Course::default();
        assert_eq!(parts(&late(0), at_once, 950), " asleep_ms=850 served_ms=50");
        assert_eq!(parts(&late(0), at_once, 20), " asleep_ms=0 served_ms=900");
        assert_eq!(parts(&late(0), at_once, 1001), " asleep_ms=0 served_ms=900");
    }

    #[test]
    fn lines_of_a_second_are_bounded_and_the_next_says_how_many_were_left_out() {
        let mut recent = RecentLines { since: None, lines: 0, left_out: 0 };
        let now = Instant::now();
        let lines = (0..100).filter(|_| may_say(&mut recent, now) == Some(0)).count();
        assert_eq!(lines, LINES_PER_SECOND_MAX as usize);
        let later = now + Duration::from_secs(1);
        assert_eq!(may_say(&mut recent, later), Some(100 - u64::from(LINES_PER_SECOND_MAX)));
        assert_eq!(may_say(&mut recent, later), Some(0));
    }

    #[test]
    fn a_path_is_shown_with_what_is_not_text_escaped_and_with_its_end_only() {
        struct Shown<'a>(Walk<'a>);
        impl Display for Shown<'_> {
            fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
                path(to, "path", &self.0)
            }
        }
        let show = |path| Shown(Walk { start: FileId(7), flags: 0, path }).to_string();
        assert_eq!(show(b"/a\n\"b\xff\x1b"), " path=\"/a\\n\\\"b\\xff\\u{1b}\"");
        assert_eq!(show(b"a b"), " path=\"a b\" below=0000000000000007");
        let long = [b"x".repeat(600), b"end".to_vec()].concat();
        let shown = show(&long);
        assert!(shown.starts_with(" path=\"…xxx") && shown.len() < 600, "{shown}");
        assert!(shown.contains("xend\" below="), "{shown}");
    }
}
