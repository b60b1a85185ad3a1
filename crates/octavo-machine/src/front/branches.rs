//! Branch prediction at the ends of segments: directions by TAGE (Seznec and Michaud, "A case for (partially)
//! TAgged GEometric history length branch prediction", JILP 2006), targets by a table of the last target of each
//! branch and a table indexed by the path to the branch, returns by a return stack.
//!
//! A segment ends at a branch, or where a superblock of the tracer was full. An end of the second kind is never
//! taken, and occupies at most one entry of the tables.

use octavo_config::BranchPrediction;
use octavo_types::{Item, ItemKind, Segment};

/// The end of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit {
    /// The address of its last instruction.
    pub pc: u64,
    /// The address after it.
    pub next: u64,
    /// Whether its last instruction stores, as calls do.
    pub stores: bool,
    /// Whether its last instruction loads and does not store, as returns do.
    pub loads: bool,
}

impl Exit {
    /// The address of a segment's first instruction, and its end; `None` for a segment without instructions.
    pub fn of(segment: &Segment) -> Option<(u64, Exit)> {
        let items = segment.items();
        let is_fetch = |item: &Item| item.kind == ItemKind::Fetch;
        let start = items.iter().find(|item| is_fetch(item))?.addr.raw();
        let last = items.iter().rposition(is_fetch)?;
        let data = &items[last + 1..];
        let (pc, bytes) = (items[last].addr, u64::from(items[last].size_bytes));
        Some((
            start,
            Exit {
                pc: pc.raw(),
                next: pc.wrapping_add(bytes).raw(),
                stores: data.iter().any(|item| item.kind == ItemKind::Store),
                loads: !data.is_empty() && data.iter().all(|item| item.kind == ItemKind::Load),
            },
        ))
    }
}

/// The outcome of the branch before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Followed {
    /// Whether the branch before it was mispredicted.
    pub is_mispredicted: bool,
    /// Whether that branch was taken.
    pub is_taken: bool,
}

const BASE_LOG2: u32 = 14;
const TAGGED_LOG2: u32 = 11;
/// The length of the history that indexes each tagged table, in branches.
const HISTORIES: [u32; 5] = [5, 12, 27, 60, 126];
const TARGET_SETS_LOG2: u32 = 10;
const TARGET_WAYS: usize = 8;
const PATHS_LOG2: u32 = 11;
const RETURNS: usize = 32;
/// The longest instruction of x86.
const MAX_INSTRUCTION_BYTES: u64 = 15;
/// The usefulness of all tagged entries is halved after every so many branches, so that unused entries become
/// replaceable.
const AGING_BRANCHES: u32 = 1 << 18;

#[derive(Clone, Copy, Default)]
struct Tagged {
    tag: u16,
    /// Taken if at least 0; -4 to 3.
    counter: i8,
    /// 0 to 3.
    useful: u8,
}

#[derive(Clone, Copy, Default)]
struct Target {
    pc: u64,
    to: u64,
    /// Whether the branch has had several targets: `paths` predicts it.
    varies: bool,
    /// Whether the branch has returned from the last call.
    returns: bool,
}

/// The predictor of a core.
pub struct Branches {
    prediction: BranchPrediction,
    /// Taken if at least 0; -2 to 1.
    base: Box<[i8]>,
    tagged: [Box<[Tagged]>; HISTORIES.len()],
    history: u128,
    path: u64,
    /// Sets in order of use, the most recent target first.
    targets: Box<[[Target; TARGET_WAYS]]>,
    /// Targets by path: tag and target.
    paths: Box<[(u32, u64)]>,
    /// The predicted target of the last mispredicted branch, if known.
    wrong_target: Option<u64>,
    /// The return stack: addresses of calls. A return leads to an address at most one instruction behind its call;
    /// the exact one is unknown, as some trace formats lack instruction lengths.
    calls: [u64; RETURNS],
    /// The index of the last call in `calls`.
    depth: usize,
    /// Branches since the last halving of usefulness.
    age: u32,
    /// State of a generator of pseudo-random numbers.
    random: u32,
}

impl Branches {
    /// An untrained predictor.
    pub fn new(prediction: BranchPrediction) -> Self {
        Branches {
            prediction,
            base: vec![-1; 1 << BASE_LOG2].into(),
            tagged: std::array::from_fn(|_| vec![Tagged::default(); 1 << TAGGED_LOG2].into()),
            history: 0,
            path: 0,
            targets: vec![Default::default(); 1 << TARGET_SETS_LOG2].into(),
            paths: vec![(0, 0); 1 << PATHS_LOG2].into(),
            wrong_target: None,
            calls: [0; RETURNS],
            depth: 0,
            age: 0,
            random: 1,
        }
    }

    /// Predicts the successor of a segment, and trains the predictor with the actual one, at address `to`.
    #[inline(always)]
    pub fn follow(&mut self, exit: &Exit, to: u64) -> Followed {
        let is_taken = to != exit.next;
        if self.prediction == BranchPrediction::Perfect {
            return Followed { is_taken, ..Followed::default() };
        }
        let is_direction_right = self.direction(exit.pc, is_taken);
        let predicted = match (is_taken, is_direction_right) {
            (true, true) => self.target(exit, to),
            (true, false) => {
                self.target(exit, to);
                Some(exit.next)
            }
            (false, true) => Some(exit.next),
            (false, false) => self.last_target(exit.pc),
        };
        let is_mispredicted = !is_direction_right || predicted != Some(to);
        if is_mispredicted {
            self.wrong_target = predicted;
        }
        if is_taken && exit.stores {
            self.depth = (self.depth + 1) % RETURNS;
            self.calls[self.depth] = exit.pc;
        }
        self.history = self.history << 1 | u128::from(is_taken);
        self.path = (self.path << 4) ^ (to >> 1);
        Followed { is_mispredicted, is_taken }
    }

    /// The predicted target of the last mispredicted branch, if known.
    pub fn wrong_path(&self) -> Option<u64> {
        self.wrong_target
    }

    /// Predicts the direction of a branch, and trains the tables with the actual one. Returns whether the
    /// prediction was right.
    fn direction(&mut self, pc: u64, is_taken: bool) -> bool {
        let mut places = [(0, 0); HISTORIES.len()];
        let (mut provider, mut other) = (None, None);
        for (table, bits) in HISTORIES.into_iter().enumerate() {
            let hash = hash(pc, self.history & ((1 << bits) - 1));
            let place = (hash >> 48) as usize % (1 << TAGGED_LOG2);
            let tag = (hash >> 20) as u16 & 0xfff | 0x1000;
            places[table] = (place, tag);
            if self.tagged[table][place].tag == tag {
                (provider, other) = (Some(table), provider);
            }
        }
        let base = &mut self.base[(pc ^ pc >> BASE_LOG2) as usize % (1 << BASE_LOG2)];
        let base_prediction = *base >= 0;
        let alternative =
            other.map_or(base_prediction, |table| self.tagged[table][places[table].0].counter >= 0);
        let predicted = match provider {
            None => {
                *base = trained(*base, is_taken, 1);
                base_prediction
            }
            Some(table) => {
                let entry = &mut self.tagged[table][places[table].0];
                let own = entry.counter >= 0;
                // A new entry is not trained enough: use the alternative.
                let is_new = entry.useful == 0 && (entry.counter == 0 || entry.counter == -1);
                if own != alternative {
                    entry.useful = match own == is_taken {
                        true => (entry.useful + 1).min(3),
                        false => entry.useful.saturating_sub(1),
                    };
                }
                entry.counter = trained(entry.counter, is_taken, 3);
                if is_new { alternative } else { own }
            }
        };
        if predicted != is_taken {
            self.allocate(provider.map_or(0, |table| table + 1), &places, is_taken);
        }
        self.age_entries();
        predicted == is_taken
    }

    /// Allocates an entry that is not useful in a table of longer history. If there is none, makes the entries of
    /// these tables less useful.
    fn allocate(&mut self, from: usize, places: &[(usize, u16)], is_taken: bool) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        // Skips the next table with probability 1/2, so that branches spread over the tables.
        let from = if self.random & 1 == 0 { from } else { (from + 1).min(HISTORIES.len()) };
        for (table, (place, tag)) in places.iter().copied().enumerate().skip(from) {
            let entry = &mut self.tagged[table][place];
            if entry.useful == 0 {
                *entry = Tagged { tag, counter: if is_taken { 0 } else { -1 }, useful: 0 };
                return;
            }
        }
        for (table, (place, _)) in places.iter().enumerate().skip(from) {
            self.tagged[table][*place].useful -= 1;
        }
    }

    /// Counts a branch, and halves the usefulness of all entries after [`AGING_BRANCHES`].
    fn age_entries(&mut self) {
        self.age += 1;
        if self.age == AGING_BRANCHES {
            self.age = 0;
            for entry in self.tagged.iter_mut().flatten() {
                entry.useful >>= 1;
            }
        }
    }

    /// The target of a branch when it was last taken, if known.
    fn last_target(&self, pc: u64) -> Option<u64> {
        let set = &self.targets[target_set(pc)];
        set.iter().find(|target| target.pc == pc).map(|target| target.to)
    }

    /// Predicts the target of a taken branch, and trains the tables with the actual one, `to`. Returns the
    /// prediction, if there is one.
    fn target(&mut self, exit: &Exit, to: u64) -> Option<u64> {
        let top = self.calls[self.depth];
        let is_behind_call = (1..=MAX_INSTRUCTION_BYTES).contains(&to.wrapping_sub(top));
        let set = &mut self.targets[target_set(exit.pc)];
        let found = set.iter().position(|target| target.pc == exit.pc);
        set[..=found.unwrap_or(TARGET_WAYS - 1)].rotate_right(1);
        let target = &mut set[0];
        if exit.loads && (found.is_some() && target.returns || is_behind_call) {
            self.depth = (self.depth + RETURNS - 1) % RETURNS;
            *target = Target { pc: exit.pc, to, varies: false, returns: true };
            // The exact address of another return is unknown.
            return is_behind_call.then_some(to);
        }
        if found.is_none() {
            *target = Target { pc: exit.pc, to, varies: false, returns: false };
            return None;
        }
        let hash = hash(exit.pc, u128::from(self.path & 0xff_ffff));
        let by_path = &mut self.paths[(hash >> 48) as usize % (1 << PATHS_LOG2)];
        let tag = (hash >> 16) as u32;
        let path_target = (by_path.0 == tag).then_some(by_path.1);
        let predicted = path_target.filter(|_| target.varies).unwrap_or(target.to);
        target.varies |= target.to != to;
        if target.varies {
            *by_path = (tag, to);
        }
        target.to = to;
        Some(predicted)
    }
}

/// The index of a branch's set in the table of targets.
#[inline(always)]
fn target_set(pc: u64) -> usize {
    (hash(pc, 0) >> (64 - TARGET_SETS_LOG2)) as usize
}

#[inline(always)]
fn hash(pc: u64, history: u128) -> u64 {
    let folded = history as u64 ^ ((history >> 64) as u64).rotate_left(29);
    let mixed = (folded ^ pc.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29 ^ pc).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[inline(always)]
fn trained(counter: i8, is_taken: bool, most: i8) -> i8 {
    if is_taken { (counter + 1).min(most) } else { (counter - 1).max(-most - 1) }
}
