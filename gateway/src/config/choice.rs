//! Settings that are one of a few words.

use clap::ValueEnum;
use serde::Deserialize;

/// Whether clients have to show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificates {
    /// Each must.
    Yes,
    /// None is asked.
    No,
    /// Who shows one must show a right one.
    Optional,
}

/// As Redis writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum YesNo {
    Yes,
    No,
}

/// Whether clients' sockets are sent to and received from by io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoUring {
    /// Where the kernel has it and lets us.
    Auto,
    /// Or the server does not start.
    Yes,
    /// Sockets are polled.
    No,
}

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs, one object a line.
    Json,
}
