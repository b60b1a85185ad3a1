//! The TLBs of the cores that the threads of a process run on, under one policy.
//!
//! A page has the same size for all threads of its address space, so there is one policy, whose
//! changes invalidate entries on every core.

use octavo_types::Instructions;

use super::page::Page;
use super::tlbs::Tlbs;
use super::{TwoSizesConfig, TwoSizesTlbs};

/// All cores; usually there is one.
pub struct Cores {
    config: TwoSizesConfig,
    instructions: Instructions,
    running: Core,
    /// The number of the running core, whose slot in `others` is empty.
    number: usize,
    /// The cores that do not run, by number.
    others: Vec<Option<Core>>,
}

struct Core {
    tlbs: Tlbs,
    /// Look-ups of small pages and of large ones.
    lookups: [u64; 2],
}

impl Cores {
    /// Empty TLBs. Core number 0 runs.
    pub fn new(config: &TwoSizesConfig, instructions: Instructions) -> Self {
        Cores {
            running: Core::new(config, instructions),
            number: 0,
            others: vec![None],
            config: config.clone(),
            instructions,
        }
    }

    /// Switches to core `number`. The running one must have no pending steps.
    pub fn run(&mut self, number: usize) {
        if number >= self.others.len() {
            self.others.resize_with(number + 1, || None);
        }
        if number == self.number {
            return;
        }
        let known = self.others[number].take();
        let next = known.unwrap_or_else(|| Core::new(&self.config, self.instructions));
        self.others[self.number] = Some(std::mem::replace(&mut self.running, next));
        self.number = number;
    }

    /// Empties the TLBs of core `number`, which does not run.
    pub fn clear(&mut self, number: usize) {
        let core = self.others.get_mut(number).and_then(Option::as_mut);
        core.into_iter().for_each(|core| core.tlbs.clear());
    }

    /// The TLBs of the running core.
    #[inline(always)]
    pub fn running(&mut self) -> &mut Tlbs {
        &mut self.running.tlbs
    }

    /// Counts look-ups on the running core, of small pages and of large ones.
    pub fn count(&mut self, lookups: [u64; 2]) {
        for (counted, lookups) in self.running.lookups.iter_mut().zip(lookups) {
            *counted += lookups;
        }
    }

    /// As [`Tlbs::invalidate`], on every core.
    pub fn invalidate(&mut self, page: Page, number: u64) {
        self.running.tlbs.invalidate(page, number);
        self.others.iter_mut().flatten().for_each(|core| core.tlbs.invalidate(page, number));
    }

    /// The results of each core, by number; empty for a core that never ran.
    pub fn results(&self) -> Vec<TwoSizesTlbs> {
        let none = Core::new(&self.config, self.instructions);
        let result = |(number, other): (usize, &Option<Core>)| match other {
            Some(core) => core.result(),
            None if number == self.number => self.running.result(),
            None => none.result(),
        };
        self.others.iter().enumerate().map(result).collect()
    }
}

impl Core {
    fn new(config: &TwoSizesConfig, instructions: Instructions) -> Self {
        Core { tlbs: Tlbs::new(config, instructions), lookups: [0; 2] }
    }

    fn result(&self) -> TwoSizesTlbs {
        let [small_lookups, large_lookups] = self.lookups;
        let (stack, sets) = (self.tlbs.stack(), self.tlbs.sets());
        TwoSizesTlbs { small_lookups, large_lookups, stack, sets }
    }
}
