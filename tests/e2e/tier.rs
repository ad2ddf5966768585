//! Origins: a directory outside that an instance shows, by the library and through the mount.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Tree, Turn, binary, process};

#[path = "tier/bench.rs"]
mod bench;

use bench::{Bench, LARGE_BYTES, PATIENCE, accesses, is_possible, plant, text};

#[test]
fn a_tree_is_seen_as_it_is_and_its_bytes_are_fetched_when_they_are_read() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-seen")?;
    for access in accesses() {
        let bench = Bench::start(&scratch, access, &["--access", access])?;
        bench.expect(
            "find . | LC_ALL=C sort | tr '\\n' ' '",
            ". ./dir ./dir/inner ./dir/inner/program ./dir/large ./empty ./link ./small ",
        )?;
        bench.expect(
            "stat -c '%s %a %Y' dir/inner/program small | cut -d' ' -f1,2",
            "23 751\n6 644\n",
        )?;
        bench.expect("stat -c '%.9Y' small", "1000000000.123456789\n")?;
        bench.expect("readlink link", "dir/inner/program\n")?;
        ensure!(bench.origin("cached_bytes")? == 0, "nothing was read so far");
        bench.expect("cat small empty; ./link", "small\nit runs\n")?;
        let sum = |path: &Path| -> Result<String> {
            let job = Job::new(&scratch, "sum", "sha256sum").args([path.as_os_str()]).run_ok()?;
            Ok(String::from_utf8_lossy(&job.stdout)[..64].to_owned())
        };
        let wanted = sum(&bench.outside.join("dir/large"))?;
        bench.expect("sha256sum < dir/large | cut -c1-64", &format!("{wanted}\n"))?;
        let cached = (LARGE_BYTES + 6 + 23) as u64;
        ensure!(bench.origin("cached_bytes")? == cached, "{}", bench.status()?);
        ensure!(bench.origin("dirty_files")? == 0);
        bench.instance.stop()?;
        ensure!(sum(&bench.outside.join("dir/large"))? == wanted);
    }
    Ok(())
}

#[test]
fn what_was_read_is_read_again_without_the_origin() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-again")?;
    let bench = Bench::start(&scratch, "again", &["--validate", "never"])?;
    let read = "sha256sum dir/large small link dir/inner/program; ls -l dir dir/inner";
    let first = bench.sh(read)?;
    let away = scratch.rename("again-outside", "again-away")?;
    for name in ["small", "dir", "link", "empty"] {
        fs::rename(away.join(name), away.join(format!("gone-{name}")))?;
    }
    ensure!(bench.sh(read)? == first, "the second read is another one");
    // What was not read cannot be had: nobody says that it is empty.
    fs::write(away.join("late"), "x")?;
    bench.expect("cat late 2>/dev/null || echo none", "none\n")?;
    bench.instance.stop()
}

#[test]
fn what_is_written_goes_back_when_it_is_flushed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-written")?;
    for access in accesses() {
        let bench = Bench::start(&scratch, access, &["--access", access])?;
        bench.sh("echo more >> small; echo new > dir/new; \
                printf x | dd of=dir/large bs=1 seek=5 conv=notrunc 2>/dev/null; echo > empty; \
                : > dir/inner/program; touch -d @1234567890 dir/new")?;
        ensure!(bench.outside("small")? == "small\n", "it went back before the flush");
        ensure!(bench.outside("dir/new")?.is_empty(), "the name is there, and no bytes");
        ensure!(bench.origin("dirty_files")? == 5, "{}", bench.status()?);
        let told = bench.flush()?;
        ensure!(told.contains("5 files were written back"), "{told}");
        ensure!(bench.origin("dirty_files")? == 0, "{}", bench.status()?);
        ensure!(bench.outside("small")? == "small\nmore\n");
        ensure!(bench.outside("dir/new")? == "new\n");
        ensure!(fs::metadata(bench.outside.join("dir/new"))?.mtime() == 1_234_567_890);
        ensure!(bench.outside("empty")? == "\n" && bench.outside("dir/inner/program")?.is_empty());
        let program = fs::metadata(bench.outside.join("dir/inner/program"))?;
        ensure!(program.mode() & 0o7777 == 0o751, "the mode was lost");
        let large = fs::read(bench.outside.join("dir/large"))?;
        ensure!(large.len() == LARGE_BYTES && large[4..7] == [4, b'x', 6]);
        // Who has it open goes on, and so does the next flush.
        bench.sh(&format!(
            "exec 5>>small; echo a >&5; {} tier flush --name {access} 2>/dev/null; echo b >&5",
            text(&binary::mayfly()?)?
        ))?;
        ensure!(bench.outside("small")? == "small\nmore\na\n", "{}", bench.outside("small")?);
        bench.instance.stop()?;
        ensure!(bench.outside("small")? == "small\nmore\na\nb\n", "the stop did not flush");
    }
    Ok(())
}

#[test]
fn extended_attributes_are_those_outside_and_a_flush_keeps_them_and_the_acl() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-xattrs")?;
    let python = |bench: &Bench, script: &str| {
        let job = Job::new(&scratch, "python", "python3").args(["-c", script]);
        let done = job.args([bench.outside.join("small").as_os_str()]).run_ok()?;
        anyhow::Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    };
    for access in accesses() {
        let bench = Bench::start(&scratch, access, &["--access", access])?;
        // The owner, the user 12345, the group, the mask, and others.
        python(
            &bench,
            "import os, struct, sys\n\
             no = 2**32 - 1\n\
             acl = [(1, 6, no), (2, 6, 12345), (4, 4, no), (16, 6, no), (32, 0, no)]\n\
             acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *of) for of in acl)\n\
             os.setxattr(sys.argv[1], 'system.posix_acl_access', acl)\n\
             os.setxattr(sys.argv[1], 'user.theirs', b'1')",
        )?;
        bench.expect(
            "sleep 1.1; python3 -c \"import os; os.setxattr('small', 'user.ours', b'2'); \
             os.setxattr('dir', 'user.of-a-directory', b'3'); \
             print(sorted(os.listxattr('small')), os.getxattr('small', 'user.theirs'))\"",
            "['user.ours', 'user.theirs'] b'1'\n",
        )?;
        let seen = "import os, sys; f = sys.argv[1]; \
                    print(sorted(os.listxattr(f)), len(os.getxattr(f, 'system.posix_acl_access')))";
        let all = "['system.posix_acl_access', 'user.ours', 'user.theirs'] 44\n";
        ensure!(python(&bench, seen)? == all);
        bench.sh("echo more >> small; chmod g+x small")?;
        let told = bench.flush()?;
        ensure!(told.contains("1 files were written back"), "{told}");
        ensure!(bench.outside("small")? == "small\nmore\n");
        ensure!(python(&bench, seen)? == all, "{}", python(&bench, seen)?);
        bench.expect(
            "python3 -c \"import os; os.removexattr('small', 'user.theirs'); \
             print(os.listxattr('small'), os.getxattr('dir', 'user.of-a-directory'))\"",
            "['user.ours'] b'3'\n",
        )?;
        bench.instance.stop()?;
    }
    Ok(())
}

#[test]
fn names_are_changed_outside_at_once() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-names")?;
    for access in accesses() {
        let bench = Bench::start(&scratch, access, &["--access", access])?;
        let outside = |path: &str| fs::symlink_metadata(bench.outside.join(path));
        bench.sh("mkdir -m 750 made; ln -s ../small made/link; mv dir/inner made/; \
                mv small made/moved; rm empty; chmod 600 made/moved; touch -d @7 made/moved")?;
        ensure!(outside("made")?.mode() & 0o7777 == 0o750);
        ensure!(fs::read_link(bench.outside.join("made/link"))? == Path::new("../small"));
        ensure!(outside("dir/inner").is_err() && outside("made/inner/program")?.is_file());
        ensure!(outside("small").is_err() && outside("empty").is_err());
        let moved = outside("made/moved")?;
        ensure!(moved.mode() & 0o7777 == 0o600 && moved.mtime() == 7);
        bench.expect("cat made/moved; sh made/inner/program", "small\nit runs\n")?;
        bench
            .expect("rmdir made 2>/dev/null || echo full; ls made", "full\ninner\nlink\nmoved\n")?;
        bench.sh("rm made/inner/program; rmdir made/inner; exec 5<dir/large; rm dir/large; \
                test $(wc -c <&5) = 3145728")?;
        ensure!(outside("made/inner").is_err() && outside("dir/large").is_err());
        bench.expect(
            "ln made/moved other 2>/dev/null || echo refused; \
                mkfifo pipe 2>/dev/null || echo refused",
            "refused\nrefused\n",
        )?;
        bench.instance.stop()?;
        ensure!(outside("other").is_err());
    }
    Ok(())
}

#[test]
fn what_others_change_outside_is_seen_and_what_is_open_stays() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-changed")?;
    let bench = Bench::start(&scratch, "changed", &["--validate", "always"])?;
    bench.expect("cat small", "small\n")?;
    fs::write(bench.outside.join("small"), "another\n")?;
    fs::write(bench.outside.join("dir/fresh"), "fresh\n")?;
    fs::remove_file(bench.outside.join("empty"))?;
    fs::remove_dir_all(bench.outside.join("dir/inner"))?;
    bench.expect(
        "cat small dir/fresh; ls -d empty dir/inner 2>/dev/null; ls dir",
        "another\nfresh\nfresh\nlarge\n",
    )?;
    let change = format!("echo third > {}", text(&bench.outside.join("small"))?);
    bench.expect(
        &format!("exec 5<small; cat small; {change}; cat <&5; cat small"),
        "another\nanother\nthird\n",
    )?;
    bench.instance.stop()
}

#[test]
fn a_file_that_both_sides_have_changed_is_kept_twice() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-conflict")?;
    let bench = Bench::start(&scratch, "conflict", &[])?;
    bench.sh("echo ours > small; echo ours > dir/large; echo clean > empty")?;
    fs::write(bench.outside.join("small"), "theirs\n")?;
    fs::remove_file(bench.outside.join("dir/large"))?;
    bench.expect("sleep 1.2; cat small dir/large", "ours\nours\n")?;
    let told = bench.flush()?;
    ensure!(told.matches("conflict: ").count() == 2, "{told}");
    ensure!(bench.outside("small")? == "theirs\n" && bench.outside("empty")? == "clean\n");
    let copies = |directory: &str| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(bench.outside.join(directory))?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        Ok(paths
            .into_iter()
            .filter(|path| path.to_string_lossy().contains(".mayfly-conflict-"))
            .collect())
    };
    for (directory, name) in [("", "small.mayfly"), ("dir", "large.mayfly")] {
        let copies = copies(directory)?;
        let [copy] = &copies[..] else { bail!("{copies:?}") };
        ensure!(text(copy)?.contains(name) && fs::read(copy)? == b"ours\n");
        ensure!(told.contains(text(copy)?), "{told}");
        ensure!(bench.status()?["events"].to_string().contains(text(copy)?));
    }
    ensure!(bench.origin("conflicts")? == 2 && bench.origin("dirty_files")? == 0);
    std::thread::sleep(Duration::from_millis(1100));
    bench.expect("cat small; ls dir | grep -c large", "theirs\n1\n")?;
    bench.instance.stop()
}

#[test]
fn a_read_only_origin_refuses_every_change() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-ro")?;
    for access in accesses() {
        let bench = Bench::start(&scratch, access, &["ro", "--access", access])?;
        let before = Tree::read(&bench.outside)?;
        let script = "cat small; \
                for what in 'echo x >> small' 'echo x > new' 'mkdir d' 'rm small' 'mv small s' \
                'ln -s a b' 'chmod 1 small' 'touch small' 'rmdir dir' 'truncate -s 1 small'; \
                do LC_ALL=C sh -c \"$what\" 2>&1 | grep -q 'Read-only file system' || echo \
                \"not refused: $what\"; done";
        bench.expect(script, "small\n")?;
        before.expect_same(&Tree::read(&bench.outside)?)?;
        bench.instance.stop()?;
    }
    Ok(())
}

#[test]
fn a_fetch_that_fails_is_an_error_and_is_tried_again() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-fails")?;
    let bench = Bench::start(&scratch, "fails", &["--validate", "never"])?;
    bench.expect("ls dir", "inner\nlarge\n")?;
    let (there, away) = (bench.outside.join("dir/large"), bench.outside.join("away"));
    fs::rename(&there, &away)?;
    bench.expect("LC_ALL=C cat dir/large 2>&1 | grep -o 'No such file'", "No such file\n")?;
    ensure!(bench.origin("errors")? == 1, "{}", bench.status()?);
    fs::rename(&away, &there)?;
    bench.expect("wc -c < dir/large", "3145728\n")?;
    bench.instance.stop()
}

/// Commands of a job that leave a tree.
const JOB: &str = r"
    set -e
    cp -r dir copy; mv copy/large copy/renamed; sed -i s/small/edited/ small
    mkdir -p a/b/c; echo 1 > a/b/c/one; echo 2 > a/two; mv a/b a/moved; rm empty
    tar cf dir.tar --sort=name --mtime=@1 dir; mkdir out; tar xf dir.tar -C out; rm -r out/dir/inner
    for i in $(seq 40); do echo $i > a/file-$i; done; rm a/file-1?; mv -f a/file-2 a/file-3
    ln -s ../small a/link; chmod 640 a/two; printf 'x%.0s' $(seq 9000) > a/spilled
    if command -v git >/dev/null; then
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
        export GIT_AUTHOR_DATE='@1 +0000' GIT_COMMITTER_DATE='@1 +0000'
        git init -q repo; cd repo; git config user.email a@b; git config user.name n
        git config gc.auto 0; git config maintenance.auto false
        cp ../small .; git add .; git commit -qm first; echo more >> small; git commit -qam second
        git checkout -q -b other; git log --oneline | wc -l > ../commits
        git fsck >/dev/null 2>&1; cd ..
    fi
";

/// The same job, natively and in an instance, leaves the same tree.
fn expect_as_natively(scratch: &Scratch, outside: &Path) -> Result<()> {
    let native = scratch.join("native");
    plant(&native)?;
    Job::new(scratch, "native", "bash")
        .args(["-c", &format!("cd '{}'; {JOB}", native.display())])
        .run_ok()?;
    // Git's index has numbers and times of files.
    let different = &["index"];
    Tree::read(&native)?.without(different).expect_same(&Tree::read(outside)?.without(different))
}

#[test]
fn a_job_leaves_the_same_outside_as_without_mayfly() -> Result<()> {
    let _turn = Turn::take()?;
    for access in accesses() {
        let scratch = Scratch::new("tier-job")?;
        let outside = scratch.join("outside");
        plant(&outside)?;
        let script = format!("cd \"$MAYFLY_MOUNT\"; {JOB}");
        let run = Job::new(&scratch, "run", binary::mayfly()?).deadline(PATIENCE * 2);
        let run = run.args(["run", "--access", access, "--origin", text(&outside)?]);
        run.args(["--", "bash", "-c", &script]).run_ok()?;
        expect_as_natively(&scratch, &outside)?;
    }
    Ok(())
}

#[test]
fn several_origins_stand_beside_what_is_transient() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-several")?;
    let other = scratch.join("other");
    plant(&other)?;
    let outside = scratch.join("outside");
    plant(&outside)?;
    let origins = (format!("{}:in/proj", text(&outside)?), format!("{}:data,ro", text(&other)?));
    let script = "cd \"$MAYFLY_MOUNT\"; cat in/proj/small data/small; mkdir scratch; \
            cp -r data/. scratch/; echo x > scratch/small; \
            LC_ALL=C mv in/proj/small data/ 2>&1 | grep -o Read-only; \
            mv in/proj/small scratch/moved; rmdir data 2>/dev/null || echo busy";
    let run = Job::new(&scratch, "run", binary::mayfly()?).deadline(PATIENCE);
    let run = run.args(["run", "--origin", &origins.0, "--origin", &origins.1]);
    let outcome = run.args(["--", "bash", "-c", script]).run_ok()?;
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    ensure!(told == "small\nsmall\nRead-only\nbusy\n", "{told}");
    ensure!(!outside.join("small").exists() && other.join("small").exists());
    Ok(())
}

#[test]
fn nothing_is_lost_while_the_daemon_is_killed() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-kills")?;
    let bench = Bench::start(&scratch, "kills", &[])?;
    let job = || bench.sh(JOB).map(drop);
    let kills = bench.instance.beside_kills(job)?;
    bench.instance.beside_kills(|| bench.flush().map(drop))?;
    bench.instance.stop()?;
    expect_as_natively(&scratch, &bench.outside)?;
    ensure!(kills > 0, "nobody was killed");
    Ok(())
}

#[test]
fn nothing_is_lost_while_the_keeper_is_killed() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-keeper")?;
    let bench = Bench::start(&scratch, "keeper", &[])?;
    let over = std::sync::atomic::AtomicBool::new(false);
    let kills = std::thread::scope(|scope| {
        let killing = scope.spawn(|| {
            let mut kills = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(300));
                kills += u32::from(bench.keeper().is_ok_and(process::kill));
            }
            kills
        });
        let done = bench.sh(JOB).and_then(|_| bench.flush());
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let kills = killing.join().unwrap_or(0);
        done.map(|_| kills)
    })?;
    let until = Instant::now() + PATIENCE;
    while bench.keeper().is_err() {
        ensure!(Instant::now() < until, "no other keeper was started");
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.instance.stop()?;
    expect_as_natively(&scratch, &bench.outside)?;
    ensure!(kills > 0, "nobody was killed");
    Ok(())
}

#[test]
fn what_cannot_be_written_back_is_kept_with_its_instance() -> Result<()> {
    if !is_possible() {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-kept")?;
    let outside = scratch.join("outside");
    plant(&outside)?;
    let data = scratch.join("data");
    fs::create_dir(&data)?;
    let away = format!("mv {} {}", text(&outside.join("dir"))?, text(&scratch.join("away"))?);
    let script = format!("cd \"$MAYFLY_MOUNT\"; echo precious > dir/large; {away}");
    let run = Job::new(&scratch, "run", binary::mayfly()?).deadline(PATIENCE);
    let run = run.args(["run", "--data-dir", text(&data)?, "--origin", text(&outside)?]);
    let outcome = run.args(["--", "bash", "-c", &script]).run()?;
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    ensure!(outcome.code != 0 && told.contains("could not be written back"), "{told}");
    let kept = fs::read_dir(&data)?.next().context("the data are gone")??.path();
    ensure!(told.contains(&format!("--reopen {}", text(&kept)?)), "{told}");
    fs::rename(scratch.join("away"), outside.join("dir"))?;
    let later = Instance::named(&scratch, "later")?;
    later.command("start").args(["--reopen", text(&kept)?]).run_ok()?;
    later.stop()?;
    ensure!(fs::read_to_string(outside.join("dir/large"))? == "precious\n");
    Ok(())
}

#[test]
fn an_origin_that_cannot_be_shown_is_refused_before_anything_is_made() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-refused")?;
    let (there, missing) = (scratch.join("there"), scratch.join("missing"));
    fs::create_dir(&there)?;
    let (there, missing) = (text(&there)?.to_owned(), text(&missing)?.to_owned());
    let cases: [(&[&str], &str); 5] = [
        (&["--origin", &missing], "no such directory"),
        (&["--origin", &there, "--names", "spread"], "contradict"),
        (&["--origin", &there, "--durability", "none"], "contradict"),
        (&["--origin", "http://host/prefix:data"], "s3://BUCKET/PREFIX"),
        (&["--origin", &there, "--validate", "soon"], "always, never"),
    ];
    for (options, word) in cases {
        let job = Job::new(&scratch, "start", binary::mayfly()?).args(["start", "--name", "no"]);
        let outcome = job.args(options).run()?;
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        ensure!(outcome.code != 0 && told.contains(word), "{options:?}: {told}");
    }
    Ok(())
}
