//! A stream written out reference by reference.

use std::fmt::Write;

use octavo_types::{Consumer, Event, ItemKind, PageNumber, PageSize, Segment, VirtAddr};

use crate::{Stream, executed, pages_touched};

/// One reference of a program. A modify is one reference, as Lackey prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Fetch, load or store.
    pub kind: ItemKind,
    /// Its first byte.
    pub addr: VirtAddr,
    /// Number of bytes that it touches.
    pub size_bytes: u16,
}

/// Writes a stream out as the list of everything that executed; events are ignored.
#[derive(Clone, Debug, Default)]
pub struct NaiveReferences {
    /// All references so far, in order.
    pub references: Vec<Reference>,
}

impl NaiveReferences {
    /// The references as `valgrind --tool=lackey --trace-mem=yes` prints them.
    pub fn lackey_text(&self) -> String {
        let mut text = String::new();
        for Reference { kind, addr, size_bytes } in &self.references {
            let label = match kind {
                ItemKind::Fetch => "I ",
                ItemKind::Load => " L",
                ItemKind::Store => " S",
                ItemKind::Modify => " M",
            };
            writeln!(text, "{label} {:08x},{size_bytes}", addr.raw()).expect("memory suffices");
        }
        text
    }

    /// The base pages that each reference of a stream touches, one or two: a modify is two
    /// references.
    pub fn base_pages(&self, stream: Stream) -> Vec<Vec<PageNumber>> {
        let mut all = Vec::new();
        for Reference { addr, size_bytes, .. } in self.of(stream) {
            let touched = pages_touched(*addr, *size_bytes, PageSize::BASE);
            all.push(touched.into_iter().map(|(page, _)| page).collect());
        }
        all
    }

    /// The numbers of the cache lines of `line_bytes` bytes that the references of a stream touch, in order.
    pub fn lines(&self, stream: Stream, line_bytes: u64) -> Vec<u64> {
        let mut lines = Vec::new();
        for Reference { addr, size_bytes, .. } in self.of(stream) {
            let last = addr.raw() + u64::from(*size_bytes) - 1;
            lines.extend(addr.raw() / line_bytes..=last / line_bytes);
        }
        lines
    }

    /// The references of a stream, a modify twice.
    fn of(&self, stream: Stream) -> impl Iterator<Item = &Reference> {
        let in_stream = move |one: &&Reference| {
            stream == Stream::All || (stream == Stream::Fetch) == (one.kind == ItemKind::Fetch)
        };
        let times = |one: &Reference| if one.kind == ItemKind::Modify { 2 } else { 1 };
        let all = self.references.iter().filter(in_stream);
        all.flat_map(move |one| std::iter::repeat_n(one, times(one)))
    }
}

impl Consumer for NaiveReferences {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.references.extend(executed(segment, addresses).map(|(item, addr)| Reference {
            kind: item.kind,
            addr,
            size_bytes: item.size_bytes,
        }));
    }

    fn event(&mut self, _: &Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::Item;

    #[test]
    fn guarded_item_at_null_is_not_executed() {
        let item = |kind, guarded, size_bytes, addr| Item {
            kind,
            guarded,
            atomic: false,
            size_bytes,
            addr: VirtAddr::new(addr),
        };
        let items = vec![
            item(ItemKind::Fetch, false, 3, 0x401000),
            item(ItemKind::Load, true, 8, 0),
            item(ItemKind::Fetch, false, 7, 0x401003),
            item(ItemKind::Modify, false, 4, 0),
            item(ItemKind::Store, true, 16, 0),
        ];
        let segment = Segment::new(items, vec![]).unwrap();
        let mut references = NaiveReferences::default();
        references.segment(&segment, &[0, 0x1ffeffe7e8, 0x5000].map(VirtAddr::new));
        references.segment(&segment, &[0x6000, 0x1ffeffe7e8, 0].map(VirtAddr::new));
        assert_eq!(
            references.lackey_text(),
            "I  00401000,3\nI  00401003,7\n M 1ffeffe7e8,4\n S 00005000,16\n\
             I  00401000,3\n L 00006000,8\nI  00401003,7\n M 1ffeffe7e8,4\n"
        );
    }
}
