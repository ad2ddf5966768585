//! Hash maps and sets whose order is the same in every run.
//!
//! The standard ones draw a key for each process, against keys that somebody chose to collide.
//! Nobody gains by choosing names that collide: they harm the instance of the user who chooses them
//! only. And a run must follow from its input alone, so that the simulator can repeat it.

pub(crate) mod by_number;

use mayfly_types::BuildFold;

/// A map.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, BuildFold>;
/// A set.
pub(crate) type HashSet<K> = std::collections::HashSet<K, BuildFold>;
