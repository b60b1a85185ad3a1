//! Replacement policies: the way that a new entry is filled into.
//!
//! Free ways (never filled, or invalidated) are filled first; policies that distinguish ways fill the lowest
//! first.

mod fifo;
mod lru;
mod order;
mod random;
mod srrip;
mod tree_plru;

use std::fmt;
use std::str::FromStr;

use super::Geometry;
use fifo::Fifo;
use lru::Lru;
use random::Random;
use srrip::Srrip;
use tree_plru::TreePlru;

pub(super) use order::{MAX_PACKED, Packed};

/// A replacement policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Replacement {
    /// True LRU: the least recently used entry.
    #[default]
    Lru,
    /// Tree pseudo-LRU: a binary tree of bits over the ways, each pointing away from the half used last.
    ///
    /// If the ways are not a power of two, the tree is that of the next power, and bits that point to a half
    /// without ways are ignored: such sets replace less evenly.
    TreePlru,
    /// A uniformly random entry, from a generator that starts with `seed`.
    Random {
        /// Arrays with the same seed draw the same numbers.
        seed: u64,
    },
    /// First in, first out: the entry filled first, used or not.
    Fifo,
    /// Static re-reference interval prediction with 2 bits and hit priority: SRRIP-HP of Jaleel et
    /// al., "High performance cache replacement using re-reference interval prediction", ISCA 2010,
    /// section 4.1. A hit predicts 0, a fill 2; the first way (from the lowest) that predicts 3 is
    /// replaced; while no way predicts 3, all predictions of the set grow by one.
    Srrip,
}

impl Replacement {
    /// All policies; random with seed 0.
    pub const ALL: [Replacement; 5] = [
        Replacement::Lru,
        Replacement::TreePlru,
        Replacement::Random { seed: 0 },
        Replacement::Fifo,
        Replacement::Srrip,
    ];

    /// Its name, as [`Replacement::from_str`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Replacement::Lru => "lru",
            Replacement::TreePlru => "tree-plru",
            Replacement::Random { .. } => "random",
            Replacement::Fifo => "fifo",
            Replacement::Srrip => "srrip",
        }
    }

    /// Whether a repeated look-up of the most recently used entry of a set changes the policy's state. If
    /// not, repeats may be filtered out.
    pub const fn retouch_changes(self) -> bool {
        match self {
            Replacement::Lru => Lru::RETOUCH_CHANGES,
            Replacement::TreePlru => TreePlru::RETOUCH_CHANGES,
            Replacement::Random { .. } => Random::RETOUCH_CHANGES,
            Replacement::Fifo => Fifo::RETOUCH_CHANGES,
            Replacement::Srrip => Srrip::RETOUCH_CHANGES,
        }
    }
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown policy name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("replacement `{0}`: give lru, tree-plru, random, fifo or srrip")]
pub struct ParseReplacementError(String);

impl FromStr for Replacement {
    type Err = ParseReplacementError;

    /// Reads a name; `random` has seed 0.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| ParseReplacementError(name.to_owned()))
    }
}

/// The state of a policy for all sets of an array.
pub(super) trait Rule {
    /// See [`Replacement::retouch_changes`].
    const RETOUCH_CHANGES: bool;

    /// Records a hit of a way.
    fn touch(&mut self, set: usize, way: usize);

    /// Allocates the way to fill: a free one, the lowest of which `free` returns, or the victim.
    fn allocate_way(&mut self, set: usize, free: impl FnOnce() -> Option<usize>) -> usize;

    /// Frees a way.
    #[inline(always)]
    fn release_way(&mut self, _set: usize, _way: usize) {}
}

/// The policy of one array.
#[derive(Clone, Debug)]
pub(super) enum Policy {
    Lru(Lru),
    TreePlru(TreePlru),
    Random(Random),
    Fifo(Fifo),
    Srrip(Srrip),
}

/// Dispatches to the policy.
macro_rules! each {
    ($policy:expr, $rule:ident => $does:expr) => {
        match $policy {
            Policy::Lru($rule) => $does,
            Policy::TreePlru($rule) => $does,
            Policy::Random($rule) => $does,
            Policy::Fifo($rule) => $does,
            Policy::Srrip($rule) => $does,
        }
    };
}

impl Policy {
    /// The policy of an empty array.
    pub fn new(replacement: Replacement, geometry: Geometry) -> Self {
        match replacement {
            Replacement::Lru => Policy::Lru(Lru::new(geometry)),
            Replacement::TreePlru => Policy::TreePlru(TreePlru::new(geometry)),
            Replacement::Random { seed } => Policy::Random(Random::new(geometry, seed)),
            Replacement::Fifo => Policy::Fifo(Fifo::new(geometry)),
            Replacement::Srrip => Policy::Srrip(Srrip::new(geometry)),
        }
    }

    /// Resets the state of uses; a random sequence continues.
    pub fn clear(&mut self, replacement: Replacement, geometry: Geometry) {
        if !matches!(self, Policy::Random(_)) {
            *self = Policy::new(replacement, geometry);
        }
    }

    /// As [`Rule::touch`].
    #[inline(always)]
    pub fn touch(&mut self, set: usize, way: usize) {
        each!(self, rule => rule.touch(set, way));
    }

    /// As [`Rule::allocate_way`].
    #[inline(always)]
    pub fn allocate_way(&mut self, set: usize, free: impl FnOnce() -> Option<usize>) -> usize {
        each!(self, rule => rule.allocate_way(set, free))
    }

    /// As [`Rule::release_way`].
    #[inline(always)]
    pub fn release_way(&mut self, set: usize, way: usize) {
        each!(self, rule => rule.release_way(set, way));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_names_round_trip() {
        for replacement in Replacement::ALL {
            assert_eq!(replacement.to_string().parse(), Ok(replacement));
        }
        assert_eq!(
            "LRU".parse::<Replacement>().unwrap_err().to_string(),
            "replacement `LRU`: give lru, tree-plru, random, fifo or srrip"
        );
    }
}
