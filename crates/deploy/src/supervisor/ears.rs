//! The supervisor's ends of its children's pipes, and all that is needed to start a child.

use anyhow::Result;

use super::{Source, Watch};
use crate::{
    Config,
    log::{Ear, Part},
};

/// A pipe for each part of the node.
pub(super) struct Ears {
    pub(crate) daemon: Ear,
    pub(super) mount: Ear,
    pub(crate) image: Ear,
    pub(super) tier: Ear,
}

/// All that is needed to start a child.
pub(super) struct Around<'a> {
    pub(crate) config: &'a Config,
    pub(super) watch: &'a Watch,
    /// Where its words go.
    pub(super) ear: &'a Ear,
}

impl Ears {
    pub(super) fn new(watch: &Watch) -> Result<Ears> {
        let of = |part, number| {
            let ear = Ear::new(part)?;
            watch.add(&ear, Source::Ear(number))?;
            anyhow::Ok(ear)
        };
        let daemon = of(Part::Daemon, 0)?;
        let (mount, image) = (of(Part::Mount, 1)?, of(Part::Image, 2)?);
        Ok(Ears { daemon, mount, image, tier: of(Part::Tier, 3)? })
    }

    /// Somebody has said something.
    pub(super) fn hear(&mut self, number: u32) {
        match number {
            0 => self.daemon.hear(),
            1 => self.mount.hear(),
            2 => self.image.hear(),
            _ => self.tier.hear(),
        }
    }

    /// All children have ended.
    pub(super) fn hear_the_rest(&mut self) {
        for ear in [&mut self.daemon, &mut self.mount, &mut self.image, &mut self.tier] {
            ear.hear_the_rest();
        }
    }
}
