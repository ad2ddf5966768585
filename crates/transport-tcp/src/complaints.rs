//! Messages for people about connections that were refused or given up. There is one line a minute
//! for each kind of trouble, with the number of those that were left out. So somebody who floods
//! the port does not fill the disk.

use std::{collections::BTreeMap, fmt};

use crate::{clock::ms, handshake::Refusal, limits::COMPLAINT_EVERY_MS};

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// A connection was refused before it was believed.
    Refused(Refusal),
    /// A handshake took too long.
    SlowHandshake,
    /// Too many handshakes at a time.
    Flood,
    /// A frame took too long.
    SlowFrame,
    /// An authenticated peer broke the protocol.
    Broken,
    /// A peer does not answer a probe.
    Silent,
    /// A peer is of an earlier incarnation than one that was known.
    Stale,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(refusal) => write!(f, "connection refused: {refusal}"),
            Trouble::SlowHandshake => {
                f.write_str("connection refused: its handshake took too long")
            }
            Trouble::Flood => f.write_str("connection refused: too many handshakes at a time"),
            Trouble::SlowFrame => f.write_str("connection closed: a frame took too long"),
            Trouble::Broken => f.write_str("connection closed: its frames break the protocol"),
            Trouble::Silent => f.write_str("connection closed: the peer does not answer"),
            Trouble::Stale => f.write_str("connection refused: a daemon that was replaced"),
        }
    }
}

/// Takes lines for people.
pub(crate) type Log = Box<dyn Fn(&str) + Send + Sync>;

/// Writes the lines.
pub(crate) struct Complaints {
    log: Log,
    /// When the last line of the kind was written, and how many were left out since.
    last: BTreeMap<Trouble, (u64, u64)>,
}

impl Complaints {
    pub(crate) fn new(log: Log) -> Complaints {
        Complaints { log, last: BTreeMap::new() }
    }

    /// `who`: a node or an address.
    pub(crate) fn say(&mut self, now_ns: u64, trouble: Trouble, who: impl fmt::Display) {
        let more = match self.last.get_mut(&trouble) {
            Some((since, left_out)) if now_ns.saturating_sub(*since) < ms(COMPLAINT_EVERY_MS) => {
                *left_out += 1;
                return;
            }
            Some((_, left_out)) => *left_out,
            None => 0,
        };
        self.last.insert(trouble, (now_ns, 0));
        match more {
            0 => (self.log)(&format!("{who}: {trouble}")),
            more => (self.log)(&format!("{who}: {trouble} (and {more} before)")),
        }
    }
}

impl fmt::Debug for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Complaints").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_flood_of_trouble_is_one_line_a_minute_for_each_kind() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let log = move |line: &str| kept.lock().expect("no panic").push(line.to_owned());
        let mut complaints = Complaints::new(Box::new(log));
        for second in 0..90 {
            complaints.say(ms(1000 * second), Trouble::Flood, "here");
        }
        complaints.say(ms(90_000), Trouble::Silent, "there");
        let lines = lines.lock().expect("no panic");
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with("(and 59 before)"), "{}", lines[1]);
    }
}
