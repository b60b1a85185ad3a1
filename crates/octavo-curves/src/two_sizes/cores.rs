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

    /// Switches to core `number`.
    pub fn run(&mut self, number: usize) {
        // A core that does not run must have no pending steps when entries are invalidated.
        self.process_steps();
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

    /// Empties the TLBs of the running core.
    pub fn clear_running(&mut self) {
        self.running.tlbs.clear();
    }

    /// Empties the TLBs of core `number`, which does not run.
    pub fn clear(&mut self, number: usize) {
        let core = self.others.get_mut(number).and_then(Option::as_mut);
        core.into_iter().for_each(|core| core.tlbs.clear());
    }

    /// Looks up a page.
    #[inline(always)]
    pub fn page(&mut self, page: Page) {
        self.running.tlbs.page(page);
    }

    /// Counts look-ups of large pages, or of small pages.
    #[inline(always)]
    pub fn count(&mut self, is_large: bool, lookups: u64) {
        self.running.lookups[usize::from(is_large)] += lookups;
    }

    /// As [`Tlbs::process_steps`].
    pub fn process_steps(&mut self) {
        self.running.tlbs.process_steps();
    }

    /// As [`Tlbs::invalidate_small`].
    pub fn invalidate_small(&mut self, page: Page) {
        self.each(|tlbs| tlbs.invalidate_small(page));
    }

    /// As [`Tlbs::invalidate_block`].
    pub fn invalidate_block(&mut self, page: Page) {
        self.each(|tlbs| tlbs.invalidate_block(page));
    }

    /// As [`Tlbs::invalidate_large`].
    pub fn invalidate_large(&mut self, page: Page) {
        self.each(|tlbs| tlbs.invalidate_large(page));
    }

    fn each(&mut self, mut invalidate: impl FnMut(&mut Tlbs)) {
        invalidate(&mut self.running.tlbs);
        self.others.iter_mut().flatten().for_each(|core| invalidate(&mut core.tlbs));
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
