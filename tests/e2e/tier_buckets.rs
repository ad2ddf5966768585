//! Origins in an object store: a prefix in a bucket of a real server of S3, shown as a directory.

use std::{fs, ops::Deref};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn};

#[path = "tier/bench.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod bench;
#[path = "buckets/server.rs"]
mod server;

use bench::Bench;
use server::Server;

/// An instance that shows the prefix `run` of the bucket; outside is what the server keeps of it.
struct Bucket<'a> {
    server: Server,
    bench: Bench<'a>,
}

impl<'a> Deref for Bucket<'a> {
    type Target = Bench<'a>;

    fn deref(&self) -> &Bench<'a> {
        &self.bench
    }
}

impl<'a> Bucket<'a> {
    fn start(
        scratch: &'a Scratch,
        name: &str,
        ending: &str,
        options: &[&str],
    ) -> Result<Bucket<'a>> {
        let server = Server::start(scratch)?;
        let objects = scratch.join("s3/data/run");
        fs::create_dir_all(objects.join("sets/a"))?;
        fs::write(objects.join("small"), "small\n")?;
        let large: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        fs::write(objects.join("sets/a/large"), large)?;
        fs::write(scratch.join("s3/data/beside"), "not of the prefix")?;
        let instance = Instance::named(scratch, name)?;
        let origin = format!("s3://data/run{ending}");
        let start = instance.command("start").args(["--origin", &origin]).args(options);
        server.known(start).run_ok()?;
        Ok(Bucket { server, bench: Bench { scratch, outside: objects, instance } })
    }

    fn object(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.outside.join(path)).with_context(|| format!("object {path}"))
    }
}

#[test]
fn a_bucket_is_seen_as_a_tree_whose_bytes_are_fetched_when_they_are_read() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-seen")?;
    for ending in [":proj", ":proj,ro"] {
        let name = if ending.ends_with("ro") { "seen-ro" } else { "seen" };
        let bench = Bucket::start(&scratch, name, ending, &[])?;
        bench.expect(
            "find proj | LC_ALL=C sort | tr '\\n' ' '",
            "proj proj/sets proj/sets/a proj/sets/a/large proj/small ",
        )?;
        bench.expect("stat -c '%s %F' proj/small proj/sets", "6 regular file\n4096 directory\n")?;
        ensure!(bench.origin("cached_bytes")? == 0, "nothing was read so far");
        let at = |at: u32| at % 251;
        let end = [19_999_997, 19_999_998, 19_999_999].map(at);
        let end = format!("small\n {:3} {:3} {:3}\n", end[0], end[1], end[2]);
        bench.expect("cat proj/small; tail -c 3 proj/sets/a/large | od -An -tu1", &end)?;
        let cached = bench.origin("cached_bytes")?;
        ensure!(cached < 20_000_000, "{cached} bytes are here of a file whose end was read");
        let job = Job::new(&scratch, "sum", "cksum").args([bench.outside.join("sets/a/large")]);
        let said = String::from_utf8(job.run_ok()?.stdout)?;
        let sum = said.rsplit_once(' ').context("cksum names its file")?.0;
        bench.expect("cksum < proj/sets/a/large", &format!("{sum}\n"))?;
        bench.expect("cat proj/none 2>/dev/null || echo none", "none\n")?;
        if ending.ends_with("ro") {
            bench.expect("touch proj/x 2>&1 | grep -c Read-only", "1\n")?;
        }
        // What somebody else puts there appears, and what is gone goes.
        fs::write(bench.outside.join("late"), "late\n")?;
        fs::remove_file(bench.outside.join("small"))?;
        bench.expect("sleep 1.2; ls proj; cat proj/late", "late\nsets\nlate\n")?;
        fs::write(bench.outside.join("late"), "another\n")?;
        bench.expect("sleep 1.2; cat proj/late", "another\n")?;
        bench.instance.stop()?;
        drop(bench.server);
        fs::remove_dir_all(scratch.join("s3"))?;
    }
    Ok(())
}

#[test]
fn what_is_written_is_in_the_bucket_after_the_end() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-written")?;
    let bench = Bucket::start(&scratch, "written", "", &[])?;
    bench.sh("mkdir -p out/none out/some; printf one > out/one; printf two > out/some/two
         chmod 750 out/one; touch -d '2020-02-03 04:05:06.5' out/one
         head -c 30000000 /dev/zero | tr '\\0' x > out/big
         mv small out/moved; printf more >> sets/a/large; printf gone > gone; rm gone")?;
    ensure!(bench.origin("dirty_files")? > 0);
    let flushed = bench.tier(&["flush"])?.run()?;
    ensure!(flushed.code == 0, "{}", String::from_utf8_lossy(&flushed.stderr));
    ensure!(bench.origin("dirty_files")? == 0);
    ensure!(bench.object("out/one")? == b"one" && bench.object("out/some/two")? == b"two");
    ensure!(bench.object("out/big")? == vec![b'x'; 30_000_000], "other bytes are there");
    ensure!(bench.object("out/moved")? == b"small\n");
    let large = bench.object("sets/a/large")?;
    ensure!(large.len() == 20_000_004 && large.ends_with(b"more"), "{} bytes", large.len());
    ensure!(!bench.outside.join("gone").exists() && !bench.outside.join("small").exists());
    // What is refused has an errno that programs know.
    bench.expect("ln -s a link 2>&1 | grep -c 'not permitted'", "1\n")?;
    bench.expect("mv sets sets2 && ls sets2/a && ls", "large\nout\nsets2\n")?;
    bench.instance.stop()?;

    // The next instance sees all of it: also modes, times and the empty directory.
    let again = Instance::named(&scratch, "again")?;
    let start = again.command("start").args(["--origin", "s3://data/run"]);
    bench.server.known(start).run_ok()?;
    let Bucket { server, bench } = bench;
    let bench = Bucket { server, bench: Bench { instance: again, ..bench } };
    bench
        .expect("ls -d out/none out/some; stat -c '%a %.1Y' out/one; cat out/one; ls sets2/a", {
            "out/none\nout/some\n750 1580702706.5\nonelarge\n"
        })?;
    bench.expect("rm -r out/some sets2; ls; ls out", "out\nbig\nmoved\nnone\none\n")?;
    bench.instance.stop()
}

#[test]
fn two_changes_of_an_object_are_both_kept() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-conflict")?;
    let bench = Bucket::start(&scratch, "conflict", "", &[])?;
    bench.sh("echo ours >> small")?;
    fs::write(bench.outside.join("small"), "theirs\n")?;
    let flushed = bench.tier(&["flush"])?.run()?;
    let said = String::from_utf8_lossy(&flushed.stderr);
    ensure!(said.contains("small.mayfly-conflict-"), "status {}: {said}", flushed.code);
    ensure!(bench.object("small")? == b"theirs\n");
    bench.expect("sleep 1.2; cat small; cat small.mayfly-conflict-*", "theirs\nsmall\nours\n")?;
    bench.instance.stop()
}

#[test]
fn a_keeper_that_is_killed_while_it_puts_objects_loses_none_and_finds_no_conflict() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-kills")?;
    let bench = Bucket::start(&scratch, "kills", "", &[])?;
    for round in 0..4 {
        bench.sh(&format!("for i in $(seq 60); do echo {round} $i > file-$i; done"))?;
        let kills = bench.instance.beside_kills(|| {
            for _ in 0..20 {
                let flushed = bench.tier(&["flush"])?.run()?;
                if flushed.code == 0 {
                    return Ok(());
                }
            }
            anyhow::bail!("never flushed")
        })?;
        eprintln!("round {round}: {kills} kills");
        ensure!(bench.origin("conflicts")? == 0, "its own change was taken for somebody else's");
        for number in 1..=60 {
            let object = bench.object(&format!("file-{number}"))?;
            ensure!(
                object == format!("{round} {number}\n").as_bytes(),
                "file-{number}: {object:?}"
            );
        }
    }
    bench.instance.stop()
}

#[test]
fn a_bucket_that_cannot_be_reached_is_told_before_anything_starts() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-none")?;
    let server = Server::start(&scratch)?;
    let instance = Instance::named(&scratch, "none")?;
    let start = instance.command("start").args(["--origin", "s3://nowhere/x"]);
    let refused = server.known(start).run()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.code != 0 && said.contains("s3://nowhere/x"), "{said}");
    ensure!(said.contains("AWS_ENDPOINT_URL"), "it does not say what to do: {said}");
    Ok(())
}

#[test]
fn a_bucket_is_shown_by_several_nodes_and_has_what_each_has_written() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("tier-bucket-nodes")?;
    let bench = Bucket::start(&scratch, "several", ":in", &["--nodes", "local:3"])?;
    let on = |node: usize, script: &str| {
        bench.instance.on_node(node, &format!("cd \"$MAYFLY_MOUNT/in\" && {{ {script}\n}}"))
    };
    for node in 0..3 {
        let said = on(node, "cat small; tail -c 100 sets/a/large | wc -c")?;
        ensure!(said.starts_with("small\n") && said.ends_with("\n100"), "node {node}: {said:?}");
        on(node, &format!("mkdir d{node}; echo {node} > d{node}/own; echo {node} >> small"))?;
    }
    ensure!(on(1, "cat d0/own d2/own small")? == "0\n2\nsmall\n0\n1\n2");
    let flushed = bench.tier(&["flush"])?.run()?;
    ensure!(flushed.code == 0, "{}", String::from_utf8_lossy(&flushed.stderr));
    ensure!(bench.object("d2/own")? == b"2\n" && bench.object("small")? == b"small\n0\n1\n2\n");
    on(2, "rm d0/own; rmdir d0; mv d1/own d1/moved")?;
    bench.instance.stop()?;
    ensure!(!bench.outside.join("d0/own").exists() && bench.object("d1/moved")? == b"1\n");
    Ok(())
}
