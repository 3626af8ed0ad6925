//! An initramfs: a cpio archive in the "new" format of portable ASCII.
//!
//! ```text
//! entry:  | 070701 | 13 numbers, 8 hex digits each | path, 0 | pad to 4 | bytes | pad to 4 |
//! ```
//!
//! The kernel unpacks several archives one behind the other, so one part can be
//! cached and another made for each machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// An archive being made. Folders above an entry are made with it.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    present: BTreeSet<PathBuf>,
    entries: u32,
}

impl Archive {
    /// A file of the host under its own path, unless it is there already.
    pub(super) fn add_from_host(&mut self, path: &Path) -> Result<(), String> {
        self.add_from(path, path)
    }

    /// A file of the host under another path, unless it is there already.
    pub(super) fn add_from(&mut self, source: &Path, path: &Path) -> Result<(), String> {
        if self.present.contains(path) {
            return Ok(());
        }
        let failed = |error| format!("{}: {error}", source.display());
        let mode = fs::metadata(source).map_err(failed)?.permissions().mode() & 0o777;
        let bytes = fs::read(source).map_err(failed)?;
        self.add(path, mode, &bytes);
        Ok(())
    }

    /// A file.
    pub(super) fn add(&mut self, path: &Path, mode: u32, bytes: &[u8]) {
        self.folders_above(path);
        self.entry(path, FILE | mode, bytes);
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &Path, target: &str) {
        self.folders_above(path);
        self.entry(path, LINK | 0o777, target.as_bytes());
    }

    /// An empty folder.
    pub(super) fn folder(&mut self, path: &Path) {
        self.folders_above(path);
        self.entry(path, FOLDER | 0o755, &[]);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn folders_above(&mut self, path: &Path) {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.retain(|folder| folder.parent().is_some());
        for folder in above.into_iter().rev() {
            self.entry(folder, FOLDER | 0o755, &[]);
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, bytes: &[u8]) {
        assert!(path.is_absolute(), "{} says not where it belongs", path.display());
        if self.present.insert(path.to_owned()) {
            let name = path.to_string_lossy();
            self.write(name.trim_start_matches('/'), mode, bytes);
        }
    }

    fn write(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(bytes.len()).expect("files of the rig are smaller than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("so are their names");
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        let mut head = String::from("070701");
        // Inode, mode, user, group, links, time, size, device, device of the node, name, sum.
        let numbers = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        for number in numbers {
            write!(head, "{number:08x}").expect("a String takes all");
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cpio itself makes of a folder, a file and a link, but for times and inodes.
    #[test]
    fn entries_are_as_cpio_writes_them_each_once_and_folders_first() {
        let mut archive = Archive::default();
        archive.add(Path::new("/usr/one"), 0o755, b"first");
        archive.add(Path::new("/usr/one"), 0o755, b"again");
        archive.link(Path::new("/usr/two"), "one");
        archive.folder(Path::new("/usr"));
        let zero = "00000000";
        let entry = |inode: u32, mode: &str, links: u32, size: u32, name_size: u32, rest: &str| {
            format!(
                "070701{inode:08x}{mode}{zero}{zero}{links:08x}{zero}{size:08x}\
                 {zero}{zero}{zero}{zero}{name_size:08x}{zero}{rest}"
            )
        };
        let expected = [
            entry(1, "000041ed", 2, 0, 4, "usr\0\0\0"),
            entry(2, "000081ed", 1, 5, 8, "usr/one\0\0\0first\0\0\0"),
            entry(3, "0000a1ff", 1, 3, 8, "usr/two\0\0\0one\0"),
            entry(4, zero, 1, 0, 11, "TRAILER!!!\0\0\0\0"),
        ];
        assert_eq!(String::from_utf8(archive.finish()).unwrap(), expected.concat());
    }
}
