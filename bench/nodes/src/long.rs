//! Processor time of everybody for 1 MiB written and read from a node that stores nothing, with 16
//! nodes that do and with 2.

use std::{fs::File, os::unix::fs::FileExt};

use anyhow::Result;

use crate::{
    growth::{self, All},
    instance::mount,
};

const FEW: usize = 2;
const MANY: usize = 16;
const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 64;

pub(crate) fn run() -> Result<()> {
    // Files are striped: each piece is on two nodes.
    growth::compare("__long", [FEW, MANY], &["write-1M", "read-1M"], &["--layout", "stripe"])
}

pub(crate) fn child(words: &[&str]) -> Result<()> {
    let all = All::with_this_one(words)?;
    let path = mount()?.join(format!("long-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let mut piece = vec![1; PIECE_BYTES];
    let at = |number: usize| (number * PIECE_BYTES) as u64;
    // Objects are made, and every node was asked for something.
    (0..PIECES).try_for_each(|number| file.write_all_at(&piece, at(number)))?;
    all.count("write-1M", PIECES, || {
        Ok((0..PIECES).try_for_each(|number| file.write_all_at(&piece, at(number)))?)
    })?;
    all.count("read-1M", PIECES, || {
        Ok((0..PIECES).try_for_each(|number| file.read_exact_at(&mut piece, at(number)))?)
    })?;
    Ok(std::fs::remove_file(path)?)
}
