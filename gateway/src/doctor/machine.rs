//! What this machine has: huge pages, lockable memory, files to open, RDMA devices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::config::Size;

/// A connection takes one file, and a worker a few.
const OPEN_FILES_MIN: u64 = 10_032;
/// What a gateway's workers register at the start and may come to, each.
const LOCKED_PER_WORKER: u64 = 64 << 20;

/// Everything but RDMA.
pub(super) fn checks() -> Vec<Check> {
    vec![
        open_files(getrlimit(Resource::Nofile).current),
        huge_pages(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        transparent_huge_pages(
            &fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default(),
        ),
    ]
}

/// What RDMA needs; what is not there does not work where RDMA is `needed`.
pub(super) fn rdma(needed: bool) -> Vec<Check> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let checks = [
        locked_memory(
            &fs::read_to_string("/proc/self/status").unwrap_or_default(),
            getrlimit(Resource::Memlock).current,
            workers * LOCKED_PER_WORKER,
        ),
        device_files(Path::new("/dev/infiniband")),
    ];
    checks.into_iter().map(|check| check.needed(needed)).collect()
}

fn open_files(limit: Option<u64>) -> Check {
    match limit {
        Some(limit) if limit < OPEN_FILES_MIN => Check::lacking(
            "open files",
            format!("{limit} at most, and each client takes one"),
            "raise it: ulimit -n 65536 (systemd: LimitNOFILE=65536), or give --max-clients",
        ),
        Some(limit) => Check::good("open files", format!("{limit} at most")),
        None => Check::good("open files", "without limit"),
    }
}

fn huge_pages(meminfo: &str) -> Check {
    let name = "huge pages";
    let number = |wanted: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(wanted))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (total, free) = (number("HugePages_Total:"), number("HugePages_Free:"));
    let size = number("Hugepagesize:").unwrap_or(2048) << 10;
    let remedy = format!(
        "only where memory nodes run, for speed: sysctl vm.nr_hugepages=N, where N times {} is \
         the memory of the nodes on this machine",
        Size(size)
    );
    match (total, free) {
        (Some(total @ 1..), Some(free)) => {
            let found = format!("{free} of {total} are free, {} each", Size(size));
            if free == 0 {
                Check::lacking(name, found, format!("all are taken; {remedy}"))
            } else {
                Check::good(name, found)
            }
        }
        _ => Check::lacking(name, "none are set aside", remedy),
    }
}

/// The kernel marks what is chosen by brackets.
fn transparent_huge_pages(enabled: &str) -> Check {
    let name = "transparent huge pages";
    let chosen = enabled.split(['[', ']']).nth(1).unwrap_or("not there");
    match chosen {
        "always" | "madvise" => Check::good(name, chosen),
        _ => Check::lacking(
            name,
            chosen,
            "index caches of gateways are slower: \
             echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

/// The limit holds for those that have not the capability to go beyond it.
fn locked_memory(status: &str, limit: Option<u64>, gateway_bytes: u64) -> Check {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let name = "locked memory";
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if capabilities.is_some_and(|capabilities| capabilities & CAP_IPC_LOCK != 0) {
        return Check::good(name, "without limit, by CAP_IPC_LOCK");
    }
    let remedy = "raise it: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: \
                  --ulimit memlock=-1); a memory node locks all of its memory";
    match limit {
        None => Check::good(name, "without limit"),
        Some(limit) if limit < gateway_bytes => Check::lacking(
            name,
            format!("{} at most, and a gateway here may lock {}", Size(limit), Size(gateway_bytes)),
            remedy,
        ),
        Some(limit) => Check::good(name, format!("{} at most", Size(limit))),
    }
}

/// Through these files a process speaks to RDMA devices.
fn device_files(folder: &Path) -> Check {
    let name = "device files";
    let found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("uverbs")))
        .collect();
    if found.is_empty() {
        return Check::lacking(
            name,
            format!("{} has no uverbs*", folder.display()),
            "load the kernel's module: modprobe ib_uverbs (docker: --device /dev/infiniband)",
        );
    }
    for path in &found {
        if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK) {
            let error = io::Error::from(error);
            return Check::lacking(
                name,
                format!("{}: {error}", path.display()),
                format!(
                    "let this user open it: chmod 0666 {} (for good: a udev rule \
                     KERNEL==\"uverbs*\", MODE=\"0666\", as rdma-core installs it)",
                    path.display()
                ),
            );
        }
    }
    let names: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
    Check::good(name, names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Verdict;
    use super::*;

    fn remedy(check: &Check) -> &str {
        match &check.verdict {
            Verdict::Lacking { remedy, .. } | Verdict::Broken { remedy, .. } => remedy,
            Verdict::Good(found) => panic!("{} is good: {found}", check.name),
        }
    }

    fn is_good(check: &Check) -> bool {
        matches!(check.verdict, Verdict::Good(_))
    }

    #[test]
    fn limits_that_are_too_low_are_raised_by_a_command() {
        assert!(remedy(&open_files(Some(1024))).contains("ulimit -n"));
        assert!(is_good(&open_files(Some(65_536))) && is_good(&open_files(None)));
        let none = "Name:\tx\nCapEff:\t0000000000000000\n";
        assert!(remedy(&locked_memory(none, Some(8 << 20), 64 << 20)).contains("ulimit -l"));
        assert!(is_good(&locked_memory(none, Some(64 << 20), 64 << 20)));
        assert!(is_good(&locked_memory(none, None, 64 << 20)));
        let root = "CapEff:\t00000000a80425fb\n";
        assert!(!is_good(&locked_memory(root, Some(8 << 20), 64 << 20)));
        let root = "CapEff:\t000001ffffffffff\n";
        assert!(is_good(&locked_memory(root, Some(8 << 20), 64 << 20)));
    }

    #[test]
    fn huge_pages_are_counted() {
        let some = "MemTotal: 1 kB\nHugePages_Total:      10\nHugePages_Free:        4\n\
                    Hugepagesize:       2048 kB\n";
        let check = huge_pages(some);
        assert_eq!(check.verdict, Verdict::Good("4 of 10 are free, 2MiB each".into()));
        assert!(remedy(&huge_pages(&some.replace(" 4\n", " 0\n"))).contains("all are taken"));
        assert!(remedy(&huge_pages(&some.replace(" 10\n", " 0\n"))).contains("vm.nr_hugepages"));
        assert!(remedy(&huge_pages("")).contains("2MiB"));
        assert!(is_good(&transparent_huge_pages("always [madvise] never\n")));
        assert!(remedy(&transparent_huge_pages("always madvise [never]\n")).contains("madvise"));
    }

    #[test]
    fn device_files_are_missing_or_forbidden_or_good() {
        let folder = std::env::temp_dir().join(format!("doctor-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        assert!(remedy(&device_files(&folder)).contains("modprobe ib_uverbs"));
        fs::create_dir_all(&folder).unwrap();
        assert!(remedy(&device_files(&folder)).contains("modprobe ib_uverbs"));
        let file = folder.join("uverbs0");
        fs::write(&file, "").unwrap();
        assert!(is_good(&device_files(&folder)));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        // Root may open everything.
        if access(&file, Access::READ_OK).is_err() {
            assert!(remedy(&device_files(&folder)).contains("chmod 0666"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
