//! What is shown is what is there, at the pace that was asked for, and every call is counted.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use outside::{Call, Outside, Speeds};

struct Shown {
    mount: PathBuf,
    outside: Outside,
    below: tempfile::TempDir,
    _mount: tempfile::TempDir,
}

/// Nothing, where this machine has no FUSE.
fn show(speeds: Speeds) -> Option<Shown> {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: no /dev/fuse");
        return None;
    }
    let (below, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shown = Outside::show(below.path(), mount.path(), speeds);
    if shown.is_err() && below.path().metadata().unwrap().uid() != 0 {
        eprintln!("skipped: only root may mount here");
        return None;
    }
    let outside = shown.unwrap();
    Some(Shown { mount: mount.path().to_owned(), outside, below, _mount: mount })
}

#[test]
fn what_is_made_below_is_shown_and_what_is_made_here_is_below() {
    let Some(shown) = show(Speeds::default()) else { return };
    let (here, below) = (shown.mount.as_path(), shown.below.path());
    fs::create_dir(below.join("d")).unwrap();
    fs::write(below.join("d/f"), "from below").unwrap();
    assert_eq!(fs::read_to_string(here.join("d/f")).unwrap(), "from below");
    fs::write(here.join("d/g"), "from here").unwrap();
    fs::set_permissions(here.join("d/g"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("g", here.join("d/l")).unwrap();
    fs::hard_link(here.join("d/g"), here.join("d/h")).unwrap();
    fs::rename(here.join("d"), here.join("e")).unwrap();
    let before = SystemTime::UNIX_EPOCH + Duration::new(5, 250_000_000);
    File::options().write(true).open(here.join("e/g")).unwrap().set_modified(before).unwrap();
    assert_eq!(fs::read_to_string(below.join("e/l")).unwrap(), "from here");
    assert_eq!(fs::read_to_string(here.join("e/l")).unwrap(), "from here");
    for place in [here, below] {
        let of = fs::metadata(place.join("e/h")).unwrap();
        assert_eq!((of.mode() & 0o7777, of.nlink(), of.modified().unwrap()), (0o640, 2, before));
    }
    let mut names: Vec<_> =
        fs::read_dir(here.join("e")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "g", "h", "l"]);
    File::options().append(true).open(here.join("e/f")).unwrap().write_all(b", more").unwrap();
    File::options().write(true).open(here.join("e/g")).unwrap().set_len(4).unwrap();
    assert_eq!(fs::read_to_string(below.join("e/f")).unwrap(), "from below, more");
    assert_eq!(fs::read_to_string(below.join("e/g")).unwrap(), "from");
    fs::remove_dir_all(here.join("e")).unwrap();
    assert_eq!(fs::read_dir(below).unwrap().count(), 0);
}

#[test]
fn each_call_takes_its_turn_and_bytes_their_time() {
    let metadata = Duration::from_millis(5);
    let speeds = Speeds { metadata, bytes_per_second: 8 << 20, ..Speeds::default() };
    let Some(shown) = show(speeds) else { return };
    for number in 0..8 {
        fs::write(shown.below.path().join(number.to_string()), vec![7; 256 << 10]).unwrap();
    }
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = shown.mount.join(number.to_string());
            scope.spawn(move || assert_eq!(fs::read(path).unwrap().len(), 256 << 10));
        }
    });
    // Two MiB at eight a second, whoever asks; eight looks and eight opens in one queue.
    assert!(begin.elapsed() >= Duration::from_millis(250).max(16 * metadata));
    let calls = shown.outside.pace().calls();
    assert_eq!((calls.of(Call::Open), calls.most(Call::Open)), (8, 1));
    assert_eq!(calls.bytes_read, 2 << 20);
}

#[test]
fn what_is_to_fail_fails_so_often_and_the_counts_are_in_a_file() {
    let Some(shown) = show(Speeds::default()) else { return };
    fs::write(shown.below.path().join("f"), "x").unwrap();
    let control = shown.mount.join(".outside");
    fs::write(&control, format!("fail open {} 2\n", libc::ENOSPC)).unwrap();
    for _ in 0..2 {
        let error = fs::read(shown.mount.join("f")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(fs::read(shown.mount.join("f")).unwrap(), b"x");
    let counts: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&control).unwrap()).unwrap();
    assert_eq!(counts["calls"]["open"], 3);
    fs::write(&control, "reset\n").unwrap();
    assert_eq!(shown.outside.pace().calls().of(Call::Open), 0);
    let error = fs::write(&control, "faster\n").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let listed = fs::read_dir(&shown.mount).unwrap();
    assert_eq!(listed.count(), 1, "no listing has the control file");
}
