//! Which device is chosen, and what is said when none is.

use super::*;
use std::net::Ipv4Addr;

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);

fn gid(index: u8, address: Ipv6Addr, roce_v2: bool) -> GidDescription {
    GidDescription { index, gid: address.octets(), roce_v2 }
}

/// The table of a usual RoCE port: link-local first, each once for version 1
/// and once for version 2.
fn roce(number: u8, address: Ipv4Addr) -> PortDescription {
    let local: Ipv6Addr = "fe80::1".parse().unwrap();
    let gids = vec![
        gid(0, local, false),
        gid(1, local, true),
        gid(2, address.to_ipv6_mapped(), false),
        gid(3, address.to_ipv6_mapped(), true),
    ];
    PortDescription {
        number,
        active: true,
        ethernet: true,
        lid: 0,
        mtu: 1024,
        message_bytes_max: 1 << 30,
        gids,
    }
}

fn device(name: &str, ports: Vec<PortDescription>) -> DeviceDescription {
    let limits =
        DeviceLimits { work_requests: 8192, completions: 8192, reads_served: 16, reads_posted: 16 };
    DeviceDescription { name: name.into(), atomics: true, limits, ports }
}

fn refusal(devices: &[DeviceDescription], choice: &DeviceChoice) -> String {
    choose(devices, choice).unwrap_err().to_string()
}

#[test]
fn the_gid_is_the_ipv4_address_in_roce_version_2_wherever_it_stands() {
    let chosen = choose(&[device("a", vec![roce(1, FIRST)])], &DeviceChoice::default()).unwrap();
    assert_eq!((chosen.port, chosen.gid_index), (1, 3));
    assert_eq!(chosen.gid, FIRST.to_ipv6_mapped().octets());
    assert_eq!(chosen.to_string(), "a port 1 at 10.0.0.1 mtu 1024");
    let mut other = device("a", vec![roce(1, FIRST)]);
    other.ports[0].gids.reverse();
    other.ports[0].gids[0].index = 7;
    assert_eq!(choose(&[other], &DeviceChoice::default()).unwrap().gid_index, 7);
}

#[test]
fn the_device_is_the_one_with_the_address_or_the_name_that_was_asked_for() {
    let devices = [
        device("a", vec![roce(1, FIRST)]),
        device("b", vec![roce(1, Ipv4Addr::new(10, 9, 9, 9)), roce(2, SECOND)]),
    ];
    let address = DeviceChoice { name: None, address: Some(SECOND.into()) };
    let chosen = choose(&devices, &address).unwrap();
    assert_eq!((chosen.name.as_str(), chosen.port), ("b", 2));
    let name = DeviceChoice { name: Some("b".into()), address: None };
    assert_eq!(choose(&devices, &name).unwrap().port, 1);
    let both = DeviceChoice { name: Some("a".into()), address: Some(SECOND.into()) };
    assert_eq!(
        refusal(&devices, &both),
        "no RDMA device can be used: a port 1 does not have the address 10.0.1.1; it has \
         fe80::1, 10.0.0.1; b is not the one that was asked for"
    );
}

#[test]
fn an_ipv6_address_is_taken_when_it_is_asked_for() {
    let address: Ipv6Addr = "2001:db8::7".parse().unwrap();
    let mut port = roce(1, FIRST);
    port.gids.push(gid(9, address, true));
    let choice = DeviceChoice { name: None, address: Some(address.into()) };
    assert_eq!(choose(&[device("a", vec![port])], &choice).unwrap().gid_index, 9);
}

#[test]
fn a_device_without_atomics_is_refused() {
    let mut device = device("siw0", vec![roce(1, FIRST)]);
    device.atomics = false;
    let said = refusal(&[device], &DeviceChoice::default());
    assert!(said.contains("siw0 has no atomics"), "{said}");
}

#[test]
fn a_port_that_cannot_be_used_is_passed_over_and_told() {
    let mut down = roce(1, FIRST);
    down.active = false;
    let mut small = roce(2, FIRST);
    small.message_bytes_max = 1 << 20;
    let mut bare = roce(3, FIRST);
    bare.gids.truncate(2);
    let devices = [device("a", vec![down, small, bare])];
    let said = refusal(&devices, &DeviceChoice::default());
    assert!(said.contains("a port 1 is not active"), "{said}");
    assert!(said.contains("a port 2 takes messages of 1048576 bytes"), "{said}");
    assert!(said.contains("a port 3 has no IPv4 address"), "{said}");
    let mut more = devices.to_vec();
    more.push(device("b", vec![roce(1, FIRST)]));
    assert_eq!(choose(&more, &DeviceChoice::default()).unwrap().name, "b");
}

#[test]
fn infiniband_goes_by_lid_and_needs_no_gid() {
    let port = PortDescription { ethernet: false, lid: 17, gids: Vec::new(), ..roce(1, FIRST) };
    let chosen = choose(&[device("a", vec![port])], &DeviceChoice::default()).unwrap();
    assert_eq!((chosen.lid, chosen.gid), (17, [0; 16]));
    assert_eq!(chosen.to_string(), "a port 1 lid 17 mtu 1024");
}

#[test]
fn the_mtu_is_the_largest_that_both_have() {
    let sizes = [256, 512, 1024, 2048, 4096];
    for (code, bytes) in (1..).zip(sizes) {
        assert_eq!((mtu_bytes(code), mtu_code(bytes)), (bytes, Some(code)));
    }
    assert_eq!((mtu_code(255), mtu_code(1500), mtu_code(u16::MAX)), (None, Some(3), Some(5)));
    assert_eq!((mtu_bytes(0), mtu_bytes(i32::MAX)), (256, 256));
}
