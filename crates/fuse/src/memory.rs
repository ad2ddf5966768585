//! What is remembered from one request to the next, here and in the kernel.
//!
//! [`nodes`] keeps the names of files that the kernel knows by number, and [`held`] keeps a file
//! findable from the look at its name to its use. How much the kernel may remember is said by
//! [`consistency`]: [`seen`] has what it has seen of files where it may. In a strict instance
//! [`mapped`] has the pages that it keeps for mappings, and [`believed`] the names and attributes
//! that are leased. [`recent`] has what threads have looked up last, and [`submitted`] what files
//! look like that are made without waiting.
//!
//! **Invariants.** What the kernel keeps of a file is given up, or a named time has passed, before
//! whoever changed the file is answered. No request of a mount waits for that mount to give
//! anything up.

pub(crate) mod believed;
pub(crate) mod consistency;
pub(crate) mod held;
pub(crate) mod locks;
pub(crate) mod mapped;
pub(crate) mod nodes;
pub(crate) mod recent;
pub(crate) mod seen;
pub(crate) mod submitted;
pub(crate) mod waiter;
