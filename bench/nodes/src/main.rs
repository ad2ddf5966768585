//! What an instance of several nodes costs, beside the plainest thing that could do the same in the
//! same run:
//!
//! `cargo build --release -p mayfly-cli && TMPDIR=/dev/shm cargo run --release -p nodes [BAR...]`
//!
//! Both sides take turns, and the medians of the ratios are printed with their span. A process that
//! calls is one of its own, with the library in it; relay and server of the other side are
//! processes too. Data are in `TMPDIR`.

mod beside;
mod bulk;
mod costs;
mod counts;
mod echoes;
mod failure;
mod growth;
mod instance;
mod latency;
mod long;
mod one;
mod own;
mod placing;
mod processor;
mod report;
mod shaped;
mod shared;
mod stream;

use anyhow::{Result, bail};

/// A bar, by name.
type Bar = (&'static str, fn() -> Result<()>);

const BARS: [Bar; 13] = [
    ("latency", latency::run),
    ("bulk", bulk::run),
    ("beside", beside::run),
    ("counts", counts::run),
    ("growth", growth::run),
    ("own", own::run),
    ("one", one::run),
    ("long", long::run),
    ("shared", shared::run),
    ("balance", placing::balance),
    ("failure", failure::run),
    ("costs", costs::run),
    ("shaped", shaped::bar),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["__latency", address, name] => return latency::child(address, name),
        ["__bulk", address, name, ref processes @ ..] => {
            return bulk::child(address, name, processes);
        }
        ["__beside", address, long, here, there] => {
            return beside::child(address, long, [here, there]);
        }
        ["__beside_stream", address, name] => return beside::transfers(address, name),
        ["__counts", what, ..] => return counts::child(what, &words[2..]),
        ["__shaped", ref words @ ..] => return shaped::child(words),
        ["__costs", ref words @ ..] => return costs::child(words),
        ["__growth", ref words @ ..] => return growth::child(words),
        ["__own", ref words @ ..] => return own::child(words),
        ["__one", ref words @ ..] => return one::child(words),
        ["__long", ref words @ ..] => return long::child(words),
        ["__shared", ref words @ ..] => return shared::child(words),
        ["__failure", name] => return failure::child(name),
        ["__echo"] => return stream::echo(),
        ["__relay", address] => return stream::relay(address),
        ["__sink", directory] => return stream::sink(directory),
        _ => {}
    }
    if let [word] = words[..]
        && let Some(kinds) = word.strip_prefix("growth:")
    {
        return growth::only(&kinds.split(',').collect::<Vec<_>>());
    }
    for word in &words {
        if !BARS.iter().any(|bar| bar.0 == *word) {
            bail!("usage: nodes [{}]... | growth:KIND,...", BARS.map(|bar| bar.0).join("|"));
        }
    }
    for (_, run) in BARS.iter().filter(|bar| words.is_empty() || words.contains(&bar.0)) {
        run()?;
    }
    Ok(())
}
