//! The environment: read at start, rebuilt at exec.
//!
//! A program started from ours has to find the instance even when it is given an empty
//! environment, so exec passes on a rebuilt one: the caller's, with our variables put in place.
//! `LD_PRELOAD` keeps what the caller has there, with our library first; so does `LD_AUDIT` where
//! libraries may lie in the mount ([`crate::process::libraries`]), and elsewhere it is rid of us.
//! `MAYFLY_FDS`, `MAYFLY_CWD` and `MAYFLY_EXE` tell the new program what it inherits; they are
//! verified against the kernel at start, because a program that does not know them may hand on
//! stale ones.

use mayfly_sys::{Errno, scratch::Scratch, user};

/// Directory of the instance.
pub(super) const RUN: &[u8] = b"MAYFLY_RUN";
/// The mount point.
pub(super) const MOUNT: &[u8] = b"MAYFLY_MOUNT";
/// The object directory.
pub(super) const OBJECTS: &[u8] = b"MAYFLY_OBJECTS";
/// How many daemons the host has; absent when it has one.
pub(super) const DAEMONS: &[u8] = b"MAYFLY_DAEMONS";
/// The image cache.
pub(super) const IMAGES: &[u8] = b"MAYFLY_IMAGES";
/// The dynamic linker's.
pub(super) const PRELOAD: &[u8] = b"LD_PRELOAD";
/// The dynamic linker's, too: what it loads before it looks for libraries.
pub(super) const AUDIT: &[u8] = b"LD_AUDIT";
/// The dynamic linker's: where it looks for libraries.
pub(super) const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH";
/// Inherited descriptors: `fd:index:generation,…`; present and empty when there are none.
pub(super) const DESCRIPTORS: &[u8] = b"MAYFLY_FDS";
/// Inherited working directory: its id in hexadecimal.
pub(super) const DIRECTORY: &[u8] = b"MAYFLY_CWD";
/// Path of the program in the mount.
pub(super) const PROGRAM: &[u8] = b"MAYFLY_EXE";
/// Path in the mount of the program that was given to a dynamic loader
/// ([`crate::process::loader`]).
pub(super) const LOADED: &[u8] = b"MAYFLY_LOADED";
/// The thread's name, when the kernel takes it from another file than the one that was asked for.
pub(super) const NAME: &[u8] = b"MAYFLY_COMM";
/// Path of the static program that the library is to load.
pub(super) const STATIC: &[u8] = match crate::STATIC_PROGRAM {
    [name @ .., b'='] => name,
    _ => panic!("a name and an equals sign"),
};
/// `1`: print at the end what became of the calls. The user's to set and to pass on.
pub(super) const REPORT: &[u8] = b"MAYFLY_REPORT";

/// The C library's: room for thread-local storage of the libraries that an audited program needs,
/// which otherwise get along with 1.5 KiB in all. Small enough for threads with the smallest
/// stacks.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES";
const STORAGE: &[u8] = b"glibc.rtld.optional_static_tls=4096";

const OURS: [&[u8]; 13] = [
    RUN,
    MOUNT,
    OBJECTS,
    DAEMONS,
    IMAGES,
    PRELOAD,
    AUDIT,
    DESCRIPTORS,
    DIRECTORY,
    PROGRAM,
    LOADED,
    STATIC,
    NAME,
];

/// The value in `NAME=value` when the name is `name`.
pub(super) fn value_of<'e>(entry: &'e [u8], name: &[u8]) -> Option<&'e [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Calls `each` for every string of a null-terminated array. A null array is empty.
///
/// # Safety
/// The array and its strings are valid for `'e`.
pub(super) unsafe fn for_each<'e>(
    array: *const *const u8,
    mut each: impl FnMut(*const u8, &'e [u8]),
) {
    for at in 0.. {
        // SAFETY: every element up to the null was not null.
        let Ok(entry) = (unsafe { user::read(array.wrapping_add(at)) }) else { return };
        if entry.is_null() {
            return;
        }
        // SAFETY: passed on to the caller.
        each(entry, unsafe { user::string(entry) });
    }
}

/// Value of a variable; the first one counts.
///
/// # Safety
/// As [`for_each`].
pub(super) unsafe fn find<'e>(array: *const *const u8, name: &[u8]) -> Option<&'e [u8]> {
    let mut found = None;
    // SAFETY: passed on to the caller.
    unsafe {
        for_each(array, |_, entry| {
            if found.is_none() {
                found = value_of(entry, name);
            }
        });
    }
    found
}

/// The first library of a list as `LD_PRELOAD` has them.
pub(super) fn first_library(list: &[u8]) -> &[u8] {
    list.split(|byte| matches!(byte, b':' | b' ')).find(|part| !part.is_empty()).unwrap_or(&[])
}

/// What follows the first library when that is `library`, otherwise the whole list.
fn without_first<'l>(list: &'l [u8], library: &[u8]) -> &'l [u8] {
    if library.is_empty() || first_library(list) != library {
        return list;
    }
    let start = list.iter().position(|byte| !matches!(byte, b':' | b' ')).unwrap_or(0);
    let rest = list.get(start + library.len()..).unwrap_or(&[]);
    rest.get(1..).unwrap_or(&[])
}

/// Strings and an array of pointers to them, growing from both ends of a buffer.
pub(super) struct Vector {
    scratch: Scratch,
    /// Pointers so far, at the front.
    count: usize,
    /// Start of the strings, which grow downward from the end.
    strings: usize,
}

impl Vector {
    /// Room for `pointers` pointers and `bytes` bytes of strings.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn with_room(pointers: usize, bytes: usize) -> Result<Vector, Errno> {
        let room = pointers.checked_add(1).and_then(|count| count.checked_mul(size_of::<usize>()));
        let room = room.and_then(|room| room.checked_add(bytes)).ok_or(Errno::E2BIG)?;
        let scratch = Scratch::take(room)?;
        let strings = scratch.as_slice().len();
        let mut vector = Vector { scratch, count: 0, strings };
        vector.terminate()?;
        Ok(vector)
    }

    /// Appends a pointer to a string that stands elsewhere.
    ///
    /// # Errors
    /// E2BIG.
    pub(super) fn push(&mut self, string: *const u8) -> Result<(), Errno> {
        let count = self.count;
        self.put(count, string as usize)?;
        self.count = count + 1;
        self.terminate()
    }

    /// Appends a string put together from parts.
    ///
    /// # Errors
    /// E2BIG.
    pub(super) fn push_text(&mut self, parts: &[&[u8]]) -> Result<(), Errno> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let start = self.strings.checked_sub(bytes).ok_or(Errno::E2BIG)?;
        let mut at = start;
        for part in parts.iter().copied().chain([&b"\0"[..]]) {
            let room = self.scratch.as_mut_slice().get_mut(at..at + part.len());
            room.ok_or(Errno::E2BIG)?.copy_from_slice(part);
            at += part.len();
        }
        self.strings = start;
        let address = self.scratch.as_slice().as_ptr() as usize + start;
        self.push(address as *const u8)
    }

    fn terminate(&mut self) -> Result<(), Errno> {
        self.put(self.count, 0)
    }

    fn put(&mut self, index: usize, value: usize) -> Result<(), Errno> {
        let start = index * size_of::<usize>();
        let end = start + size_of::<usize>();
        if end > self.strings {
            return Err(Errno::E2BIG);
        }
        let room = self.scratch.as_mut_slice().get_mut(start..end).ok_or(Errno::E2BIG)?;
        room.copy_from_slice(&value.to_ne_bytes());
        Ok(())
    }

    /// The null-terminated array.
    pub(super) fn as_ptr(&self) -> *const *const u8 {
        self.scratch.as_slice().as_ptr().cast()
    }

    /// The buffer under it all.
    pub(super) fn into_scratch(self) -> Scratch {
        self.scratch
    }
}

/// What exec adds to an environment.
pub(super) struct Additions<'a> {
    pub(crate) run: &'a [u8],
    pub(crate) mount: &'a [u8],
    pub(super) objects: &'a [u8],
    pub(super) daemons: &'a [u8],
    pub(super) images: &'a [u8],
    pub(super) library: &'a [u8],
    /// The loader has to find the program's libraries through us.
    pub(super) audits: bool,
    /// `None`: the new program has to look for itself.
    pub(super) descriptors: Option<&'a [u8]>,
    pub(crate) directory: &'a [u8],
    pub(crate) program: &'a [u8],
    pub(super) loaded: &'a [u8],
    /// The static program that the library loads, or empty.
    pub(super) loads: &'a [u8],
    /// Name for the thread, or empty.
    pub(super) name: &'a [u8],
}

/// The caller's environment with ours put in place.
///
/// # Errors
/// ENOMEM, E2BIG.
///
/// # Safety
/// `envp` is a valid environment array, or null.
pub(super) unsafe fn rebuild(
    envp: *const *const u8,
    additions: &Additions<'_>,
) -> Result<Vector, Errno> {
    let mut count = 0;
    let mut preload: &[u8] = b"";
    let mut audit: &[u8] = b"";
    let mut tuned = false;
    // SAFETY: passed on to the caller.
    unsafe {
        for_each(envp, |_, entry| {
            count += 1;
            if let Some(list) = value_of(entry, PRELOAD) {
                preload = list;
            }
            if let Some(list) = value_of(entry, AUDIT) {
                audit = list;
            }
            tuned |= value_of(entry, TUNABLES).is_some_and(|value| value != STORAGE);
        });
    }
    let texts = [
        (RUN, additions.run),
        (MOUNT, additions.mount),
        (OBJECTS, additions.objects),
        (DAEMONS, additions.daemons),
        (IMAGES, additions.images),
        (DIRECTORY, additions.directory),
        (PROGRAM, additions.program),
        (LOADED, additions.loaded),
        (STATIC, additions.loads),
        (NAME, additions.name),
    ];
    let descriptors = additions.descriptors.unwrap_or(b"");
    let bytes = texts.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>()
        + preload.len()
        + audit.len()
        + 2 * additions.library.len()
        + descriptors.len()
        + TUNABLES.len()
        + STORAGE.len()
        + 64;
    let mut vector = Vector::with_room(count + OURS.len() + 1, bytes)?;
    let mut pushed = Ok(());
    // SAFETY: passed on to the caller.
    unsafe {
        for_each(envp, |pointer, entry| {
            let ours = OURS.iter().any(|name| value_of(entry, name).is_some())
                || value_of(entry, TUNABLES) == Some(STORAGE);
            if !ours && pushed.is_ok() {
                pushed = vector.push(pointer);
            }
        });
    }
    pushed?;
    for (name, value) in texts {
        if !value.is_empty() {
            vector.push_text(&[name, b"=", value])?;
        }
    }
    if let Some(descriptors) = additions.descriptors {
        vector.push_text(&[DESCRIPTORS, b"=", descriptors])?;
    }
    if additions.audits && !tuned {
        vector.push_text(&[TUNABLES, b"=", STORAGE])?;
    }
    let library = additions.library;
    push_list(&mut vector, PRELOAD, library, without_first(preload, library))?;
    let audited = if additions.audits { library } else { b"" };
    push_list(&mut vector, AUDIT, audited, without_first(audit, library))?;
    Ok(vector)
}

/// Appends a list of libraries with `first` in front, unless it is empty.
fn push_list(vector: &mut Vector, name: &[u8], first: &[u8], rest: &[u8]) -> Result<(), Errno> {
    if first.is_empty() && rest.is_empty() {
        return Ok(());
    }
    let separator: &[u8] = if first.is_empty() || rest.is_empty() { b"" } else { b":" };
    vector.push_text(&[name, b"=", first, separator, rest])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{string::String, vec::Vec};

    fn strings(vector: &Vector) -> Vec<String> {
        let mut all = Vec::new();
        // SAFETY: the vector was just built.
        unsafe {
            for_each(vector.as_ptr(), |_, entry| all.push(String::from_utf8_lossy(entry).into()));
        }
        all
    }

    fn additions() -> Additions<'static> {
        Additions {
            run: b"/r",
            mount: b"/m",
            objects: b"/o",
            daemons: b"",
            images: b"",
            library: b"/l.so",
            audits: false,
            descriptors: Some(b"1:4:0"),
            directory: b"",
            program: b"",
            loaded: b"",
            loads: b"",
            name: b"",
        }
    }

    #[test]
    fn an_emptied_environment_gets_what_the_instance_needs() {
        // SAFETY: a null environment is empty.
        let built = unsafe { rebuild(core::ptr::null(), &additions()) }.expect("small");
        let expected = [
            "MAYFLY_RUN=/r",
            "MAYFLY_MOUNT=/m",
            "MAYFLY_OBJECTS=/o",
            "MAYFLY_FDS=1:4:0",
            "LD_PRELOAD=/l.so",
        ];
        assert_eq!(strings(&built), expected);
    }

    #[test]
    fn the_callers_variables_stay_and_stale_ones_go() {
        let given: [&[u8]; 4] =
            [b"PATH=/bin\0", b"MAYFLY_CWD=12\0", b"LD_PRELOAD=/x.so:/l.so\0", b"MAYFLY_FDSX=1\0"];
        let mut pointers: Vec<*const u8> = given.iter().map(|text| text.as_ptr()).collect();
        pointers.push(core::ptr::null());
        // SAFETY: the array above is terminated and its strings too.
        let built = unsafe { rebuild(pointers.as_ptr(), &additions()) }.expect("small");
        let built = strings(&built);
        assert_eq!(built[..2], ["PATH=/bin", "MAYFLY_FDSX=1"]);
        assert_eq!(built.last().map(String::as_str), Some("LD_PRELOAD=/l.so:/x.so:/l.so"));
        assert!(!built.iter().any(|entry| entry.starts_with("MAYFLY_CWD")));
    }

    #[test]
    fn the_audit_list_names_us_only_where_it_matters() {
        for (given, without, with) in [
            (&b"LD_AUDIT=/l.so\0"[..], None, "LD_AUDIT=/l.so"),
            (b"LD_AUDIT=/l.so:/a.so\0", Some("LD_AUDIT=/a.so"), "LD_AUDIT=/l.so:/a.so"),
            (b"LD_AUDIT=/a.so\0", Some("LD_AUDIT=/a.so"), "LD_AUDIT=/l.so:/a.so"),
            (b"A=B\0", None, "LD_AUDIT=/l.so"),
        ] {
            let pointers = [given.as_ptr(), core::ptr::null()];
            for (audits, expected) in [(false, without), (true, Some(with))] {
                let additions = Additions { audits, ..additions() };
                // SAFETY: the array above is terminated and its string too.
                let built = unsafe { rebuild(pointers.as_ptr(), &additions) }.expect("small");
                let built = strings(&built);
                let found = built.iter().find(|entry| entry.starts_with("LD_AUDIT="));
                assert_eq!(found.map(String::as_str), expected);
            }
        }
    }

    #[test]
    fn an_audited_program_gets_room_for_its_libraries_unless_it_is_tuned_already() {
        const OWN: &str = "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096";
        let other = "GLIBC_TUNABLES=glibc.malloc.check=3";
        for (given, without, with) in [
            (&b"A=B\0"[..], None, OWN),
            (b"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096\0", None, OWN),
            (b"GLIBC_TUNABLES=glibc.malloc.check=3\0", Some(other), other),
        ] {
            let pointers = [given.as_ptr(), core::ptr::null()];
            for (audits, expected) in [(false, without), (true, Some(with))] {
                let additions = Additions { audits, ..additions() };
                // SAFETY: the array above is terminated and its string too.
                let built = unsafe { rebuild(pointers.as_ptr(), &additions) }.expect("small");
                let built = strings(&built);
                let found: Vec<_> = built.iter().filter(|at| at.starts_with("GLIBC")).collect();
                assert_eq!(found.first().map(|at| at.as_str()), expected);
                assert!(found.len() <= 1);
            }
        }
    }
}
