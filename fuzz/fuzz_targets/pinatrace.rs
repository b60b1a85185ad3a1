#![no_main]

use octavo_fuzz::{need_format, read_format};

libfuzzer_sys::fuzz_target!(init: need_format("pinatrace"), |bytes: &[u8]| read_format("pinatrace", bytes));
