//! Executions as plain references, for the writers of formats without segments.

use octavo_types::{Item, ItemKind, Segment, VirtAddr};

/// For [`crate::sink::ReferenceWriter::losses`] of formats that know neither.
pub(crate) const ATOMIC_AND_REGISTERS: &str =
    "which references are atomic, and which registers instructions use";

/// Each item of `segment` that executed, with the address that it touched, in order.
#[inline]
pub(crate) fn executed<'a>(
    segment: &'a Segment,
    addresses: &'a [VirtAddr],
) -> impl Iterator<Item = (&'a Item, VirtAddr)> {
    let mut addresses = addresses.iter();
    segment.items().iter().filter_map(move |item| {
        if item.kind == ItemKind::Fetch {
            return Some((item, item.addr));
        }
        let addr = *addresses.next().expect("one address for each data item");
        (!item.guarded || addr != VirtAddr::NULL).then_some((item, addr))
    })
}
