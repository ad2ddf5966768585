//! The parts of a daemon's shard: what a part keeps stands below what it does.
//!
//! Code in `state/` of a part is data and what can be done with it alone. It does not name `Shard`:
//! so it can be read, and tested, without anything above it.

use super::source::{self, line_of, places_of};
use super::{Complaint, SourceFile};

const PARTS: &str = "crates/daemon/src/";

pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let state = files.iter().filter(|file| file.is("rs") && is_state(&file.path));
    state.flat_map(|file| look(&file.path, file.text().unwrap_or_default())).collect()
}

fn is_state(path: &str) -> bool {
    path.strip_prefix(PARTS).is_some_and(|inner| inner.contains("/state/"))
}

fn look(path: &str, text: &str) -> Vec<Complaint> {
    let code = source::without_tests(&source::code(text));
    let named = places_of(&code, "Shard").into_iter();
    let complain = |at| {
        let what = "names Shard: what needs the shard stands above the state".to_owned();
        Complaint::at(&format!("{path}:{}", line_of(&code, at)), what)
    };
    named.map(complain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_knows_the_shard_is_found_and_a_comment_is_not() {
        let text = "/// As [`Shard`] does.\nimpl Shard {\n}\nstruct Shards;\n";
        let found = look("crates/daemon/src/files/state/data.rs", text);
        assert_eq!(found.len(), 1);
        assert!(is_state("crates/daemon/src/files/state/data.rs"));
        assert!(!is_state("crates/daemon/src/files/data.rs"));
    }
}
