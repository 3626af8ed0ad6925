//! `gateway doctor` on this machine and at pools that are well, in part or not there.

use std::fs;
use std::process::Command;

use tests::pool::{Pool, PoolOptions};
use tests::server::built;

fn described(fabric: &'static str) -> Pool {
    Pool::describe(&PoolOptions { fabric, replicas: 2, ..PoolOptions::default() })
}

fn doctor_of(pool: &Pool) -> (bool, String) {
    doctor(&["--pool", &pool.file().to_string_lossy()])
}

/// Whether it found all that is needed, and what it said.
fn doctor(flags: &[&str]) -> (bool, String) {
    let output = Command::new(built("gateway")).arg("doctor").args(flags).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

#[test]
fn without_a_pool_the_machine_is_looked_at_and_no_rdma_is_no_failure() {
    let (well, said) = doctor(&[]);
    assert!(well, "{said}");
    assert!(said.contains("open files") && said.contains("RDMA"), "{said}");
}

#[test]
fn a_pool_that_is_well_is_timed_and_a_dead_memory_node_is_named_with_its_command() {
    for fabric in ["shm", "tcp"] {
        let pool = described(fabric);
        let (well, said) = doctor_of(&pool);
        assert!(!well, "{said}");
        let command = format!("mnd --pool {} --node 0", pool.file().display());
        assert!(said.contains(&command), "{said}");

        let mut nodes = pool.start_nodes();
        let (well, said) = doctor_of(&pool);
        assert!(well, "{said}");
        let timed: Vec<&str> = said.lines().filter(|line| line.contains("READ 8 B")).collect();
        assert_eq!(timed.len(), 2, "{said}");
        assert!(timed.iter().all(|line| line.contains("WRITE") && line.contains("CAS")), "{said}");

        drop(nodes.remove(1));
        let (well, said) = doctor_of(&pool);
        assert!(!well && said.contains("--node 1"), "{said}");
        assert!(!said.contains("--node 0"), "the living one is blamed:\n{said}");
    }
}

#[test]
fn the_blocks_that_were_tried_go_back() {
    let pool = described("shm");
    let _nodes = pool.start_nodes();
    // More often than the pool has blocks of its 64 MiB and entries for clients to lose.
    for _ in 0..40 {
        let (well, said) = doctor_of(&pool);
        assert!(well, "{said}");
    }
}

#[test]
fn a_pool_on_rdma_needs_a_device_and_a_file_that_is_no_pool_says_so() {
    let pool = described("verbs");
    let (well, said) = doctor_of(&pool);
    assert!(!well, "{said}");
    if !std::path::Path::new("/sys/class/infiniband").exists() {
        let wanted = ["libibverbs1", "rdma link add"];
        assert!(wanted.iter().any(|word| said.contains(word)), "{said}");
    }
    fs::write(pool.file(), "nmae = 1\n").unwrap();
    let (well, said) = doctor_of(&pool);
    assert!(!well && said.contains("nmae"), "{said}");
}
