//! Layouts in words: `home`, `stripe:4`, `hash,chunk=1M`.
//!
//! So `mayfly layout`, `--layout` and the extended attribute `user.mayfly.layout` have them.

use std::{fmt, str::FromStr};

use mayfly_meta::record::{Layout, Policy};
use mayfly_types::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use serde::{Deserialize, Serialize};

/// The layout of a file or of a directory, as an extended attribute.
pub const LAYOUT_XATTR: &str = "user.mayfly.layout";
/// Where the bytes of a file are, as one: for each node that has some a line with its number and
/// their number.
pub const NODES_XATTR: &str = "user.mayfly.nodes";

/// What stands before the size of a chunk.
const CHUNK: &str = "chunk=";

/// Some of the nodes of an instance, under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Their numbers, ascending.
    pub nodes: Vec<u32>,
}

/// A layout as people say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutWords {
    /// How chunks are dealt out.
    pub policy: Policy,
    /// To how many nodes; one is all of a file at its home, and `u16::MAX` all nodes.
    pub width: u16,
    /// Name of the pool, under [`Policy::Pool`].
    pub pool: Option<String>,
    /// Size of a chunk, bytes, if it is said.
    pub chunk_bytes: Option<u64>,
}

impl LayoutWords {
    /// What a layout says in an instance with these pools.
    #[must_use]
    pub fn of(layout: &Layout, pools: &[Pool]) -> LayoutWords {
        let Layout { policy, width, chunk_log2, first_server, tail, .. } = *layout;
        // Which other nodes it goes on at was not asked for.
        let width = if tail.is_there() { 1 } else { width };
        let pool = pools.get(first_server as usize).filter(|_| policy == Policy::Pool);
        let pool = pool.map(|pool| pool.name.clone());
        LayoutWords { policy, width, pool, chunk_bytes: Some(1 << chunk_log2) }
    }

    /// The number of its pool among these; 0 when it has none, and nothing when there is none.
    #[must_use]
    pub fn number_of_pool(&self, pools: &[Pool]) -> Option<u32> {
        let Some(name) = &self.pool else { return Some(0) };
        let number = pools.iter().position(|pool| pool.name == *name)?;
        u32::try_from(number).ok()
    }
}

impl FromStr for LayoutWords {
    type Err = String;

    fn from_str(text: &str) -> Result<LayoutWords, String> {
        let (words, chunk_bytes) = match text.split_once(',') {
            None => (text, None),
            Some((words, chunk)) => (words, Some(chunk_of(chunk)?)),
        };
        if let Some(pool) = words.strip_prefix("pool:") {
            let (name, width) = match pool.split_once(':') {
                Some((name, width)) => (name, width_of(width)?),
                None => (pool, u16::MAX),
            };
            let pool = Some(name.to_owned()).filter(|name| is_name(name));
            let pool = Some(pool.ok_or_else(|| format!("{name:?} is no name of a pool"))?);
            return Ok(LayoutWords { policy: Policy::Pool, width, pool, chunk_bytes });
        }
        let (policy, width) = match words.split_once(':') {
            Some((policy, width)) => (policy, Some(width_of(width)?)),
            None => (words, None),
        };
        let (policy, width) = match (policy, width) {
            ("home", None) => (Policy::Stripe, 1),
            ("stripe", width) => (Policy::Stripe, width.unwrap_or(u16::MAX)),
            ("hash", width) => (Policy::Hash, width.unwrap_or(u16::MAX)),
            ("local", None) => (Policy::Local, 1),
            _ => {
                return Err("choose home, stripe[:WIDTH], hash[:WIDTH], local or \
                            pool:NAME[:WIDTH]"
                    .to_owned());
            }
        };
        Ok(LayoutWords { policy, width, pool: None, chunk_bytes })
    }
}

impl fmt::Display for LayoutWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.pool.as_deref().unwrap_or_default();
        match (self.policy, self.width) {
            (Policy::Pool, u16::MAX) => write!(f, "pool:{pool}")?,
            (Policy::Pool, width) => write!(f, "pool:{pool}:{width}")?,
            (Policy::Local, _) => f.write_str("local")?,
            (_, 1) => f.write_str("home")?,
            (Policy::Hash, u16::MAX) => f.write_str("hash")?,
            (Policy::Hash, width) => write!(f, "hash:{width}")?,
            (_, u16::MAX) => f.write_str("stripe")?,
            (_, width) => write!(f, "stripe:{width}")?,
        }
        match self.chunk_bytes {
            Some(bytes) if bytes % (1 << 20) == 0 => write!(f, ",{CHUNK}{}M", bytes >> 20),
            Some(bytes) if bytes % (1 << 10) == 0 => write!(f, ",{CHUNK}{}K", bytes >> 10),
            Some(bytes) => write!(f, ",{CHUNK}{bytes}"),
            None => Ok(()),
        }
    }
}

/// Longest name of a pool, bytes.
const POOL_NAME_BYTES_MAX: usize = 64;

/// Whether a pool can have that name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=POOL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fine)
}

fn width_of(text: &str) -> Result<u16, String> {
    let width = text.parse().ok().filter(|width| *width > 0);
    width.ok_or_else(|| format!("WIDTH is a number of nodes, not {text:?}"))
}

fn chunk_of(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix(CHUNK).and_then(bytes_of);
    let possible = |bytes: &u64| {
        bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(bytes)
    };
    number.filter(possible).ok_or_else(|| {
        format!("{text:?}: after the comma comes chunk=SIZE, a power of two from 64K to 1G")
    })
}

fn bytes_of(text: &str) -> Option<u64> {
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(number) if text.ends_with('K') => (number, 10),
        Some(number) if text.ends_with('M') => (number, 20),
        Some(number) => (number, 30),
        None => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_said_as_it_is_understood() {
        for text in [
            "home,chunk=512K",
            "local,chunk=1M",
            "pool:leaf-1,chunk=1M",
            "pool:a:1",
            "stripe,chunk=64K",
            "stripe:4,chunk=1M",
            "hash,chunk=1024M",
            "hash:9",
        ] {
            let words: LayoutWords = text.parse().expect("a layout");
            assert_eq!(words.to_string(), text);
        }
        let words: LayoutWords = "stripe,chunk=1G".parse().expect("a layout");
        assert_eq!((words.width, words.chunk_bytes), (u16::MAX, Some(1 << 30)));
        let one: LayoutWords = "stripe:1".parse().expect("a layout");
        assert_eq!(one, "home".parse().expect("a layout"));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for text in [
            "",
            "raid",
            "home:2",
            "local:2",
            "pool",
            "pool:",
            "pool:a b",
            "pool:a:0",
            "pool:a:2:3",
            "stripe:",
            "stripe:0",
            "stripe:-1",
            "stripe:70000",
            "stripe:4:4",
            "hash,",
            "hash,chunk=",
            "hash,chunk=100K",
            "hash,chunk=32K",
            "hash,chunk=2G",
            "hash,512K",
            "home,chunk=512K,",
            "home,chunk=17179869185G",
            " home",
            "home\n",
        ] {
            assert!(text.parse::<LayoutWords>().is_err(), "{text:?}");
        }
    }
}
