//! What the suites need beyond the Rust toolchain: installed where that is
//! possible without privileges, named otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::run::{self, answers, program, root, scratch};

/// Registries fail now and then.
const INSTALL_ATTEMPTS: usize = 3;
const INSTALL_LIMIT: Duration = Duration::from_mins(10);

/// Debian packages by the program that shows they are there.
const DEBIAN: [(&str, &str, &str); 5] = [
    ("redis-server", "--version", "redis-server"),
    ("redis-cli", "--version", "redis-tools"),
    ("redis-benchmark", "--version", "redis-tools"),
    ("node", "--version", "nodejs"),
    ("npm", "--version", "npm"),
];

/// Fails with the command that installs what is missing.
pub(crate) fn programs(names: &[&str]) -> Result<(), String> {
    let mut missing: Vec<&str> = DEBIAN
        .iter()
        .filter(|(name, argument, _)| names.contains(name) && !answers(name, argument))
        .map(|(_, _, package)| *package)
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
        program(&python, INSTALL_LIMIT)
            .args(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .args(&[&wanted])
            .run()
    })?;
    Ok(python)
}

/// A folder with the SDKs of `tests/sdk/node/package.json` and the programs
/// beside it, since Node looks for packages above the program that imports
/// them.
pub(crate) fn node_sdks() -> Result<PathBuf, String> {
    programs(&["node", "npm"])?;
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
        program("npm", INSTALL_LIMIT)
            .args(&["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
            .folder(&folder)
            .run()
    })?;
    Ok(folder)
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
