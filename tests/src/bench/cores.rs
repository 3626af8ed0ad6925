//! Servers and generator do not share a core where there are two.

use crate::process;

/// Who runs where.
#[derive(Clone, Copy, Debug)]
pub enum Cores {
    /// The servers on one core, the generator on another.
    Apart {
        /// The servers'.
        server: usize,
        /// The generator's.
        generator: usize,
    },
    /// All on the only core that there is.
    Shared,
}

impl Cores {
    /// The first and the last core that this process may use.
    pub fn choose() -> Result<Self, String> {
        let allowed = process::allowed_cores().map_err(|error| error.to_string())?;
        match allowed[..] {
            [server, .., generator] => Ok(Self::Apart { server, generator }),
            _ => Ok(Self::Shared),
        }
    }

    /// What is started from now on runs on the server's core.
    pub fn server(&self) -> Result<(), String> {
        match self {
            Self::Apart { server, .. } => pin(*server),
            Self::Shared => Ok(()),
        }
    }

    /// What runs from now on, runs on the generator's core.
    pub fn generator(&self) -> Result<(), String> {
        match self {
            Self::Apart { generator, .. } => pin(*generator),
            Self::Shared => Ok(()),
        }
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Apart { server, generator } => {
                write!(f, "servers on core {server}, generator on core {generator}")
            }
            Self::Shared => write!(f, "all on ONE core: latencies mean nothing here"),
        }
    }
}

fn pin(core: usize) -> Result<(), String> {
    process::pin(&[core]).map_err(|error| format!("cannot run on core {core}: {error}"))
}
