//! Published figures of other systems, on other hardware.

/// A published figure.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Who.
    pub system: &'static str,
    /// What was done.
    pub what: &'static str,
    /// Nodes.
    pub nodes: u32,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

const fn of(
    system: &'static str,
    what: &'static str,
    nodes: u32,
    value: f64,
    unit: &'static str,
) -> Published {
    Published { system, what, nodes, value, unit }
}

/// GekkoFS: Vef et al., "GekkoFS - A Temporary Burst Buffer File System for HPC Applications",
/// JCST 35, 2020 (16 processes a node, Omni-Path, SATA SSDs). BeeOND and Gfarm/BB: as told of their
/// deployment on clusters.
pub const PUBLISHED: [Published; 11] = [
    of("GekkoFS", "create of empty files, 16 processes a node", 512, 46e6, "/s"),
    of("GekkoFS", "stat of them", 512, 44e6, "/s"),
    of("GekkoFS", "remove of them", 512, 22e6, "/s"),
    of("GekkoFS", "64 MiB transfers written, SATA SSDs", 512, 141.0, "GiB/s"),
    of("GekkoFS", "64 MiB transfers read", 512, 204.0, "GiB/s"),
    of("GekkoFS", "start-up, less than", 512, 20.0, "s"),
    of("GekkoFS", "8 KiB writes to one file, no size cache", 512, 150e3, "/s"),
    of("BeeOND", "start-up", 8, 10.0, "s"),
    of("BeeOND", "start-up", 256, 222.0, "s"),
    of("BeeOND", "start-up, once parallel, less than", 512, 60.0, "s"),
    of("Gfarm/BB", "start-up", 2, 0.31, "s"),
];
