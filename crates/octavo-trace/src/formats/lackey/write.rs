//! References as Lackey prints them.

use octavo_types::{ItemKind, VirtAddr};

use crate::formats::executed::ATOMIC_AND_REGISTERS;
use crate::formats::line_writer::{LineFormat, LineWriter};
use crate::formats::numbers::{push_decimal, push_hex};
use crate::sink::{Output, ReferenceWriter};

/// Writes `output`.
pub(super) fn create(output: Output) -> Box<dyn ReferenceWriter> {
    LineWriter::create(output, LackeyLines { fetched: false }, "")
}

struct LackeyLines {
    fetched: bool,
}

impl LineFormat for LackeyLines {
    fn line(&self, out: &mut Vec<u8>, kind: ItemKind, addr: VirtAddr, size_bytes: u16) {
        out.extend_from_slice(match kind {
            ItemKind::Fetch => b"I  ",
            ItemKind::Load => b" L ",
            ItemKind::Store => b" S ",
            ItemKind::Modify => b" M ",
        });
        push_hex(out, addr.raw(), 8);
        out.push(b',');
        push_decimal(out, u64::from(size_bytes));
        out.push(b'\n');
    }

    fn refuses(&mut self, kind: ItemKind, addr: VirtAddr) -> Option<String> {
        self.fetched |= kind == ItemKind::Fetch;
        (!self.fetched).then(|| format!("data at {addr} comes before any instruction"))
    }

    fn losses(&self) -> Vec<String> {
        vec![ATOMIC_AND_REGISTERS.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use octavo_oracle::NaiveReferences;
    use octavo_types::ItemKind;
    use proptest::prelude::*;

    use super::super::FORMAT;
    use crate::formats::testing::{self, read, references_of};

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        /// All references are kept.
        #[test]
        fn written_text_equals_lackeys_and_is_read_back(random in testing::stream(1..80)) {
            let references = references_of(&random);
            let written = testing::write(&FORMAT, &random);
            if references.first().is_some_and(|reference| reference.kind != ItemKind::Fetch) {
                let what = written.unwrap_err().to_string();
                prop_assert!(what.contains("comes before any instruction"), "{}", what);
                return Ok(());
            }
            let (bytes, _) = written.unwrap();
            let text = NaiveReferences { references: references.clone() }.lackey_text();
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), text.as_str());
            prop_assume!(!references.is_empty());
            prop_assert_eq!(read(&FORMAT, text.as_bytes()).whole(), references);
        }
    }
}
