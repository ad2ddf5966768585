//! What the environment says about the instance. Read once at start, never changed.

use core::sync::atomic::{AtomicPtr, Ordering};

use mayfly_sys::{Errno, memory, text::PathText};

use crate::paths::hints::Hints;

/// The instance this process belongs to.
pub(crate) struct Settings {
    /// Directory of the socket and slot files of the daemon that this program uses.
    pub(crate) run: PathText,
    /// That of the host's first daemon (`MAYFLY_RUN`).
    pub(crate) host_run: PathText,
    /// How many daemons the host has (`MAYFLY_DAEMONS`), or empty.
    pub(super) daemons: PathText,
    /// The mount point, without a slash at its end (`MAYFLY_MOUNT`).
    pub(crate) mount: PathText,
    /// What tells that a path is not below the mount point.
    pub(crate) hints: Hints,
    /// The object directory of this program's daemon.
    pub(super) objects: PathText,
    /// That of the host's first daemon (`MAYFLY_OBJECTS`).
    pub(super) host_objects: PathText,
    /// The cache of prepared images (`MAYFLY_IMAGES`).
    pub(super) images: PathText,
    /// Path of this library: the first element of `LD_PRELOAD`, or of `LD_AUDIT`.
    pub(super) library: PathText,
    /// Path under which the running program was found in the mount, or empty.
    pub(crate) program: PathText,
    /// The directory that the loader takes for the program's, or empty.
    pub(crate) origin: PathText,
    /// The program's directory in the mount where `origin` stands for it.
    pub(crate) home: PathText,
}

impl Settings {
    /// Where the daemon of this program is mounted. Only the first one of a host is mounted at the
    /// mount point that programs know.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub(crate) fn mount_of_daemon(&self) -> Result<PathText, Errno> {
        if self.run.as_bytes() == self.host_run.as_bytes() {
            return PathText::from_bytes(self.mount.as_bytes());
        }
        let mut path = PathText::from_bytes(self.run.as_bytes())?;
        path.push(b"/mnt")?;
        Ok(path)
    }
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(core::ptr::null_mut());

/// The settings; `None` before start.
pub(crate) fn get() -> Option<&'static Settings> {
    // SAFETY: the pointer is null or was set by `set` to a mapping that lives as long as the
    // process.
    unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }
}

/// The settings.
///
/// # Errors
/// EIO before start, which no dispatched call can meet.
pub(crate) fn require() -> Result<&'static Settings, Errno> {
    get().ok_or(Errno::EIO)
}

/// Builds the settings in place and publishes them.
///
/// # Errors
/// ENOMEM; those of `fill`.
pub(super) fn set(fill: impl FnOnce(&mut Settings) -> Result<(), Errno>) -> Result<(), Errno> {
    let place = memory::map_anonymous(size_of::<Settings>())?.cast::<Settings>();
    // SAFETY: the mapping is fresh, large enough and page-aligned.
    let settings = unsafe {
        place.write(Settings {
            run: PathText::new(),
            host_run: PathText::new(),
            daemons: PathText::new(),
            mount: PathText::new(),
            hints: Hints::default(),
            objects: PathText::new(),
            host_objects: PathText::new(),
            images: PathText::new(),
            library: PathText::new(),
            program: PathText::new(),
            origin: PathText::new(),
            home: PathText::new(),
        });
        &mut *place.as_ptr()
    };
    fill(settings)?;
    settings.hints = Hints::of(settings.mount.as_bytes());
    SETTINGS.store(place.as_ptr(), Ordering::Release);
    Ok(())
}
