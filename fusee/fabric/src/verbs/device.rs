//! The machine's RDMA devices, and which of them to use.

use super::domain::Opened;
use super::library::Library;
use super::{VerbsError, ffi};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Which device to use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceChoice {
    /// Its name; otherwise the first that can be used.
    pub name: Option<String>,
    /// The local address that peers reach it at; otherwise the first of the device.
    pub address: Option<IpAddr>,
}

/// A device's port and address that can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The device's name.
    pub name: String,
    /// The port's number.
    pub port: u8,
    /// The port's address on InfiniBand; 0 on Ethernet.
    pub lid: u16,
    /// Its GID, all 0 on InfiniBand.
    pub gid: [u8; 16],
    /// The GID's index on this machine.
    pub(crate) gid_index: u8,
    /// Bytes of a packet, at most.
    pub mtu: u16,
    pub(crate) limits: DeviceLimits,
}

/// What a device can do at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceLimits {
    /// Work requests of a queue.
    pub work_requests: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// READs and atomics under way to one queue pair.
    pub reads_served: u8,
    /// READs and atomics under way from one queue pair.
    pub reads_posted: u8,
}

/// A device as the machine describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceDescription {
    /// Its name.
    pub name: String,
    /// Has it CAS and FAA?
    pub atomics: bool,
    /// What it can do at once.
    pub limits: DeviceLimits,
    /// Its ports.
    pub ports: Vec<PortDescription>,
}

/// A port as the machine describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDescription {
    /// Its number, from 1.
    pub number: u8,
    /// Is it connected?
    pub active: bool,
    /// Is it on Ethernet (RoCE)?
    pub ethernet: bool,
    /// Its address on InfiniBand.
    pub lid: u16,
    /// Bytes of a packet, at most.
    pub mtu: u16,
    /// Bytes of a message, at most.
    pub message_bytes_max: u32,
    /// Its GIDs.
    pub gids: Vec<GidDescription>,
}

/// A GID of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidDescription {
    /// Its place in the port's table.
    pub index: u8,
    /// The GID.
    pub gid: [u8; 16],
    /// Is it of RoCE version 2, which is routed as UDP?
    pub roce_v2: bool,
}

/// The largest object is READ as one message.
pub(crate) const MESSAGE_BYTES: u32 = 8 << 20;
/// READs and atomics under way on one queue pair; more do not make it faster.
const READS_MAX: u8 = 16;
/// Entries of a port's table of GIDs that are looked at.
const GIDS_MAX: i32 = 256;

impl Device {
    /// The device that fits the choice.
    ///
    /// # Errors
    ///
    /// If libibverbs or a device is missing, or none fits; the error says why.
    pub fn choose(choice: &DeviceChoice) -> Result<Self, VerbsError> {
        choose(&devices()?, choice)
    }
}

/// All devices of this machine.
///
/// # Errors
///
/// If libibverbs is missing, or the machine has no device that can be opened.
pub fn devices() -> Result<Vec<DeviceDescription>, VerbsError> {
    let library = Library::get()?;
    let mut described = Vec::new();
    let mut failed = None;
    for opened in Opened::all(library)? {
        match opened.and_then(|opened| describe(&opened)) {
            Ok(description) => described.push(description),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if described.is_empty() => Err(error),
        _ if described.is_empty() => Err(VerbsError::NoDevice),
        _ => Ok(described),
    }
}

fn describe(opened: &Opened) -> Result<DeviceDescription, VerbsError> {
    let attributes = opened.attributes()?;
    let limits = DeviceLimits {
        work_requests: attributes.max_qp_wr.max(0) as u32,
        completions: attributes.max_cqe.max(0) as u32,
        reads_served: attributes.max_qp_rd_atom.clamp(0, READS_MAX.into()) as u8,
        reads_posted: attributes.max_qp_init_rd_atom.clamp(0, READS_MAX.into()) as u8,
    };
    let ports = (1..=attributes.phys_port_cnt)
        .map(|number| {
            let port = opened.port(number)?;
            let gids = (0..port.gid_tbl_len.clamp(0, GIDS_MAX))
                .filter_map(|index| {
                    let entry = opened.gid(number, index as u32)?;
                    // A GID has the order of the network in memory.
                    let mut gid = [0; 16];
                    gid[..8].copy_from_slice(&entry.gid[0].to_ne_bytes());
                    gid[8..].copy_from_slice(&entry.gid[1].to_ne_bytes());
                    let roce_v2 = entry.gid_type == ffi::GID_TYPE_ROCE_V2;
                    Some(GidDescription { index: index as u8, gid, roce_v2 })
                })
                .collect();
            Ok(PortDescription {
                number,
                active: port.state == ffi::PORT_ACTIVE,
                ethernet: port.link_layer == ffi::LINK_LAYER_ETHERNET,
                lid: port.lid,
                mtu: mtu_bytes(port.active_mtu),
                message_bytes_max: port.max_msg_sz,
                gids,
            })
        })
        .collect::<Result<_, VerbsError>>()?;
    let atomics = attributes.atomic_cap != ffi::ATOMIC_NONE;
    Ok(DeviceDescription { name: opened.name().to_owned(), atomics, limits, ports })
}

/// Chooses among the devices that there are.
fn choose(devices: &[DeviceDescription], choice: &DeviceChoice) -> Result<Device, VerbsError> {
    let mut refused = Vec::new();
    for device in devices {
        if choice.name.as_ref().is_some_and(|name| *name != device.name) {
            refused.push(format!("{} is not the one that was asked for", device.name));
            continue;
        }
        if !device.atomics {
            refused.push(format!(
                "{} has no atomics (CAS and FAA), without which nothing can be written: \
                 choose another device, or the fabric tcp",
                device.name
            ));
            continue;
        }
        for port in &device.ports {
            match fit(device, port, choice.address) {
                Ok(device) => return Ok(device),
                Err(reason) => {
                    refused.push(format!("{} port {} {reason}", device.name, port.number));
                }
            }
        }
    }
    Err(VerbsError::NoneFits { refused })
}

fn fit(
    device: &DeviceDescription,
    port: &PortDescription,
    address: Option<IpAddr>,
) -> Result<Device, String> {
    if !port.active {
        return Err("is not active: bring its network interface or its cable up".into());
    }
    if port.message_bytes_max < MESSAGE_BYTES {
        return Err(format!(
            "takes messages of {} bytes, and {MESSAGE_BYTES} are needed",
            port.message_bytes_max
        ));
    }
    let gid = if port.ethernet { Some(fit_gid(&port.gids, address)?) } else { None };
    Ok(Device {
        name: device.name.clone(),
        port: port.number,
        lid: port.lid,
        gid: gid.map_or([0; 16], |gid| gid.gid),
        gid_index: gid.map_or(0, |gid| gid.index),
        mtu: port.mtu,
        limits: device.limits,
    })
}

/// The GID of RoCE version 2 that is the address. Indices differ from machine
/// to machine and change when addresses do.
fn fit_gid(gids: &[GidDescription], address: Option<IpAddr>) -> Result<GidDescription, String> {
    let wanted = address.map(|address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    });
    let fits = |gid: &&GidDescription| {
        let found = Ipv6Addr::from(gid.gid);
        gid.roce_v2 && wanted.map_or(found.to_ipv4_mapped().is_some(), |wanted| wanted == found)
    };
    gids.iter().find(fits).copied().ok_or_else(|| {
        let have: Vec<_> =
            gids.iter().filter(|gid| gid.roce_v2).map(|gid| shown(gid.gid)).collect();
        let have = if have.is_empty() { "none".into() } else { have.join(", ") };
        match address {
            Some(address) => format!("does not have the address {address}; it has {have}"),
            None => format!(
                "has no IPv4 address: give its network interface one, or name one of its \
                 addresses ({have})"
            ),
        }
    })
}

fn shown(gid: [u8; 16]) -> String {
    let address = Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string())
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.name, self.port)?;
        if self.gid == [0; 16] {
            write!(f, " lid {}", self.lid)?;
        } else {
            write!(f, " at {}", shown(self.gid))?;
        }
        write!(f, " mtu {}", self.mtu)
    }
}

/// `enum ibv_mtu` counts from 1 for 256 bytes, each the double of the one before.
pub(crate) fn mtu_bytes(code: i32) -> u16 {
    if (1..=5).contains(&code) { 128 << code } else { 256 }
}

/// The largest code of an MTU that is not above so many bytes; `None` if there
/// is none.
pub(crate) fn mtu_code(bytes: u16) -> Option<i32> {
    (1..=5).rev().find(|&code| mtu_bytes(code) <= bytes)
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
