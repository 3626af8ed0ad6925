//! See `tests/abi.rs`.
