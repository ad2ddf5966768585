//! The kept inputs of a target: text, one input a line, as hexadecimal digits.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// The file of a target below the root of the repository.
#[must_use]
pub fn file(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/inputs").join(target)
}

/// Reads them.
///
/// # Errors
/// When there is no such file, or it has something else.
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(path)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not hexadecimal digits");
    text.lines().map(|line| bytes(line).ok_or_else(wrong)).collect()
}

/// Writes them, the shortest first and each once, up to `bytes_max` bytes of text.
///
/// # Errors
/// What the disk says.
pub fn write(path: &Path, mut inputs: Vec<Vec<u8>>, bytes_max: usize) -> io::Result<()> {
    inputs.sort_by(|one, two| (one.len(), one).cmp(&(two.len(), two)));
    inputs.dedup();
    let mut text = String::new();
    for input in inputs.iter().filter(|input| !input.is_empty()) {
        if text.len() + 2 * input.len() + 1 > bytes_max {
            break;
        }
        for byte in input {
            write!(text, "{byte:02x}").map_err(io::Error::other)?;
        }
        text.push('\n');
    }
    fs::write(path, text)
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    if !line.is_ascii() || !line.len().is_multiple_of(2) {
        return None;
    }
    let pair = |at: usize| u8::from_str_radix(line.get(at..at + 2)?, 16).ok();
    (0..line.len()).step_by(2).map(pair).collect()
}
