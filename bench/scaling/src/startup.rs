//! How long a start takes: a tree of relays, at most 32 wide, as in `docs/design/nodes.md`.

/// Relays that one relay starts, at most.
pub const WIDTH: u32 = 32;

/// What a start is made of, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// A relay's processor time to start one launcher (fork and exec of ssh or srun).
    pub spawn_s: f64,
    /// From there until the program runs on the other host.
    pub launch_s: f64,
    /// A node's processor time until it says where it listens, and until its daemon serves.
    pub node_s: f64,
    /// A relay's processor time to pass on one node's line, or its entry of the list.
    pub line_s: f64,
}

/// Levels of relays below the command's own.
#[must_use]
pub fn levels(hosts: u32) -> u32 {
    let (mut levels, mut reached) = (0, 1);
    while reached < hosts {
        reached = reached.saturating_mul(WIDTH).saturating_add(1);
        levels += 1;
    }
    levels
}

/// From the command to the last node's answer, seconds.
#[must_use]
pub fn seconds(hosts: u32, parts: &Parts) -> f64 {
    let levels = f64::from(levels(hosts));
    let children = f64::from(hosts.saturating_sub(1).min(WIDTH));
    let down = levels * (children * parts.spawn_s + parts.launch_s);
    // Where it listens, the list, and that it serves: the first relay handles all of them, and the
    // list goes to each of its children.
    let lines = f64::from(hosts) * parts.line_s * (2.0 + children);
    down + parts.node_s + lines
}

/// The same where one host starts all others, one after the other.
#[must_use]
pub fn seconds_without_tree(hosts: u32, parts: &Parts) -> f64 {
    f64::from(hosts) * (parts.spawn_s + parts.launch_s + parts.line_s) + parts.node_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_three_levels_reaches_every_host_that_is_counted_on() {
        assert_eq!([1, 2, 33, 34, 1057, 1058, 4096].map(levels), [0, 1, 1, 2, 2, 3, 3]);
    }
}
