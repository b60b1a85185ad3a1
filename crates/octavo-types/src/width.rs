//! Canonical addresses, the only ones that a processor translates.

use crate::addr::{AddrRange, VirtAddr};
use crate::page::PageSize;

/// The number of bits of a virtual address that a processor translates. In a *canonical* address,
/// all bits above are copies of the highest of these bits, so that the address space has a lower
/// half, for programs, and an upper half, for the kernel.
///
/// A processor raises an exception for any other address. A trace may hold such addresses all the
/// same: pointers with tags in their upper bits, references that raised the exception, numbers that
/// are not addresses. Engines take canonical addresses only. So others are *folded*: the upper bits
/// are replaced, and a reference that reaches past the end of its half is moved down to end there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressWidth(u8);

impl AddressWidth {
    /// Four levels of page tables.
    pub const LA48: AddressWidth = AddressWidth(48);
    /// Five levels of page tables. Every address that is canonical in 48 bits is in 57.
    pub const LA57: AddressWidth = AddressWidth(57);

    /// The width that page tables of this number of levels translate; at least one level.
    pub const fn of_levels(levels: u8) -> Self {
        AddressWidth(9 * levels + PageSize::BASE.log2())
    }

    /// The number of bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// A mask of the bits of an address that are its offset in its half.
    const fn offset_mask(self) -> u64 {
        (1 << (self.0 - 1)) - 1
    }

    /// The bytes of its half from an address on.
    const fn room(self, addr: VirtAddr) -> u64 {
        self.offset_mask() - (addr.raw() & self.offset_mask()) + 1
    }

    /// The address of a reference of `size_bytes`, from one to a base page: its own if all of its
    /// bytes lie at canonical addresses of one half, else folded.
    #[inline]
    pub const fn fold(self, addr: VirtAddr, size_bytes: u16) -> VirtAddr {
        let above = u64::BITS - self.0 as u32;
        let folded = ((addr.raw() << above) as i64 >> above) as u64;
        let excess = (size_bytes as u64).saturating_sub(self.room(VirtAddr::new(folded)));
        VirtAddr::new(folded - excess)
    }

    /// Whether a reference of `size_bytes` lies at canonical addresses of one half.
    #[inline]
    pub const fn holds(self, addr: VirtAddr, size_bytes: u16) -> bool {
        self.fold(addr, size_bytes).raw() == addr.raw()
    }

    /// A range with its start folded, cut at the end of its half.
    pub const fn fold_range(self, range: AddrRange) -> AddrRange {
        let (start, bytes) = (self.fold(range.start(), 1), range.bytes());
        let room = self.room(start);
        AddrRange::new(start, if bytes > room { room } else { bytes })
    }

    /// The number of leading addresses that need no folding for references of up to a base page. An
    /// address nearer than that to the end of its half ends the count, even if its own reference is
    /// shorter.
    pub fn held(self, addresses: &[u64]) -> usize {
        let mut held = 0;
        for chunk in addresses.chunks(64) {
            if !self.holds_low(chunk) && !self.holds_each(chunk) {
                let each = chunk.iter().take_while(|addr| self.holds_each(&[**addr]));
                return held + each.count();
            }
            held += chunk.len();
        }
        held
    }

    /// Whether all addresses are [held](AddressWidth::held).
    pub fn holds_all(self, addresses: &[u64]) -> bool {
        self.held(addresses) == addresses.len()
    }

    /// Whether all addresses lie in the lower half and no access from them leaves it. A false
    /// result may be wrong.
    #[inline(always)]
    fn holds_low(self, addresses: &[u64]) -> bool {
        let ones = addresses.iter().fold(0, |ones, addr| ones | addr);
        ones < (1 << (self.0 - 1)) - PageSize::BASE.bytes()
    }

    fn holds_each(self, addresses: &[u64]) -> bool {
        let reach = PageSize::BASE.bytes() - 1;
        let (mask, bits) = (self.offset_mask(), self.0);
        // No branch, so that many addresses are checked at once.
        let wrong = addresses.iter().fold(0, |wrong, addr| {
            // Moves the two halves side by side.
            let at = addr.wrapping_add(mask + 1);
            wrong | at >> bits | ((at & mask) + reach) >> (bits - 1)
        });
        wrong == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTHS: [AddressWidth; 2] = [AddressWidth::LA48, AddressWidth::LA57];

    #[test]
    fn user_and_kernel_addresses_are_canonical() {
        for addr in [0, 0x7fff_ffff_f000, 0xffff_8000_0000_0000, 0xffff_ffff_ff60_0000] {
            for width in WIDTHS {
                assert!(width.holds(VirtAddr::new(addr), 4096), "{addr:#x}");
                assert!(width.holds_all(&[addr]), "{addr:#x}");
            }
        }
    }

    #[test]
    fn addresses_of_57_bits_are_not_canonical_in_48() {
        for addr in [0x8000_0000_0000, 0xff_ffff_ffff_f000, 0xff00_0000_0000_0000] {
            assert!(AddressWidth::LA57.holds(VirtAddr::new(addr), 4096), "{addr:#x}");
            assert!(!AddressWidth::LA48.holds(VirtAddr::new(addr), 4096), "{addr:#x}");
        }
    }

    #[test]
    fn tags_in_upper_bits_are_dropped() {
        let fold = |width: AddressWidth, addr| width.fold(VirtAddr::new(addr), 8).raw();
        assert_eq!(fold(AddressWidth::LA57, 0xb400_7f12_3456_7890), 0x7f12_3456_7890);
        assert_eq!(fold(AddressWidth::LA48, 0x0012_ffff_0000_0010), 0xffff_ffff_0000_0010);
    }

    #[test]
    fn references_past_the_end_of_a_half_end_there() {
        let fold = |addr, size| AddressWidth::LA57.fold(VirtAddr::new(addr), size).raw();
        assert_eq!(fold(u64::MAX, 1), u64::MAX);
        assert_eq!(fold(u64::MAX, 2), u64::MAX - 1);
        assert_eq!(fold(0xff_ffff_ffff_ffff, 4096), 0xff_ffff_ffff_f000);
        assert_eq!(fold(u64::MAX - 7, 8), u64::MAX - 7);
    }

    #[test]
    fn ranges_stay_in_one_half() {
        let fold = |width: AddressWidth, start, bytes| {
            let range = width.fold_range(AddrRange::new(VirtAddr::new(start), bytes));
            (range.start().raw(), range.bytes())
        };
        assert_eq!(fold(AddressWidth::LA48, 0x1000, u64::MAX), (0x1000, 0x7fff_ffff_f000));
        assert_eq!(fold(AddressWidth::LA57, 0x1000, u64::MAX), (0x1000, 0xff_ffff_ffff_f000));
        assert_eq!(
            fold(AddressWidth::LA57, 0xffff_8000_0000_0000, 4096),
            (0xffff_8000_0000_0000, 4096)
        );
    }

    /// Addresses around every power of two and every boundary.
    #[test]
    fn folding_is_idempotent_and_the_quick_check_agrees() {
        let around =
            |at: u64| (0..4).flat_map(move |by| [at.wrapping_sub(by), at.wrapping_add(by)]);
        let bounds = (0..64).map(|bit| 1u64 << bit).flat_map(|bit| [bit, bit.wrapping_neg()]);
        for addr in bounds.flat_map(|at| [at, at.wrapping_sub(4096), at ^ 0xfff]).flat_map(around) {
            for width in WIDTHS {
                for size in [1, 2, 8, 4095, 4096] {
                    let folded = width.fold(VirtAddr::new(addr), size);
                    assert!(width.holds(folded, size), "{addr:#x}");
                    assert!(folded.raw().checked_add(u64::from(size) - 1).is_some(), "{addr:#x}");
                }
                let holds = width.holds(VirtAddr::new(addr), 4096);
                assert_eq!(width.holds_all(&[0x1000, addr, 0x2000]), holds, "{addr:#x}");
                for before in [0, 1, 63, 64, 100] {
                    let mut addresses = vec![0x1000; before];
                    addresses.extend([addr; 30]);
                    let held = if holds { addresses.len() } else { before };
                    assert_eq!(width.held(&addresses), held, "{addr:#x}");
                }
            }
        }
    }
}
