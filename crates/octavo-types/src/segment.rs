//! Segments: straight runs of instructions, defined once.

use smallvec::SmallVec;

use crate::addr::VirtAddr;
use crate::page::{PageNumber, PageSize};
use crate::visits::Visits;

/// The kind of a reference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// An instruction fetch.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
}

impl Access {
    /// Whether it is an instruction fetch, which has a TLB and a cache of its own on most machines.
    #[inline(always)]
    pub const fn is_fetch(self) -> bool {
        matches!(self, Access::Fetch)
    }
}

/// The kind of an item of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ItemKind {
    /// An instruction fetch.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
    /// A load and then a store of the same bytes: two references.
    Modify,
}

/// One item of a segment, in execution order. A data item belongs to the fetch before it; one that
/// no fetch precedes belongs to the last instruction of the segment before, which may end in the
/// middle of an instruction (a string instruction).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Item {
    /// Fetch, load or store.
    pub kind: ItemKind,
    /// Whether it may be skipped at run time (a conditional move, a masked store).
    pub guarded: bool,
    /// Whether it is an atomic read-modify-write.
    pub atomic: bool,
    /// How many bytes it touches, at least 1.
    pub size_bytes: u16,
    /// For a fetch, the instruction's address; for data, [`VirtAddr::NULL`]: the address comes
    /// with each execution.
    pub addr: VirtAddr,
}

impl Item {
    /// An item that is neither guarded nor atomic.
    pub fn new(kind: ItemKind, size_bytes: u16, addr: VirtAddr) -> Self {
        Item { kind, guarded: false, atomic: false, size_bytes, addr }
    }
}

/// Where the address of a data item is found at each execution.
///
/// Data items that follow one another, and whose addresses lie at constant distances (pushes,
/// fields of a structure), are an *address group*: one address comes for all of them, the lowest. A
/// group spans at most a base page, and a guarded item is alone in its group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressPlace {
    /// Whether it is the first of its group. If not, it is in the group of the data item before.
    pub leads: bool,
    /// Its distance in bytes from the address that comes for the group.
    pub offset: u16,
}

impl AddressPlace {
    /// The place of an item with an address of its own.
    pub const OWN: AddressPlace = AddressPlace { leads: true, offset: 0 };
}

/// The dependences of one instruction, for a core model: enough to compute when it may start.
///
/// `producers` bit *d* says that it uses a value made by the instruction *d + 1* places before it
/// in its superblock (which may lie in an earlier segment of the same superblock). `reads` and
/// `writes` are sets of architectural registers read from before, and left for after, the
/// superblock: bits 0-15 the general registers in VEX's order, 16 the flags, 17 the x87 stack,
/// 18 the segment bases, 19 everything else, 32-63 the vector registers. Flags are computed where
/// they are used: an instruction that needs some (a conditional jump, `adc`, `dec`, which keeps the
/// carry) may show what the instruction that set them used.
///
/// Values that an instruction with data does not need for its addresses are *late*: it may load
/// before they are ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dependences {
    /// Earlier instructions whose values this one uses.
    pub producers: u64,
    /// Architectural registers read; bits 20-22 are the code of its [arithmetic](Dependences::arithmetic), and bit 24
    /// says that it [makes a vector](Dependences::makes_vector).
    pub reads: u64,
    /// Architectural registers written.
    pub writes: u64,
    /// The late ones among `producers`.
    pub late_producers: u64,
    /// The late ones among the registers read.
    pub late_reads: u64,
}

/// A kind of computation that takes more than a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arithmetic {
    /// A multiplication of integers.
    Multiply,
    /// Arithmetic of floating-point numbers other than division.
    Float,
    /// A division or a square root of floating-point numbers.
    FloatDivide,
    /// A division of integers.
    Divide,
}

impl Arithmetic {
    /// All, in the order of their codes from 1 on: those that take longer last.
    pub const ALL: [Arithmetic; 4] =
        [Arithmetic::Multiply, Arithmetic::Float, Arithmetic::FloatDivide, Arithmetic::Divide];

    /// The code of an instruction's computation; 0 for one that takes a cycle.
    pub const fn code(kind: Option<Arithmetic>) -> u8 {
        match kind {
            None => 0,
            Some(kind) => kind as u8 + 1,
        }
    }

    /// The kind that a code stands for; `None` for unknown codes, and where the computation takes a
    /// cycle.
    #[inline]
    pub fn of_code(code: u8) -> Option<Arithmetic> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

impl Dependences {
    /// The general registers.
    const GENERAL: u64 = 0xffff;
    /// The general registers and the flags.
    const INTEGERS: u64 = Self::GENERAL | 1 << 16;
    /// The bits of `reads` that are not registers.
    const NO_REGISTERS: u64 = 0xfff << 20;
    const VECTOR_VALUE: u64 = 1 << 24;
    /// The code of the instruction's [`Arithmetic`].
    const ARITHMETIC: u64 = 0b111 << Self::ARITHMETIC_SHIFT;
    const ARITHMETIC_SHIFT: u32 = 20;

    /// Dependences on instructions and registers, none of them late, and registers written.
    pub const fn new(producers: u64, reads: u64, writes: u64) -> Self {
        Dependences { producers, reads, writes, late_producers: 0, late_reads: 0 }
    }

    /// The registers that it reads.
    pub const fn registers_read(&self) -> u64 {
        self.reads & !Self::NO_REGISTERS
    }

    /// Whether a value that other instructions of the superblock use is a vector or a floating-point number.
    pub const fn makes_vector(&self) -> bool {
        self.reads & Self::VECTOR_VALUE != 0
    }

    /// The kind of its computation; `None` where it takes a cycle or is unknown.
    #[inline]
    pub fn arithmetic(&self) -> Option<Arithmetic> {
        Arithmetic::of_code(((self.reads & Self::ARITHMETIC) >> Self::ARITHMETIC_SHIFT) as u8)
    }
}

/// A data item as the page-level engines see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataItem {
    /// The highest offset in a base page from which it does not reach into the next page.
    pub last_whole_offset: u16,
    /// How many bytes it touches.
    pub size_bytes: u16,
    /// Its distance in bytes from the address that comes for its address group.
    pub offset: u16,
    /// The number of address groups of the segment before its own.
    pub group: u32,
    /// How many references it makes when it executes: 2 for a modify, else 1.
    pub references: u8,
    /// How many of them are loads.
    pub loads: u8,
    /// Whether the last of them is a store.
    pub stores: bool,
    /// Whether it may be skipped at run time.
    pub guarded: bool,
    /// How many instructions of the segment are fetched before it.
    pub fetches_before: u32,
}

/// A run of fetches in a segment that fall in one base page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FetchPage {
    /// The base page.
    pub page: PageNumber,
    /// How many instructions start in it.
    pub fetches: u32,
    /// Whether the run begins with the second half of an instruction that spans from the page
    /// before: one more look-up than there are fetches.
    pub spilled: bool,
}

/// A definition that cannot be a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// An item's size is 0 or more than a base page.
    #[error("its item {0} has size {1}, outside 1..=4096 bytes")]
    BadSize(usize, u16),
    /// The dependences do not match the instructions.
    #[error("it has {0} instructions but dependences of {1}")]
    Dependences(usize, usize),
    /// The address group of a data item is not well formed.
    #[error("its data item {0} is in an address group that is not well formed")]
    AddressGroup(usize),
}

/// A segment with the summary that lets engines work without expanding it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Segment {
    items: Box<[Item]>,
    dependences: Box<[Dependences]>,
    /// Whether each instruction writes an integer register.
    writes_integer: Box<[bool]>,
    data: Box<[DataItem]>,
    fetch_pages: Box<[FetchPage]>,
    instructions: u32,
    loads: u32,
    stores: u32,
    modifies: u32,
    address_groups: u32,
    has_guarded: bool,
    visits: Option<Visits>,
}

impl Segment {
    /// A segment of `items`; `dependences` has one entry per fetch, or none where unknown. Entries
    /// that are all empty count as unknown.
    pub fn new(items: Vec<Item>, dependences: Vec<Dependences>) -> Result<Self, SegmentError> {
        Self::with_places(items, dependences, &[])
    }

    /// As [`Segment::new`], with the places of the data items' addresses, or none where each item has its
    /// own.
    pub fn with_places(
        items: Vec<Item>,
        mut dependences: Vec<Dependences>,
        places: &[AddressPlace],
    ) -> Result<Self, SegmentError> {
        // Programs have tens of thousands of segments: allocate no more than is needed.
        let fetches = items.iter().filter(|item| item.kind == ItemKind::Fetch).count();
        let mut data = Vec::with_capacity(items.len() - fetches);
        let mut fetch_pages = Vec::<FetchPage>::with_capacity(usize::from(fetches > 0));
        let (mut instructions, mut loads, mut stores, mut modifies) = (0u32, 0u32, 0u32, 0u32);
        let (mut has_guarded, mut address_groups) = (false, 0u32);
        for (index, item) in items.iter().enumerate() {
            if item.size_bytes == 0 || u64::from(item.size_bytes) > PageSize::BASE.bytes() {
                return Err(SegmentError::BadSize(index, item.size_bytes));
            }
            if item.kind == ItemKind::Fetch {
                instructions += 1;
                add_fetch(&mut fetch_pages, item);
                continue;
            }
            let place = places.get(data.len()).copied().unwrap_or(AddressPlace::OWN);
            address_groups += u32::from(place.leads);
            let group =
                address_groups.checked_sub(1).ok_or(SegmentError::AddressGroup(data.len()))?;
            let item = DataItem::new(item, instructions, group, place.offset);
            has_guarded |= item.guarded;
            loads += u32::from(item.loads);
            stores += u32::from(item.references - item.loads);
            modifies += u32::from(item.references == 2);
            data.push(item);
        }
        if !dependences.is_empty() && dependences.len() != instructions as usize {
            return Err(SegmentError::Dependences(instructions as usize, dependences.len()));
        }
        if dependences.iter().all(|entry| *entry == Dependences::default()) {
            dependences.clear();
        }
        check_groups(&data)?;
        Ok(Segment {
            visits: Visits::of(&items, &data),
            items: items.into(),
            writes_integer: writes_integer(&dependences),
            dependences: dependences.into(),
            data: data.into(),
            fetch_pages: fetch_pages.into(),
            instructions,
            loads,
            stores,
            modifies,
            address_groups,
            has_guarded,
        })
    }

    /// All items in execution order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The register dependences, one per instruction, or none where the source has none.
    pub fn dependences(&self) -> &[Dependences] {
        &self.dependences
    }

    /// Whether the instruction of this number writes an integer register, as far as is known: it leaves a
    /// general one for after the superblock, or an integer that others of the superblock use.
    #[inline(always)]
    pub fn writes_integer(&self, instruction: usize) -> bool {
        self.writes_integer.get(instruction).copied().unwrap_or(false)
    }

    /// The data items in execution order.
    #[inline(always)]
    pub fn data(&self) -> &[DataItem] {
        &self.data
    }

    /// How many addresses come with every execution: one for each address group.
    #[inline(always)]
    pub fn address_groups(&self) -> usize {
        self.address_groups as usize
    }

    /// The data items of each address group.
    pub fn groups(&self) -> impl Iterator<Item = &[DataItem]> {
        self.data.chunk_by(|item, next| item.group == next.group)
    }

    /// The addresses of the data items, one each, from the addresses that came with an execution.
    #[inline(always)]
    pub fn addresses<'a>(&self, of_groups: &'a [u64], room: &'a mut AddressRoom) -> &'a [VirtAddr] {
        if self.address_groups() < self.data.len() {
            self.add_offsets(of_groups, room);
            return room;
        }
        VirtAddr::slice_from_raw(of_groups)
    }

    /// The addresses that come with an execution whose data items have `addresses`.
    ///
    /// # Panics
    ///
    /// If the items of a group do not have the distances that the segment states.
    pub fn addresses_of_groups(&self, addresses: &[VirtAddr]) -> Vec<u64> {
        let mut of_groups = Vec::with_capacity(self.address_groups());
        for (item, addr) in self.data.iter().zip(addresses) {
            let start = addr.raw().wrapping_sub(item.offset.into());
            if of_groups.len() == item.group as usize {
                of_groups.push(start);
            }
            assert_eq!(of_groups.last(), Some(&start), "an address of another group");
        }
        of_groups
    }

    #[inline(never)]
    fn add_offsets(&self, of_groups: &[u64], room: &mut AddressRoom) {
        room.clear();
        room.extend(self.data.iter().map(|item| item.address(of_groups)));
    }

    /// The base pages fetched from, in order, consecutive fetches from one page together.
    #[inline(always)]
    pub fn fetch_pages(&self) -> &[FetchPage] {
        &self.fetch_pages
    }

    /// The base pages that an execution touches; `None` if an item may be skipped, or if it makes 2^16 references or
    /// more.
    #[inline(always)]
    pub fn visits(&self) -> Option<&Visits> {
        self.visits.as_ref()
    }

    /// How many instructions it executes.
    #[inline(always)]
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// How many references one execution makes: fetches, loads and stores. The addresses are those of its
    /// data items.
    #[inline]
    pub fn references(&self, addresses: &[VirtAddr]) -> u64 {
        let all = u64::from(self.instructions) + u64::from(self.loads) + u64::from(self.stores);
        if !self.has_guarded {
            return all;
        }
        let items = self.data.iter().zip(addresses);
        let absent = items.filter(|(item, addr)| item.guarded && **addr == VirtAddr::NULL);
        all - absent.map(|(item, _)| u64::from(item.references)).sum::<u64>()
    }

    /// Whether any of its items may be skipped at run time.
    #[inline(always)]
    pub fn has_guarded(&self) -> bool {
        self.has_guarded
    }

    /// How many loads, were every guarded item to execute.
    #[inline(always)]
    pub fn loads(&self) -> u32 {
        self.loads
    }

    /// How many stores, were every guarded item to execute.
    #[inline(always)]
    pub fn stores(&self) -> u32 {
        self.stores
    }

    /// How many items are both a load and a store, were every guarded item to execute.
    #[inline(always)]
    pub fn modifies(&self) -> u32 {
        self.modifies
    }
}

impl DataItem {
    fn new(item: &Item, fetches_before: u32, group: u32, offset: u16) -> Self {
        let (references, loads) = match item.kind {
            ItemKind::Load => (1, 1),
            ItemKind::Store => (1, 0),
            ItemKind::Modify => (2, 1),
            ItemKind::Fetch => unreachable!("a fetch is not a data item"),
        };
        DataItem {
            last_whole_offset: (PageSize::BASE.bytes() - u64::from(item.size_bytes)) as u16,
            size_bytes: item.size_bytes,
            offset,
            group,
            references,
            loads,
            stores: loads < references,
            guarded: item.guarded,
            fetches_before,
        }
    }

    /// The length in bytes of an address group of these items: at most a base page.
    pub fn reach_of_group(items: &[DataItem]) -> u16 {
        let ends = items.iter().map(|item| item.offset + item.size_bytes);
        ends.max().unwrap_or_default()
    }

    /// Its address, by those of the address groups.
    #[inline(always)]
    pub fn address(&self, of_groups: &[u64]) -> VirtAddr {
        VirtAddr::new(of_groups[self.group as usize]).wrapping_add(self.offset.into())
    }
}

/// Room for the addresses of an execution's data items.
pub type AddressRoom = SmallVec<[VirtAddr; 32]>;

/// Refuses address groups that have no item at their address, span more than a base page, or have a
/// guarded item among others.
fn check_groups(data: &[DataItem]) -> Result<(), SegmentError> {
    let mut first = 0;
    for items in data.chunk_by(|item, next| item.group == next.group) {
        let reaches = |item: &DataItem| {
            u64::from(item.offset) + u64::from(item.size_bytes) <= PageSize::BASE.bytes()
        };
        let is_sound = items.iter().any(|item| item.offset == 0)
            && items.iter().all(reaches)
            && (items.len() == 1 || items.iter().all(|item| !item.guarded));
        if !is_sound {
            return Err(SegmentError::AddressGroup(first));
        }
        first += items.len();
    }
    Ok(())
}

fn writes_integer(dependences: &[Dependences]) -> Box<[bool]> {
    let leaves_integer = |entry: &Dependences| entry.writes & Dependences::GENERAL != 0;
    let mut written: Box<[bool]> = dependences.iter().map(leaves_integer).collect();
    for (number, entry) in dependences.iter().enumerate() {
        let mut producers = entry.producers;
        while producers != 0 {
            // A producer may lie in an earlier segment of the superblock.
            if let Some(producer) = number.checked_sub(producers.trailing_zeros() as usize + 1) {
                let made_by = &dependences[producer];
                written[producer] |=
                    made_by.writes & !Dependences::INTEGERS == 0 && !made_by.makes_vector();
            }
            producers &= producers - 1;
        }
    }
    written
}

fn add_fetch(pages: &mut Vec<FetchPage>, item: &Item) {
    let first = item.addr.page(PageSize::BASE);
    let last = item.addr.wrapping_add(u64::from(item.size_bytes) - 1).page(PageSize::BASE);
    match pages.last_mut() {
        Some(run) if run.page == first => run.fetches += 1,
        _ => pages.push(FetchPage { page: first, fetches: 1, spilled: false }),
    }
    if last != first {
        pages.push(FetchPage { page: last, fetches: 0, spilled: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: ItemKind, size_bytes: u16, addr: u64) -> Item {
        Item::new(kind, size_bytes, VirtAddr::new(addr))
    }

    #[test]
    fn arithmetic_is_no_register() {
        let registers = 0b1011 | 1 << 19 | 1 << 32;
        let dependences =
            |code: u64| Dependences { reads: registers | code << 20, ..Default::default() };
        for code in 0..8 {
            let arithmetic = Arithmetic::of_code(code);
            assert_eq!(dependences(u64::from(code)).arithmetic(), arithmetic);
            assert_eq!(dependences(u64::from(code)).registers_read(), registers);
            assert_eq!(arithmetic.is_some(), (1..=4).contains(&code));
            assert_eq!(Arithmetic::code(arithmetic), if code <= 4 { code } else { 0 });
        }
    }

    #[test]
    fn an_instruction_that_spans_two_pages_spills_into_the_second() {
        let items = vec![
            item(ItemKind::Fetch, 3, 0x1ff0),
            item(ItemKind::Modify, 8, 0),
            item(ItemKind::Fetch, 7, 0x1ffc),
            item(ItemKind::Load, 8, 0),
            item(ItemKind::Fetch, 1, 0x2003),
        ];
        let segment = Segment::new(items, Vec::new()).unwrap();
        let page = PageNumber::new;
        assert_eq!(
            segment.fetch_pages(),
            [
                FetchPage { page: page(1), fetches: 2, spilled: false },
                FetchPage { page: page(2), fetches: 1, spilled: true },
            ]
        );
        assert_eq!((segment.instructions(), segment.loads(), segment.stores()), (3, 2, 1));
    }

    #[test]
    fn an_instruction_writes_an_integer_register_if_it_leaves_one_or_its_value_is_used() {
        let items = vec![item(ItemKind::Fetch, 1, 0x1000); 7];
        let entry = Dependences::new;
        let (rax, flags, xmm0) = (1, 1 << 16, 1 << 32);
        let dependences = vec![
            entry(0, 0, 0),                         // used by the third
            entry(0, 0, rax | flags),               // leaves two
            entry(0b10, 0, flags),                  // leaves the flags alone
            entry(0, 0, xmm0),                      // a vector
            entry(0, Dependences::VECTOR_VALUE, 0), // used by the next
            entry(0b11, 0, flags),                  // used by the last, beside the flags
            entry(0b1, 0, 0),
        ];
        let segment = Segment::new(items, dependences).unwrap();
        let written: Vec<bool> = (0..7).map(|number| segment.writes_integer(number)).collect();
        assert_eq!(written, [true, true, false, false, false, true, false]);
    }

    /// A fetch and loads of 8 bytes, by whether each leads an address group, its offset in it, and whether it is
    /// guarded.
    fn grouped(loads: &[(bool, u16, bool)]) -> Result<Segment, SegmentError> {
        let mut items = vec![item(ItemKind::Fetch, 1, 0x1000)];
        items.extend(
            loads.iter().map(|&(_, _, guarded)| Item { guarded, ..item(ItemKind::Load, 8, 0) }),
        );
        let places = loads.iter().map(|&(leads, offset, _)| AddressPlace { leads, offset });
        Segment::with_places(items, Vec::new(), &places.collect::<Vec<_>>())
    }

    #[test]
    fn one_address_comes_for_each_address_group() {
        let loads = [
            (true, 16, false),
            (false, 0, false),
            (true, 0, true),
            (true, 0, false),
            (false, 4088, false),
        ];
        let segment = grouped(&loads).unwrap();
        assert_eq!(segment.address_groups(), 3);
        let groups: Vec<usize> = segment.groups().map(<[DataItem]>::len).collect();
        assert_eq!(groups, [2, 1, 2]);
        let mut room = AddressRoom::new();
        let addresses = segment.addresses(&[0x5000, 0, 0x9000], &mut room);
        let raw = [0x5010, 0x5000, 0, 0x9000, 0x9ff8];
        assert_eq!(VirtAddr::slice_to_raw(addresses), raw);
        assert_eq!(segment.references(addresses), 1 + 4);
        assert_eq!(segment.addresses_of_groups(addresses), [0x5000, 0, 0x9000]);
        let addresses = segment.addresses(&[0x5000, 0x77, 0x9000], &mut room);
        assert_eq!(segment.references(addresses), 1 + 5);
        let plain = grouped(&[(true, 0, false); 2]).unwrap();
        let mut room = AddressRoom::new();
        assert_eq!(VirtAddr::slice_to_raw(plain.addresses(&[7, 9], &mut room)), [7, 9]);
    }

    #[test]
    fn impossible_address_groups_are_refused() {
        let refused = |loads: &[(bool, u16, bool)]| grouped(loads).unwrap_err();
        let group = SegmentError::AddressGroup;
        // None to join; no item at the address of the group; past a base page; guarded with others.
        assert_eq!(refused(&[(false, 0, false)]), group(0));
        assert_eq!(refused(&[(true, 8, false)]), group(0));
        assert_eq!(refused(&[(true, 8, false), (false, 16, false)]), group(0));
        assert_eq!(refused(&[(true, 0, false), (true, 0, false), (false, 4089, false)]), group(1));
        assert_eq!(refused(&[(true, 0, true), (false, 0, false)]), group(0));
        assert_eq!(refused(&[(true, 0, false), (false, 0, true)]), group(0));
        assert_eq!(refused(&[(true, 4, true)]), group(0));
    }

    #[test]
    fn impossible_definitions_are_refused() {
        let empty = vec![item(ItemKind::Fetch, 0, 0x1000)];
        assert_eq!(Segment::new(empty, vec![]), Err(SegmentError::BadSize(0, 0)));
        let one = vec![item(ItemKind::Fetch, 1, 0x1000)];
        assert_eq!(
            Segment::new(one, vec![Dependences::default(); 2]),
            Err(SegmentError::Dependences(1, 2))
        );
    }
}
