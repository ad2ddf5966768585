//! What becomes of a stage that could not copy all of it.

/// Exit status when some of it could not be copied.
pub(crate) const PARTLY: u8 = 3;

/// Something was not copied; it was named.
#[derive(Debug)]
pub(crate) struct Partly(pub(super) String);

impl std::error::Error for Partly {}

impl std::fmt::Display for Partly {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}
