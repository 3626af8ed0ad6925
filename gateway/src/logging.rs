//! Log lines to stderr.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// Begins to write log lines as the configuration says.
///
/// # Errors
/// The level is neither a level nor a filter, with what to write instead.
pub fn start(config: &Config) -> Result<(), String> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| {
        format!(
            "log-level {:?} is not understood: {error}; write error, warn, info, debug or trace",
            config.log_level
        )
    })?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => lines.json().init(),
    }
    Ok(())
}
