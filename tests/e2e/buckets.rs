//! Trees go to an object store and come from it: to a real server of S3, which keeps its objects in
//! a directory.

use std::fs;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Outcome, Scratch, Turn, process};
use mayfly_tests::stages::{Bench, events, until};
use serde_json::Value;

#[path = "buckets/server.rs"]
mod server;

use server::Server;

impl Server {
    fn run(&self, bench: &Bench<'_>, direction: &str, arguments: &[&str]) -> Result<Outcome> {
        self.known(bench.job(direction, &["--json"])?.args(arguments)).run()
    }

    /// The last event.
    fn counted(
        &self,
        bench: &Bench<'_>,
        code: i32,
        direction: &str,
        arguments: &[&str],
    ) -> Result<Value> {
        let outcome = self.run(bench, direction, arguments)?;
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        ensure!(outcome.code == code, "status {}: {said} {:?}", outcome.code, events(&outcome)?);
        events(&outcome)?.pop().with_context(|| format!("no events: {said}"))
    }
}

const MAKE: &str =
    "cd $MAYFLY_MOUNT; mkdir -p r/a/b r/none; printf one > r/x.h5; printf two > r/a/y.log
    printf three > 'r/a/b/odd ~%*#[é].h5'; : > r/a/empty; chmod 751 r/x.h5
    touch -d '2020-02-03 04:05:06.123456789' r/x.h5; ln -s x.h5 r/link
    head -c 40000000 /dev/urandom > r/a/large; ln r/x.h5 r/a/other";

#[test]
fn what_goes_to_a_bucket_and_comes_back_is_the_same() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("buckets-same")?;
    let server = Server::start(&scratch)?;
    let bench = Bench::start(&scratch, "same", &[])?;
    bench.instance.shell("make", MAKE).run_ok()?;
    let outcome = server.run(&bench, "out", &["--verify", "r", "s3://data/run"])?;
    let told = events(&outcome)?;
    let of = |kind: &str| told.iter().filter(|event| event["event"] == kind).count();
    ensure!(outcome.code == 0, "status {}: {told:?}", outcome.code);
    // The link, the empty directory, and that two names are one file.
    ensure!(of("left_out") == 2 && of("not_kept") == 2, "{told:?}");
    ensure!(told.last().is_some_and(|end| end["files"] == 6), "{told:?}");
    ensure!(fs::read(scratch.join("s3/data/run/x.h5"))? == b"one");

    let back = server.counted(&bench, 0, "in", &["--verify", "s3://data/run", "back"])?;
    ensure!(back["files"] == 6, "{back}");
    let compare = "cd $MAYFLY_MOUNT; rm r/link; rmdir r/none; diff -r r back &&
        stat -c '%a %.9Y' r/x.h5 back/x.h5 | uniq | wc -l; ls -A back back/a | grep -c mayfly-";
    let same = bench.instance.shell("compare", compare).run()?.stdout;
    ensure!(same == b"1\n0\n", "{}", String::from_utf8_lossy(&same));
    // One object, and those of a pattern.
    server.counted(&bench, 0, "in", &["s3://data/run/x.h5", "single"])?;
    let some = server.counted(&bench, 0, "in", &["--include", "*.h5", "s3://data/run", "some"])?;
    ensure!(some["files"] == 2, "{some}");
    let single = bench.instance.shell("single", "cat $MAYFLY_MOUNT/single").run_ok()?.stdout;
    ensure!(single == b"one");
    bench.instance.stop()
}

#[test]
fn only_what_changed_goes_to_a_bucket_and_strays_only_when_asked_for() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("buckets-changed")?;
    let server = Server::start(&scratch)?;
    let bench = Bench::start(&scratch, "changed", &[])?;
    let make =
        "cd $MAYFLY_MOUNT; mkdir -p r/a; for i in 1 2 3; do echo $i > r/$i; done; echo 4 > r/a/4";
    bench.instance.shell("make", make).run_ok()?;
    let all = server.counted(&bench, 0, "out", &["r", "s3://data/run"])?;
    ensure!(all["files"] == 4, "{all}");
    let none = server.counted(&bench, 0, "out", &["--changed", "r", "s3://data/run"])?;
    ensure!(none["files"] == 0 && none["unchanged"] == 4, "{none}");
    let change = "cd $MAYFLY_MOUNT/r; rm 1; echo longer > 2; mv a/4 a/5";
    bench.instance.shell("change", change).run_ok()?;
    let strays = ["--changed", "--delete", "--dry-run", "r", "s3://data/run"];
    let dry = server.run(&bench, "out", &strays)?;
    let gone = |event: &Value| event["event"] == "would_delete";
    ensure!(events(&dry)?.iter().filter(|event| gone(event)).count() == 2, "{:?}", events(&dry)?);
    ensure!(scratch.join("s3/data/run/1").exists());
    let some =
        server.counted(&bench, 0, "out", &["--changed", "--delete", "r", "s3://data/run"])?;
    ensure!(some["files"] == 2 && some["deleted"] == 2, "{some}");
    ensure!(!scratch.join("s3/data/run/1").exists() && !scratch.join("s3/data/run/a/4").exists());
    let back = server.counted(&bench, 0, "in", &["s3://data/run", "back"])?;
    ensure!(back["files"] == 3, "{back}");
    let again = server.counted(&bench, 0, "in", &["--changed", "s3://data/run", "back"])?;
    ensure!(again["files"] == 0 && again["unchanged"] == 3, "{again}");
    bench.instance.stop()
}

#[test]
fn what_a_bucket_refuses_is_named_and_a_stage_that_was_killed_goes_on() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("buckets-fails")?;
    let server = Server::start(&scratch)?;
    let bench = Bench::start(&scratch, "fails", &[])?;
    let make = "cd $MAYFLY_MOUNT; mkdir r; for i in $(seq 200); do echo $i > r/$i; done
        echo x > \"r/new
line\"";
    bench.instance.shell("make", make).run_ok()?;
    let pace = ["--files-per-second", "100", "r", "s3://data/run"];
    let running = server.known(bench.job("out", &pace)?).start()?;
    let there = || fs::read_dir(scratch.join("s3/data/run")).map_or(0, Iterator::count);
    until("some are there", || Ok(there() > 20))?;
    process::kill(running.pid());
    running.wait()?;
    let done = there() as u64;
    let rest = server.counted(&bench, 3, "out", &["r", "s3://data/run"])?;
    let files = rest["files"].as_u64().context("a number")?;
    ensure!(rest["failed"] == 1 && files <= 200 - done + 20, "{done} were there: {rest}");
    ensure!(there() == 200);

    let wrong = bench.job("out", &["--json", "r", "s3://data/wrong"])?;
    let wrong = server.known(wrong).env("AWS_SECRET_ACCESS_KEY", "another").run()?;
    let told = events(&wrong)?;
    let failed = told.iter().find(|event| event["event"] == "failed").context("a failure")?;
    ensure!(wrong.code == 3 && failed["errno"] == "EACCES", "{failed}");
    let text = String::from_utf8_lossy(&wrong.stdout).into_owned()
        + &String::from_utf8_lossy(&wrong.stderr);
    ensure!(!text.contains("another"), "a secret was told");
    let none = server.counted(&bench, 3, "in", &["s3://nosuch/run", "none"])?;
    ensure!(none["failed"] == 1, "{none}");
    let every = bench.job("every", &["1h", "r", "s3://data/r"])?;
    ensure!(server.known(every).run()?.code == 1);
    bench.instance.stop()
}
