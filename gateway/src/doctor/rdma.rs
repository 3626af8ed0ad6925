//! What RDMA needs: memory that may be locked, files that may be opened, a device.

use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use fusee_fabric::verbs::{Device, DeviceChoice, DeviceDescription, PortDescription, VerbsError};
use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::config::Size;

/// What a gateway's workers register at the start and may come to, each.
const LOCKED_PER_WORKER: u64 = 64 << 20;

/// What RDMA needs; what is not there does not work where RDMA is `needed`.
pub(super) fn checks(needed: bool, choice: &DeviceChoice) -> Vec<Check> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let mut checks = vec![
        locked_memory(
            &fs::read_to_string("/proc/self/status").unwrap_or_default(),
            getrlimit(Resource::Memlock).current,
            workers * LOCKED_PER_WORKER,
        ),
        device_files(Path::new("/dev/infiniband")),
    ];
    let found = fusee_fabric::verbs::devices();
    let is_there = found.is_ok();
    checks.extend(devices(found));
    if is_there {
        checks.push(chosen(Device::choose(choice)));
    }
    checks.into_iter().map(|check| check.needed(needed)).collect()
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

/// Each port of each device.
fn devices(found: Result<Vec<DeviceDescription>, VerbsError>) -> Vec<Check> {
    let devices = match found {
        Ok(devices) => devices,
        Err(error) => {
            let text = error.to_string();
            let (found, remedy) = text.split_once(": ").unwrap_or((&text, "look into dmesg"));
            return vec![Check::lacking("RDMA devices", found, remedy)];
        }
    };
    let ports = devices.iter().flat_map(|device| device.ports.iter().map(move |p| (device, p)));
    ports.map(|(device, port)| self::port(device, port)).collect()
}

fn port(device: &DeviceDescription, port: &PortDescription) -> Check {
    let name = format!("{} port {}", device.name, port.number);
    let gids: Vec<String> = port
        .gids
        .iter()
        .filter(|gid| gid.roce_v2)
        .map(|gid| format!("{} (GID {})", address(gid.gid), gid.index))
        .collect();
    let found = format!(
        "{}, {}, MTU {}, {} atomics, {}",
        if port.active { "active" } else { "down" },
        if port.ethernet { "RoCE" } else { "InfiniBand" },
        port.mtu,
        if device.atomics { "with" } else { "without" },
        match (port.ethernet, gids.is_empty()) {
            (false, _) => format!("LID {}", port.lid),
            (true, true) => "no GID of RoCE version 2".to_owned(),
            (true, false) => gids.join(", "),
        },
    );
    if !device.atomics {
        let remedy = "CAS and FAA are needed: use another device, or fabric = \"tcp\"";
        Check::lacking(name, found, remedy)
    } else if !port.active {
        let remedy = "bring its network interface or cable up: rdma link names the interface, \
                      then ip link set IFACE up";
        Check::lacking(name, found, remedy)
    } else if port.ethernet && gids.is_empty() {
        let remedy = "give its network interface an address: ip address add 10.0.0.1/24 dev IFACE";
        Check::lacking(name, found, remedy)
    } else if port.ethernet && port.mtu < 4096 {
        // A frame carries a packet with its headers; rdma link names the interface.
        Check::good(name, found + "; with ip link set IFACE mtu 4200 its packets would be larger")
    } else {
        Check::good(name, found)
    }
}

/// Which of them gateways and memory nodes use if they are not told otherwise.
fn chosen(device: Result<Device, VerbsError>) -> Check {
    match device {
        Ok(device) => Check::good("chosen device", device.to_string()),
        Err(error) => Check::lacking(
            "chosen device",
            error.to_string(),
            "follow what is said there, or choose fabric = \"tcp\" for a trial",
        ),
    }
}

/// A GID as the address that it stands for.
fn address(gid: [u8; 16]) -> String {
    let address = Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt;

    use fusee_fabric::verbs::{DeviceLimits, GidDescription};

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
    fn a_low_limit_of_locked_memory_is_raised_by_a_command() {
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
    fn ports_are_down_without_address_without_atomics_or_good() {
        let gid = GidDescription {
            index: 1,
            gid: Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            roce_v2: true,
        };
        let port = PortDescription {
            number: 1,
            active: true,
            ethernet: true,
            lid: 0,
            mtu: 1024,
            message_bytes_max: 1 << 30,
            gids: vec![gid],
        };
        let limits = DeviceLimits {
            work_requests: 1024,
            completions: 1024,
            reads_served: 16,
            reads_posted: 16,
        };
        let device = DeviceDescription {
            name: "rxe0".into(),
            atomics: true,
            limits,
            ports: vec![port.clone()],
        };
        let checks = devices(Ok(vec![device.clone()]));
        let Verdict::Good(found) = &checks[0].verdict else { panic!("{checks:?}") };
        assert!(found.contains("10.0.0.1 (GID 1)") && found.contains("MTU 1024"), "{found}");

        let down = PortDescription { active: false, ..port.clone() };
        assert!(remedy(&super::port(&device, &down)).contains("ip link set"));
        let bare = PortDescription { gids: Vec::new(), ..port.clone() };
        assert!(remedy(&super::port(&device, &bare)).contains("ip address add"));
        let plain = DeviceDescription { atomics: false, ..device };
        assert!(remedy(&super::port(&plain, &port)).contains("tcp"));
    }

    #[test]
    fn a_machine_without_rdma_is_told_what_to_install_or_load() {
        let [check] = &devices(Err(VerbsError::NoDevice))[..] else { panic!("one check") };
        assert!(remedy(check).contains("rdma link add"), "{check:?}");
        let missing = VerbsError::NoLibrary { reason: "no such file".into() };
        let [check] = &devices(Err(missing))[..] else { panic!("one check") };
        assert!(remedy(check).contains("libibverbs1"), "{check:?}");
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
