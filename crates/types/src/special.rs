//! The kernel's own pipes and sockets that stand for those in an instance.
//!
//! A pipe or a socket in an instance is a name and attributes. What is sent through it goes through
//! one of the kernel's, which the process that makes it puts into a directory of its node, under a
//! number drawn by lot. Its path is the *place* of the file.

/// Directory of the places, in the directory of the node's sockets.
pub const SPECIAL_DIRECTORY: &str = "special";
/// What a place's link is called that says as what a socket was bound: the place, and this.
pub const BOUND_SUFFIX: &str = ".as";
/// Digits of a place's number, hexadecimal.
pub const PLACE_DIGITS: usize = 16;

/// The directory of the node's sockets and the number of a place; `None` when it is none.
#[must_use]
pub fn parse_place(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, number) = path.split_at_checked(path.len().checked_sub(PLACE_DIGITS)?)?;
    let run = rest.strip_suffix(b"/")?.strip_suffix(SPECIAL_DIRECTORY.as_bytes())?;
    let run = run.strip_suffix(b"/").filter(|run| run.starts_with(b"/"))?;
    let hexadecimal = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    number.iter().all(hexadecimal).then_some((run, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_in_the_directory_for_them_is_a_place() {
        let place = b"/run/x/special/00a1b2c3d4e5f607";
        assert_eq!(parse_place(place), Some((&b"/run/x"[..], &b"00a1b2c3d4e5f607"[..])));
        assert_eq!(parse_place(b"/run/x/special/00a1b2c3d4e5f60"), None);
        assert_eq!(parse_place(b"/run/x/special/../etc/a1b2c3d4"), None);
        assert_eq!(parse_place(b"/run/x/objects/00a1b2c3d4e5f607"), None);
        assert_eq!(parse_place(b"run/x/special/00a1b2c3d4e5f607"), None);
        assert_eq!(parse_place(b"special/00a1b2c3d4e5f607"), None);
        assert_eq!(parse_place(b""), None);
    }
}
