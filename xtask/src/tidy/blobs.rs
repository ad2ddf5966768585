//! The repository holds text; what is built or downloaded does not belong in it.

use super::{Complaint, SourceFile};

const FILE_BYTES_MAX: usize = 256 << 10;

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let complain = |file: &SourceFile| {
        if file.bytes.contains(&0) || file.text().is_none() {
            Some(Complaint::at(&file.path, "a binary file"))
        } else if file.bytes.len() > FILE_BYTES_MAX {
            Some(Complaint::at(&file.path, format!("{} bytes of text", file.bytes.len())))
        } else {
            None
        }
    };
    files.iter().filter_map(complain).collect()
}
