//! What this machine has: files to open, io_uring and huge pages.

use std::{fs, io};

use fusee_fabric::ring;
use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::config::Size;

/// A connection takes one file, and a worker a few.
const OPEN_FILES_MIN: u64 = 10_032;
/// What every gateway needs.
pub(super) fn checks() -> Vec<Check> {
    vec![
        open_files(getrlimit(Resource::Nofile).current),
        io_uring(ring::probe()),
        huge_pages(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        transparent_huge_pages(
            &fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default(),
        ),
    ]
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

fn io_uring(probed: io::Result<()>) -> Check {
    let name = "io_uring";
    match probed {
        Ok(()) => Check::good(name, "is used for clients' sockets"),
        Err(error) => Check::lacking(
            name,
            error.to_string(),
            "clients' sockets are polled, which is slower: Linux 6.1 has it; sysctl \
             kernel.io_uring_disabled=0 and a seccomp profile with io_uring_setup, \
             io_uring_enter and io_uring_register allow it",
        ),
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

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn a_kernel_without_io_uring_is_told() {
        assert!(is_good(&io_uring(Ok(()))));
        let check = io_uring(Err(io::Error::from_raw_os_error(1)));
        assert!(remedy(&check).contains("io_uring_disabled"));
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
}
