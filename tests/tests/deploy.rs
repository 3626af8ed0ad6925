//! The files of `deploy/`, held to by the tools that know them, and what a service manager
//! hears of the programs.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tests::server::{built, scratch};

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace")
}

/// A program that `cargo xtask suite deploy` has fetched.
fn tool(name: &str) -> Command {
    let folder = std::env::var_os("SUITE_TOOLS").expect("cargo xtask suite deploy sets it");
    let path = PathBuf::from(folder).join(name);
    assert!(path.exists(), "{name} was not fetched: {}", path.display());
    let mut command = Command::new(path);
    command.current_dir(tree());
    command
}

fn run(command: &mut Command) -> (bool, String) {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.success(), said)
}

fn folder(name: &str) -> PathBuf {
    let folder = scratch("deploy").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the scratch folder takes folders");
    folder
}

/// A file system with nothing but the units, the programs that they start, and systemd's own
/// units.
fn verify_units(change: impl Fn(String) -> String) -> (bool, String) {
    let root = folder("root");
    for path in ["usr/bin", "usr/lib/systemd", "etc/systemd/system"] {
        fs::create_dir_all(root.join(path)).expect("it is empty");
    }
    for program in ["gateway", "mnd"] {
        fs::copy(built(program), root.join("usr/bin").join(program)).expect("it was built");
    }
    // A link would lead out of that file system, which systemd notices.
    let (copied, said) = run(Command::new("cp")
        .arg("-a")
        .arg("/usr/lib/systemd/system")
        .arg(root.join("usr/lib/systemd")));
    assert!(copied, "{said}");
    for unit in fs::read_dir(tree().join("deploy/systemd")).expect("there are units") {
        let path = unit.expect("the folder can be read").path();
        let text = change(fs::read_to_string(&path).expect("a unit is text"));
        let to = root.join("etc/systemd/system").join(path.file_name().expect("it has a name"));
        fs::write(to, text).expect("the folder takes files");
    }
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify").arg(format!("--root={}", root.display()));
    run(verify.args(["fusee-gateway.service", "fusee-mnd@0.service"]))
}

#[test]
fn systemd_has_nothing_to_say_about_the_units() {
    assert_eq!(verify_units(|text| text), (true, String::new()));
    let (_, said) = verify_units(|text| text.replace("WatchdogSec", "WatchdogSeconds"));
    assert!(said.contains("WatchdogSeconds"), "it says so if there is something: {said}");
    let (_, said) = verify_units(|text| text.replace("/usr/bin/mnd", "/usr/bin/mmd"));
    assert!(said.contains("/usr/bin/mmd"), "also of programs: {said}");
}

#[test]
fn images_are_built_as_hadolint_likes() {
    assert_eq!(run(tool("hadolint").arg("deploy/docker/Dockerfile")), (true, String::new()));
}

#[test]
fn compose_understands_its_file() {
    let compose = ["-f", "deploy/compose/compose.yml", "config"];
    assert_eq!(run(tool("docker-compose").args(compose).arg("-q")), (true, String::new()));
    let (_, all) = run(tool("docker-compose").args(compose));
    // What is mounted has to be there, or docker makes empty folders of these names.
    let sources: Vec<&str> =
        all.lines().filter_map(|line| line.trim().strip_prefix("source: /")).collect();
    assert!(sources.len() > 8, "{all}");
    for source in sources {
        assert!(Path::new("/").join(source).exists(), "{source} is mounted and is not there");
    }
}

#[test]
fn the_chart_makes_what_kubernetes_takes() {
    let chart = "deploy/helm/fusee";
    let insecure = ["--set", "tls.insecure=true"];
    let (passed, said) = run(tool("helm").args(["lint", "--strict", chart]).args(insecure));
    assert!(passed, "{said}");
    let secure = "tls.secretName=pool-tls,gateway.passwordSecret=password";
    let cases: [&[&str]; 3] = [
        &insecure,
        &["--set", secure],
        &["--set", "tls.secretName=t,pool.fabric=verbs,rdma.resource=rdma/hca_shared"],
    ];
    let rendered = folder("rendered");
    for (number, values) in cases.into_iter().enumerate() {
        let (passed, manifests) = run(tool("helm").args(["template", "demo", chart]).args(values));
        assert!(passed, "{values:?}: {manifests}");
        let path = rendered.join(format!("{number}.yaml"));
        fs::write(&path, &manifests).expect("the folder takes files");
        let (passed, said) = run(tool("kubernetes-validate").arg("--strict").arg(&path));
        assert!(passed, "{values:?}: {said}");
        for kind in ["Deployment", "HorizontalPodAutoscaler", "StatefulSet"] {
            let line = format!("kind: {kind}");
            assert!(manifests.contains(&line), "{values:?}: {line}");
        }
        // The autoscaler's only target is the deployment of gateways.
        assert_eq!(manifests.matches("scaleTargetRef").count(), 1);
        assert!(manifests.contains("kind: Deployment\n    name: demo-gateway"), "{manifests}");
    }
    // What cannot work is refused with what to do about it.
    for (values, reason) in [
        ("pool.name=x", "tls.secretName"),
        ("tls.insecure=true,pool.fabric=verbs", "rdma.resource"),
        ("tls.insecure=true,gateway.autoscaling.maxReplicas=40", "pool.clients"),
    ] {
        let (passed, said) = run(tool("helm").args(["template", "demo", chart, "--set", values]));
        assert!(!passed && said.contains(reason), "{values}: {said}");
    }
}

/// A program that has a service manager, which is us.
struct Service {
    child: Child,
    manager: UnixDatagram,
}

impl Service {
    fn start(name: &str, arguments: &[&str], folder: &Path) -> Self {
        let socket = folder.join(format!("{name}.notify"));
        let manager = UnixDatagram::bind(&socket).expect("the folder takes sockets");
        manager.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(built(name))
            .args(arguments)
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "300000")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv (package util-linux) runs");
        Self { child, manager }
    }

    /// Messages up to the one that begins so.
    fn hear(&self, begin: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 512];
            let count = self.manager.recv(&mut bytes);
            let count = count.unwrap_or_else(|error| panic!("no {begin}: {error}: {heard:?}"));
            let message = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let is_it = message.starts_with(begin);
            heard.push(message);
            if is_it {
                return heard;
            }
        }
    }

    fn terminate(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.hear("STOPPING=1");
        assert!(self.child.wait().expect("it is ours").success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn programs_tell_their_service_manager_when_they_are_ready_and_that_they_live() {
    // A socket's path has at most 107 bytes.
    let folder = std::env::temp_dir().join(format!("fusee-notify-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder takes folders");
    let file = folder.join("pool.toml");
    let text = format!(
        "name = \"notify\"\nfabric = \"shm\"\nmemory = \"64MiB\"\nnodes = [\"unix:{}\"]\n",
        folder.join("0.sock").display()
    );
    fs::write(&file, text).expect("the folder takes files");
    let pool = file.to_string_lossy().into_owned();
    let gateway = ["--pool", &pool, "--port", "0", "--metrics-port", "0", "--workers", "1"];
    let gateway = Service::start("gateway", &gateway, &folder);
    assert_eq!(gateway.hear("STATUS="), ["STATUS=waiting for the pool"]);
    let mnd = ["--pool", &pool, "--node", "0", "--metrics-port", "0"];
    let mnd = Service::start("mnd", &mnd, &folder);
    for service in [&mnd, &gateway] {
        service.hear("READY=1\nSTATUS=serving");
        service.hear("WATCHDOG=1");
        service.hear("WATCHDOG=1");
    }
    gateway.terminate();
    mnd.terminate();
    fs::remove_dir_all(&folder).expect("it is ours");
}
