//! What is behind the hook: `interpose`, or known answers when the machinery itself is tested.

#[cfg(not(feature = "selftest"))]
pub(crate) use mayfly_interpose::{
    before_fork, descriptor_table, dispatch, dispatch_slowly,
    image::{have_image_made, note_unserved, open_plain},
    is_fork, start, watched_word,
};

#[cfg(feature = "selftest")]
pub(crate) use mayfly_interpose::is_fork;

#[cfg(feature = "selftest")]
mod selftest;
#[cfg(feature = "selftest")]
pub(crate) use selftest::{
    avoids_usual_place, before_fork, classes, descriptor_table, dispatch, dispatch_slowly,
    have_image_made, note_unserved, open_plain, start, watched_word,
};

/// The class of each call number.
#[cfg(not(feature = "selftest"))]
pub(crate) fn classes() -> &'static [u8; mayfly_interpose::class::CALLS_MAX] {
    &mayfly_interpose::class::CLASSES
}

/// Whether areas are put where they usually do not go.
#[cfg(not(feature = "selftest"))]
pub(crate) fn avoids_usual_place() -> bool {
    false
}
