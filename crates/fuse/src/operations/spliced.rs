//! Reads whose bytes go from an object to the device without a copy ([`crate::kernel::spliced`]).

use mayfly_client::OpenFile;
use mayfly_types::Errno;

use crate::{
    kernel::{
        abi::OUT_HEADER_BYTES,
        spliced::{Pipe, SPLICE_BYTES_MIN, fill},
    },
    server::Server,
};

impl Server {
    /// Answers a read from the file's object. The bytes do not come into this process. False when
    /// the read cannot be answered so: then nothing was answered.
    ///
    /// # Errors
    /// As pread.
    pub(crate) fn read_spliced(
        &self,
        pipe: &mut Pipe,
        unique: u64,
        open: OpenFile,
        offset: u64,
        bytes: usize,
    ) -> Result<bool, Errno> {
        if bytes < SPLICE_BYTES_MIN || !self.client.has_object(open) {
            return Ok(false);
        }
        let Some((out, into)) = pipe.ends() else { return Ok(false) };
        let filled = self
            .client
            .with_object(open, |object| Ok(fill(into, unique, object, offset, bytes)))?;
        let sent = match filled {
            Some(Ok(None)) => return Ok(false),
            Some(Ok(Some(count))) => {
                Some(self.device.answer_from(out, unique, OUT_HEADER_BYTES + count))
            }
            None | Some(Err(_)) => None,
        };
        if let Some(Ok(Some(count))) = filled {
            self.client.count_read(open, offset, count);
        }
        if sent != Some(Ok(())) {
            // Nobody knows which bytes are left in the pipe.
            *pipe = Pipe::NotYet;
        }
        Ok(sent.is_some())
    }
}
