//! Debian's packages that machines are made of: those installed here, and the
//! current kernel, which is only downloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Installed packages whose files go into machines or make them.
const INSTALLED: [&str; 9] = [
    "busybox-static",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "kmod",
    "libc6",
    "libibverbs1",
    "perftest",
    "qemu-system-x86",
];
/// Depends on the current kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// Mirrors fail now and then, and another process may hold apt's lock.
const ATTEMPTS: u32 = 4;

/// A kernel's package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Kernel {
    package: String,
    version: String,
}

/// Names and versions of all packages, a line each: what a cache must be keyed by.
pub(super) fn versions(kernel: &Kernel) -> Result<String, String> {
    let mut lines = format!("{} {}\n", kernel.package, kernel.version);
    let shown = output("dpkg-query", &["-W", "-f", "${Package} ${Version} ${db:Status-Status}\n"])?;
    let installed = |package: &&&str| {
        let begin = format!("{package} ");
        shown.lines().any(|line| line.starts_with(&begin) && line.ends_with(" installed"))
    };
    let missing: Vec<&str> = INSTALLED.iter().filter(|name| !installed(name)).copied().collect();
    if !missing.is_empty() {
        return Err(format!("cannot run: apt-get install {}", missing.join(" ")));
    }
    for line in shown.lines() {
        if line.split(' ').next().is_some_and(|name| INSTALLED.contains(&name)) {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    Ok(lines)
}

/// What Debian's kernel is at the moment, as far as apt knows.
pub(super) fn current_kernel() -> Result<Kernel, String> {
    let mut outcome = known_kernel();
    if outcome.is_err() {
        update()?;
        outcome = known_kernel();
    }
    outcome
}

fn known_kernel() -> Result<Kernel, String> {
    let text = output("apt-cache", &["show", META_PACKAGE])?;
    parse(&text).ok_or_else(|| format!("apt knows no kernel that {META_PACKAGE} depends on"))
}

/// apt shows the newest version first: `Depends: linux-image-... (= version)`.
fn parse(shown: &str) -> Option<Kernel> {
    let depends = shown.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    let (package, version) = depends.split_once(" (= ")?;
    let version = version.split_once(')')?.0;
    Some(Kernel { package: package.to_owned(), version: version.to_owned() })
}

/// Unpacks the current kernel into `folder`, which is emptied before. The package's
/// version may turn out to be newer than what apt knew.
pub(super) fn unpack_kernel(folder: &Path) -> Result<Kernel, String> {
    let mut failure = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            // What apt knows is perhaps older than what the mirror still has.
            std::thread::sleep(Duration::from_secs(5 * u64::from(attempt)));
            let _ = update();
        }
        let kernel = current_kernel()?;
        match download(&kernel, folder) {
            Ok(file) => {
                let (file, root) = (file.to_string_lossy(), folder.to_string_lossy());
                output("dpkg", &["-x", &file, &root])?;
                return Ok(kernel);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn download(kernel: &Kernel, folder: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let wanted = format!("{}={}", kernel.package, kernel.version);
    let outcome =
        Command::new("apt-get").args(["download", "-qq", &wanted]).current_dir(folder).output();
    let outcome = outcome.map_err(|error| format!("apt-get: {error}"))?;
    if !outcome.status.success() {
        let reason = String::from_utf8_lossy(&outcome.stderr).trim().to_owned();
        return Err(format!("apt-get download {wanted}: {reason}"));
    }
    fs::read_dir(folder)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| format!("apt-get download {wanted} left no package"))
}

fn update() -> Result<(), String> {
    output("apt-get", &["update", "-qq"]).map(drop)
}

/// What a program prints, if it succeeds.
pub(super) fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("{program} {}: {}: {reason}", arguments.join(" "), output.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_taken() {
        let shown = "\
Package: linux-image-amd64
Version: 6.1.192-3
Depends: linux-image-6.1.0-57-amd64 (= 6.1.192-3)

Package: linux-image-amd64
Version: 6.1.176-1
Depends: linux-image-6.1.0-50-amd64 (= 6.1.176-1)
";
        let kernel = parse(shown).unwrap();
        assert_eq!(kernel.package, "linux-image-6.1.0-57-amd64");
        assert_eq!(kernel.version, "6.1.192-3");
        assert_eq!(parse("Package: something\n"), None);
    }
}
