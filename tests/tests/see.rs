//! What people see of a pool: a real one under load, a real Prometheus at it, and every
//! expression of every panel and rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::metrics;
use tests::resp::{Client, Reply};
use tests::server::{built, scratch};

/// From the start of the load until rates are there, and rules of rules: Prometheus takes 5 s
/// to find its targets, and then needs some scrapes.
const SETTLE: Duration = Duration::from_secs(16);
/// Instead of the interval that Grafana computes: some scrapes of this suite.
const RATE_INTERVAL: &str = "10s";

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace")
}

/// The pool of `deploy/pool`, on ports of its own.
struct Pool {
    fabric: &'static str,
    folder: PathBuf,
    port: u16,
    metrics: u16,
    prometheus: u16,
}

impl Pool {
    fn start(fabric: &'static str) -> Self {
        let port = free_ports(11);
        let folder = scratch("see");
        let _ = fs::remove_dir_all(&folder);
        let pool = Self { fabric, folder, port, metrics: port + 2, prometheus: port + 7 };
        let output = pool.script("start");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "deploy/pool start: {said}{failed}");
        assert!(said.contains("Prometheus: http"), "{said}");
        pool
    }

    fn script(&self, command: &str) -> Output {
        let programs = built("gateway");
        Command::new(tree().join("deploy/pool"))
            .arg(command)
            .env("PROGRAMS", programs.parent().expect("a program lies in a folder"))
            .env("POOL_FOLDER", &self.folder)
            .env("PORT", self.port.to_string())
            .env("METRICS", self.metrics.to_string())
            .env("PROMETHEUS", self.prometheus.to_string())
            .env("MEMORY", "128MiB")
            .env("FABRIC", self.fabric)
            .env("CONTROL", (self.port + 8).to_string())
            .env("SCRAPE", "1s")
            .output()
            .expect("deploy/pool runs")
    }

    fn client(&self, gateway: u16) -> Client {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + gateway));
        Client::over(TcpStream::connect(address).expect("the gateway serves"))
    }

    /// Pages of the gateways and the memory nodes.
    fn pages(&self) -> Vec<String> {
        (0..5)
            .map(|process| SocketAddr::from((Ipv4Addr::LOCALHOST, self.metrics + process)))
            .map(|address| metrics::fetch(address).expect("metrics are served"))
            .collect()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.prometheus)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let output = self.script("stop");
        if !std::thread::panicking() {
            assert!(output.status.success(), "deploy/pool stop: {output:?}");
            assert!(!self.script("status").status.success(), "it was stopped");
        }
    }
}

/// The first of so many ports, one behind the other, that nobody uses.
fn free_ports(count: u16) -> u16 {
    let begin = 20_000 + (std::process::id() % 1000) as u16 * 12;
    (begin..begin + 2400)
        .step_by(12)
        .find(|first| {
            (*first..first + count)
                .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        })
        .expect("some ports are free")
}

/// Commands of all families on few keys, so that the two gateways meet, and some that fail.
fn load(mut client: Client, number: u64, until: &AtomicBool) {
    let mut turn = number;
    let mut ask = |words: &[&str]| drop(client.command(words));
    ask(&["SET", "text", "no number"]);
    while !until.load(Ordering::Relaxed) {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let hot = format!("hot:{}", (turn >> 33) % 3);
        let key = format!("key:{}", (turn >> 33) % 2000);
        let value = "x".repeat(((turn >> 40) % 900) as usize);
        ask(&["SET", &hot, &value]);
        ask(&["GET", &hot]);
        ask(&["SET", &key, &value]);
        ask(&["GET", &key]);
        ask(&["GET", "missing"]);
        ask(&["INCR", "counter"]);
        ask(&["INCR", "text"]);
        ask(&["SET", &format!("brief:{key}"), "1", "PX", "20"]);
        ask(&["MSET", &hot, "1", &key, "2"]);
        ask(&["DEL", &format!("key:{}", (turn >> 13) % 2000)]);
        ask(&["HSET", "hash", &hot, &value]);
        ask(&["MULTI"]);
        ask(&["INCR", "counter"]);
        ask(&["GET", &hot]);
        ask(&["EXEC"]);
    }
}

#[test]
fn every_expression_of_every_panel_and_rule_has_data() {
    // On TCP memory nodes have the most to tell.
    let pool = Pool::start("tcp");
    let stop = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        for number in 0..6 {
            let (client, stop) = (pool.client(number % 2), &stop);
            scope.spawn(move || load(client, u64::from(number), stop));
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&pool)));
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_pool_on_shared_memory_starts_by_one_command_too() {
    let pool = Pool::start("shm");
    assert_eq!(pool.client(0).command(&["SET", "key", "value"]), Reply::Simple("OK".into()));
    assert_eq!(pool.client(1).command(&["GET", "key"]), Reply::Bulk(b"value".to_vec()));
    lint(&pool.pages());
}

fn look(pool: &Pool) {
    let begin = Instant::now();
    lint(&pool.pages());
    std::thread::sleep(SETTLE.saturating_sub(begin.elapsed()));
    let mut wrong = Vec::new();
    let mut asked = String::new();
    for (place, expression) in panels().into_iter().chain(rules(pool)) {
        asked.push_str(&expression);
        asked.push('\n');
        if let Err(reason) = query(pool, &expression) {
            wrong.push(format!("{place}: {expression}: {reason}"));
        }
    }
    // What is exported and shown nowhere is a metric that was renamed, or is not needed.
    for name in exported(&pool.pages()) {
        if !asked.contains(&name) {
            wrong.push(format!("{name} is in no panel and no rule"));
        }
    }
    // Half of the scrapes, so that one that met a busy machine is no fault of ours.
    let slow = "max(quantile_over_time(0.5, scrape_duration_seconds[1m])) > 0.05";
    if query(pool, slow).is_ok() {
        wrong.push("a scrape under load takes more than 50 ms".to_owned());
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// Expressions of all panels and variables, as Grafana would send them.
fn panels() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, dashboard) in dashboards() {
        let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let title = panel["title"].as_str().expect("a panel has a title");
            for target in panel["targets"].as_array().expect("a panel asks something") {
                let expression = target["expr"].as_str().expect("a target has an expression");
                let expression = expression
                    .replace("$__rate_interval", RATE_INTERVAL)
                    .replace("$instance", ".*");
                found.push((format!("{name}, {title}"), expression));
            }
        }
        for variable in dashboard["templating"]["list"].as_array().expect("there are variables") {
            let Some(definition) = variable["definition"].as_str() else { continue };
            let metric =
                definition.strip_prefix("label_values(").and_then(|rest| rest.split(',').next());
            let metric = metric.expect("variables are values of a label");
            found.push((format!("{name}, a variable"), metric.to_owned()));
        }
    }
    assert!(found.len() > 90, "there are {} expressions only", found.len());
    found
}

fn dashboards() -> BTreeMap<String, Value> {
    let folder = tree().join("grafana/dashboards");
    let files = fs::read_dir(folder).expect("there are dashboards");
    let read = |file: std::io::Result<fs::DirEntry>| {
        let path = file.expect("the folder can be read").path();
        let text = fs::read_to_string(&path).expect("a dashboard is text");
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).expect("a dashboard is JSON"))
    };
    files.map(read).collect()
}

/// What Prometheus has loaded. An alert that does not fire has no data, so of it the left
/// side of its first comparison is asked for, and the whole only parsed.
fn rules(pool: &Pool) -> Vec<(String, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, pool.prometheus));
    let page = http(address, "/api/v1/rules");
    let page: Value = serde_json::from_str(&page).expect("Prometheus answers JSON");
    let groups = page["data"]["groups"].as_array().expect("there are groups of rules");
    let mut found = Vec::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().expect("with rules")) {
        let name = rule["name"].as_str().expect("a rule has a name").to_owned();
        let expression = rule["query"].as_str().expect("a rule has an expression");
        assert_ne!(rule["health"], "err", "{name}: {}", rule["lastError"]);
        if rule["type"] == "recording" {
            found.push((format!("what {name} records"), name.clone()));
            found.push((name, expression.to_owned()));
        } else {
            let left = expression.split(" > ").next().and_then(|left| left.split(" == ").next());
            found.push((name, left.expect("a split has a first part").to_owned()));
        }
    }
    assert!(found.len() > 40, "there are {} rules only", found.len());
    found
}

fn http(address: SocketAddr, path: &str) -> String {
    use std::io::Read as _;
    let mut stream = TcpStream::connect(address).expect("Prometheus listens");
    // Of HTTP/1.0, so that the answer does not come in chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.contains(" 200 "), "{head}");
    body.to_owned()
}

/// Asks as a person would; a sample that is no number is no answer.
fn query(pool: &Pool, expression: &str) -> Result<(), String> {
    let output = Command::new("promtool")
        .args(["query", "instant", &pool.url(), expression])
        .output()
        .expect("promtool (package prometheus) runs");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let answer = String::from_utf8_lossy(&output.stdout);
    let is_number = |line: &str| {
        let value = line.rsplit_once("=> ").map(|(_, value)| value);
        value.is_some_and(|value| value.split(' ').next().is_some_and(|value| value != "NaN"))
    };
    match answer.lines().any(is_number) {
        true => Ok(()),
        false if answer.trim().is_empty() => Err("no data".to_owned()),
        false => Err(format!("no number: {}", answer.trim())),
    }
}

fn exported(pages: &[String]) -> BTreeSet<String> {
    let lines = pages.iter().flat_map(|page| page.lines());
    let names = lines.filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// promtool's opinion of each page.
fn lint(pages: &[String]) {
    for page in pages {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool (package prometheus) runs");
        let mut input = child.stdin.take().expect("it was asked for");
        input.write_all(page.as_bytes()).expect("promtool reads");
        drop(input);
        let output = child.wait_with_output().expect("promtool ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}\n{page:.300}");
    }
}

#[test]
fn rules_are_valid_and_alerts_fire_on_their_faults() {
    let folder = tree().join("grafana/rules");
    for arguments in [
        &["check", "rules", "recording.yml", "alerts.yml"][..],
        &["test", "rules", "alerts.test.yml"],
    ] {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output();
        let output = output.expect("promtool (package prometheus) runs");
        assert!(output.status.success(), "{output:?}");
    }
    let alerts = fs::read_to_string(folder.join("alerts.yml")).expect("there are alerts");
    let tested = fs::read_to_string(folder.join("alerts.test.yml")).expect("they are tested");
    let runbook = fs::read_to_string(tree().join("docs/runbook.md")).expect("there is a runbook");
    let names: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        assert!(tested.contains(&format!("- name: {name}\n")), "{name} is not tested");
        assert!(runbook.contains(&format!("\n## {name}\n")), "{name} is not in the runbook");
        let anchor = format!("docs/runbook.md#{}\n", name.to_lowercase());
        assert!(alerts.contains(&anchor), "{name} does not name {anchor}");
    }
    for part in ["        for: ", "          severity: ", "          summary: "] {
        assert_eq!(alerts.matches(part).count(), names.len(), "each alert has {part}");
    }
}

#[test]
fn panels_explain_themselves_and_fit_any_scrape_interval() {
    for (name, dashboard) in dashboards() {
        assert_eq!(dashboard["uid"], name.as_str(), "links go by it");
        let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
        let mut numbers = BTreeSet::new();
        for panel in panels {
            assert!(numbers.insert(panel["id"].as_u64()), "{name}: two panels have one number");
            if panel["type"] == "row" {
                continue;
            }
            let title = panel["title"].as_str().expect("a panel has a title");
            let about = panel["description"].as_str().unwrap_or_default();
            assert!(about.len() > 20, "{name}, {title}: what does a reading mean?");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}, {title}: unit");
            for target in panel["targets"].as_array().expect("a panel asks something") {
                let expression = target["expr"].as_str().expect("a target has an expression");
                let rates = expression.matches("rate(").count();
                let intervals = expression.matches("[$__rate_interval]").count();
                assert_eq!(rates, intervals, "{name}, {title}: {expression}");
                assert!(!expression.contains("le=\""), "{name}, {title}: {expression}");
            }
        }
    }
}
