//! Objects of files that are read by leased descriptions.
//!
//! Each place for a leased description has one object: that of the file that was read through it
//! last. The object stays open when the description is closed, until the object of another file
//! takes its descriptor over. An object that is removed meanwhile was cut before, so it holds no
//! space. Users of a place are counted. Nobody waits, neither for users nor for a thread that
//! changes the place: who would have to wait does without the object.

use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use mayfly_sys::{
    Errno,
    file::{self, O_CLOEXEC, O_RDONLY},
    text::PathText,
};
use mayfly_transport_shm::file_leases::FILE_LEASES_MAX;
use mayfly_types::FileId;

use crate::{Descriptors, objects::Objects};

/// The place is changing.
const CHANGING: u32 = 1 << 31;

/// The object of each place.
#[derive(Default)]
pub(super) struct LeasedObjects([Place; FILE_LEASES_MAX]);

#[derive(Default)]
struct Place {
    users: AtomicU32,
    /// Descriptor plus one; zero for none.
    descriptor: AtomicI32,
    id: AtomicU64,
    generation: AtomicU32,
}

/// An object in use: counted until dropped.
pub(super) struct Using<'a> {
    place: &'a Place,
    pub(super) descriptor: i32,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.place.users.fetch_sub(1, Release);
    }
}

impl Place {
    fn find(&self, (id, generation): (FileId, u32)) -> Option<Using<'_>> {
        if self.users.fetch_add(1, Acquire) & CHANGING == 0 {
            let descriptor = self.descriptor.load(Relaxed) - 1;
            if descriptor >= 0
                && self.id.load(Relaxed) == id.0
                && self.generation.load(Relaxed) == generation
            {
                return Some(Using { place: self, descriptor });
            }
        }
        self.users.fetch_sub(1, Release);
        None
    }

    /// Gives the place another object. False, and nothing is changed, when somebody uses this one.
    fn change(
        &self,
        (id, generation): (FileId, u32),
        open: impl FnOnce(Option<i32>) -> Option<i32>,
    ) -> bool {
        if self.users.compare_exchange(0, CHANGING, AcqRel, Relaxed).is_err() {
            return false;
        }
        let old = self.descriptor.load(Relaxed).checked_sub(1).filter(|old| *old >= 0);
        let opened = open(old);
        self.descriptor.store(opened.map_or(0, |descriptor| descriptor + 1), Relaxed);
        self.id.store(id.0, Relaxed);
        self.generation.store(generation, Relaxed);
        // Others may have been counted meanwhile. They have seen the mark.
        self.users.fetch_and(!CHANGING, Release);
        opened.is_some()
    }
}

impl LeasedObjects {
    /// The object of this file and generation, opened if it is not.
    pub(crate) fn get<D: Descriptors>(
        &self,
        at: usize,
        of: (FileId, u32),
        objects: &Objects<D>,
    ) -> Option<Using<'_>> {
        let place = self.0.get(at)?;
        if let Some(found) = place.find(of) {
            return Some(found);
        }
        let open = |old: Option<i32>| match open_object(of, objects) {
            Ok(opened) => objects.descriptors.conceal_over(opened, old).ok(),
            Err(_) => {
                old.inspect(|old| objects.descriptors.release(*old));
                None
            }
        };
        if place.change(of, open) { place.find(of) } else { None }
    }
}

fn open_object<D>((id, generation): (FileId, u32), objects: &Objects<D>) -> Result<i32, Errno> {
    let mut path = PathText::new();
    path.push(&hexadecimal::<2>(id.0))?;
    path.push(b"/")?;
    path.push(&hexadecimal::<16>(id.0))?;
    path.push(b".")?;
    path.push_decimal(u64::from(generation))?;
    file::open_at(objects.directory.0, &path, O_RDONLY | O_CLOEXEC, 0)
}

/// The lowest digits.
fn hexadecimal<const N: usize>(number: u64) -> [u8; N] {
    core::array::from_fn(|at| {
        let digit = number >> (4 * (N - 1 - at)) & 15;
        b"0123456789abcdef".get(digit as usize).copied().unwrap_or(b'0')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_as_many_as_are_asked_for() {
        assert_eq!(&hexadecimal::<2>(0xa105), b"05");
        assert_eq!(&hexadecimal::<16>(0x00a1_0000_0000_0005), b"00a1000000000005");
    }
}
