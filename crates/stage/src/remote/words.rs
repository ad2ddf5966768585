//! What the process that deals a tree out says to those that copy on other nodes, and they to it.
//!
//! Frames of a length (32 bits, little-endian) and a body in postcard's format. Both sides are the
//! same program: the version stands in the first frame.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Counts, Pair, WhenOpen,
    copy::settle::{Moment, Still},
};

/// A frame is at most so long, bytes: names of a batch and what went wrong with each.
const FRAME_BYTES_MAX: u32 = 4 << 20;

/// A path that may lie below a root which each node has at a place of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Spot {
    /// Below that root.
    Inside(PathBuf),
    /// The same on every node.
    Anywhere(PathBuf),
}

impl Spot {
    pub(crate) fn of(path: &std::path::Path, root: Option<&std::path::Path>) -> Spot {
        match root.and_then(|root| path.strip_prefix(root).ok()) {
            Some(inner) => Spot::Inside(inner.to_owned()),
            None => Spot::Anywhere(path.to_owned()),
        }
    }

    pub(super) fn under(self, root: Option<&std::path::Path>) -> PathBuf {
        match (self, root) {
            (Spot::Inside(inner), Some(root)) => root.join(inner),
            (Spot::Inside(path), None) | (Spot::Anywhere(path), _) => path,
        }
    }
}

/// What is copied from here on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(super) version: String,
    pub(crate) source: Spot,
    pub(super) destination: Spot,
    pub(crate) like: Option<Spot>,
    pub(crate) began: Option<Moment>,
    pub(super) newer: Option<std::time::SystemTime>,
    pub(super) touched: Option<Moment>,
    pub(super) larger: Option<u64>,
    pub(super) smaller: Option<u64>,
    pub(crate) changed: bool,
    pub(super) follow: bool,
    pub(super) verify: bool,
    /// What was copied is on the disk before it counts.
    pub(crate) sync: bool,
    pub(crate) open: WhenOpen,
    /// Lowest priority for processors and disks.
    pub(super) idle: bool,
    pub(super) streams: usize,
    /// Bytes a second, at most.
    pub(super) bandwidth: Option<u64>,
    /// In temporary names.
    pub(super) stage: u64,
    /// Tells this node's temporary names from others'.
    pub(super) node: u32,
    /// The name of a file beside the destination.
    pub(super) token: Vec<u8>,
}

/// To who copies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Down {
    /// It goes on.
    Alive,
    Begin(Box<Begin>),
    /// Names of the directory with this path below the tree's own, as [`crate::walk::queue::Names`]
    /// has them.
    Names {
        id: u64,
        inner: PathBuf,
        is_named: bool,
        names: Vec<u8>,
    },
    /// A part of a large file in such a directory, or in what holds the tree.
    Part {
        id: u64,
        inner: Option<PathBuf>,
        name: Vec<u8>,
        temporary: Vec<u8>,
        part: u64,
        still: Still,
    },
    /// The destination's file system keeps what this node has written there.
    Sync {
        id: u64,
    },
}

/// From who copies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Up {
    /// It goes on.
    Alive,
    /// What it sees of both sides, or why it does not.
    Sees(Result<Seen, String>),
    /// A batch or a part.
    Done(Box<Done>),
}

/// What a node sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Inode of the source, and when it was changed.
    pub(crate) source: (u64, Moment),
    /// What the token says.
    pub(super) token: Vec<u8>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(super) id: u64,
    pub(crate) counts: Counts,
    pub(crate) events: Vec<Event>,
    /// Names that it leaves to who deals out: directories, files with several names, large ones,
    /// and those that are to be waited for.
    pub(super) left: Vec<u8>,
    /// So many directories at the destination it has made, from this one upwards.
    pub(super) made: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) path: Spot,
    pub(crate) what: What,
}

/// [`crate::Problem`] and [`crate::Note`], for the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    Failed(String, i32),
    Changing,
    Differs,
    Special(String),
    Open,
    Loop,
    Ended,
    NotKept(String),
}

/// Behind each frame: what srun hands on of a task's output it hands on line by line.
const LINE_END: u8 = b'\n';

pub(crate) fn write(to: &mut (impl Write + ?Sized), word: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(word).map_err(io::Error::other)?;
    let bytes = u32::try_from(body.len()).ok().filter(|bytes| *bytes <= FRAME_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| io::Error::other("too long a frame"))?;
    // At once: frames of several threads do not mix, and none is sent in two packets.
    let mut frame = bytes.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame.push(LINE_END);
    to.write_all(&frame)?;
    to.flush()
}

/// None at the end.
pub(super) fn read<T: DeserializeOwned>(from: &mut (impl Read + ?Sized)) -> io::Result<Option<T>> {
    let mut bytes = [0; 4];
    match from.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let bytes = u32::from_le_bytes(bytes);
    if bytes > FRAME_BYTES_MAX {
        return Err(io::Error::other("too long a frame"));
    }
    let mut body = vec![0; bytes as usize];
    from.read_exact(&mut body)?;
    let mut end = [0];
    from.read_exact(&mut end)?;
    if end != [LINE_END] {
        return Err(io::Error::other("a frame does not end"));
    }
    postcard::from_bytes(&body).map(Some).map_err(io::Error::other)
}

impl Begin {
    pub(crate) fn pair(&self, root: Option<&std::path::Path>) -> Pair {
        Pair {
            source: self.source.clone().under(root),
            destination: self.destination.clone().under(root),
            patterns: Vec::new(),
            like: self.like.clone().map(|like| like.under(root)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_comes_as_it_was_said_and_the_end_is_told_from_a_cut() {
        let names = Down::Names { id: 7, inner: "a/b".into(), is_named: true, names: vec![1, 0] };
        let mut sent = Vec::new();
        write(&mut sent, &names).expect("written");
        write(&mut sent, &names).expect("written");
        let mut from = &sent[..];
        let read_one = |from: &mut &[u8]| read::<Down>(from);
        let first = read_one(&mut from).expect("a frame").expect("no end");
        assert_eq!(format!("{first:?}"), format!("{names:?}"));
        read_one(&mut from).expect("a frame").expect("no end");
        assert!(read_one(&mut from).expect("the end").is_none());
        assert!(read_one(&mut &sent[..sent.len() - 1]).is_ok());
        assert!(read_one(&mut &sent[..9]).is_err());
    }

    #[test]
    fn a_path_below_the_root_is_below_that_of_each_node() {
        let root = |path: &'static str| Some(Path::new(path));
        let spot = Spot::of(Path::new("/mnt/a/case"), root("/mnt/a"));
        assert_eq!(spot.under(root("/mnt/b")), Path::new("/mnt/b/case"));
        let spot = Spot::of(Path::new("/mnt/ab"), root("/mnt/a"));
        assert_eq!(spot.under(root("/mnt/b")), Path::new("/mnt/ab"));
    }

    proptest! {
        #[test]
        fn no_bytes_upset_either_side(bytes: Vec<u8>) {
            let mut framed = (bytes.len() as u32).to_le_bytes().to_vec();
            framed.extend(&bytes);
            for input in [&framed, &bytes] {
                let _ = read::<Down>(&mut &input[..]);
                let _ = read::<Up>(&mut &input[..]);
            }
        }
    }
}
