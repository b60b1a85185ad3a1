//! Ends a quantum within a batch of words.

use crate::ring::format::{self, ItemWord, kind};

/// The sizes of a stream's segments: enough to count instructions without decoding.
#[derive(Default)]
pub struct Cut {
    /// By number: the words of an execution, and its instructions.
    segments: Vec<(u32, u32)>,
}

/// Some words of one process.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// How many words.
    pub words: usize,
    /// The instructions that they execute.
    pub instructions: u64,
    /// Process identifiers of the children whose forks they record.
    pub forked: Vec<u32>,
}

impl Cut {
    /// Measures the beginning of `words`, in whole items: up to the execution that completes
    /// `left_instructions`, or all. Undecodable words are passed on unchanged: their decoder
    /// reports the error.
    pub fn part(&mut self, words: &[u64], left_instructions: u64) -> Part {
        let mut part = Part::default();
        while part.instructions < left_instructions {
            let Some(header) = words.get(part.words) else { break };
            let item = if header & format::RECORD != 0 {
                self.record(&words[part.words..], &mut part)
            } else {
                self.segments.get(*header as usize).map(|(words, instructions)| {
                    part.instructions += u64::from(*instructions);
                    *words as usize
                })
            };
            part.words += item.unwrap_or(usize::MAX).min(words.len() - part.words);
        }
        part
    }

    /// Takes a record; returns how many words it has, or `None` if it is malformed.
    fn record(&mut self, words: &[u64], part: &mut Part) -> Option<usize> {
        let (header, rest) = words.split_first()?;
        let payload = rest.get(..format::record_words(*header))?;
        match format::record_kind(*header) {
            kind::DEFINE => self.define(payload)?,
            kind::FORK => part.forked.push(*payload.first()? as u32),
            _ => {}
        }
        Some(1 + payload.len())
    }

    fn define(&mut self, payload: &[u64]) -> Option<()> {
        let [first, _, items @ ..] = payload else { return None };
        let (number, count) = ((first & 0xffff_ffff) as usize, (first >> 32) as usize);
        let (mut at, mut addresses, mut instructions) = (0, 0, 0);
        for _ in 0..count {
            let item = ItemWord(*items.get(at)?);
            let is_fetch = item.is_fetch();
            instructions += u32::from(is_fetch);
            addresses += u32::from(!is_fetch && item.place().leads);
            at += if is_fetch { 2 } else { 1 };
        }
        let segment = (1 + addresses, instructions);
        if number == self.segments.len() {
            self.segments.push(segment);
        }
        *self.segments.get_mut(number)? = segment;
        Some(())
    }
}
