//! Where an object lies in the directory of objects.

use crate::FileId;

/// Longest path of an object, bytes.
pub const OBJECT_PATH_BYTES_MAX: usize = 3 + 16 + 1 + 10;

/// Which of its objects a file's first one is; 0 stands for none.
pub const FIRST_OBJECT: u32 = 1;

/// Path of an object relative to the directory of objects, in memory of its own.
#[derive(Debug, Clone, Copy)]
pub struct ObjectPath {
    bytes: [u8; OBJECT_PATH_BYTES_MAX],
    used: usize,
}

impl ObjectPath {
    /// The path of an object of a file: two hexadecimal digits of the file's number to keep
    /// directories short, then its id and which of its objects it is.
    #[must_use]
    pub fn of(file: FileId, generation: u32) -> ObjectPath {
        let mut path = ObjectPath { bytes: [0; OBJECT_PATH_BYTES_MAX], used: 0 };
        path.push_hexadecimal(file.0 & 0xff, 2);
        path.push(b'/');
        path.push_hexadecimal(file.0, 16);
        path.push(b'.');
        let digits = generation.checked_ilog10().unwrap_or(0);
        for digit in (0..=digits).rev() {
            path.push(b'0' + (generation / 10_u32.pow(digit) % 10) as u8);
        }
        path
    }

    /// The path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// The directory that it leads through.
    #[must_use]
    pub fn directory(&self) -> &[u8] {
        self.bytes.get(..2).unwrap_or_default()
    }

    fn push_hexadecimal(&mut self, number: u64, digits: u32) {
        for digit in (0..digits).rev() {
            let value = (number >> (4 * digit)) as u8 & 15;
            self.push(if value < 10 { b'0' + value } else { b'a' + value - 10 });
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(to) = self.bytes.get_mut(self.used) {
            *to = byte;
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_fits() {
        let path = ObjectPath::of(FileId(0xfedc_ba98_7654_3210), u32::MAX);
        assert_eq!(path.as_bytes(), b"10/fedcba9876543210.4294967295");
        assert_eq!(path.directory(), b"10");
        assert_eq!(ObjectPath::of(FileId(0xa), 1).as_bytes(), b"0a/000000000000000a.1");
        assert_eq!(ObjectPath::of(FileId(1), 0).as_bytes(), b"01/0000000000000001.0");
    }
}
