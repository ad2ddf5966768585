//! A line of a log: when, how bad, where, who, what.
//!
//! ```text
//! 2026-11-28T18:15:07.123Z WARN node 3 daemon: slow: op=stat path="a/b" total_ms=1203 …
//! ```
//!
//! What is not printable in the text is escaped, so an event is one line whatever a name in it
//! holds, and a terminal shows what is there.

use std::{
    fmt::{self, Display, Formatter, Write},
    str::FromStr,
    time::{Duration, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Longest text of a line, bytes; what is longer is cut.
pub(super) const TEXT_BYTES_MAX: usize = 4096;
/// Stands where something was cut.
const CUT: &str = "…";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// What a person may want to know later.
    Info,
    /// What is not as it should be, and goes on.
    Warn,
    /// A person must look.
    Error,
}

impl Level {
    /// All, with their words.
    const ALL: [(Level, &'static str); 3] =
        [(Level::Info, "INFO"), (Level::Warn, "WARN"), (Level::Error, "ERROR")];

    /// By its word.
    #[must_use]
    pub fn of(word: &str) -> Option<Level> {
        let of = |(_, other): &&(Level, &str)| other.eq_ignore_ascii_case(word);
        Level::ALL.iter().find(of).map(|(level, _)| *level)
    }

    /// Splits the level from a child's line. A line without a level is a warning.
    pub(super) fn split(said: &str) -> (Level, &str) {
        let marked = said.split_once(' ');
        let marked = marked.and_then(|(word, rest)| {
            let level = Level::ALL.iter().find(|(_, other)| *other == word)?;
            Some((level.0, rest))
        });
        let level = || if said.contains("panicked at") { Level::Error } else { Level::Warn };
        marked.unwrap_or_else(|| (level(), said))
    }
}

impl Display for Level {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let word = Level::ALL.iter().find(|(level, _)| level == self);
        to.write_str(word.map_or("", |(_, word)| word))
    }
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The supervisor.
    Supervisor,
    /// The daemon.
    Daemon,
    /// A process that serves a mount.
    Mount,
    /// A process that makes an image of a library.
    Image,
    /// A process that copies into the instance or out of it.
    Stage,
    /// The process that works for the daemon in the origins.
    Tier,
}

impl Part {
    const ALL: [(Part, &'static str); 6] = [
        (Part::Supervisor, "supervisor"),
        (Part::Daemon, "daemon"),
        (Part::Mount, "mount"),
        (Part::Image, "image"),
        (Part::Stage, "stage"),
        (Part::Tier, "tier"),
    ];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        Part::ALL.iter().find(|(part, _)| *part == self).map_or("", |(_, word)| word)
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When it was written, by its node's clock, milliseconds since the epoch.
    pub time_ms: u64,
    /// How bad it is.
    pub level: Level,
    /// Its node's number; 0 where there is one.
    pub node: u32,
    /// Who says it.
    pub part: Part,
    /// What.
    pub text: String,
}

impl Line {
    pub(super) fn new(time_ms: u64, level: Level, node: u32, part: Part, text: &str) -> Line {
        Line { time_ms, level, node, part, text: printable(text) }
    }

    /// Its time as text: UTC, RFC 3339.
    #[must_use]
    pub fn time(&self) -> String {
        let time = UNIX_EPOCH.checked_add(Duration::from_millis(self.time_ms));
        humantime::format_rfc3339_millis(time.unwrap_or(UNIX_EPOCH)).to_string()
    }
}

impl Display for Line {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Line { level, node, part, text, .. } = self;
        write!(to, "{} {level} node {node} {}: {text}", self.time(), part.word())
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(line: &str) -> Result<Line, ()> {
        let parsed = || {
            let mut words = line.splitn(5, ' ');
            let time = humantime::parse_rfc3339(words.next()?).ok()?;
            let time_ms = time.duration_since(UNIX_EPOCH).ok()?.as_millis();
            let level = words.next()?;
            let level = Level::ALL.iter().find(|(_, word)| *word == level)?.0;
            let node = words.next().filter(|word| *word == "node").and(words.next())?;
            let (part, text) = words.next()?.split_once(": ")?;
            let part = Part::ALL.iter().find(|(_, word)| *word == part)?.0;
            let (time_ms, node) = (u64::try_from(time_ms).ok()?, node.parse().ok()?);
            Some(Line { time_ms, level, node, part, text: text.to_owned() })
        };
        parsed().ok_or(())
    }
}

/// Without control characters, and not too long.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.trim_end().chars() {
        if shown.len() >= TEXT_BYTES_MAX {
            shown.push_str(CUT);
            break;
        }
        if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            // To a string nothing fails.
            let _ = write!(shown, "{}", letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_as_it_was() {
        let text = "slow: op=stat path=\"a: b\" ";
        let line = Line::new(1_796_000_107_123, Level::Warn, 3, Part::Daemon, text);
        assert_eq!(line.to_string().parse(), Ok(line.clone()));
        let shown = "2026-11-30T00:55:07.123Z WARN node 3 daemon: slow: op=stat path=\"a: b\"";
        assert_eq!(line.to_string(), shown);
        for other in ["", "x", "2026-11-30T00:55:07.123Z", "2026-11-30T00:55:07.123Z WARN node"] {
            assert!(other.parse::<Line>().is_err(), "{other:?}");
        }
    }

    #[test]
    fn whatever_a_name_holds_is_one_line_of_printable_letters() {
        let line = Line::new(0, Level::Info, 0, Part::Stage, "a\nb\x1b[2J\r\u{2028}é");
        assert_eq!(line.text, "a\\nb\\u{1b}[2J\\r\\u{2028}é");
        let long = Line::new(0, Level::Info, 0, Part::Stage, &"é".repeat(TEXT_BYTES_MAX));
        assert!(long.text.len() <= TEXT_BYTES_MAX + CUT.len() && long.text.ends_with(CUT));
    }

    #[test]
    fn what_a_child_says_without_a_level_is_a_warning_and_a_panic_an_error() {
        assert_eq!(Level::split("ERROR net: lost"), (Level::Error, "net: lost"));
        assert_eq!(Level::split("INFO x"), (Level::Info, "x"));
        assert_eq!(Level::split("warning"), (Level::Warn, "warning"));
        let panic = "thread 'main' panicked at src/x.rs:1:1:";
        assert_eq!(Level::split(panic), (Level::Error, panic));
    }
}
