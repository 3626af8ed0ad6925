//! `gateway doctor`: looks at what a gateway needs, on this machine and at the pool,
//! and says of each thing that is amiss exactly what to do.

mod machine;
mod pool;
mod rdma;
mod report;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fusee_control::Fabric;
use fusee_fabric::verbs::DeviceChoice;

pub use report::{Check, Report, Verdict};

/// Looks at this machine and, given one, at a pool: what is there, what answers, how long
/// a verb takes, and what to do about each thing that is amiss. Ends with 1 if something
/// does not work.
#[derive(Parser, Clone, Debug)]
#[command(name = "gateway doctor", bin_name = "gateway doctor", version, max_term_width = 100)]
pub struct Flags {
    /// The file that describes the pool
    #[arg(long, env = "FUSEE_POOL", value_name = "FILE")]
    pool: Option<PathBuf>,
    /// Speak to the pool's memory nodes without TLS even where others could hear it
    #[arg(long, env = "FUSEE_INSECURE")]
    insecure: bool,
    /// The RDMA device to look at, as the gateway would be told it [default: the first that
    /// can be used]
    #[arg(long, env = "FUSEE_DEVICE", value_name = "NAME")]
    device: Option<String>,
    /// The device's address to use [default: its first]
    #[arg(long, env = "FUSEE_DEVICE_ADDRESS", value_name = "ADDRESS")]
    device_address: Option<IpAddr>,
}

/// Looks, prints what it found, and tells by the exit code whether something is broken.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let flags = match Flags::try_parse_from(arguments) {
        Ok(flags) => flags,
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let report = runtime.block_on(examine(&flags));
    // Whoever closed the pipe has seen enough.
    let _ = write!(io::stdout(), "{report}");
    if report.is_broken() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Without a pool, RDMA is looked at and not demanded.
async fn examine(flags: &Flags) -> Report {
    let mut report = Report::default();
    let device = DeviceChoice { name: flags.device.clone(), address: flags.device_address };
    report.section("this machine", machine::checks());
    let Some(path) = &flags.pool else {
        report.section("RDMA, for pools with fabric = \"verbs\"", rdma::checks(false, &device));
        return report;
    };
    let (file, tls) = match pool::file(path, flags.insecure) {
        Ok(read) => read,
        Err(check) => {
            report.section("the pool", vec![check]);
            return report;
        }
    };
    if file.fabric == Fabric::Verbs {
        report.section("RDMA", rdma::checks(true, &device));
    }
    let mut checks = vec![pool::about(path, &file, tls.as_ref())];
    checks.extend(pool::control_planes(path, &file, tls.as_ref()).await);
    let answered = checks.iter().all(|check| matches!(check.verdict, Verdict::Good(_)));
    report.section("the pool", checks);
    if answered {
        report.section("its memory", pool::data_paths(file, tls, &device).await);
    }
    report
}
