//! Hash maps and sets whose order is the same in every run.
//!
//! The standard ones draw a key for each process, against keys that somebody chose to collide. Who
//! chooses names here harms his own instance only; and what a run does must follow from what it was
//! given, so that the simulator can repeat it.

use mayfly_types::BuildFold;

/// A map.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, BuildFold>;
/// A set.
pub(crate) type HashSet<K> = std::collections::HashSet<K, BuildFold>;
