#![no_main]

use octavo_fuzz::{need_format, read_format, with_checksums};

// As the bytes are, and with every checksum made right, so that what lies behind them is reached.
libfuzzer_sys::fuzz_target!(init: need_format("native"), |bytes: &[u8]| {
    read_format("native", bytes);
    read_format("native", &with_checksums(bytes));
});
