//! What comes from outside and may be anything, as a fuzzer hands it in: a run of bytes for each
//! target, which panics where the product would, or where it breaks a promise.
//!
//! `fuzz/` has a program for each target, `cargo xtask fuzz` runs them. The inputs that are worth
//! keeping lie in `fuzz/inputs`, a line of hexadecimal digits each; `tests/replay.rs` runs them,
//! and small changes of them, with every test run.

mod connections;
mod input;
pub mod inputs;
mod lanes;
mod lists;
mod pages;
mod process;
mod records;
mod ring;
mod wire;

/// One kind of untrusted bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its program and of the file with its inputs.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// What a corpus begins with: bytes that are right.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: wire::run, seeds: wire::seeds },
    Target {
        name: "words",
        run: mayfly_daemon::hostile::words,
        seeds: mayfly_daemon::hostile::seeds,
    },
    Target { name: "connections", run: connections::run, seeds: connections::seeds },
    Target { name: "ring", run: ring::run, seeds: ring::seeds },
    Target { name: "lanes", run: lanes::run, seeds: lanes::seeds },
    Target { name: "records", run: records::run, seeds: records::seeds },
    Target { name: "pages", run: pages::run, seeds: pages::seeds },
    Target { name: "lists", run: lists::run, seeds: lists::seeds },
];

/// Runs an input of the target of that name.
///
/// # Panics
/// When there is none, and when the product does.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a fuzz program has the name of a target").run)(bytes);
}
