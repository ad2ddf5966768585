//! How requests end.

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// With the body.
    Body,
    /// With so many bytes of data.
    Data(usize),
    /// Not now, not at all, or done already.
    Later,
}
