//! `cargo +nightly fuzz run requests`, in the folder gateway.
#![no_main]

#[path = "../check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: (&[u8], [u8; 4])| {
    let (bytes, pieces) = input;
    check::check(bytes, &pieces);
});
