//! Maps prepared images over the code of loaded libraries.
//!
//! One image takes: open, fstat, one page read, one mapping of the area, one anonymous page over
//! its first, one mapping over the text. Nothing is disassembled or copied, and the pages are
//! shared with every other process. Only when something lies where the area should go, the image is
//! copied and its displacements are corrected for another place.
//!
//! An image that is missing is asked for; when none is to be had the library keeps its code, and
//! [`MISSING`] counts it. An empty image says that there is nothing to redirect.
//!
//! Libraries that are loaded later ([`crate::late`]) go again. Their areas are given up when
//! something else is mapped in a library's place, or when all are taken and a library is gone.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use mayfly_image::format::{
    self, Header, PAGE_BYTES, POINT_BYTES, SLOT_CLASSES, SLOT_DESCRIPTORS, SLOT_ENTRY,
    SLOT_WATCHED, Table,
};
use mayfly_image::plain;
use mayfly_interpose::image::Wanted;
use mayfly_sys::arch::syscall6;
use mayfly_sys::{Errno, number};

use crate::kernel::{
    self, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, Mapping, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use crate::plain::Plain;
use crate::prepared::{IMAGES_PATH_BYTES_MAX, Pointers, Prepared};
use crate::process::{Key, Library, Text};
use crate::{backend, hook};

/// Libraries that can be patched at one time.
const AREAS_MAX: usize = 64;
/// Code of which nobody can remember that it was looked through, having no build id, is looked at
/// up to this length.
const NAMELESS_TEXT_BYTES_MAX: usize = 2 << 20;
/// Less is looked through in the time in which a table can be asked.
const SMALL_TEXT_BYTES: usize = 64 << 10;
/// Of larger programs no image is made.
const TEXT_BYTES_MAX: usize = 256 << 20;
/// Distance of one alternative place of the area from the next.
const PLACE_STEP: i64 = 64 << 20;

/// Libraries left unpatched for want of a usable image.
pub(crate) static MISSING: AtomicU32 = AtomicU32::new(0);

/// A mapped area, for the signal wrapper. Written before the text is replaced; while it is not
/// complete `code_end` is zero.
struct Area {
    /// [`FREE`], [`EARLY`] or [`LATE`].
    use_of: AtomicU32,
    base: AtomicUsize,
    code_end: AtomicUsize,
    common_start: AtomicUsize,
    common_end: AtomicUsize,
    points: AtomicUsize,
    points_count: AtomicUsize,
    text: AtomicUsize,
    text_bytes: AtomicUsize,
    bytes: AtomicUsize,
}

const FREE: u32 = 0;
/// Of a library that was there at the start, and stays.
const EARLY: u32 = 1;
/// Of one that came later.
const LATE: u32 = 2;
/// The base of an area that is nowhere, in the middle of the table.
const NOWHERE: usize = 1;

static AREAS: [Area; AREAS_MAX] = [const {
    Area {
        use_of: AtomicU32::new(FREE),
        base: AtomicUsize::new(0),
        code_end: AtomicUsize::new(0),
        common_start: AtomicUsize::new(0),
        common_end: AtomicUsize::new(0),
        points: AtomicUsize::new(0),
        points_count: AtomicUsize::new(0),
        text: AtomicUsize::new(0),
        text_bytes: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    }
}; AREAS_MAX];

impl Area {
    /// A free place in the table, or that of a library that is gone.
    fn take(use_of: u32) -> Option<&'static Area> {
        let free = || {
            AREAS.iter().find(|area| {
                let taken =
                    area.use_of.compare_exchange(FREE, use_of, Ordering::AcqRel, Ordering::Relaxed);
                taken.is_ok()
            })
        };
        let area = free().or_else(|| {
            AREAS.iter().filter(|area| area.is_of_nobody()).for_each(Area::give_up);
            free()
        })?;
        area.base.store(NOWHERE, Ordering::Release);
        Some(area)
    }

    /// Does it belong to this library, or does the library's place overlap with that?
    fn overlaps(&self, text: &Range<usize>) -> bool {
        let start = self.text.load(Ordering::Relaxed);
        let bytes = self.text_bytes.load(Ordering::Relaxed);
        bytes != 0 && start < text.end && text.start < start.saturating_add(bytes)
    }

    /// Was its library loaded later, and is it unmapped?
    fn is_of_nobody(&self) -> bool {
        if self.use_of.load(Ordering::Acquire) != LATE {
            return false;
        }
        let text = self.text.load(Ordering::Relaxed);
        text != 0 && !kernel::is_mapped(text)
    }

    /// Unmaps an area whose library is gone. Nobody is in it: it is reached from the library only.
    fn give_up(&self) {
        if self.use_of.load(Ordering::Acquire) != LATE {
            return;
        }
        self.code_end.store(0, Ordering::Relaxed);
        self.text_bytes.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let base = self.base.swap(NOWHERE, Ordering::AcqRel);
        if base != NOWHERE {
            // SAFETY: the mapping is ours and nothing leads there any more.
            unsafe { kernel::unmap(base, self.bytes.load(Ordering::Relaxed)) };
        }
        self.use_of.store(FREE, Ordering::Release);
    }
}

/// Something else is mapped where these bytes are: a library that was there is gone.
pub(crate) fn forget(address: usize, bytes: usize) {
    let range = address..address.saturating_add(bytes);
    AREAS.iter().filter(|area| area.overlaps(&range)).for_each(Area::give_up);
}

/// Patches the library called `name` with its image from the directory `images`, which is made if
/// it is not there.
pub(crate) fn patch(library: &Library, name: &[u8], images: &[u8], pointers: Pointers) {
    if let Err(why) = try_to_patch(library, name, images, pointers) {
        MISSING.fetch_add(1, Ordering::Relaxed);
        backend::note_unserved(name, why);
    }
}

fn try_to_patch(
    library: &Library,
    name: &[u8],
    images: &[u8],
    pointers: Pointers,
) -> Result<(), Errno> {
    let text = library.text().ok_or(Errno::ENOEXEC)?;
    if AREAS.iter().any(|area| area.overlaps(&text.range)) {
        // When it was mapped.
        return Ok(());
    }
    // SAFETY: its code was not replaced.
    let key = unsafe { library.key(&text) };
    match find(&text, &key, images, name)? {
        Found::Image(image) => image.apply(&text, pointers, EARLY).ok_or(Errno::ENOMEM),
        // What is left of a library of threads that has moved into the C library.
        Found::Nothing => Ok(()),
        Found::Missing => Err(Errno::ENOENT),
    }
}

/// Code that may have system calls of its own.
pub(crate) struct Other {
    pub(crate) text: Text,
    pub(crate) build_id: Option<Key>,
    /// It was there at the start, and stays.
    pub(crate) stays: bool,
}

/// Patches other code, if there is anything to redirect. That there is nothing is remembered where
/// the code has a build id.
///
/// # Errors
/// ENOENT and those of the supervisor when no image is to be had; ENOEXEC when it is of other code;
/// ENOMEM.
///
/// # Safety
/// The code is mapped, and nobody has replaced it yet.
pub(crate) unsafe fn patch_other(
    other: &Other,
    prepared: Prepared,
    plain: &mut Plain,
) -> Result<(), Errno> {
    let Other { text, build_id, .. } = other;
    let bytes = text.range.len();
    let word = build_id.and_then(|key| plain::word_of(key.as_slice()));
    let bytes_max = if word.is_some() { TEXT_BYTES_MAX } else { NAMELESS_TEXT_BYTES_MAX };
    if bytes > bytes_max || AREAS.iter().any(|area| area.overlaps(&text.range)) {
        return Ok(());
    }
    let mut is_known = || word.is_some_and(|word| plain.has(word));
    let is_small = bytes <= SMALL_TEXT_BYTES;
    if !is_small && is_known() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let has_syscall = unsafe { text.has_syscall() };
    if is_small && (!has_syscall || is_known()) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let redirected = has_syscall && unsafe { other.find_and_apply(prepared) }?;
    if let (false, Some(word)) = (redirected, word) {
        plain.add(word);
    }
    Ok(())
}

impl Other {
    /// Whether there was anything to redirect.
    ///
    /// # Safety
    /// As for [`patch_other`].
    unsafe fn find_and_apply(&self, prepared: Prepared) -> Result<bool, Errno> {
        // SAFETY: the caller's promise.
        let key = self.build_id.unwrap_or_else(|| unsafe { Key::of_code(&self.text) });
        let use_of = if self.stays { EARLY } else { LATE };
        match find(&self.text, &key, prepared.images, b"")? {
            Found::Image(image) => {
                let applied = image.apply(&self.text, prepared.pointers, use_of);
                applied.ok_or(Errno::ENOMEM).map(|()| true)
            }
            Found::Nothing => Ok(false),
            Found::Missing => Err(Errno::ENOENT),
        }
    }
}

/// The image of a library, made if it is missing.
fn find(text: &Text, key: &Key, images: &[u8], name: &[u8]) -> Result<Found, Errno> {
    let key = key.as_slice();
    let mut found = Image::open(images, key);
    if matches!(found, Found::Missing) {
        let (address, text_bytes) = (text.range.start, text.range.len());
        let wanted = Wanted { name, address, text_vaddr: text.vaddr, text_bytes, key };
        let made = backend::have_image_made(&wanted)?;
        found = Image::from_file(made as usize);
    }
    let fits = |header: &Header| {
        header.key() == key
            && header.text_vaddr as usize == text.vaddr
            && header.text_bytes as usize == text.range.len()
    };
    match &found {
        Found::Image(image) if !fits(&image.header) => Err(Errno::ENOEXEC),
        _ => Ok(found),
    }
}

/// What the cache has of a library.
enum Found {
    Image(Image),
    /// There is nothing to redirect in it.
    Nothing,
    Missing,
}

/// An open image whose header has been checked.
struct Image {
    fd: usize,
    header: Header,
}

impl Drop for Image {
    fn drop(&mut self) {
        kernel::close(self.fd);
    }
}

impl Image {
    fn open(images: &[u8], key: &[u8]) -> Found {
        Image::open_file(images, key).map_or(Found::Missing, Image::from_file)
    }

    fn from_file(fd: usize) -> Found {
        let mut page = [0; PAGE_BYTES];
        let file_bytes = kernel::own_file_bytes(fd);
        let header = file_bytes.and_then(|file_bytes| {
            kernel::read_at_start(fd, &mut page);
            Header::parse(&page, file_bytes).ok()
        });
        match header {
            Some(header) => Found::Image(Image { fd, header }),
            None => {
                kernel::close(fd);
                if file_bytes == Some(0) { Found::Nothing } else { Found::Missing }
            }
        }
    }

    fn open_file(images: &[u8], key: &[u8]) -> Option<usize> {
        let mut path = [0; IMAGES_PATH_BYTES_MAX + 124];
        let directory = path.get_mut(..images.len())?;
        directory.copy_from_slice(images);
        *path.get_mut(images.len())? = b'/';
        // The last byte stays zero.
        let room = path.len() - 1;
        format::file_name(key, path.get_mut(images.len() + 1..room)?)?;
        // SAFETY: the path ends with a zero.
        usize::try_from(unsafe { kernel::open(path.as_ptr()) }).ok()
    }

    fn apply(&self, text: &Text, pointers: Pointers, use_of: u32) -> Option<()> {
        let slot = Area::take(use_of)?;
        let applied = self.apply_in(slot, text, pointers);
        if applied.is_none() {
            slot.text_bytes.store(0, Ordering::Relaxed);
            slot.use_of.store(FREE, Ordering::Release);
        }
        applied
    }

    fn apply_in(&self, slot: &Area, text: &Text, pointers: Pointers) -> Option<()> {
        let usual = text.range.start.wrapping_add_signed(self.header.delta as isize);
        let usual = if crate::backend::avoids_usual_place() { None } else { Some(usual) };
        let base = usual.and_then(|usual| self.map_area(usual, PROT_READ | PROT_EXEC));
        if let Some(base) = base {
            self.complete(slot, base, text, pointers)?;
            // SAFETY: the range is the library's text and this its image; instructions outside of
            // the redirected windows are the same, and none of the calls on our stack returns into
            // one.
            unsafe {
                kernel::map(&Mapping {
                    address: text.range.start,
                    bytes: text.range.len(),
                    protection: PROT_READ | PROT_EXEC,
                    flags: MAP_PRIVATE | MAP_FIXED,
                    file: Some((self.fd, self.header.text_offset as usize)),
                })
            }
            .map(|_| ())
        } else {
            self.apply_elsewhere(slot, text, pointers)
        }
    }

    /// Maps the area at `base` if nothing is there.
    fn map_area(&self, base: usize, protection: usize) -> Option<usize> {
        let bytes = self.header.area_bytes as usize;
        // SAFETY: nothing is replaced.
        let at = unsafe {
            kernel::map(&Mapping {
                address: base,
                bytes,
                protection,
                flags: MAP_PRIVATE | MAP_FIXED_NOREPLACE,
                file: Some((self.fd, self.header.area_offset as usize)),
            })
        }?;
        if at == base {
            return Some(base);
        }
        // SAFETY: an old kernel took the address for a hint; nobody knows of this mapping.
        unsafe { kernel::unmap(at, bytes) };
        None
    }

    /// Puts the data page in front of a mapped area and makes it known to the signal wrapper.
    fn complete(&self, slot: &Area, base: usize, text: &Text, pointers: Pointers) -> Option<()> {
        // SAFETY: replaces the first page of the area just mapped.
        let page = unsafe {
            kernel::map(&Mapping {
                address: base,
                bytes: PAGE_BYTES,
                protection: PROT_READ | PROT_WRITE,
                flags: MAP_PRIVATE | MAP_FIXED,
                file: None,
            })
        }?;
        let put = |offset: usize, value: usize| {
            // SAFETY: the slots lie in the page just mapped and are aligned.
            unsafe { core::ptr::with_exposed_provenance_mut::<usize>(page + offset).write(value) };
        };
        put(SLOT_ENTRY, hook::mayfly_entry as *const () as usize);
        put(SLOT_CLASSES, pointers.classes.expose_provenance());
        put(SLOT_DESCRIPTORS, pointers.descriptors.expose_provenance());
        put(SLOT_WATCHED, pointers.watched.expose_provenance());
        slot.common_start.store(self.header.common_start as usize, Ordering::Relaxed);
        slot.common_end.store(self.header.common_end as usize, Ordering::Relaxed);
        slot.points.store(base + self.header.points.offset as usize, Ordering::Relaxed);
        slot.points_count.store(self.header.points.count as usize, Ordering::Relaxed);
        slot.bytes.store(self.header.area_bytes as usize, Ordering::Relaxed);
        slot.text.store(text.range.start, Ordering::Relaxed);
        slot.text_bytes.store(text.range.len(), Ordering::Relaxed);
        slot.base.store(base, Ordering::Release);
        slot.code_end.store(self.header.code_end as usize, Ordering::Release);
        Some(())
    }

    /// The slow way: copies of area and text, corrected for another distance, the text moved over
    /// the library's when it is complete.
    fn apply_elsewhere(&self, slot: &Area, text: &Text, pointers: Pointers) -> Option<()> {
        let usual = self.header.delta;
        let below = (1..8).map(|step| usual + step * PLACE_STEP);
        let above = (0..8).map(|step| -usual - step * PLACE_STEP);
        let writable = PROT_READ | PROT_WRITE;
        let (delta, base) = below.chain(above).find_map(|delta| {
            let base = text.range.start.checked_add_signed(delta as isize)?;
            Some((delta, self.map_area(base, writable)?))
        })?;
        let change = (delta - usual) as u32;
        let bytes = text.range.len();
        // SAFETY: anywhere.
        let copy = unsafe {
            kernel::map(&Mapping {
                address: 0,
                bytes,
                protection: writable,
                flags: MAP_PRIVATE,
                file: Some((self.fd, self.header.text_offset as usize)),
            })
        }?;
        self.correct(
            self.header.area_relocations,
            base,
            base..base + self.header.area_bytes as usize,
            change.wrapping_neg(),
        );
        self.correct(self.header.text_relocations, base, copy..copy + bytes, change);
        let executable = PROT_READ | PROT_EXEC;
        // SAFETY: both mappings are ours and complete.
        let sealed = unsafe {
            kernel::protect(base, self.header.area_bytes as usize, executable)
                && kernel::protect(copy, bytes, executable)
        };
        if !sealed {
            return None;
        }
        self.complete(slot, base, text, pointers)?;
        const MREMAP_MAYMOVE_FIXED: usize = 3;
        let over = text.range.start;
        // SAFETY: as for mapping the image itself over the text, in one step.
        let moved =
            unsafe { syscall6(number::MREMAP, copy, bytes, bytes, MREMAP_MAYMOVE_FIXED, over, 0) };
        usize::try_from(moved).ok().map(|_| ())
    }

    /// Adds `change` to the 32-bit displacements that `table` (in the area at `base`) names in
    /// `target`.
    fn correct(&self, table: Table, base: usize, target: Range<usize>, change: u32) {
        let first = core::ptr::with_exposed_provenance::<u32>(base + table.offset as usize);
        // SAFETY: the header was checked: the table lies in the area, aligned.
        let offsets = unsafe { core::slice::from_raw_parts(first, table.count as usize) };
        for offset in offsets {
            let at = target.start + *offset as usize;
            if at + 4 <= target.end {
                let field = core::ptr::with_exposed_provenance_mut::<u32>(at);
                // SAFETY: inside of a private writable mapping of ours.
                unsafe { field.write_unaligned(field.read_unaligned().wrapping_add(change)) };
            }
        }
    }
}

/// The address in a library's text that the trampoline instruction at `rip` stands for. In the
/// shared part of the filter that is the `syscall` whose trampoline `rcx` points into.
#[inline(always)]
pub(crate) fn original_address(rip: usize, rcx: usize) -> Option<usize> {
    for area in &AREAS {
        let base = area.base.load(Ordering::Acquire);
        if base == 0 {
            return None;
        }
        let offset = rip.wrapping_sub(base);
        if offset >= area.code_end.load(Ordering::Relaxed) {
            continue;
        }
        let common = area.common_start.load(Ordering::Relaxed);
        let common_bytes = area.common_end.load(Ordering::Relaxed) - common;
        let in_common = offset.wrapping_sub(common) < common_bytes;
        let wanted = if in_common { rcx.wrapping_sub(base) } else { offset };
        let points = area.points.load(Ordering::Relaxed);
        let found = point(points, area.points_count.load(Ordering::Relaxed), wanted)?;
        return Some(area.text.load(Ordering::Relaxed) + found);
    }
    None
}

/// Binary search in a points table, written out so that the signal wrapper stays in its section.
#[inline(always)]
fn point(points: usize, count: usize, wanted: usize) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = (low + high) / 2;
        let record = core::ptr::with_exposed_provenance::<[u32; 2]>(points + middle * POINT_BYTES);
        // SAFETY: `middle` is below the count, and the table lies in the mapped area.
        let [at, original] = unsafe { record.read() };
        let at = at as usize;
        if at == wanted {
            return Some(original as usize);
        }
        if at < wanted {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    None
}
