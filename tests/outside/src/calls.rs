//! Which calls there are, and how often each was made.

use std::{collections::BTreeMap, path::Path, path::PathBuf};

use serde_json::{Value, json};

/// A call that reaches the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// A name, with the attributes of what it stands for.
    Lookup,
    /// Attributes.
    Stat,
    /// Attributes are changed.
    SetAttr,
    /// Where a symbolic link leads.
    ReadLink,
    /// A directory is made.
    MakeDirectory,
    /// A name is removed.
    Unlink,
    /// A directory is removed.
    RemoveDirectory,
    /// A symbolic link is made.
    Symlink,
    /// A further name is made.
    Link,
    /// A name is moved.
    Rename,
    /// A file is opened.
    Open,
    /// A file is made, and opened.
    Create,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is to be safe.
    Sync,
    /// A directory is listed, however long it is.
    List,
    /// The space is asked for.
    Space,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 17] = [
        Call::Lookup,
        Call::Stat,
        Call::SetAttr,
        Call::ReadLink,
        Call::MakeDirectory,
        Call::Unlink,
        Call::RemoveDirectory,
        Call::Symlink,
        Call::Link,
        Call::Rename,
        Call::Open,
        Call::Create,
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::List,
        Call::Space,
    ];

    /// As orders and counts have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Call::Lookup => "lookup",
            Call::Stat => "stat",
            Call::SetAttr => "setattr",
            Call::ReadLink => "readlink",
            Call::MakeDirectory => "mkdir",
            Call::Unlink => "unlink",
            Call::RemoveDirectory => "rmdir",
            Call::Symlink => "symlink",
            Call::Link => "link",
            Call::Rename => "rename",
            Call::Open => "open",
            Call::Create => "create",
            Call::Read => "read",
            Call::Write => "write",
            Call::Sync => "fsync",
            Call::List => "readdir",
            Call::Space => "statfs",
        }
    }

    /// The call of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Call> {
        Call::ALL.into_iter().find(|call| call.name() == name)
    }
}

/// Counts since they were last reset.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    counts: BTreeMap<(Call, PathBuf), u64>,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

impl Calls {
    pub(crate) fn count(&mut self, call: Call, path: &Path) {
        *self.counts.entry((call, path.to_owned())).or_default() += 1;
    }

    /// How often a call was made, for whatever path.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.counts.iter().filter(|(of, _)| of.0 == call).map(|(_, count)| count).sum()
    }

    /// How often for the path for which it was made most.
    #[must_use]
    pub fn most(&self, call: Call) -> u64 {
        let counts = self.counts.iter().filter(|(of, _)| of.0 == call).map(|(_, count)| *count);
        counts.max().unwrap_or_default()
    }

    /// How often for one path, which begins at the root of what is shown.
    #[must_use]
    pub fn of_path(&self, call: Call, path: &Path) -> u64 {
        self.counts.get(&(call, path.to_owned())).copied().unwrap_or_default()
    }

    /// What the file `.outside` says: `calls` in all, and `most` for one path.
    #[must_use]
    pub fn as_json(&self) -> Value {
        let all = |count: &dyn Fn(Call) -> u64| -> Value {
            Call::ALL.into_iter().map(|call| (call.name().to_owned(), json!(count(call)))).collect()
        };
        json!({
            "calls": all(&|call| self.of(call)),
            "most": all(&|call| self.most(call)),
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
        })
    }
}
