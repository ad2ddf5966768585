//! Reading the log in a run directory from its beginning, and on while it is written.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{LOG_NAME, Level, Line, OLDER_NAME, Part};

/// The result of a look.
#[derive(Debug)]
pub(crate) enum LogRead {
    /// These lines; there may be more.
    Some(Vec<Line>),
    /// Nothing new so far.
    End,
    /// There is no log any more.
    Gone,
}

/// How far the log of a node was read.
#[derive(Debug)]
pub(crate) struct Reader {
    run_dir: PathBuf,
    file: Option<File>,
    /// A line whose end is not there yet.
    unfinished: Vec<u8>,
    /// When the last line was written, and where, for those that say nothing of it.
    last: (u64, u32),
}

impl Reader {
    /// Reads from the oldest line that there is.
    pub(crate) fn new(run_dir: &Path) -> Reader {
        Reader { run_dir: run_dir.to_owned(), file: None, unfinished: Vec::new(), last: (0, 0) }
    }

    /// Takes lines of about so many bytes together, in their order.
    pub(crate) fn take(&mut self, bytes: usize) -> LogRead {
        if self.file.is_none() {
            let first = open(&self.run_dir, OLDER_NAME).or_else(|_| open(&self.run_dir, LOG_NAME));
            let Ok(first) = first else { return LogRead::Gone };
            self.file = Some(first);
        }
        loop {
            let lines = self.read(bytes);
            if !lines.is_empty() {
                return LogRead::Some(lines);
            }
            // The next file is looked for first: what was added to this one until then is read.
            let next = self.next();
            let lines = self.read(bytes);
            if !lines.is_empty() {
                return LogRead::Some(lines);
            }
            match next {
                Ok(Some(next)) => self.file = Some(next),
                Ok(None) => return LogRead::End,
                Err(_) => return LogRead::Gone,
            }
        }
    }

    /// The file that was begun when this one was full; `None` while it is not. Nothing, where the
    /// directory has gone.
    fn next(&self) -> io::Result<Option<File>> {
        let Some(file) = &self.file else { return Ok(None) };
        let own = file.metadata()?.ino();
        let newest = open(&self.run_dir, LOG_NAME)?;
        if newest.metadata()?.ino() == own {
            return Ok(None);
        }
        match open(&self.run_dir, OLDER_NAME) {
            // Two were begun meanwhile: what was between is gone, and the older one comes first.
            Ok(older) if older.metadata()?.ino() != own => Ok(Some(older)),
            _ => Ok(Some(newest)),
        }
    }

    fn read(&mut self, bytes: usize) -> Vec<Line> {
        let Some(file) = &self.file else { return Vec::new() };
        let before = self.unfinished.len();
        let _ = file.take(bytes as u64).read_to_end(&mut self.unfinished);
        let Some(end) = self.unfinished[before..].iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.unfinished.split_off(before + end + 1);
        let whole = std::mem::replace(&mut self.unfinished, rest);
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| self.line(&String::from_utf8_lossy(line))).collect()
    }

    fn line(&mut self, text: &str) -> Line {
        if let Ok(line) = text.parse::<Line>() {
            self.last = (line.time_ms, line.node);
            return line;
        }
        // A panic of the supervisor itself, say.
        let (level, text) = Level::split(text);
        Line::new(self.last.0, level, self.last.1, Part::Supervisor, text)
    }
}

fn open(run_dir: &Path, name: &str) -> io::Result<File> {
    File::open(run_dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;

    fn texts(reader: &mut Reader) -> Vec<String> {
        match reader.take(1 << 16) {
            LogRead::Some(lines) => lines.into_iter().map(|line| line.text).collect(),
            LogRead::End => Vec::new(),
            LogRead::Gone => vec!["gone".to_owned()],
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_was_through_new_files_and_to_the_end() {
        let place = tempfile::tempdir().expect("a directory");
        let run_dir = place.path().join("run");
        let mut reader = Reader::new(&run_dir);
        assert_eq!(texts(&mut reader), ["gone"]);
        std::fs::create_dir(&run_dir).expect("a directory");
        let mut log = Log::open(&run_dir, 0, 60).expect("a file");
        let mut reader = Reader::new(&run_dir);
        assert!(texts(&mut reader).is_empty());
        for text in ["one", "two", "three"] {
            // Each in a file of its own.
            log.write(Part::Mount, Level::Info, &format!("{text}{}", " .".repeat(9)));
            let read = texts(&mut reader);
            assert!(read.len() == 1 && read[0].starts_with(text), "{read:?}");
            assert!(texts(&mut reader).is_empty());
        }
        std::fs::remove_dir_all(&run_dir).expect("removed");
        assert_eq!(texts(&mut reader), ["gone"]);
    }

    #[test]
    fn what_has_no_stamp_comes_where_it_stands() {
        let place = tempfile::tempdir().expect("a directory");
        let mut log = Log::open(place.path(), 2, 1 << 20).expect("a file");
        log.write(Part::Daemon, Level::Info, "before");
        let text = b"thread 'main' panicked at x\nhalf a";
        io::Write::write_all(&mut log.file, text).expect("written");
        let LogRead::Some(lines) = Reader::new(place.path()).take(1000) else { panic!("lines") };
        assert_eq!(lines.len(), 2, "the last one has no end yet");
        assert_eq!((lines[1].time_ms, lines[1].node), (lines[0].time_ms, 2));
        assert_eq!(lines[1].level, Level::Error);
    }
}
