#![no_main]
//! Bytes become a command line; the invariants of `permission::invariants` must hold for it.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(broken) = permission::invariants::broken(&String::from_utf8_lossy(bytes)) {
        panic!("{broken}");
    }
});
