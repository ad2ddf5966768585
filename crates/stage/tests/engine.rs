//! The engine between two directories.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::Write,
    os::unix::{
        ffi::OsStringExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use mayfly_stage::{
    Cancel, Counts, Journal, Note, Options, Pair, Report, Wanted, Watcher, WhenOpen, stage,
};
use proptest::prelude::*;

fn pair(from: &Path, to: &Path) -> Pair {
    let (source, destination) = (from.to_owned(), to.to_owned());
    Pair { source, destination, patterns: Vec::new(), like: None }
}

fn copy(from: &Path, to: &Path, options: &Options) -> Report {
    let (cancel, mut journal) = (Cancel::default(), Journal::none());
    stage(&[pair(from, to)], options, &mut journal, &cancel, &()).expect("there are no patterns")
}

/// What a name is, as far as a copy has it.
#[derive(Debug, PartialEq, Eq)]
struct Is {
    mode: u32,
    modified: (i64, i64),
    content: Vec<u8>,
    leads: Option<PathBuf>,
    /// The first name of the same file.
    first: PathBuf,
}

fn describe(root: &Path) -> BTreeMap<PathBuf, Is> {
    let (mut found, mut first, mut left) =
        (BTreeMap::new(), BTreeMap::new(), vec![root.to_owned()]);
    let mut names = Vec::new();
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        if meta.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        names.push((path, meta));
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    // The root itself, if it was there before, is left as it is.
    for (path, meta) in names.into_iter().skip(1) {
        let inner = path.strip_prefix(root).expect("below").to_owned();
        let same = first.entry((meta.dev(), meta.ino())).or_insert_with(|| inner.clone());
        let is = Is {
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            content: if meta.is_file() { fs::read(&path).expect("a file") } else { Vec::new() },
            leads: meta.is_symlink().then(|| fs::read_link(&path).expect("a link")),
            first: same.clone(),
        };
        found.insert(inner, is);
    }
    found
}

/// A step in making a tree.
#[derive(Debug, Clone)]
enum Make {
    Directory(u8),
    File(u8, Vec<u8>, u16, u32),
    Link(u8, Vec<u8>),
    Name(u8, u8),
}

fn make(root: &Path, steps: &[(Make, Vec<u8>)]) {
    let (mut directories, mut files) = (vec![root.to_owned()], Vec::new());
    for (step, name) in steps {
        let into = |which: u8| directories[usize::from(which) % directories.len()].clone();
        let name = OsString::from_vec(name.clone());
        match step {
            Make::Directory(which) => {
                let path = into(*which).join(&name);
                if fs::create_dir(&path).is_ok() {
                    directories.push(path);
                }
            }
            Make::File(which, content, mode, age) => {
                let path = into(*which).join(&name);
                let Ok(file) = File::create_new(&path) else { continue };
                let long: Vec<u8> =
                    content.iter().copied().cycle().take(content.len() * 200).collect();
                fs::write(&path, long).expect("written");
                file.set_permissions(fs::Permissions::from_mode(u32::from(*mode) & 0o7777))
                    .expect("its own");
                let time =
                    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::from(*age) * 1_000_003);
                file.set_modified(time).expect("a time");
                files.push(path);
            }
            Make::Link(which, leads) => {
                let _ = symlink(OsString::from_vec(leads.clone()), into(*which).join(&name));
            }
            Make::Name(which, file) if !files.is_empty() => {
                let file = &files[usize::from(*file) % files.len()];
                let _ = fs::hard_link(file, into(*which).join(&name));
            }
            Make::Name(..) => {}
        }
    }
}

fn a_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'a'), Just(b'\n'), Just(b'*'), 1..=255_u8];
    let no_slash = byte.prop_filter("a name", |byte| *byte != b'/');
    prop::collection::vec(no_slash, 1..12)
        .prop_filter("a name", |name| name != b"." && name != b"..")
}

fn steps() -> impl Strategy<Value = Vec<(Make, Vec<u8>)>> {
    let content = prop::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        any::<u8>().prop_map(Make::Directory),
        (any::<u8>(), content, any::<u16>(), any::<u32>())
            .prop_map(|(which, content, mode, age)| Make::File(which, content, mode | 0o400, age)),
        (any::<u8>(), a_name()).prop_map(|(which, leads)| Make::Link(which, leads)),
        (any::<u8>(), any::<u8>()).prop_map(|(which, file)| Make::Name(which, file)),
    ];
    prop::collection::vec((step, a_name()), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_copy_is_what_it_is_a_copy_of(steps in steps(), unwatched: bool, streams in 1..5_usize) {
        let place = tempfile::tempdir().expect("a temporary directory");
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir(&from).expect("a directory");
        make(&from, &steps);
        let options = Options { unwatched, streams, verify: true, ..Options::default() };
        let report = copy(&from, &to, &options);
        prop_assert!(report.is_whole(), "{report:?}");
        prop_assert!(describe(&from) == describe(&to));
        // Once more on top of it, all of it and only what changed.
        let report = copy(&from, &to, &options);
        prop_assert!(report.is_whole(), "{report:?}");
        prop_assert!(describe(&from) == describe(&to));
        let report = copy(&from, &to, &Options { changed: true, ..options });
        prop_assert!(report.is_whole() && report.counts.files == 0, "{report:?}");
    }
}

/// Ends a stage when so many files are done.
struct EndsAfter<'a>(u64, &'a Cancel);

impl Watcher for EndsAfter<'_> {
    fn note(&self, _note: Note<'_>) {}
    fn progress(&self, counts: &Counts, _nodes: &[(String, Counts)]) {
        if counts.files >= self.0 {
            self.1.cancel();
        }
    }
}

#[test]
fn a_stage_that_was_ended_goes_on_and_copies_nothing_twice() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir(&from).expect("a directory");
    for number in 0..500 {
        fs::write(from.join(format!("f{number}")), "content").expect("written");
    }
    let options = Options { files_per_second: Some(400), streams: 2, ..Options::default() };
    let pairs = [pair(&from, &to)];
    let open =
        || Journal::open(&place.path().join("state"), b"this one", false).expect("a journal");
    let cancel = Cancel::default();
    let first = stage(&pairs, &options, &mut open(), &cancel, &EndsAfter(100, &cancel));
    let first = first.expect("there are no patterns");
    assert!(first.ended && first.counts.files < 500, "{first:?}");
    // The same one at the same time is refused.
    let mut journal = open();
    assert!(journal.is_resumed());
    assert!(Journal::open(&place.path().join("state"), b"this one", false).is_err());
    let options = Options { files_per_second: None, ..options };
    let second = stage(&pairs, &options, &mut journal, &Cancel::default(), &());
    let second = second.expect("there are no patterns");
    assert!(second.is_whole(), "{second:?}");
    assert_eq!(second.counts.unchanged, first.counts.files);
    assert_eq!(second.counts.files + first.counts.files, 500);
    assert!(describe(&from) == describe(&to));
    drop(journal);
    assert!(!open().is_resumed());
}

#[test]
fn a_link_that_leads_back_is_named_and_followed_no_further() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir_all(from.join("a")).expect("a directory");
    fs::write(from.join("file"), "content").expect("written");
    symlink("../file", from.join("a/link")).expect("a link");
    symlink("..", from.join("a/back")).expect("a link");
    let report = copy(&from, &to, &Options { follow: true, ..Options::default() });
    assert_eq!((report.counts.failed, report.counts.files), (1, 2), "{report:?}");
    assert!(report.problems[0].1.contains("leads back"), "{report:?}");
    assert!(fs::symlink_metadata(to.join("a/link")).expect("it is there").is_file());
}

#[test]
fn a_path_may_be_longer_than_the_kernel_takes_at_once() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let name = "n".repeat(100);
    let depth = 60;
    // Made from the inside out, since no path reaches the bottom.
    let mut inner = place.path().join("inner");
    fs::create_dir(&inner).expect("a directory");
    fs::write(inner.join("file"), "content").expect("written");
    for level in 0..depth {
        let outer = place.path().join(format!("outer{level}"));
        fs::create_dir(&outer).expect("a directory");
        fs::rename(&inner, outer.join(&name)).expect("moved");
        inner = outer;
    }
    fs::rename(&inner, &from).expect("moved");
    let report = copy(&from, &to, &Options { verify: true, ..Options::default() });
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.counts.files, report.counts.directories), (1, depth + 1));
}

#[test]
fn what_is_like_an_earlier_copy_is_a_further_name_of_it() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("from/a")).expect("a directory");
    fs::write(path("from/a/same"), "same").expect("written");
    fs::write(path("from/other"), "one").expect("written");
    assert!(copy(&path("from"), &path("one"), &Options::default()).is_whole());
    fs::write(path("from/other"), "two").expect("written");
    let like = Some(path("one"));
    let pairs = [Pair { like, ..pair(&path("from"), &path("two")) }];
    let (cancel, mut journal) = (Cancel::default(), Journal::none());
    let report = stage(&pairs, &Options::default(), &mut journal, &cancel, &());
    let report = report.expect("there are no patterns");
    assert_eq!((report.counts.files, report.counts.unchanged), (1, 1), "{report:?}");
    let inode = |name: &str| fs::metadata(path(name)).expect("it is there").ino();
    assert_eq!(inode("one/a/same"), inode("two/a/same"));
    assert_ne!(inode("one/other"), inode("two/other"));
    assert_eq!(fs::read(path("one/other")).expect("it is there"), b"one");
}

#[test]
fn what_is_open_for_writing_is_skipped_waited_for_or_copied() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let [from, to] = ["from", "to"].map(|name| place.path().join(name));
    fs::create_dir(&from).expect("a directory");
    fs::write(from.join("whole"), "whole").expect("a file");
    fs::write(from.join("log"), "first half, ").expect("a file");
    let log = File::options().append(true).open(from.join("log")).expect("open for writing");
    let options = |open| Options { open, changed: true, ..Options::default() };

    let report = copy(&from, &to, &options(WhenOpen::Skip));
    assert_eq!((report.counts.files, report.counts.open, report.counts.failed), (1, 1, 0));
    assert!(!report.is_whole() && report.problems[0].0.ends_with("from/log"), "{report:?}");
    assert!(!to.join("log").exists());
    let dry = copy(&from, &to, &Options { dry_run: true, ..options(WhenOpen::Skip) });
    assert_eq!((dry.counts.files, dry.counts.open), (0, 1));
    let report = copy(&from, &to, &options(WhenOpen::Copy));
    assert!(report.is_whole() && report.counts.files == 1, "{report:?}");
    // Who reads a file, or has it open for reading, keeps it from nothing.
    let reader = File::open(from.join("whole")).expect("open for reading");
    fs::remove_dir_all(&to).expect("removed");

    let waiting = std::thread::spawn({
        let (from, to, options) = (from.clone(), to.clone(), options(WhenOpen::Wait));
        move || copy(&from, &to, &options)
    });
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished(), "it did not wait");
    assert!(to.join("whole").exists(), "what nobody writes has waited too");
    (&log).write_all(b"second half").expect("written");
    drop(log);
    let report = waiting.join().expect("a report");
    assert!(report.is_whole() && report.counts.files == 2, "{report:?}");
    assert_eq!(fs::read(to.join("log")).expect("copied"), b"first half, second half");
    drop(reader);
}

#[test]
fn who_waits_for_writers_can_be_ended() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let [from, to] = ["log", "copy"].map(|name| place.path().join(name));
    let _log = File::create(&from).expect("open for writing");
    let (cancel, mut journal) = (Cancel::default(), Journal::none());
    let later = cancel.clone();
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        later.cancel();
    });
    let options = Options { open: WhenOpen::Wait, ..Options::default() };
    let report =
        stage(&[pair(&from, &to)], &options, &mut journal, &cancel, &()).expect("a report");
    ending.join().expect("ended");
    assert!(report.ended && report.counts.files == 0 && !to.exists(), "{report:?}");
}

/// A copy to a place that cannot be made named the source, with which nothing was wrong: `/from:
/// make the directory: No such file or directory`.
#[test]
fn what_cannot_be_made_at_the_destination_is_named_there() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    fs::create_dir_all(from.join("sub/deeper")).expect("a new name");
    for name in ["file", "sub/file", "sub/deeper/file"] {
        fs::write(from.join(name), name).expect("a new name");
    }
    let named =
        |report: &Report| report.problems.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    // Nobody can make anything there.
    let nowhere = Path::new("/proc/x");
    for source in [&from, &from.join("file")] {
        assert_eq!(named(&copy(source, nowhere, &Options::default())), [nowhere]);
    }
    // A file where a directory should be: told once for all that is below, whether the directory
    // is made as such or for what is in it.
    fs::create_dir(&to).expect("a new name");
    fs::write(to.join("sub"), "in the way").expect("a new name");
    let wanted = Wanted { larger: Some(1), ..Wanted::default() };
    let for_files = Options { wanted, ..Options::default() };
    for options in [Options::default(), for_files] {
        let report = copy(&from, &to, &options);
        let named = named(&report);
        assert!(
            !named.is_empty() && named.iter().all(|path| *path == to.join("sub")),
            "{report:?}"
        );
        assert_eq!(fs::read(to.join("file")).expect("copied"), b"file");
    }
}
