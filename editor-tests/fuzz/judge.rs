#![no_main]
//! Bytes become a command line; the laws of `permission::laws` must hold for it.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(broken) = permission::laws::broken(&String::from_utf8_lossy(bytes)) {
        panic!("{broken}");
    }
});
