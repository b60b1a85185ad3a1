//! A slow and obvious reader of a chunk, written from the description of its layout alone.

use std::collections::HashMap;

/// A body taken apart: the header's numbers and each section's content.
#[derive(Clone, Debug)]
pub struct Body {
    /// Instructions and references.
    pub large: [u64; 2],
    /// Executions, addresses, records, record words, segments.
    pub small: [u32; 5],
    pub contents: Vec<Vec<u8>>,
}

impl Body {
    /// From a sound body.
    pub fn read(parts: &[Vec<u8>; 2]) -> Body {
        let all = parts.concat();
        let small = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        let large = |at: usize| u64::from_le_bytes(all[at..at + 8].try_into().unwrap());
        let mut at = 76;
        let contents = (0..10).map(|section| {
            let begin = at;
            at += small(36 + 4 * section) as usize;
            let stored = &all[begin..at];
            if stored.is_empty() { Vec::new() } else { zstd::decode_all(stored).unwrap() }
        });
        Body {
            large: [large(0), large(8)],
            small: std::array::from_fn(|index| small(16 + 4 * index)),
            contents: contents.collect(),
        }
    }

    /// The body's parts again.
    pub fn write(&self) -> [Vec<u8>; 2] {
        let stored: Vec<Vec<u8>> = self.contents.iter().map(|content| store(content)).collect();
        let mut first: Vec<u8> = self.large.iter().flat_map(|n| n.to_le_bytes()).collect();
        first.extend(self.small.iter().flat_map(|n| n.to_le_bytes()));
        first.extend(stored.iter().flat_map(|section| (section.len() as u32).to_le_bytes()));
        first.extend(&stored[0]);
        [first, stored[1..].concat()]
    }

    /// The words that it encodes. Panics if it is malformed.
    pub fn words(&self) -> Vec<u64> {
        let [executions, _, records, _, segments] = self.small;
        let mut record_words = self.contents[0].chunks(8).map(number);
        let mut gaps = self.contents[1].chunks(4).map(number);
        let numbers: Vec<u64> = self.contents[2].chunks(4).map(number).collect();
        let counts: Vec<u64> = self.contents[3].chunks(4).map(number).collect();
        let width = if segments <= 1 << 8 {
            1
        } else if segments <= 1 << 16 {
            2
        } else {
            4
        };
        let mut sequence = self.contents[4].chunks(width).map(number);
        let mut symbols = self.contents[5].iter();
        let mut deltas: Vec<_> = [1, 2, 4, 8].map(|width| self.deltas(width).into_iter()).into();

        let mut site_last: HashMap<(u64, u64), u64> = HashMap::new();
        let mut before = vec![0, 0];
        let mut execute = |words: &mut Vec<u64>| {
            let index = sequence.next().unwrap();
            words.push(numbers[index as usize]);
            for item in 0..counts[index as usize] {
                let symbol = *symbols.next().unwrap();
                let last = site_last.entry((index, item)).or_insert(0);
                let base = [0, *last, before[before.len() - 1], before[before.len() - 2]];
                let delta = match symbol / 4 {
                    0 => 0,
                    class => deltas[usize::from(class) - 1].next().unwrap(),
                };
                let address = base[usize::from(symbol % 4)].wrapping_add_signed(delta);
                words.push(address);
                if symbol != 0 {
                    *last = address;
                    before.push(address);
                }
            }
        };

        let (mut words, mut executed) = (Vec::new(), 0);
        for _ in 0..records {
            for _ in 0..gaps.next().unwrap() {
                execute(&mut words);
                executed += 1;
            }
            let header = record_words.next().unwrap();
            words.push(header);
            words.extend(record_words.by_ref().take((header & 0xffff_ffff) as usize));
        }
        for _ in executed..executions {
            execute(&mut words);
        }
        words
    }

    fn deltas(&self, width: usize) -> Vec<i64> {
        let content = &self.contents[6 + width.ilog2() as usize];
        let count = content.len() / width;
        let byte = |index: usize, byte: usize| match width {
            1 | 2 => content[width * index + byte],
            _ => content[count * byte + index],
        };
        let value = |index| {
            let bytes: Vec<u8> = (0..width).map(|at| byte(index, at)).collect();
            let negative = bytes[width - 1] >= 0x80;
            let mut extended = [if negative { 0xff } else { 0 }; 8];
            extended[..width].copy_from_slice(&bytes);
            i64::from_le_bytes(extended)
        };
        (0..count).map(value).collect()
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn store(content: &[u8]) -> Vec<u8> {
    if content.is_empty() { Vec::new() } else { zstd::bulk::compress(content, 1).unwrap() }
}
