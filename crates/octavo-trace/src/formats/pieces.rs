//! References larger than a segment may hold.

use octavo_types::{PageSize, VirtAddr};

/// The `bytes` from `addr` on, in pieces of 4096 bytes and the rest; nothing if there are none.
#[inline]
pub(crate) fn pieces(addr: u64, bytes: u32) -> impl Iterator<Item = (VirtAddr, u16)> {
    const MOST: u32 = PageSize::BASE.bytes() as u32;
    (0..bytes.div_ceil(MOST)).map(move |index| {
        let before = index * MOST;
        let size = (bytes - before).min(MOST) as u16;
        (VirtAddr::new(addr.wrapping_add(u64::from(before))), size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_small() {
        let parts_of = |addr, bytes| pieces(addr, bytes).collect::<Vec<_>>();
        let at = VirtAddr::new;
        assert_eq!(parts_of(5, 0), []);
        assert_eq!(parts_of(5, 1), [(at(5), 1)]);
        assert_eq!(parts_of(5, 4096), [(at(5), 4096)]);
        assert_eq!(parts_of(5, 4097), [(at(5), 4096), (at(4101), 1)]);
        assert_eq!(parts_of(u64::MAX, 8192), [(at(u64::MAX), 4096), (at(4095), 4096)]);
        assert_eq!(pieces(0, u32::MAX).count(), 1 << 20);
    }
}
