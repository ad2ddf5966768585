//! A report as people read it.

mod cells;
mod plot;
mod text;

pub use plot::svg;
pub use text::{Style, table};
