//! Making an image that a process asked for, in a process of its own.
//!
//! The file to be disassembled is anybody's; what it can do to whoever reads it, it does to a child
//! of the supervisor that lives for this one file and may use so much processor time.

use std::path::Path;

use anyhow::{Context, Result};
use mayfly_image::maker::{Error, Mapped, prepare_mapped};
use mayfly_transport_shm::image::ImageRequest;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::log::{self, Level};

/// The hidden subcommand that makes an image: `__image CACHE PID REQUEST`, the request as the
/// process sent it, in hexadecimal.
pub const IMAGE: &str = "__image";

/// Processor time that one image may take, seconds; that of a C library takes 20 milliseconds.
const PROCESSOR_TIME_MAX: u64 = 20;
/// Exit code that says that there will never be an image of this library. Any other failure may
/// have been the asking process's, which can have ended.
pub(crate) const UNFIT: i32 = 3;

/// Makes the image that process `pid` asked for.
///
/// # Errors
/// Says why there can be none.
pub fn make_image(cache: &Path, pid: u32, request: &str) -> Result<()> {
    let limit = Rlimit { current: Some(PROCESSOR_TIME_MAX), maximum: Some(PROCESSOR_TIME_MAX) };
    setrlimit(Resource::Cpu, limit)?;
    let bytes = from_hexadecimal(request).context("the request is not hexadecimal")?;
    let request = ImageRequest::decode(&bytes).context("the request makes no sense")?;
    let mapped = Mapped {
        pid,
        address: request.address,
        text_vaddr: request.text_vaddr,
        text_bytes: request.text_bytes,
        key: request.key().to_vec(),
    };
    match prepare_mapped(&mapped, cache) {
        Ok(Some(library)) => {
            log::tell(Level::Info, format_args!("made an image of {}", library.display()));
        }
        // Another was made between the process's look and its question.
        Ok(None) => {}
        Err(error @ Error::Unfit(..)) => {
            let what = format_args!("programs that run with {error}: they are not served");
            log::tell(Level::Warn, what);
            std::process::exit(UNFIT);
        }
        Err(error) => return Err(error).context("a library was to get an image"),
    }
    Ok(())
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_hexadecimal() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&hexadecimal(&bytes)), Some(bytes));
        assert_eq!(from_hexadecimal("0g"), None);
        assert_eq!(from_hexadecimal("é0"), None);
    }
}
