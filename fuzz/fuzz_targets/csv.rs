#![no_main]

use octavo_fuzz::{need_format, read_format};

libfuzzer_sys::fuzz_target!(init: need_format("csv"), |bytes: &[u8]| read_format("csv", bytes));
