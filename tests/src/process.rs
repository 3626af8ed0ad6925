//! What the kernel tells about a process: time on a processor, memory, cores.

use std::fs;
use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What a process or thread had of the processors, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Share {
    /// Time on a processor.
    pub cpu_ns: u64,
    /// Time ready to run while something else had the processor.
    pub waiting_ns: u64,
}

/// What all threads of a process have had so far.
///
/// A running thread's last scheduler tick is missing, so read it when the
/// process is idle.
pub fn share(pid: Pid) -> io::Result<Share> {
    let mut total = Share::default();
    for task in fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let one = Share::parse(&text)?;
        total.cpu_ns += one.cpu_ns;
        total.waiting_ns += one.waiting_ns;
    }
    Ok(total)
}

/// What the calling thread has had so far.
pub fn own_share() -> io::Result<Share> {
    Share::parse(&fs::read_to_string("/proc/thread-self/schedstat")?)
}

impl Share {
    fn parse(schedstat: &str) -> io::Result<Self> {
        let (cpu, rest) = schedstat.split_once(' ').unwrap_or((schedstat, ""));
        Ok(Self { cpu_ns: first_number(cpu)?, waiting_ns: first_number(rest)? })
    }
}

/// Resident memory of a process in bytes, shared mappings included.
pub fn resident_bytes(pid: Pid) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid()))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or_else(|| io::Error::other("the process has no memory any more"))?;
    Ok(first_number(line)? * 1024)
}

/// The processors that this thread may run on, in order.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Confines the calling thread, and what it starts from now on, to `cores`.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn first_number(text: &str) -> io::Result<u64> {
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::other(format!("no number in {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_work_counts_for_its_process() {
        let own = || own_share().unwrap().cpu_ns;
        let before = own();
        let mut x = 1u64;
        while own() < before + 20_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let done = own();
        assert!(share(rustix::process::getpid()).unwrap().cpu_ns >= done);
    }

    #[test]
    fn touched_memory_is_resident() {
        let pid = rustix::process::getpid();
        let before = resident_bytes(pid).unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(resident_bytes(pid).unwrap() >= before + (60 << 20));
        drop(block);
    }
}
