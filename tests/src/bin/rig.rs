//! Runs commands in virtual machines with an RDMA device, and prints what they say.
//!
//! ```text
//! rig 'ibv_devinfo -v'
//! rig --program target/ci/gateway 'gateway --version'
//! rig --machines 2 --background '2=ib_read_lat -d rxe0 -x 1' 'sleep 1; ib_read_lat -d rxe0 -x 1 10.0.0.2'
//! ```

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tests::rig::{Machine, Options, Outcome, Rig};

/// Runs a command in a virtual machine with an RDMA device, rxe0, at 10.0.0.1.
#[derive(Parser)]
struct Flags {
    /// A program to have in the machines' PATH; may be given several times.
    #[arg(long)]
    program: Vec<PathBuf>,
    /// Machines on one network: 10.0.0.1, 10.0.0.2, and so on.
    #[arg(long, default_value_t = 1)]
    machines: usize,
    /// Another command that runs meanwhile, as MACHINE=COMMAND, machines from 1 on.
    #[arg(long, value_parser = background)]
    background: Vec<(usize, String)>,
    /// Memory of each machine.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u64,
    /// Seconds after which the command is ended.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// What the first machine's shell runs; its exit code is ours.
    command: String,
}

fn background(text: &str) -> Result<(usize, String), String> {
    let (number, command) = text.split_once('=').ok_or("give MACHINE=COMMAND")?;
    let number = number.parse().map_err(|_| format!("{number:?} is not a machine's number"))?;
    Ok((number, command.to_owned()))
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let limit = Duration::from_secs(flags.limit);
    let options = Options {
        memory_mib: flags.memory_mib,
        // The test's own limit comes first and says more.
        lifetime: limit + Duration::from_mins(5),
        programs: flags.program.clone(),
        ..Options::default()
    };
    if flags.machines == 1 {
        run(&flags, &[Rig::one(&options)], limit)
    } else {
        run(&flags, Rig::network(flags.machines, &options).machines(), limit)
    }
}

fn run(flags: &Flags, machines: &[Machine], limit: Duration) -> ExitCode {
    let mut others = Vec::new();
    for (number, command) in &flags.background {
        let Some(machine) = number.checked_sub(1).and_then(|index| machines.get(index)) else {
            let _ = writeln!(io::stderr(), "there is no machine {number}; see --machines");
            return ExitCode::FAILURE;
        };
        others.push(machine.start(command));
    }
    let outcome = machines[0].start(&flags.command).wait(limit);
    for job in others {
        job.kill();
        match job.wait(Duration::from_secs(10)) {
            Ok(outcome) => {
                let _ = writeln!(io::stderr(), "in the background: {outcome}");
            }
            Err(error) => {
                let _ = writeln!(io::stderr(), "in the background: {error}");
            }
        }
    }
    match outcome {
        Ok(Outcome { status, output, errors, .. }) => {
            let _ = io::stdout().write_all(output.as_bytes());
            let _ = io::stderr().write_all(errors.as_bytes());
            u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
