//! Options of an instance that more than one part must understand.

/// Which time stamps the instance keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Times {
    /// None: every file reports its creation time.
    None = 0,
    /// Modification and change times.
    #[default]
    Mtime = 1,
    /// Access times too.
    All = 2,
}

/// What survives what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Durability {
    /// Nothing outlives the daemon.
    None = 0,
    /// Everything acknowledged survives the death of any process.
    #[default]
    Process = 1,
    /// And what was fsynced survives the node's power loss.
    Sync = 2,
}
