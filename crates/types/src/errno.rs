//! Kernel error numbers (x86-64 and generic Linux numbering, `asm-generic/errno.h`).

/// A positive Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            /// The symbolic name, or `None` for a number that Mayfly never produces itself.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(stringify!($name)),)* _ => None }
            }

            /// What the error means, as `strerror` would say it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 { $($number => $text,)* _ => "Unlisted error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    ENOEXEC = 8, "Exec format error";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    EPIPE = 32, "Broken pipe";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    EPROTO = 71, "Protocol error";
    EOVERFLOW = 75, "Value too large for defined data type";
    EOPNOTSUPP = 95, "Operation not supported";
    EADDRINUSE = 98, "Address already in use";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    ESTALE = 116, "Stale file handle";
    EDQUOT = 122, "Disk quota exceeded";
    ECANCELED = 125, "Operation canceled";
}

impl Errno {
    /// The largest number the kernel encodes in a system call's result.
    pub const MAX: u16 = 4095;

    /// An error number from a foreign source; `None` when it is not in 1..=4095.
    #[must_use]
    pub const fn from_raw(number: i32) -> Option<Errno> {
        if number >= 1 && number <= Self::MAX as i32 { Some(Errno(number as u16)) } else { None }
    }

    /// The positive number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }

    /// As the kernel returns it from a system call: negative.
    #[must_use]
    pub const fn as_result(self) -> isize {
        -(self.0 as isize)
    }
}

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({self:?})", self.text())
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_number_outside_the_kernels_range_is_refused() {
        assert_eq!(Errno::from_raw(0), None);
        assert_eq!(Errno::from_raw(-2), None);
        assert_eq!(Errno::from_raw(4096), None);
        assert_eq!(Errno::from_raw(2), Some(Errno::ENOENT));
    }
}
