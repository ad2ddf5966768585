//! What an instance was started with: kept with it, shown, and meant.

use std::fs;

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Scratch, Turn, binary, process, skip};
use serde_json::Value;

/// Makes names in a directory that another process has removed: by a path, and by a descriptor and
/// as working directory of processes that hold it.
const NAMES_IN_A_REMOVED_DIRECTORY: &str = r#"
cd "$MAYFLY_MOUNT"
mkdir gone kept; cd gone; rmdir ../gone
for try in 'echo > file' 'mkdir sub' 'ln -s x link' 'mv ../kept .' 'echo > ../gone/file'; do
    if (eval "$try") 2> /dev/null; then echo "$try: worked"; else echo "$try: refused"; fi
done
cd ..; ls -A
"#;
const REFUSED_AND_NOTHING_MADE: &str = "\
echo > file: refused
mkdir sub: refused
ln -s x link: refused
mv ../kept .: refused
echo > ../gone/file: refused
kept";

fn start(scratch: &Scratch, name: &str, options: &[&str]) -> Result<()> {
    let start = Instance::named(scratch, name)?.command("start").args(options);
    start.run_ok().map(drop)
}

/// What `mayfly status` says to people.
fn shown(instance: &Instance<'_>) -> Result<String> {
    let outcome = instance.command("status").run_ok()?;
    Ok(String::from_utf8_lossy(&outcome.stdout).into_owned())
}

fn expect_parent_check_off(instance: &Instance<'_>) -> Result<()> {
    let status = instance.status()?;
    let option = status.pointer("/options/parent_check");
    ensure!(option == Some(&false.into()), "the option is {option:?}");
    let text = shown(instance)?;
    ensure!(text.contains("parent-check off"), "status does not show it:\n{text}");
    Ok(())
}

#[test]
fn parent_check_off_is_kept_shown_and_loosens_nothing_on_one_node() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("opt-parent")?;
    let data = scratch.join("data");
    let data = data.to_str().context("a path of this suite is text")?;
    start(&scratch, "off", &["--parent-check", "off", "--keep", "--data-dir", data])?;
    let instance = Instance::named(&scratch, "off")?;
    expect_parent_check_off(&instance)?;
    let found = instance.shell("names", NAMES_IN_A_REMOVED_DIRECTORY).run_ok()?;
    let found = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    ensure!(found == REFUSED_AND_NOTHING_MADE, "names in a removed directory:\n{found}");
    instance.stop()?;
    let kept = fs::read_dir(data)?.next().context("the data are gone")??.path();
    let kept = kept.to_str().context("a path of this suite is text")?;
    start(&scratch, "off", &["--reopen", kept])?;
    expect_parent_check_off(&instance)?;
    instance.stop()
}

#[test]
fn help_says_what_parent_check_off_allows() -> Result<()> {
    let scratch = Scratch::new("opt-help")?;
    let mayfly = mayfly_testkit::binary::mayfly()?;
    let help = Job::new(&scratch, "help", mayfly).args(["start", "--help"]).run_ok()?;
    let text = String::from_utf8_lossy(&help.stdout);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(text.contains("off allows daemons not to ask each other"), "{text}");
    Ok(())
}

#[test]
fn a_saved_tree_has_the_extended_attributes_of_its_files_and_directories() -> Result<()> {
    if !skip::unless_installed("saved attributes", &["python3"], "python3") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("opt-save")?;
    let saved = scratch.join("saved");
    let program = "import os
os.mkdir('sub'); open('sub/file', 'w').close(); open('plain', 'w').close()
os.setxattr('sub', 'user.of', b'a directory')
os.setxattr('sub/file', 'user.of', b'a file')
os.setxattr('sub/file', 'user.empty', b'')
os.setxattr('sub/file', 'user.large', bytes(range(256)) * 8)
os.chmod('sub/file', 0o400)";
    let shell = "cd \"$MAYFLY_MOUNT\" && exec python3 -c \"$0\"";
    let arguments = ["run".as_ref(), "--save".as_ref(), saved.as_os_str(), "--".as_ref()];
    let job = Job::new(&scratch, "save", mayfly_testkit::binary::mayfly()?).args(arguments);
    job.args(["sh", "-c", shell, program]).run_ok()?;
    let read = |path: &str, name: &str| -> Result<Vec<u8>> {
        let mut value = vec![0; 8192];
        let bytes = rustix::fs::getxattr(saved.join(path), name, &mut value[..])
            .with_context(|| format!("{name} of {path}"))?;
        value.truncate(bytes);
        Ok(value)
    };
    ensure!(read("sub", "user.of")? == b"a directory");
    ensure!(read("sub/file", "user.of")? == b"a file");
    ensure!(read("sub/file", "user.empty")?.is_empty());
    let large: Vec<u8> = (0..8).flat_map(|_| 0..=255).collect();
    ensure!(read("sub/file", "user.large")? == large);
    let mut names = [0; 256];
    ensure!(rustix::fs::listxattr(saved.join("plain"), &mut names[..])? == 0);
    Ok(())
}

/// The processors on which a thread may run.
fn processors_of(thread: u32) -> Result<String> {
    process::field(thread, "Cpus_allowed_list").context("no such field")
}

#[test]
fn the_daemon_keeps_to_the_processors_that_it_was_given_and_an_absent_one_is_named() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("cpus")?;
    start(&scratch, "cpus", &["--cpus", "0", "--io-threads", "1"])?;
    let instance = Instance::named(&scratch, "cpus")?;
    instance.shell("use", r#"seq 10000 > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let daemon = instance.daemon_pid()?;
    let threads = process::threads(daemon);
    ensure!(!threads.is_empty(), "the daemon is gone");
    for thread in threads {
        ensure!(processors_of(thread)? == "0", "a thread runs elsewhere");
    }
    ensure!(processors_of(std::process::id())? != "0", "nothing was to be seen");
    instance.stop()?;
    let refused = Instance::named(&scratch, "none")?.command("start").args(["--cpus", "1023"]);
    let outcome = refused.run()?;
    let error = String::from_utf8_lossy(&outcome.stderr);
    ensure!(outcome.code == 1 && error.contains("processor 1023 is not there"), "{error}");
    Ok(())
}

/// Each node's directory is filled by another node, so that all talk to all.
#[test]
fn several_network_threads_serve_as_one_does_and_a_number_that_cannot_be_is_refused() -> Result<()>
{
    const NODES: usize = 4;
    let _turn = Turn::take()?;
    let scratch = Scratch::new("network-threads")?;
    start(&scratch, "net", &["--nodes", "local:4", "--network-threads", "2"])?;
    let instance = Instance::named(&scratch, "net")?;
    for node in 0..NODES {
        let daemon = instance.daemon_pid_of(node)?;
        let name = |thread| fs::read_to_string(format!("/proc/{daemon}/task/{thread}/comm"));
        let names: Vec<String> = process::threads(daemon).into_iter().flat_map(name).collect();
        let count = names.iter().filter(|name| name.trim() == "mayfly-net").count();
        ensure!(count == 2, "node {node} has {names:?}");
        instance.on_node(node, &format!(r#"mkdir "$MAYFLY_MOUNT/of{node}""#))?;
    }
    for node in 0..NODES {
        for of in 0..NODES {
            let fill = format!(
                r#"cd "$MAYFLY_MOUNT/of{of}" && for f in $(seq 20); do
                seq 2000 > by{node}.$f || exit 1; done"#
            );
            instance.on_node(node, &fill)?;
        }
    }
    let look = r#"cd "$MAYFLY_MOUNT" && find . -type f | wc -l && cat of*/by* | sort -n | uniq -c |
        awk '{print $1}' | sort -u"#;
    for node in 0..NODES {
        let said = instance.on_node(node, look)?;
        ensure!(said.split_whitespace().eq(["320", "320"]), "node {node}: {said}");
    }
    instance.stop()?;
    for (options, why) in [
        (&["--network-threads", "2"][..], "--network-threads is for several nodes"),
        (&["--nodes", "local:2", "--network-threads", "0"], "0 is not in 1..=16"),
    ] {
        let refused = Instance::named(&scratch, "none")?.command("start").args(options);
        let outcome = refused.run()?;
        let error = String::from_utf8_lossy(&outcome.stderr);
        ensure!(outcome.code != 0 && error.contains(why), "{error}");
    }
    Ok(())
}

/// Objects below the instance's directory in `place`.
fn objects_in(place: &std::path::Path) -> Result<usize> {
    let mut count = 0;
    for instance in fs::read_dir(place)? {
        for part in fs::read_dir(instance?.path().join("objects"))? {
            let part = part?;
            if part.file_type()?.is_dir() {
                count += fs::read_dir(part.path())?.count();
            }
        }
    }
    Ok(count)
}

#[test]
fn several_data_directories_share_the_files_and_nothing_is_left_in_any() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("data-dirs")?;
    let places = ["a", "b", "c"].map(|name| scratch.join(name));
    for place in &places {
        fs::create_dir(place)?;
    }
    let [a, b, c] = places.each_ref().map(|place| place.display().to_string());
    let (fast, slow) = (format!("nvme={a},{b}"), format!("ssd={c}"));
    start(&scratch, "wide", &["--data-dir", &fast, "--data-dir", &slow])?;
    let instance = Instance::named(&scratch, "wide")?;
    let make = r#"cd "$MAYFLY_MOUNT"; for i in $(seq 60); do
        { echo $i; head -c 300000 /dev/zero; echo end $i; } > $i; done; cp /bin/true run; ./run"#;
    instance.shell("make", make).run_ok()?;
    let counts = places.iter().map(|place| objects_in(place)).collect::<Result<Vec<_>>>()?;
    ensure!(counts.iter().all(|count| *count > 5), "not spread: {counts:?}");
    let text = shown(&instance)?;
    for words in [format!("{b}/mayfly-"), "(nvme)".to_owned(), "(ssd)".to_owned()] {
        ensure!(text.contains(&words), "status does not show {words}:\n{text}");
    }
    mayfly_testkit::process::kill(instance.daemon_pid()?);
    let look = r#"cd "$MAYFLY_MOUNT"; for i in $(seq 60); do
        tail -c 3 $i | tr -dc '0-9\n'; rm $i; done"#;
    let found = String::from_utf8(instance.shell("look", look).run_ok()?.stdout)?;
    let expected: String = (1..=60).map(|i| format!("{i}\n")).collect();

    ensure!(found == expected, "{found}");
    instance.stop()?;
    for place in &places {
        ensure!(fs::read_dir(place)?.next().is_none(), "something is left in {}", place.display());
    }
    Ok(())
}

/// What `mayfly doctor --json` says of one need.
fn finding<'a>(report: &'a Value, subject: &str) -> Result<&'a Value> {
    let findings = report["machine"].as_array().context("a list")?;
    let found = findings.iter().find(|finding| finding["subject"] == subject);
    found.with_context(|| format!("nothing of {subject}: {report}"))
}

#[test]
fn doctor_says_what_a_machine_lacks_and_what_to_do() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("doctor")?;
    let mayfly = binary::mayfly()?;
    let job = Job::new(&scratch, "here", &mayfly).args(["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&job.run_ok()?.stdout)?;
    ensure!(finding(&report, "kernel")?["level"] == "fine", "{report}");
    ensure!(report["dead_instances"] == serde_json::json!([]), "{report}");
    // Without programs to find, few descriptors, and a run directory that cannot be.
    let script = format!("ulimit -n 300; PATH={} exec \"$0\" \"$@\"", scratch.path().display());
    let poor = |name: &str, options: &[&str]| {
        let job = Job::new(&scratch, name, "sh").args(["-c", &script]).args([&mayfly]);
        let job = job.args(["doctor"]).args(options);
        job.env("MAYFLY_RUN_ROOT", "/dev/null/of/it").run()
    };
    let outcome = poor("poor-json", &["--json"])?;
    let report: Value = serde_json::from_slice(&outcome.stdout)?;
    ensure!(outcome.code == 1, "{outcome:?}");
    for (subject, level, advice) in [
        ("run directory", "missing", "MAYFLY_RUN_ROOT"),
        ("descriptors", "less", "some 100 processes"),
        ("several nodes", "less", "--launcher"),
    ] {
        let found = finding(&report, subject)?;
        let said = found["advice"].as_str().unwrap_or_default();
        ensure!(found["level"] == level && said.contains(advice), "{found}");
    }
    let outcome = poor("poor", &[])?;
    let (said, told) = (outcome.stdout, outcome.stderr);
    let (said, told) = (String::from_utf8_lossy(&said), String::from_utf8_lossy(&told));
    ensure!(said.contains("missing run directory"), "{said}");
    ensure!(told.contains("does not start here: run directory"), "{told}");
    Ok(())
}

#[test]
fn a_command_that_names_no_instance_means_the_one_around_it() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("around")?;
    let mayfly = binary::mayfly()?;
    for options in [&["--access", "auto"][..], &["--access", "preload", "--nodes", "local:2"]] {
        let script = "mkdir \"$MAYFLY_MOUNT/made\" && echo text > \"$MAYFLY_MOUNT/made/file\"
            \"$0\" stage out --quiet made made && \"$0\" env | grep MOUNT && \"$0\" fsck | tail -n 1
            \"$0\" env --name default";
        let job = Job::new(&scratch, "run", &mayfly).args(["run"]).args(options);
        let job = job.args(["--", "sh", "-c", script]).args([&mayfly]);
        let outcome = job.run()?;
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        ensure!(said.starts_with("export MAYFLY_MOUNT="), "{options:?}: {said}{told}");
        ensure!(told.contains("no instance \"default\""), "{options:?}: {said}{told}");
        ensure!(fs::read_to_string(scratch.join("made/file"))? == "text\n", "{said}{told}");
        fs::remove_dir_all(scratch.join("made"))?;
    }
    Ok(())
}

/// The guide said which variables to unset; whoever forgot one read a complaint of ld.so for each
/// program that was started afterwards.
#[test]
fn a_shell_that_takes_the_variables_back_has_nothing_of_the_instance() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("env-unset")?;
    let mayfly = binary::mayfly()?;
    let script = r#"
        unset LD_LIBRARY_PATH
        [ -z "$1" ] || export LD_PRELOAD="$1"
        before=$(env | grep -E '^(LD_|MAYFLY_)' | sort)
        "$0" start --name back >/dev/null
        mount=$("$0" env --name back | sed -n "s/^export MAYFLY_MOUNT='\(.*\)'/\1/p")
        export LD_LIBRARY_PATH="$mount" # Then LD_AUDIT is set, too.
        eval "$("$0" env --name back)"
        echo text > "$MAYFLY_MOUNT/file"
        "$0" stop --name back
        eval "$("$0" env --unset 2>/dev/null)"
        unset LD_LIBRARY_PATH
        exec 2>&1
        /bin/true
        [ "$before" = "$(env | grep -E '^(LD_|MAYFLY_)' | sort)" ] || env | grep -E '^(LD_|MAYFLY_)'
        eval "$("$0" env --unset)"
        unset LD_PRELOAD
        "$0" env --unset"#;
    for other in ["", "/lib/x86_64-linux-gnu/libm.so.6"] {
        let job = Job::new(&scratch, "unset", "sh").args(["-c", script]).args([&mayfly]);
        let outcome = job.args([other]).run_ok()?;
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let last = "unset MAYFLY_MOUNT MAYFLY_RUN MAYFLY_IMAGES MAYFLY_OBJECTS MAYFLY_DAEMONS \
                    MAYFLY_DAEMON\n";
        ensure!(said == last, "preloading {other:?}: {said}");
    }
    Ok(())
}

/// `mayfly metrics | head` ended with an error of ours: "Broken pipe".
#[test]
fn a_reader_that_has_seen_enough_is_no_error() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("reader")?;
    let instance = Instance::start(&scratch, "reader", &scratch.join("mount"))?;
    instance.shell("work", r#"seq 1000 > "$MAYFLY_MOUNT/file""#).run_ok()?;
    let mayfly = binary::mayfly()?;
    // The reader has gone before anything is printed.
    let script = r#"mayfly=$0; { sleep 0.2; exec "$mayfly" "$@"; } | true
        case ${PIPESTATUS[0]} in 0|141) ;; *) exit 1;; esac"#;
    let named = ["--name", "reader"];
    let commands: [(&[&str], bool); 16] = [
        (&["metrics"], true),
        (&["metrics", "--reference"], false),
        (&["status"], true),
        (&["status", "--json"], true),
        (&["env"], true),
        (&["env", "--plain"], true),
        (&["env", "--json"], true),
        (&["env", "--container", "bwrap"], true),
        (&["logs"], true),
        (&["report"], true),
        (&["top", "--once"], true),
        (&["top", "--json"], true),
        (&["fsck"], true),
        (&["stage", "status"], true),
        (&["doctor"], false),
        (&["help", "trouble"], false),
    ];
    for (command, of_one) in commands {
        let job = Job::new(&scratch, command[0], "bash").args(["-c", script]).args([&mayfly]);
        let outcome = job.args(command).args(named.iter().filter(|_| of_one)).run()?;
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let quiet = !["Broken pipe", "panicked"].iter().any(|word| told.contains(word));
        ensure!(outcome.code == 0 && quiet, "{command:?} ended with {}: {told}", outcome.code);
    }
    instance.stop()
}
