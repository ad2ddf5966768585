//! Keys: the site's, which only root reads, and what comes from it for a job and for a door.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use blake2::{
    Blake2sMac256,
    digest::{KeyInit, Mac},
};
use serde::{Deserialize, Serialize};

use crate::{Job, config::trusted};

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// A key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key(pub(crate) [u8; KEY_BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Key")
    }
}

/// Makes a site's key, which is to be the same on all nodes.
///
/// # Errors
/// There is one, or it cannot be written.
pub fn make(path: &Path) -> Result<()> {
    let mut key = [0; KEY_BYTES];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key))?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut options = fs::File::options();
    let file = options.write(true).create_new(true).mode(0o400).open(path);
    let mut file = file.with_context(|| format!("cannot make {}", path.display()))?;
    Ok(writeln!(file, "{text}")?)
}

impl Key {
    /// The site's.
    pub(crate) fn of_site(path: &Path) -> Result<Key> {
        use std::os::unix::fs::MetadataExt;
        let secret = fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 == 0);
        let text = trusted(path)?;
        ensure!(secret, "{} may be read by others than root: chmod go=", path.display());
        let text = str::from_utf8(&text).unwrap_or_default().trim();
        let digits = (0..text.len() / 2).filter_map(|at| text.get(2 * at..2 * at + 2));
        let bytes: Option<Vec<u8>> =
            digits.map(|digits| u8::from_str_radix(digits, 16).ok()).collect();
        let key = bytes.and_then(|bytes| bytes.try_into().ok());
        let how = "`mayfly site key` makes one";
        let complete = text.len() == 2 * KEY_BYTES;
        key.filter(|_| complete)
            .map(Key)
            .with_context(|| format!("no key in {}: {how}", path.display()))
    }

    /// That of one run of a job.
    pub(crate) fn of_job(&self, job: &Job) -> Key {
        self.derive("job", &[&job.id, &job.uid.to_string(), &job.restarts.to_string()])
    }

    /// That of the door of one of its nodes.
    pub(crate) fn of_door(&self, node: &str) -> Key {
        self.derive("door", &[node])
    }

    /// A keyed BLAKE2s (RFC 7693) of words, each behind its length.
    fn derive(&self, kind: &str, words: &[&str]) -> Key {
        let mut mac = <Blake2sMac256 as KeyInit>::new((&self.0).into());
        for word in [kind].iter().chain(words) {
            mac.update(&(word.len() as u64).to_le_bytes());
            mac.update(word.as_bytes());
        }
        Key(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_made_is_read_and_no_other_file_is() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("key");
        make(&path).expect("made");
        assert!(make(&path).is_err(), "there is one");
        let key = Key::of_site(&path).expect("its own");
        assert_ne!(key, key.of_door("a"));
        assert_ne!(key.of_door("a"), key.of_door("b"));
        for text in ["", "00", &"zz".repeat(32), &"0".repeat(63), &"00".repeat(33)] {
            fs::remove_file(&path).expect("there");
            fs::write(&path, text).expect("written");
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o400);
            fs::set_permissions(&path, private).expect("its own");
            assert!(Key::of_site(&path).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_key_that_others_may_read_is_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "00".repeat(32)).expect("written");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        fs::set_permissions(file.path(), open).expect("its own");
        assert!(Key::of_site(file.path()).is_err());
    }
}
