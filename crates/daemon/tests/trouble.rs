//! A disk that is full, and a store that breaks.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::{path::PathBuf, process::Command};

use mayfly_types::Errno;
use mayfly_wire::Write;
use support::{Kept, Node, O_CREAT, O_RDWR, config, failed};

/// A small file system that goes with this value.
struct Disk(PathBuf);

impl Disk {
    /// `None` where that is not allowed.
    fn new() -> Option<Disk> {
        let place = tempfile::tempdir().unwrap().keep();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=40m", "tmpfs"])
            .arg(&place)
            .output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(Disk(place));
        }
        std::fs::remove_dir(place).unwrap();
        None
    }

    /// Takes all space that is left.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A child that another test starts at this moment may still hold our descriptors.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status().unwrap();
        assert!(unmounted.success());
        std::fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn on_a_full_disk_nothing_acknowledged_is_lost_and_removing_works() {
    let Some(disk) = Disk::new() else {
        eprintln!("SKIPPED: a tmpfs of its own cannot be mounted");
        return;
    };
    let mut node = Node::on_disk_in(config(), &disk.0);
    let spilled = node.open("spilled", O_CREAT | O_RDWR).unwrap().0;
    node.write(spilled, 0, &[1; 100_000]).unwrap();
    let filler = disk.fill();
    let mut count = 0_usize;
    let errno = loop {
        let open = match node.open(&format!("file{count}"), O_CREAT | O_RDWR) {
            Ok((open, _)) => open,
            errno => break failed(errno),
        };
        let request = Write { open, offset: 0, append: false, bytes: &[count as u8; 3000] };
        if let errno @ Err(_) = node.ask(&request, |_| ()) {
            break failed(errno);
        }
        node.close(open);
        count += 1;
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert!(count > 100, "{count}");
    assert_eq!(failed(node.mkdir("d")), Errno::ENOSPC);
    let more = Write { open: spilled, offset: 100_000, append: false, bytes: &[1; 100_000] };
    assert_eq!(failed(node.ask(&more, |_| ())), Errno::ENOSPC);
    for _ in 0..2 {
        assert_eq!(node.read(spilled, 0, 100_000).unwrap(), [1; 100_000]);
        for number in 0..count {
            let open = node.open(&format!("file{number}"), 0).unwrap().0;
            assert_eq!(node.read(open, 0, 4096).unwrap(), [number as u8; 3000], "{number}");
            node.close(open);
        }
        node.restart();
    }
    node.close(spilled);
    for number in 0..count {
        node.unlink(&format!("file{number}"), false).unwrap();
    }
    node.unlink("spilled", false).unwrap();
    node.settle_down();
    std::fs::remove_file(filler).unwrap();
    node.mkdir("d").unwrap();
    let open = node.open("again", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, &[2; 100_000]).unwrap();
}

#[test]
fn a_file_that_cannot_spill_leaves_nothing_on_a_full_disk() {
    let Some(disk) = Disk::new() else {
        eprintln!("SKIPPED: a tmpfs of its own cannot be mounted");
        return;
    };
    let mut node = Node::on_disk_in(config(), &disk.0);
    let open = node.open("f", O_CREAT | O_RDWR).unwrap().0;
    node.write(open, 0, &[1; 4000]).unwrap();
    disk.fill();
    let request = Write { open, offset: 4000, append: false, bytes: &[2; 1000] };
    assert_eq!(failed(node.ask(&request, |_| ())), Errno::ENOSPC);
    assert_eq!(node.read(open, 0, 5000).unwrap(), [1; 4000]);
    assert_eq!(node.core().counters().objects, 0);
    let left = std::fs::read_dir(&node.objects).unwrap();
    assert!(left.flatten().all(|parent| std::fs::read_dir(parent.path()).unwrap().count() == 0));
}

const BROKEN: &str = "MAYFLY_TEST_BROKEN_STORE";

#[test]
fn a_store_that_breaks_is_reported_once_with_its_name() {
    if std::env::var_os(BROKEN).is_some() {
        let mut node = Node::memory(config());
        let Kept::Memory(disk) = node.kept.clone() else { unreachable!("made so") };
        disk.fail_next_commit();
        let open =
            mayfly_wire::MakeDirectory { walk: support::walk("d", 0), mode: 0, uid: 0, gid: 0 };
        for _ in 0..3 {
            let caller = node.next_caller(support::SESSION);
            node.submit(caller, &open, &mut [0; 100]);
            assert_ne!(node.core().batch_transaction(), 0, "it does not look committed");
            assert_eq!(node.core().commit(), Err(Errno::EIO));
        }
        return;
    }
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_store_that_breaks_is_reported_once_with_its_name", "--nocapture"])
        .env(BROKEN, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{said}");
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(errors, ["ERROR metadata: metadata store: a commit was made to fail"]);
}
