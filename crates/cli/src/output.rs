//! What is printed for people and scripts, who may have seen enough of it (`mayfly logs | head`).
//!
//! The standard library ignores SIGPIPE, so a reader that has gone is an error of the write. It may
//! be met by `print!`, which panics then, or by [`print`]. In both cases the program ends as others
//! do: by the signal, without a word. `logs`, whose reader may come and go, decides for itself.

use std::io::{self, ErrorKind, Write};

use anyhow::Result;
use signal_hook::{consts::SIGPIPE, low_level::emulate_default_handler};

/// Has `print!` end the program when nobody reads.
pub(crate) fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>();
        if text.is_some_and(|text| text.starts_with("failed printing to stdout: Broken pipe")) {
            let _ = emulate_default_handler(SIGPIPE);
        }
        usual(panic);
    }));
}

/// Prints all of `text`; nobody who reads it is no error of ours.
///
/// # Errors
/// A full disk, for one.
pub(crate) fn print(text: &[u8]) -> Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Ok(emulate_default_handler(SIGPIPE)?)
        }
        written => Ok(written?),
    }
}
