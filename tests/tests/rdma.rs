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
