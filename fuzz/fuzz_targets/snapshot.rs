#![no_main]

use octavo_fuzz::{snapshot, with_last_checksum};

// As the bytes are, and with the checksum made right, so that what lies behind it is reached.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    snapshot(bytes);
    snapshot(&with_last_checksum(bytes));
});
