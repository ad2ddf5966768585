//! Descriptor numbers: which are ours, and what the kernel has at them.
//!
//! [`table`] says of each number whether it stands for an open file description of the instance,
//! and for which. At such a number the kernel has a *placeholder*, a descriptor without a use of
//! its own. [`identity`] replaces it by one that can be recognised before it leaves the process;
//! [`handover`] makes it a descriptor that the kernel serves. [`hidden`] keeps descriptors of our
//! own where the application does not see them, [`closed_number`] keeps one number that was closed
//! for the file that is opened next, [`leased`] has small files that are open by a lease alone, and
//! [`listing`] asks the kernel for all that there are.
//!
//! **Invariants.** A number that the table names has a placeholder, and a fork finds both in step.
//! Before the kernel gets a call that takes, frees or shows descriptors, it has those that the
//! application knows of.
//!
//! Nothing here decides what a call means: that is [`crate::calls`].

pub(crate) mod closed_number;
pub(crate) mod handover;
pub(crate) mod hidden;
pub(crate) mod identity;
pub(crate) mod leased;
pub(crate) mod listing;
pub(crate) mod table;
