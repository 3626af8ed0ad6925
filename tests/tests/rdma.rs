//! Programs on a real RDMA device, in virtual machines.

use std::time::{Duration, Instant};

use tests::rig::{Options, Rig, address};

/// For a command of a second or so, on a host that is busy with other things.
const SHORT: Duration = Duration::from_mins(1);

#[test]
fn a_machine_has_an_rdma_device_with_atomics_that_carries_bytes() {
    let machine = Rig::one(&Options::default());
    let devices = machine.run("ibv_devices", SHORT).success();
    assert!(devices.contains("rxe0"), "{devices}");
    let shown = machine.run("ibv_devinfo -v -d rxe0", SHORT).success();
    assert!(shown.contains("PORT_ACTIVE") && shown.contains("ATOMIC_HCA"), "{shown}");
    let pingpong = "ibv_rc_pingpong -d rxe0 -g 1 -n 100";
    let server = machine.start(&format!("{pingpong} -c"));
    let said = machine.run(&format!("sleep 1; {pingpong} -c localhost"), SHORT).success();
    assert!(said.contains("100 iters"), "{said}");
    assert!(server.wait(SHORT).unwrap().success().contains("100 iters"));
}

#[test]
fn machines_of_a_network_reach_one_another_by_rdma() {
    let rig = Rig::network(3, &Options::default());
    let [first, second, third] = rig.machines() else { panic!("there are three") };
    for other in [first, third] {
        let server = second.start("ib_write_lat -d rxe0 -x 1 -F -n 100");
        let client = format!("sleep 1; ib_write_lat -d rxe0 -x 1 -F -n 100 {}", address(1));
        let said = other.run(&client, SHORT).success();
        assert!(said.contains("t_typical"), "{said}");
        server.wait(SHORT).unwrap().success();
    }
}

#[test]
fn files_come_back_as_they_were_put_and_commands_tell_how_they_ended() {
    let machine = Rig::one(&Options::default());
    let bytes: Vec<u8> = (0..3_000_001u32).map(|number| (number % 251) as u8).collect();
    machine.put("/data/deep/file", &bytes);
    assert!(machine.get("/data/deep/file") == bytes, "3 MB came back otherwise");

    let outcome = machine.run("echo out; echo err >&2; exit 7", SHORT);
    assert_eq!((outcome.status, &*outcome.output, &*outcome.errors), (7, "out\n", "err\n"));
    assert_eq!(machine.run("kill -9 $$", SHORT).status, 128 + 9);
    // What a command leaves behind ends with it.
    let begin = Instant::now();
    assert_eq!(machine.run("sleep 100 & echo done", SHORT).success(), "done\n");
    assert!(begin.elapsed() < SHORT);
}

#[test]
fn a_command_that_hangs_is_ended_and_a_dead_machine_is_noticed() {
    let machine = Rig::one(&Options::default());
    let failure = machine.start("echo begun; sleep 1000").wait(Duration::from_secs(2));
    let failure = failure.unwrap_err();
    assert!(failure.contains("took over 2s") && failure.contains("begun"), "{failure}");
    let running = machine.run("sleep 1; pidof sleep", SHORT);
    assert_eq!(running.output, "", "the command outlived its limit");

    let mut job = machine.start("echo begun; sleep 1000");
    job.wait_for("begun", SHORT);
    machine.kill();
    assert!(job.wait(SHORT).unwrap_err().contains("the machine is gone"));
    assert!(machine.start("true").wait(SHORT).unwrap_err().contains("the machine is gone"));
}

#[test]
fn a_machine_ends_when_its_time_is_over() {
    let options = Options { lifetime: Duration::from_secs(3), ..Options::default() };
    let machine = Rig::one(&options);
    let failure = machine.start("sleep 1000").wait(SHORT).unwrap_err();
    assert!(failure.contains("the machine is gone"), "{failure}");
    assert!(machine.last_words().contains("3 s are over"), "{}", machine.last_words());
}

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
        println!("{said}");
    }
    let best = |all: &[f64], first: usize| {
        all.iter().skip(first).step_by(2).copied().fold(f64::INFINITY, f64::min)
    };
    for (name, first) in [("READ", 0), ("CAS", 1)] {
        let (raw, ours) = (best(&raw, first), best(&ours, first));
        println!("{name}: {ours} us against {raw} us of perftest");
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
    // Half a second by the device's own patience; emulation and load make it more.
    assert!(ms < 2000, "{said}");
}
