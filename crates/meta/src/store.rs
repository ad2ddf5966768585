//! The seam between the shard and whatever keeps its records.

use core::fmt;

/// Why a store refuses.
#[derive(Debug)]
pub enum StoreError {
    /// The store is of another boot and was not synced: what it holds may be torn.
    Lost,
    /// An earlier write failed; nothing more is written until the store is opened anew.
    Poisoned,
    /// There is no room left, not even in the reserve.
    Full,
    /// A key is too long or empty.
    BadKey,
    /// A record that makes no sense.
    Corrupt(&'static str),
    /// The disk, or the library in front of it.
    Backend(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Lost => f.write_str(
                "the metadata store is from before a reboot and was kept without --durability \
                 sync: its content is lost",
            ),
            StoreError::Poisoned => {
                f.write_str("the metadata store is closed for writing after a failed write")
            }
            StoreError::Full => f.write_str("the metadata store is full"),
            StoreError::BadKey => f.write_str("a metadata key has a length that the store refuses"),
            StoreError::Corrupt(what) => write!(f, "corrupt metadata record: {what}"),
            StoreError::Backend(what) => write!(f, "metadata store: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Longest key, bytes (LMDB's limit as it is commonly built).
pub const KEY_BYTES_MAX: usize = 511;

/// What a scan wants after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// The next one.
    More,
    /// Nothing.
    Enough,
}

/// An ordered key/value store with one transaction under way at a time.
///
/// The transaction opens by itself at the first call and ends with [`Store::commit`]. Reads see the
/// writes of the transaction. After any error from a writing call the transaction cannot be saved:
/// the store is poisoned and only an opening from disk leads on, with the last committed state. A
/// caller that wants ENOSPC instead asks [`Store::has_room`] *before* it writes.
pub trait Store: Send {
    /// The value of `key`.
    ///
    /// # Errors
    /// Any [`StoreError`].
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, StoreError>;

    /// Stores `value`, replacing what was there.
    ///
    /// # Errors
    /// Any [`StoreError`]; the store is poisoned.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes `key`; false when it was not there.
    ///
    /// # Errors
    /// Any [`StoreError`]; the store is poisoned.
    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError>;

    /// Shows entries in key order, from `from` (inclusive) on, as long as keys start with `prefix`
    /// and `visit` wants more.
    ///
    /// # Errors
    /// Any [`StoreError`].
    fn scan(
        &mut self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Scan,
    ) -> Result<(), StoreError>;

    /// Begins the transaction where others see that one is under way, if they can: what they find
    /// in the records before its end is not certain.
    ///
    /// # Errors
    /// Any [`StoreError`]; the store is poisoned.
    fn announce(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The transaction lets a name of a directory lead elsewhere, or nowhere. Whoever reads the
    /// records by himself, and remembers where such names lead, is told before its end.
    ///
    /// # Errors
    /// Any [`StoreError`]; the store is poisoned.
    fn move_directory(&mut self) -> Result<(), StoreError>;

    /// Makes the transaction survive this process and returns its number, or the last one's when
    /// nothing was written.
    ///
    /// # Errors
    /// Any [`StoreError`]; the store is poisoned and nothing of the transaction is kept.
    fn commit(&mut self) -> Result<u64, StoreError>;

    /// The number that the transaction under way will get, 0 when it has written nothing. Never 0
    /// when the store is poisoned: what was written cannot be committed, and nobody must take it
    /// for unnecessary.
    fn pending_transaction(&self) -> u64;

    /// Number of the last committed transaction.
    fn committed_transaction(&self) -> u64;

    /// Whether another thread may go on with it after a commit.
    fn may_move(&self) -> bool {
        true
    }

    /// Space that the records take, bytes.
    fn used_bytes(&self) -> u64;

    /// False when only the reserve is left: removing still works, adding should be refused with
    /// ENOSPC.
    fn has_room(&mut self) -> bool;

    /// Makes what was committed survive a power loss.
    ///
    /// # Errors
    /// Any [`StoreError`].
    fn sync(&mut self) -> Result<(), StoreError>;
}
