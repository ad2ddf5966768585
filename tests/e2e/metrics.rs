//! What `mayfly metrics` says of a job is what the job has done.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use mayfly_testkit::{Instance, Job, Running, Scratch, Turn, binary, port, process, skip};
use mayfly_tests::mount::wait_until;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(15);

/// The value of the sample that a line begins with, all labels included.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

/// The sum of all samples with these words in their labels.
fn sum(text: &str, name: &str, words: &[&str]) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn metrics(instance: &Instance<'_>, options: &[&str]) -> Result<String> {
    Ok(String::from_utf8(instance.command("metrics").args(options).run_ok()?.stdout)?)
}

/// Lists and looks: more than the readers of records need ask for.
const WORK: &str = "cd \"$MAYFLY_MOUNT\" && mkdir d && for i in $(seq 40); do mkdir d/sub$i; \
                    chmod 700 d/sub$i; done; cat none 2> /dev/null; ln d none 2> /dev/null; \
                    head -c 300000 /dev/zero > d/large; mv d/large large; rmdir d/sub1";

#[test]
fn metrics_count_what_programs_have_done_on_every_node() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("metrics")?;
    for (name, options) in [("one", &[][..]), ("two", &["--nodes", "local:2"])] {
        let instance = Instance::named(&scratch, name)?;
        instance.command("start").args(options).run_ok()?;
        let before = metrics(&instance, &[])?;
        instance.shell("work", WORK).run_ok()?;
        let after = metrics(&instance, &["--all-nodes"])?;
        let nodes = if name == "one" { 1.0 } else { 2.0 };
        ensure!(sum(&after, "mayfly_up", &[]) == nodes, "{after}");
        let grown =
            |metric: &str, words: &[&str]| sum(&after, metric, words) - sum(&before, metric, words);
        // Directories inside new ones are not waited for on one node.
        let made = grown("mayfly_answers_total", &["op=\"make_directory\""])
            + grown("mayfly_unawaited_total", &["op=\"mkdir\""]);
        ensure!(made >= 41.0, "{made} directories made: {after}");
        ensure!(grown("mayfly_answers_total", &["op=\"set_attr\""]) >= 40.0, "{after}");
        ensure!(grown("mayfly_answers_total", &["op=\"rename\""]) >= 1.0, "{after}");
        ensure!(grown("mayfly_errors_total", &["errno=\"EPERM\""]) >= 1.0, "{after}");
        ensure!(grown("mayfly_directories", &[]) == 40.0, "{after}");
        ensure!(sum(&after, "mayfly_used_bytes", &[]) >= 300_000.0, "{after}");
        ensure!(sum(&after, "mayfly_resident_bytes", &["daemon"]) > 1e6, "{after}");
        ensure!(!after.contains('/') || !after.contains(&*scratch.path().to_string_lossy()));
        instance.stop()?;
    }
    Ok(())
}

#[test]
fn counters_go_on_when_the_daemon_is_killed_and_a_dead_instance_is_down() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("metrics-kill")?;
    let instance = Instance::named(&scratch, "kill")?;
    instance.command("start").run_ok()?;
    instance.shell("work", WORK).run_ok()?;
    let of = |text: &str| sum(text, "mayfly_answers_total", &["op=\"set_attr\""]);
    let before = of(&metrics(&instance, &[])?);
    let status = instance.status()?;
    let daemon = status.pointer("/daemon_pid").and_then(serde_json::Value::as_u64);
    process::kill(daemon.context("no daemon")? as u32);
    instance.shell("again", "chmod 711 \"$MAYFLY_MOUNT/d\"").run_ok()?;
    let text = metrics(&instance, &[])?;
    ensure!(of(&text) > before, "{before}: {text}");
    ensure!(sum(&text, "mayfly_restarts_total", &[]) == 1.0, "{text}");
    let supervisor = status.pointer("/processes/0/pid").and_then(serde_json::Value::as_u64);
    process::kill(supervisor.context("no supervisor")? as u32);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = metrics(&instance, &[])?;
        if value(&text, "mayfly_up{name=\"kill\",node=\"0\"}") == Some(0.0) {
            break;
        }
        ensure!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let clean = Job::new(&scratch, "clean", binary::mayfly()?).args(["doctor", "--clean"]);
    clean.run_ok().map(drop)
}

fn get(port: u16, path: &str) -> Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    write!(connection, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{accept}\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn metrics_are_scraped_by_http_and_written_as_whole_files() -> Result<()> {
    let _turn = Turn::take()?;
    let scratch = Scratch::new("metrics-http")?;
    let instance = Instance::named(&scratch, "http")?;
    instance.command("start").run_ok()?;
    let port = port::free()?;
    let job = Job::new(&scratch, "listen", binary::mayfly()?).args(["metrics", "--listen"]);
    let listener = job.args([port.to_string()]).start()?;
    let deadline = Instant::now() + PATIENCE;
    let text = loop {
        match get(port, "/metrics") {
            Ok(text) => break text,
            Err(error) => ensure!(Instant::now() < deadline, "{error:#}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(text.starts_with("HTTP/1.0 200") || text.starts_with("HTTP/1.1 200"), "{text}");
    ensure!(text.contains("application/openmetrics-text; version=1.0.0"), "{text}");
    ensure!(text.ends_with("# EOF\n"), "{text}");
    ensure!(value(&text, "mayfly_up{name=\"http\",node=\"0\"}") == Some(1.0), "{text}");
    ensure!(get(port, "/other")?.contains(" 404 "), "there is one page");
    process::kill(listener.pid());
    let file = scratch.join("mayfly.prom");
    let path = file.to_str().context("a path of this suite is text")?;
    instance.command("metrics").args(["--output", path]).run_ok()?;
    let written = fs::read_to_string(&file)?;
    ensure!(value(&written, "mayfly_up{name=\"http\",node=\"0\"}") == Some(1.0), "{written}");
    if skip::unless_installed("metrics: promtool", &["promtool"], "prometheus") {
        let check = format!("promtool check metrics < {path}");
        Job::new(&scratch, "promtool", "sh").args(["-c", &check]).run_ok()?;
    }
    instance.stop()
}

/// The answer of Prometheus to a query.
fn query(port: u16, expression: &str) -> Result<Value> {
    let mut encoded = String::new();
    for byte in expression.bytes() {
        encoded.push_str(&format!("%{byte:02x}"));
    }
    let text = get(port, &format!("/api/v1/query?query={encoded}"))?;
    let (_, body) = text.split_once("\r\n\r\n").context("an answer has a body")?;
    serde_json::from_str(body).with_context(|| format!("{expression}: {text}"))
}

/// Starts Prometheus on what `mayfly metrics --listen` tells at a port; the port of its own.
fn scrape(scratch: &Scratch, metrics_at: u16) -> Result<(Running<'_>, u16)> {
    let settings = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: mayfly, static_configs: \
         [{{targets: [\"127.0.0.1:{metrics_at}\"]}}]}}]\n"
    );
    fs::write(scratch.join("prometheus.yml"), settings)?;
    let port = port::free()?;
    let job = Job::new(scratch, "prometheus", "prometheus").args([
        format!("--config.file={}", scratch.join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", scratch.join("series").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ]);
    Ok((job.start()?, port))
}

/// Each panel's expressions, with a value for the variable of the page.
fn dashboard() -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(binary::workspace().join("integrations/grafana/mayfly.json"))?;
    let page: Value = serde_json::from_str(&text)?;
    let mut expressions = Vec::new();
    for panel in page["panels"].as_array().context("panels")? {
        let title = panel["title"].as_str().context("a title")?;
        for target in panel["targets"].as_array().context("targets")? {
            let expression = target["expr"].as_str().context("an expression")?;
            expressions.push((title.to_owned(), expression.replace("$name", "board")));
        }
    }
    Ok(expressions)
}

/// What never happens in a good run.
const NO_DATA: [&str; 1] = ["Requests late or lost"];

#[test]
fn each_panel_of_the_dashboard_has_data_after_a_job_that_prometheus_watched() -> Result<()> {
    if !skip::unless_installed("metrics: Prometheus", &["prometheus"], "prometheus") {
        return Ok(());
    }
    let _turn = Turn::take()?;
    let scratch = Scratch::new("metrics-board")?;
    let instance = Instance::named(&scratch, "board")?;
    let outside = scratch.join("outside");
    fs::create_dir(&outside)?;
    let origin = format!("{}:origin", outside.display());
    instance.command("start").args(["--nodes", "local:2", "--origin", &origin]).run_ok()?;
    let port = port::free()?;
    let job = Job::new(&scratch, "listen", binary::mayfly()?).args(["metrics", "--listen"]);
    let listener = job.args([port.to_string()]).start()?;
    let (prometheus, at) = scrape(&scratch, port)?;
    let status = instance.status()?;
    let mount = status["mount"].as_str().or(status["nodes"][0]["mount"].as_str());
    let mount = mount.context("the instance has a mount point")?;
    let source = scratch.join("source");
    fs::create_dir(&source)?;
    fs::write(source.join("file"), [7; 300_000])?;
    // Rates want two values, of which the second tells of what was done since the first.
    let up = || -> Result<bool> {
        let told = query(at, "count_over_time(mayfly_up{name=\"board\"}[1m]) > 1")?;
        Ok(told["data"]["result"].as_array().is_some_and(|nodes| nodes.len() == 2))
    };
    wait_until("both nodes were scraped twice", || Ok(up().unwrap_or(false)))?;
    let mut missing = Vec::new();
    let deadline = Instant::now() + 4 * PATIENCE;
    for round in 0.. {
        instance
            .shell(&format!("work-{round}"), &format!("{WORK}; cat large; rm -r d large"))
            .run_ok()?;
        let (from, to) = (source.display().to_string(), format!("{mount}/staged-{round}"));
        let stage = Job::new(&scratch, "stage", binary::mayfly()?);
        stage.args(["stage", "in", "--name", "board", &from, &to]).run_ok()?;
        missing.clear();
        for (title, expression) in dashboard()? {
            let told = query(at, &expression)?;
            ensure!(told["status"] == "success", "{title}: {expression}: {told}");
            let is_empty = told["data"]["result"].as_array().is_none_or(Vec::is_empty);
            if is_empty && !NO_DATA.contains(&&*title) {
                missing.push(format!("{title}: {expression}"));
            }
        }
        if missing.is_empty() || Instant::now() > deadline {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    ensure!(missing.is_empty(), "nothing is told of {missing:#?}");
    // The scrape after the stage has it.
    let copied = "sum(mayfly_staged_total{name=\"board\",outcome=\"copied\"}) > 0";
    let told =
        || Ok(query(at, copied)?["data"]["result"].as_array().is_some_and(|all| !all.is_empty()));
    wait_until("a stage copied a file", told)?;
    let others = query(at, "sum(mayfly_held_seconds_count{name=\"board\",for=\"node\"})")?;
    ensure!(!others["data"]["result"].as_array().is_none_or(Vec::is_empty), "{others}");
    process::terminate(prometheus.pid());
    process::kill(listener.pid());
    instance.stop()
}
