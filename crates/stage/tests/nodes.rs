//! The engine with processes of other nodes, which are threads here.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::{
        fs::{MetadataExt, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::Duration,
};

use mayfly_stage::{
    Cancel, Counts, Journal, Note, Options, Pair, Report, Watcher, WhenOpen, Worker, stage_with,
    work,
};

/// Ends after so many bytes, as the line to a node that dies.
struct Cut<R>(R, usize);

impl<R: Read> Read for Cut<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let room = to.len().min(self.1);
        let count = self.0.read(&mut to[..room])?;
        self.1 -= count;
        Ok(count)
    }
}

/// A node whose place of the root is `root`, and which dies when it has heard so much.
fn worker(name: &str, root: &Path, bytes_max: usize) -> (Worker, thread::JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let root = root.to_owned();
    let process = thread::spawn(move || {
        let from = Cut(theirs.try_clone().expect("a descriptor"), bytes_max);
        let ended = work(from, theirs.try_clone().expect("a descriptor"), Some(root), None);
        let _ = theirs.shutdown(std::net::Shutdown::Both);
        assert!(bytes_max < usize::MAX || ended.is_ok(), "{ended:?}");
    });
    (Worker::new(name.to_owned(), ours).expect("a descriptor"), process)
}

/// Notes what is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Watcher for Told {
    fn note(&self, note: Note<'_>) {
        let line = match note {
            Note::Failed(path, problem) => format!("{}: {problem}", path.display()),
            Note::Without(node, why) => format!("without {node}: {why}"),
            other => format!("{other:?}"),
        };
        self.0.lock().expect("no panic").push(line);
    }

    fn progress(&self, _counts: &Counts, _nodes: &[(String, Counts)]) {}
}

struct Place {
    directory: tempfile::TempDir,
    told: Told,
}

impl Place {
    /// With a root that is seen as `here`, `there` and `yonder`.
    fn new() -> Place {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("here")).expect("a directory");
        for name in ["there", "yonder"] {
            symlink("here", directory.path().join(name)).expect("a link");
        }
        Place { directory, told: Told::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn worker(&self, root: &str) -> Worker {
        worker(root, &self.path(root), usize::MAX).0
    }

    fn stage(&self, workers: &[Worker], from: &str, to: &str, options: &Options) -> Report {
        let pair = Pair {
            source: self.path(from),
            destination: self.path(to),
            patterns: Vec::new(),
            like: None,
        };
        let options = Options { root: Some(self.path("here")), ..options.clone() };
        let (cancel, mut journal) = (Cancel::default(), Journal::none());
        stage_with(workers, &[pair], &options, &mut journal, &cancel, &self.told)
            .expect("no pattern")
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.0.lock().expect("no panic"))
    }

    /// Some directories of files, one with two names, and a large one.
    fn make(&self, name: &str) -> usize {
        let top = self.path(name);
        for d in 0..20 {
            let directory = top.join(format!("d{d}/inner"));
            fs::create_dir_all(&directory).expect("a directory");
            for f in 0..100 {
                fs::write(directory.join(format!("f{f}")), format!("{d} {f}")).expect("a file");
            }
        }
        fs::write(top.join("one"), "two names").expect("a file");
        fs::hard_link(top.join("one"), top.join("d3/other")).expect("a link");
        symlink("nowhere", top.join("d4/link")).expect("a link");
        let large = (0..40_u8).map(|part| vec![part; 1 << 20]).collect::<Vec<_>>().concat();
        fs::write(top.join("large"), large).expect("a file");
        let old = File::open(top.join("d5")).expect("a directory");
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a time");
        20 * 100 + 4
    }

    fn expect_same(&self, one: &str, other: &str) {
        let mut differ = std::process::Command::new("diff");
        differ.args(["-r", "--no-dereference"]);
        let out = differ.args([self.path(one), self.path(other)]).output().expect("diff");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        let inode = |name: &str| fs::metadata(self.path(other).join(name)).expect("there").ino();
        assert_eq!(inode("one"), inode("d3/other"));
        let time = |place: &str| fs::metadata(self.path(place).join("d5")).expect("there").mtime();
        assert_eq!(time(one), time(other));
    }
}

#[test]
fn each_file_is_copied_by_one_node_and_the_tree_is_the_same() {
    let place = Place::new();
    let count = place.make("tree");
    let workers = [place.worker("there"), place.worker("yonder")];
    let options = Options { streams: 2, ..Options::default() };
    for (from, to) in [("tree", "here/case"), ("here/case", "out")] {
        let report = place.stage(&workers, from, to, &options);
        assert!(report.is_whole(), "{:?} {report:?}", place.told());
        assert_eq!(report.counts.files as usize, count, "{report:?}");
        assert_eq!(report.counts.directories, 41);
        place.expect_same("tree", to);
        for (node, counts) in &report.nodes {
            assert!(counts.files > 0, "{node} did nothing");
        }
    }
    let again = place.stage(&workers, "tree", "here/case", &Options { changed: true, ..options });
    assert_eq!((again.counts.files, again.counts.unchanged as usize), (0, count), "{again:?}");
}

#[test]
fn what_a_node_was_at_when_it_died_is_done_here() {
    for bytes in [0, 300, 1000, 3000, 9000, 20_000] {
        let place = Place::new();
        place.make("tree");
        let (dying, process) = worker("dying", &place.path("there"), bytes);
        let workers = [dying, place.worker("yonder")];
        let report = place.stage(&workers, "tree", "here/case", &Options::default());
        assert!(report.is_whole(), "{bytes}: {:?} {report:?}", place.told());
        drop(workers);
        process.join().expect("it ended");
        place.expect_same("tree", "here/case");
    }
}

#[test]
fn a_node_that_sees_another_tree_is_named_and_takes_no_part() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).expect("a directory");
    fs::write(place.path("tree/file"), "one").expect("a file");
    fs::create_dir(place.path("other")).expect("a directory");
    let (elsewhere, _) = worker("elsewhere", &place.path("other"), usize::MAX);
    let (gone, _) = worker("gone", &place.path("here"), 0);
    let workers = [elsewhere, gone];
    let report = place.stage(&workers, "tree", "here/case", &Options::default());
    assert!(report.is_whole() && report.counts.files == 1);
    let told = place.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("without elsewhere: ") && told[1].starts_with("without gone: "));
    let left: Vec<_> = fs::read_dir(place.path("here")).expect("a directory").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_goes_wrong_on_another_node_is_told_as_if_it_had_been_here() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/d")).expect("a directory");
    fs::create_dir_all(place.path("here/case/d/bad/in-the-way")).expect("a directory");
    for name in ["bad", "good", "log"] {
        fs::write(place.path("tree/d").join(name), "one").expect("a file");
    }
    let log = File::options().append(true).open(place.path("tree/d/log")).expect("a file");
    let _socket = std::os::unix::net::UnixListener::bind(place.path("tree/d/socket"));
    let workers = [place.worker("there")];
    let options = Options { streams: 1, ..Options::default() };
    let report = place.stage(&workers, "tree", "here/case", &options);
    assert_eq!((report.counts.files, report.counts.failed), (1, 1), "{report:?}");
    assert_eq!((report.counts.open, report.counts.left_out), (1, 1), "{report:?}");
    let mut told = place.told();
    told.sort();
    // What is in the way is at the destination.
    let start = place.path("here/case/d/bad").display().to_string();
    assert!(told.iter().any(|line| line.starts_with(&start)), "{told:?}");
    // What is waited for is handed back to who waits.
    fs::remove_dir_all(place.path("here/case/d/bad")).expect("removed");
    let closing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(log);
    });
    let options = Options { open: WhenOpen::Wait, ..options };
    let report = place.stage(&workers, "tree", "here/case", &options);
    assert!(report.is_whole() && report.counts.files == 3, "{report:?}");
    closing.join().expect("closed");
}
