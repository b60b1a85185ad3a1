//! From addresses to symbols and deltas.
//!
//! Addresses wait, each with the last one of its site, until there are many; then they get their
//! symbols side by side, in loops that the compiler turns into vector instructions.

use octavo_types::{Compiled, Instructions};

use super::by_class::{BATCH, ByClass};
use super::layout::{CLASS_BYTES, NULL, base};

/// How many addresses before a batch are kept, as bases.
const BEFORE: usize = 2;

/// The addresses of a chunk in the making.
#[derive(Default)]
pub struct Addresses {
    /// The last address of each site.
    last: Vec<u64>,
    batch: Box<Batch>,
    /// The symbols and deltas of the addresses that no longer wait.
    pub encoded: Encoded,
}

/// Symbols and deltas of addresses.
#[derive(Default)]
pub struct Encoded {
    /// A byte for each address.
    pub symbols: Vec<u8>,
    /// By class, the bytes of the deltas; those of class 0 have none.
    pub deltas: [Vec<u8>; CLASS_BYTES.len()],
}

impl Addresses {
    /// Begins another chunk.
    pub fn clear(&mut self) {
        self.last.clear();
        self.batch.clear();
        self.encoded.clear();
    }

    /// Adds `sites` sites, and returns the number of the first one.
    pub fn add_sites(&mut self, sites: usize) -> u32 {
        let first = self.last.len();
        self.last.resize(first + sites, 0);
        first as u32
    }

    /// Takes the addresses of an execution; the site of the first one is `first_site`.
    #[inline(always)]
    pub fn take(&mut self, addresses: &[u64], first_site: u32) {
        let sites = &mut self.last[first_site as usize..];
        self.batch.take(addresses, sites, &mut self.encoded);
    }

    /// Encodes the addresses that wait.
    pub fn finish(&mut self) {
        self.batch.encode(&mut self.encoded);
    }
}

impl Encoded {
    fn clear(&mut self) {
        self.symbols.clear();
        self.deltas.iter_mut().for_each(Vec::clear);
    }
}

/// Addresses that wait for their symbols.
struct Batch {
    /// The addresses, without NULLs, behind the two before them.
    addresses: [u64; BEFORE + BATCH],
    /// For each, the last address of its site.
    sites: [u64; BATCH],
    count: usize,
    /// For each NULL among them, how many others come before it.
    nulls: Vec<usize>,
    results: Results,
    by_class: ByClass,
    instructions: Instructions,
}

/// The symbols and deltas of a batch.
struct Results {
    symbols: [u8; BATCH],
    deltas: [u64; BATCH],
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            addresses: [0; BEFORE + BATCH],
            sites: [0; BATCH],
            count: 0,
            nulls: Vec::new(),
            results: Results { symbols: [0; BATCH], deltas: [0; BATCH] },
            by_class: ByClass::default(),
            instructions: Instructions::best(),
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.addresses[..BEFORE].fill(0);
        self.count = 0;
        self.nulls.clear();
    }

    /// Takes addresses, and the last address of the site of each; a full batch is encoded.
    #[inline(always)]
    fn take(&mut self, addresses: &[u64], sites: &mut [u64], encoded: &mut Encoded) {
        let mut count = self.count;
        for (address, site) in addresses.iter().zip(sites) {
            if *address == 0 {
                self.nulls.push(count);
                continue;
            }
            self.sites[count % BATCH] = std::mem::replace(site, *address);
            self.addresses[BEFORE + count % BATCH] = *address;
            count += 1;
            if count == BATCH {
                self.count = count;
                self.encode(encoded);
                count = 0;
            }
        }
        self.count = count;
    }

    /// Appends the symbols and deltas of the batch, which is empty then.
    #[inline(never)]
    fn encode(&mut self, encoded: &mut Encoded) {
        let Batch { addresses, sites, count, results, by_class, instructions, .. } = self;
        instructions.run(Encode { addresses, sites, results });
        results.symbols[*count..].fill(NULL);
        let counts = by_class.gather(&results.symbols, &results.deltas, *instructions);
        let [_, one, two, four, eight] = &mut encoded.deltas;
        one.extend_from_slice(by_class.one[..counts[0]].as_flattened());
        two.extend_from_slice(by_class.two[..counts[1]].as_flattened());
        four.extend_from_slice(by_class.four[..counts[2]].as_flattened());
        eight.extend_from_slice(by_class.eight[..counts[3]].as_flattened());
        let mut from = 0;
        for null in self.nulls.drain(..) {
            encoded.symbols.extend_from_slice(&results.symbols[from..null]);
            encoded.symbols.push(NULL);
            from = null;
        }
        encoded.symbols.extend_from_slice(&results.symbols[from..*count]);
        addresses.copy_within(*count..*count + BEFORE, 0);
        *count = 0;
    }
}

/// Fills the results of a batch.
struct Encode<'b> {
    addresses: &'b [u64; BEFORE + BATCH],
    sites: &'b [u64; BATCH],
    results: &'b mut Results,
}

impl Compiled for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Encode { addresses, sites, results } = self;
        for at in 0..BATCH {
            let address = addresses[BEFORE + at];
            let delta = |base: u64| address.wrapping_sub(base);
            let (site, previous) = (delta(sites[at]), delta(addresses[at + 1]));
            let before_previous = delta(addresses[at]);
            // The smallest symbol has the smallest class, and of its bases the lowest.
            let (symbol, delta) = (symbol_of(site, base::SITE), site);
            let other = symbol_of(previous, base::PREVIOUS);
            let (symbol, delta) = if other < symbol { (other, previous) } else { (symbol, delta) };
            let other = symbol_of(before_previous, base::BEFORE_PREVIOUS);
            let (symbol, delta) =
                if other < symbol { (other, before_previous) } else { (symbol, delta) };
            results.symbols[at] = symbol as u8;
            results.deltas[at] = delta;
        }
    }
}

/// The symbol of a delta from a base.
#[inline(always)]
fn symbol_of(delta: u64, base: u8) -> u64 {
    // Without its sign, so that its bits decide the class.
    let folded = (delta << 1) ^ (delta as i64 >> 63) as u64;
    let is_wider_than = |bits: u32| u64::from(folded >> bits != 0);
    let class = is_wider_than(0) + is_wider_than(8) + is_wider_than(16) + is_wider_than(32);
    4 * class + u64::from(base)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The symbol of an address and the bytes of its delta, as the format describes them.
    fn naive(address: u64, bases: [u64; 3]) -> (u8, Vec<u8>) {
        let classes = [0..=0, -1 << 7..=(1 << 7) - 1, -1 << 15..=(1 << 15) - 1];
        let classes = classes.into_iter().chain([-1 << 31..=(1 << 31) - 1, i64::MIN..=i64::MAX]);
        for (class, (deltas, bytes)) in classes.zip(CLASS_BYTES).enumerate() {
            for (base, other) in bases.iter().enumerate() {
                let delta = address.wrapping_sub(*other);
                if deltas.contains(&(delta as i64)) {
                    let symbol = 4 * class + base + 1;
                    return (symbol as u8, delta.to_le_bytes()[..bytes].to_vec());
                }
            }
        }
        unreachable!("the widest class holds every delta")
    }

    /// Addresses whose deltas are of all classes, and their limits.
    fn address() -> impl Strategy<Value = u64> {
        let near = (0u32..64, -2i64..3).prop_map(|(bit, by)| (1u64 << bit).wrapping_add_signed(by));
        prop_oneof![4 => near, 1 => Just(0), 2 => 1u64..1000, 1 => any::<u64>()]
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(128))]

        #[test]
        fn all_instructions_encode_as_described(
            executions in prop::collection::vec((0u32..3, address(), address()), 0..2 * BATCH),
        ) {
            let mut expected = Encoded::default();
            let (mut last, mut recent) = ([0; 6], [0; 2]);
            for (segment, first, second) in &executions {
                for (address, site) in [first, second].into_iter().zip(2 * *segment as usize..) {
                    if *address == 0 {
                        expected.symbols.push(NULL);
                        continue;
                    }
                    let (symbol, delta) = naive(*address, [last[site], recent[0], recent[1]]);
                    expected.symbols.push(symbol);
                    expected.deltas[usize::from(symbol / 4)].extend(delta);
                    last[site] = *address;
                    recent = [*address, recent[0]];
                }
            }
            for instructions in Instructions::all() {
                let mut addresses = Addresses::default();
                addresses.batch.instructions = instructions;
                // A chunk leaves nothing for the next one.
                for _ in 0..2 {
                    addresses.clear();
                    let first_sites = [0; 3].map(|_| addresses.add_sites(2));
                    for (segment, first, second) in &executions {
                        addresses.take(&[*first, *second], first_sites[*segment as usize]);
                    }
                    addresses.finish();
                    let Encoded { symbols, deltas } = &addresses.encoded;
                    prop_assert_eq!(symbols, &expected.symbols, "{}", instructions);
                    prop_assert_eq!(deltas, &expected.deltas, "{}", instructions);
                }
            }
        }
    }
}
