//! A guarded page table by its definition: page numbers are words of hexadecimal digits, and a node exists for each
//! prefix after which words differ.

use octavo_types::PageSize;

#[derive(Default)]
pub struct Guarded {
    words: Vec<String>,
    /// The prefix of each node's words, in order of creation.
    nodes: Vec<String>,
}

impl Guarded {
    /// The entries loaded to translate a page, which is inserted if absent.
    pub fn loads(&mut self, page: u64, size: PageSize) -> Vec<u64> {
        let digits = match size {
            PageSize::BASE => 10,
            PageSize::HUGE => 8,
            _ => 6,
        };
        let word = &format!("{page:010x}")[..digits];
        let mut loads = Vec::new();
        for (at, digit) in word.char_indices() {
            if self.is_node(&word[..at]) {
                let node = self.nodes.iter().position(|node| *node == word[..at]).unwrap() as u64;
                loads.push((1 << 45) + node * 256 + u64::from(digit.to_digit(16).unwrap()) * 16);
            }
        }
        if !self.words.iter().any(|known| known == word) {
            self.words
                .retain(|known| !known.starts_with(word) && !word.starts_with(known.as_str()));
            self.words.push(word.to_owned());
            for at in 0..digits {
                if self.is_node(&word[..at]) && !self.nodes.iter().any(|node| *node == word[..at]) {
                    self.nodes.push(word[..at].to_owned());
                }
            }
        }
        loads
    }

    /// Whether words with this prefix differ in the digit after it.
    fn is_node(&self, prefix: &str) -> bool {
        let mut next = self.words.iter().filter_map(|word| word.strip_prefix(prefix));
        let first = next.next().and_then(|rest| rest.chars().next());
        next.any(|rest| rest.chars().next() != first)
    }
}
