//! The verbs fabric on a real RDMA device, in virtual machines.

use std::time::Duration;

use tests::rig::{Options, Rig, address};

/// For a command of a second or so, on a host that is busy with other things.
const SHORT: Duration = Duration::from_mins(1);

/// For checks of a minute, on a host that is busy with other things.
const LONG: Duration = Duration::from_mins(6);

#[test]
fn verbs_keep_what_fabrics_promise_and_cost_little_more_than_raw_ones() {
    let machine = Rig::one(&Options { memory_mib: 2048, ..Options::with_programs(&["verbs"]) });
    let checked = machine.run("verbs check", LONG);
    assert!(checked.status == 0, "{}{}", checked.output, checked.errors);

    // In turns, so that a busy host is so for both.
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        for program in ["ib_read_lat", "ib_atomic_lat -A CMP_AND_SWAP"] {
            let program = format!("{program} -d rxe0 -x 1 -F -n 1000");
            let server = machine.start(&program);
            let said = machine.run(&format!("sleep 1; {program} localhost"), SHORT).success();
            server.wait(SHORT).unwrap().success();
            raw.push(least(&said, "t_typical", 2));
        }
        let said = machine.run("verbs latency --rounds 1000", SHORT).success();
        ours.push(row(&said, "READ 8 B", 0));
        ours.push(row(&said, "CAS", 0));
    }
    let best = |all: &[f64], first: usize| {
        all.iter().skip(first).step_by(2).copied().fold(f64::INFINITY, f64::min)
    };
    for (name, first) in [("READ", 0), ("CAS", 1)] {
        let (raw, ours) = (best(&raw, first), best(&ours, first));
        assert!(ours < 1.5 * raw, "{name} takes {ours} us, and {raw} us with perftest");
    }
}

/// A number of the line below the one with a heading, as perftest has it.
fn least(said: &str, heading: &str, column: usize) -> f64 {
    let line = said.lines().skip_while(|line| !line.contains(heading)).nth(1);
    let word = line.and_then(|line| line.split_whitespace().nth(column));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in {said}"))
}

/// A number of the line that begins with a name, as `verbs latency` has it.
fn row(said: &str, name: &str, column: usize) -> f64 {
    let rest = said.lines().find_map(|line| line.strip_prefix(name));
    let word = rest.and_then(|rest| rest.split_whitespace().nth(column));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
}

#[test]
fn verbs_reach_nodes_on_other_machines_and_tell_when_one_is_killed() {
    let rig = Rig::network(3, &Options::with_programs(&["verbs"]));
    let [client, first, second] = rig.machines() else { panic!("there are three") };
    let mut nodes = String::new();
    let mut serving = Vec::new();
    for (number, machine) in [(1, first), (2, second)] {
        let mut job = machine.start("verbs serve 0.0.0.0:7000");
        job.wait_for("serving by", SHORT);
        serving.push(job);
        nodes.push_str(&format!(" --node {}:7000", address(number)));
    }
    let checked = client.run(&format!("verbs check{nodes}"), LONG);
    assert!(checked.status == 0, "{}{}", checked.output, checked.errors);

    let mut job = client.start(&format!("verbs until-down{nodes}"));
    job.wait_for("all are up", SHORT);
    second.kill();
    let said = job.wait(SHORT).unwrap().success();
    let ms = said.lines().find_map(|line| line.strip_prefix("node 1 is down after ")).unwrap();
    let ms: u64 = ms.trim_end_matches(" ms").parse().unwrap();
    // Half a second by the device's own patience, two by its worker's.
    assert!(ms < 3000, "{said}");
}
