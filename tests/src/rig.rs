//! Virtual machines with a real RDMA device: the kernel's Soft-RoCE (rxe) under
//! QEMU's emulation, so that suites of RDMA run on any Debian, without hardware,
//! without privileges and without touching the machine they run on.
//!
//! ```text
//! test process                              | virtual machine
//!   Machine::run ---- frames of wire.rs ----|-> rig_agent runs commands, takes and gives files
//!   Hub ------------- Ethernet frames ------|-> eth0, rxe0 over it (networks only)
//!   console.log <---- what the kernel says -|-- init.sh: modules, addresses, rxe0, rig_agent
//! ```
//!
//! Both channels are socket pairs that QEMU inherits as standard input and output,
//! so nothing is left in the file system. A machine cannot outlive its test: QEMU
//! dies with the thread that started it, the agent powers off when its channel
//! closes or its time is over, and a panic of the kernel ends QEMU.

mod cpio;
mod hub;
mod initramfs;
mod job;
mod machine;
mod packages;
pub mod wire;

use std::path::PathBuf;
use std::time::Duration;

pub use job::{Job, Outcome};
pub use machine::Machine;

use hub::Hub;

/// The most machines in a network; each needs a processor and its memory.
const MACHINES_MAX: usize = 8;

/// What every machine of a rig is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory of a machine.
    pub memory_mib: u64,
    /// Its processors.
    pub processors: usize,
    /// How long a machine may run at most; it powers itself off then.
    pub lifetime: Duration,
    /// Programs that are in `/bin` from the start, with the libraries they need.
    pub programs: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            processors: 2,
            lifetime: Duration::from_mins(15),
            programs: Vec::new(),
        }
    }
}

impl Options {
    /// With these programs of the workspace, as built in our profile.
    pub fn with_programs(names: &[&str]) -> Self {
        let programs = names.iter().map(|name| crate::server::built(name)).collect();
        Self { programs, ..Self::default() }
    }

    /// And with these suites, to run on devices that this machine does not have. Each is
    /// a program in the machine under its own name, with what all suites need.
    ///
    /// # Panics
    /// If one was not built: `cargo xtask suite rdma` does that.
    pub fn and_suites(mut self, names: &[&str]) -> Self {
        self.programs.extend(names.iter().map(|name| newest_suite(name)));
        self.programs.push(crate::server::built("gateway"));
        self.programs.push(crate::server::built("mnd"));
        self
    }
}

/// Machines that run at the same time. Dropping it ends them.
#[derive(Debug)]
pub struct Rig {
    machines: Vec<Machine>,
    /// Carries their frames as long as the rig lives.
    _hub: Option<Hub>,
}

impl Rig {
    /// One machine, with rxe0 on an interface that leads nowhere: 10.0.0.1.
    ///
    /// # Panics
    /// If it does not come up; the message has the end of its console.
    pub fn one(options: &Options) -> Machine {
        let image = initramfs::image(options).unwrap_or_else(|error| panic!("{error}"));
        let machine =
            Machine::boot("alone", &image, options, None).unwrap_or_else(|error| panic!("{error}"));
        machine.wait_until_ready();
        machine
    }

    /// Machines on one network, each with rxe0 on it: 10.0.0.1, 10.0.0.2, and so on.
    ///
    /// # Panics
    /// If one does not come up; the message has the end of its console.
    pub fn network(count: usize, options: &Options) -> Self {
        assert!(count <= MACHINES_MAX, "a network has {MACHINES_MAX} machines at most");
        let image = initramfs::image(options).unwrap_or_else(|error| panic!("{error}"));
        let (hub, ports) = Hub::with_ports(count);
        let machines: Vec<Machine> = (1..)
            .zip(ports)
            .map(|(number, port)| {
                let name = format!("machine{number}");
                Machine::boot(&name, &image, options, Some((number, port)))
                    .unwrap_or_else(|error| panic!("{error}"))
            })
            .collect();
        for machine in &machines {
            machine.wait_until_ready();
        }
        Self { machines, _hub: Some(hub) }
    }

    /// The machines; number `i` has the address `10.0.0.(i + 1)`.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }
}

/// The program of one of `tests/tests`; cargo adds a hash to its name, and leaves those
/// of earlier builds there.
fn newest_suite(name: &str) -> PathBuf {
    let folder = crate::server::built("deps");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_none() && initramfs::name_of(path) == name)
        .max_by_key(|path| path.metadata().and_then(|about| about.modified()).ok())
        .unwrap_or_else(|| panic!("{} has no suite {name}: it was not built", folder.display()))
}

/// The address of machine `index` in its network, and of the only one of a rig.
pub fn address(index: usize) -> String {
    format!("10.0.0.{}", index + 1)
}
