//! A directory as a busy parallel file system would show it: each call takes its turn in one queue,
//! bytes come at a bounded rate, somebody else takes a part of both, calls fail when they are told
//! to, and all of them are counted.
//!
//! The file `.outside` in its root, which no listing shows, tells the counts as JSON. What is
//! written to it is an order: see [`Pace::order`].

mod calls;
mod files;
mod pace;
mod tree;

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};

pub use self::{
    calls::{Call, Calls},
    pace::{Pace, Speeds},
};

/// Calls that are under way at a time; more wait in the kernel.
const THREADS: usize = 32;

/// Shows a directory until it is dropped.
#[derive(Debug)]
pub struct Outside {
    pace: Arc<Pace>,
    session: Option<BackgroundSession>,
}

impl Outside {
    /// Shows `directory` at `mount`, which is an empty directory.
    ///
    /// # Errors
    /// Nothing can be mounted there.
    pub fn show(directory: &Path, mount: &Path, speeds: Speeds) -> Result<Outside> {
        let pace = Arc::new(Pace::new(speeds));
        let tree = tree::Tree::new(directory.to_owned(), Arc::clone(&pace))?;
        let mut config = Config::default();
        let name = MountOption::FSName("outside".to_owned());
        config.mount_options = vec![name, MountOption::DefaultPermissions];
        // Whoever is not root may need a word of the administrator for others to see it.
        config.acl =
            if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = fuser::spawn_mount(tree, mount, &config);
        let session = session.with_context(|| format!("cannot mount at {}", mount.display()))?;
        Ok(Outside { pace, session: Some(session) })
    }

    /// What it counts, and how fast it is.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // Whoever still has it open keeps it; nothing is left to be told.
            let _ = session.umount_and_join();
        }
    }
}
