//! What a machine boots: Debian's kernel and an initramfs that is its whole system.
//!
//! The large part, the same for all machines, is cached under `target/suites/rig`
//! until a package or this file changes. Init, the agent and the programs under
//! test are fresh for every rig.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::Options;
use super::cpio::Archive;
use super::packages::{self, output};

/// Modules that are loaded, with all that they depend on. rxe refuses its device
/// without crc32, which it does not name as a dependency.
const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "dummy",
    "crc32_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
];
/// Programs of this machine's packages that machines have, perftest's for comparison.
const PROGRAMS: [&str; 14] = [
    "ib_atomic_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ip",
    "ldd",
    "rdma",
    "setpriv",
    "ss",
    "taskset",
];
/// libibverbs loads what drives rxe by the name that this file gives it.
const DRIVER: &str = "/etc/libibverbs.d/rxe.driver";
const DRIVER_FOLDER: &str = "/usr/lib/x86_64-linux-gnu/libibverbs";
/// As on Debian: all programs and libraries lie below /usr.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
const OWN_SOURCE: &str = include_str!("initramfs.rs");

/// A kernel and an initramfs that QEMU can open as long as this lives.
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    initramfs: File,
}

impl Image {
    /// Has no name in the file system, so nobody needs to clean it up.
    pub(super) fn initramfs(&self) -> PathBuf {
        let (process, number) = (std::process::id(), self.initramfs.as_raw_fd());
        PathBuf::from(format!("/proc/{process}/fd/{number}"))
    }
}

/// What to boot for these options.
pub(super) fn image(options: &Options) -> Result<Image, String> {
    let base = cached_base()?;
    let mut own = Archive::default();
    own.add(Path::new("/init"), 0o755, include_bytes!("init.sh"));
    for program in [&crate::server::built("rig_agent")].into_iter().chain(&options.programs) {
        add_program(&mut own, program)?;
    }
    let failed = |error| format!("an initramfs cannot be made: {error}");
    let memory = memfd_create("initramfs", MemfdFlags::CLOEXEC)
        .map_err(|error| format!("an initramfs cannot be made: {error}"))?;
    let mut initramfs = File::from(memory);
    initramfs.write_all(&fs::read(base.join("base.cpio")).map_err(failed)?).map_err(failed)?;
    initramfs.write_all(&own.finish()).map_err(failed)?;
    Ok(Image { kernel: base.join("vmlinuz"), initramfs })
}

/// The folder of the cached part, made anew if packages have changed.
fn cached_base() -> Result<PathBuf, String> {
    let folder = crate::server::scratch("rig");
    let failed = |error| format!("{}: {error}", folder.display());
    // Suites of one tree may run at the same time.
    let lock = File::create(folder.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mark = folder.join("key");
    let wanted = key(&packages::current_kernel()?)?;
    if fs::read_to_string(&mark).is_ok_and(|made| made == wanted) {
        return Ok(folder);
    }
    let unpacked = folder.join("kernel");
    let kernel = packages::unpack_kernel(&unpacked)?;
    let release = only_entry(&unpacked.join("lib/modules"))?;
    let vmlinuz = unpacked.join("boot").join(format!("vmlinuz-{release}"));
    fs::copy(vmlinuz, folder.join("vmlinuz")).map_err(failed)?;
    fs::write(folder.join("base.cpio"), base(&unpacked, &release)?).map_err(failed)?;
    fs::remove_dir_all(&unpacked).map_err(failed)?;
    fs::write(mark, key(&kernel)?).map_err(failed)?;
    Ok(folder)
}

fn key(kernel: &packages::Kernel) -> Result<String, String> {
    Ok(packages::versions(kernel)? + OWN_SOURCE)
}

/// The system without what is under test.
fn base(unpacked: &Path, release: &str) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    for name in MERGED {
        archive.folder(&Path::new("/usr").join(name));
        archive.link(&Path::new("/").join(name), &format!("usr/{name}"));
    }
    for folder in ["/dev", "/etc", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp"] {
        archive.folder(Path::new(folder));
    }
    archive.add(Path::new("/etc/passwd"), 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    archive.add(Path::new("/etc/group"), 0o644, b"root:x:0:\n");
    archive.add(Path::new("/etc/hosts"), 0o644, b"127.0.0.1 localhost\n");

    let busybox = Path::new("/usr/bin/busybox");
    archive.add_from_host(busybox)?;
    for name in PROGRAMS {
        add_program(&mut archive, &found(name)?)?;
    }
    archive.add_from_host(Path::new(DRIVER))?;
    for entry in fs::read_dir(DRIVER_FOLDER).map_err(|error| format!("{DRIVER_FOLDER}: {error}"))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.to_string_lossy().contains("/librxe-") {
            add_with_libraries(&mut archive, &path, &path)?;
        }
    }
    // What these programs do not have comes from busybox.
    for name in output("busybox", &["--list"])?.lines() {
        archive.link(&Path::new("/usr/bin").join(name), "busybox");
    }

    let mut order = String::new();
    for (number, module) in modules(unpacked, release)?.iter().enumerate() {
        let name = module.file_name().ok_or("a module without a name")?.to_string_lossy();
        let path = format!("/modules/{number:02}-{name}");
        archive.add_from(module, Path::new(&path))?;
        order.push_str(&path);
        order.push('\n');
    }
    archive.add(Path::new("/modules/order"), 0o644, order.as_bytes());
    Ok(archive.finish())
}

/// The files of [`MODULES`] and all that they need, in the order to load them.
fn modules(unpacked: &Path, release: &str) -> Result<Vec<PathBuf>, String> {
    let root = unpacked.to_string_lossy();
    output("depmod", &["-b", &root, release])?;
    let mut files: Vec<PathBuf> = Vec::new();
    for name in MODULES {
        let shown = output("modprobe", &["-d", &root, "-S", release, "--show-depends", name])?;
        for line in shown.lines() {
            let file = line.strip_prefix("insmod ").and_then(|rest| rest.split(' ').next());
            if let Some(file) = file.map(PathBuf::from).filter(|file| !files.contains(file)) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// Where a program is on this machine.
fn found(name: &str) -> Result<PathBuf, String> {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .into_iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
        .ok_or_else(|| format!("there is no {name} here; .ci/run lists the packages to install"))
}

/// A program as `/usr/bin/NAME`, with the libraries that it is linked to.
fn add_program(archive: &mut Archive, program: &Path) -> Result<(), String> {
    add_with_libraries(archive, program, &Path::new("/usr/bin").join(name_of(program)))
}

/// What a program is called in machines: without the hash that cargo gives to tests.
pub(super) fn name_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name.to_owned()
        }
        _ => name.into_owned(),
    }
}

fn add_with_libraries(archive: &mut Archive, file: &Path, path: &Path) -> Result<(), String> {
    archive.add_from(file, path)?;
    for library in libraries(file)? {
        archive.add_from_host(&library)?;
    }
    Ok(())
}

/// What the dynamic loader would load for a program, itself included; nothing for a
/// script or a static program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let Ok(shown) = output("ldd", &[&program.to_string_lossy()]) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for line in shown.lines() {
        // "name => /path (address)" or, for the loader, "/path (address)".
        if line.ends_with("not found") {
            return Err(format!("{} needs {}", program.display(), line.trim()));
        }
        let path = line.rsplit("=> ").next().unwrap_or(line).trim().split(' ').next();
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            found.push(merged(Path::new(path))?);
        }
    }
    Ok(found)
}

/// The path without links in its folder: /lib is a link here and in the machine, and
/// an archive must not write through links.
fn merged(path: &Path) -> Result<PathBuf, String> {
    let failed = || format!("{} lies nowhere", path.display());
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok()).ok_or_else(failed)?;
    Ok(folder.join(path.file_name().ok_or_else(failed)?))
}

fn only_entry(folder: &Path) -> Result<String, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut names = fs::read_dir(folder).map_err(failed)?;
    let first = names.next().ok_or_else(|| format!("{} is empty", folder.display()))?;
    Ok(first.map_err(failed)?.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_lose_their_hash_and_nothing_else() {
        assert_eq!(name_of(Path::new("/x/deps/gateways-0123456789abcdef")), "gateways");
        assert_eq!(name_of(Path::new("/x/two-parts-0123456789abcdef")), "two-parts");
        assert_eq!(name_of(Path::new("/usr/bin/redis-cli")), "redis-cli");
        assert_eq!(name_of(Path::new("/usr/bin/x-0123456789abcdeg")), "x-0123456789abcdeg");
    }
}
