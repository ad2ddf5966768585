//! Open files and their bytes, at the file's home.
//!
//! `descriptions.rs` is the table of open file descriptions. `data.rs`, `append.rs`, `cut.rs` and
//! `allocate.rs` are what is done to bytes. Work that takes long is a job of the I/O pool
//! (`background.rs`). The pool also prepares an object for an operation that cannot go on without
//! it (`preparation.rs`). A write that a daemon may have begun when it died is *in doubt* until
//! somebody has looked (`in_doubt.rs`).
//!
//! Invariants:
//! - A file's length in its record is never beyond bytes that were not written.
//! - Space is set aside before bytes are written to it: `charged_bytes` is what was set aside for
//!   files whose size is not settled.
//! - A process that was granted an object writes to it by itself; the grant's generation changes
//!   before the object may be another one.

pub(crate) mod allocate;
pub(crate) mod allowances;
pub(crate) mod alone;
pub(crate) mod append;
pub(crate) mod background;
pub(crate) mod cut;
pub(crate) mod data;
pub(crate) mod descriptions;
pub(crate) mod in_doubt;
pub(crate) mod preparation;
pub(crate) mod state;

use mayfly_object::Jobs;
use mayfly_transport_shm::layout::NodeRegion;
use mayfly_types::FileId;

use crate::{
    api::Caller,
    files::{
        descriptions::OpenTable,
        state::{
            append::Noted,
            background::{Done, Work},
            in_doubt::StartedWrites,
            preparations::Preparations,
        },
    },
    maps::HashMap,
};

/// What a shard keeps in mind of open files.
pub(crate) struct Files {
    /// Open file descriptions.
    pub(crate) opens: OpenTable,
    /// The content of the small file that this request has opened for reading.
    pub(crate) opened_content: Option<Vec<u8>>,
    /// Writes that were begun and are perhaps not done.
    pub(crate) in_doubt: StartedWrites,
    /// The latest appends through the daemon to each object that is not settled, one for each
    /// lane.
    pub(crate) appends: HashMap<FileId, Vec<Noted>>,
    /// What the I/O pool does.
    pub(crate) jobs: Jobs<Done>,
    /// Preparations for operations that wait.
    pub(crate) preparations: Preparations,
    /// Work that is still to be done, and that nobody waits for.
    pub(crate) background: Work,
    /// Space set aside for files whose size is not settled, bytes.
    pub(crate) charged_bytes: u64,
    /// Descriptions that an unacknowledged request of the predecessor made.
    pub(crate) unclaimed_opens: HashMap<Caller, u32>,
    /// Files of which a description has ended that could be written to, while somebody watches.
    pub(crate) written: Vec<FileId>,
}

impl Files {
    /// For shard `own` of the `shards` of its node.
    pub(crate) fn new(
        node: &'static NodeRegion,
        (own, shards): (u32, u32),
        jobs: Jobs<Done>,
    ) -> Files {
        Files {
            opens: OpenTable::new(node, own, shards),
            opened_content: None,
            in_doubt: StartedWrites::default(),
            appends: HashMap::default(),
            jobs,
            preparations: Preparations::default(),
            background: Work::default(),
            charged_bytes: 0,
            unclaimed_opens: HashMap::default(),
            written: Vec::new(),
        }
    }
}
