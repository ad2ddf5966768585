//! The document: text by hand, with blocks between marks that the command writes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::report::{Block, Plot};

/// Where the repository is.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The document.
#[must_use]
pub fn path() -> PathBuf {
    root().join("docs/benchmarks/scaling.md")
}

fn marks(name: &str) -> (String, String) {
    (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"))
}

/// The block of this name.
///
/// # Errors
/// The document has no such block.
pub fn block<'t>(text: &'t str, name: &str) -> Result<&'t str> {
    let (begin, end) = marks(name);
    let from = text.find(&begin).with_context(|| format!("no block {name}"))? + begin.len();
    let length = text[from..].find(&end).with_context(|| format!("block {name} does not end"))?;
    Ok(&text[from..from + length])
}

/// The document with these blocks.
///
/// # Errors
/// It lacks one of them.
pub fn with(text: &str, blocks: &[Block]) -> Result<String> {
    let mut text = text.to_owned();
    for (name, block_text) in blocks {
        let old = block(&text, name)?;
        let from = old.as_ptr() as usize - text.as_ptr() as usize;
        let range = from..from + old.len();
        text.replace_range(range, block_text);
    }
    Ok(text)
}

/// Writes blocks and plots.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(blocks: &[Block], plots: &[Plot]) -> Result<()> {
    let path = path();
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, with(&text, blocks)?)?;
    let directory = root().join("docs/benchmarks/plots");
    std::fs::create_dir_all(&directory)?;
    for (name, text) in plots {
        std::fs::write(directory.join(name), text)?;
    }
    Ok(())
}
