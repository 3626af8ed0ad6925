//! `gateway doctor` on this machine and at pools that are well, in part or not there.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tests::server::built;

/// A pool's folder and its memory nodes; dropped, they are gone.
struct Pool {
    folder: PathBuf,
    nodes: Vec<Child>,
}

impl Pool {
    fn described(name: &str, fabric: &str) -> Self {
        // Paths of Unix sockets have 107 bytes at most.
        let folder = std::env::temp_dir().join(format!("doctor-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let shown = folder.display();
        let text = format!(
            "name = \"{name}\"\nfabric = \"{fabric}\"\nreplicas = 2\nmemory = \"64MiB\"\n\
             nodes = [\"unix:{shown}/0.sock\", \"unix:{shown}/1.sock\"]\n"
        );
        fs::write(folder.join("pool.toml"), text).unwrap();
        Self { folder, nodes: Vec::new() }
    }

    fn start(&mut self) {
        for number in 0..2 {
            let node = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--"])
                .arg(built("mnd"))
                .args(["--metrics-port", "0", "--node", &number.to_string(), "--pool"])
                .arg(self.folder.join("pool.toml"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("setpriv (package util-linux) and mnd are there");
            self.nodes.push(node);
        }
    }

    fn doctor(&self) -> (bool, String) {
        doctor(&["--pool", &self.folder.join("pool.toml").to_string_lossy()])
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
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
        timed_and_named(Pool::described(&format!("well-{fabric}"), fabric));
    }
}

fn timed_and_named(mut pool: Pool) {
    let (well, said) = pool.doctor();
    assert!(!well, "{said}");
    let command = format!("mnd --pool {}/pool.toml --node 0", pool.folder.display());
    assert!(said.contains(&command), "{said}");

    pool.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let said = loop {
        let (well, said) = pool.doctor();
        if well {
            break said;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    };
    let timed: Vec<&str> = said.lines().filter(|line| line.contains("READ 8 B")).collect();
    assert_eq!(timed.len(), 2, "{said}");
    assert!(timed.iter().all(|line| line.contains("WRITE") && line.contains("CAS")), "{said}");

    let mut dead = pool.nodes.remove(1);
    dead.kill().unwrap();
    dead.wait().unwrap();
    let (well, said) = pool.doctor();
    assert!(!well && said.contains("--node 1"), "{said}");
    assert!(!said.contains("--node 0"), "the living one is blamed:\n{said}");
}

#[test]
fn the_blocks_that_were_tried_go_back() {
    let mut pool = Pool::described("blocks", "shm");
    pool.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    // More often than the pool has blocks of its 64 MiB and entries for clients to lose.
    for _ in 0..40 {
        while !pool.doctor().0 {
            assert!(Instant::now() < deadline, "{}", pool.doctor().1);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn a_pool_on_rdma_needs_a_device_and_a_file_that_is_no_pool_says_so() {
    let pool = Pool::described("rdma", "verbs");
    let (well, said) = pool.doctor();
    assert!(!well, "{said}");
    if !std::path::Path::new("/sys/class/infiniband").exists() {
        let wanted = ["libibverbs1", "rdma link add"];
        assert!(wanted.iter().any(|word| said.contains(word)), "{said}");
    }
    fs::write(pool.folder.join("pool.toml"), "nmae = 1\n").unwrap();
    let (well, said) = pool.doctor();
    assert!(!well && said.contains("nmae"), "{said}");
}
