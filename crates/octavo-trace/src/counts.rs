//! Counts of a stream's instructions, references and events.

use std::collections::BTreeMap;

use octavo_types::{Consumer, DataItem, Event, Segment, VirtAddr};

use crate::ring::StreamConsumer;

/// The streams that are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Instruction fetches.
    Fetch,
    /// Loads and stores.
    Data,
    /// Both, as they come.
    All,
}

/// The counts of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions, which are as many as fetches.
    pub instructions: u64,
    /// Loads, including those of modifies.
    pub loads: u64,
    /// Stores, including those of modifies.
    pub stores: u64,
    /// Loads and stores that came as one item.
    pub modifies: u64,
    /// Threads that ran.
    pub threads: u64,
    /// Switches to another thread.
    pub thread_switches: u64,
    /// Events by name.
    pub events: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Fetches, loads and stores.
    pub fn references(&self) -> u64 {
        self.instructions + self.loads + self.stores
    }

    /// Counts an execution of a segment with these data addresses.
    #[inline(always)]
    pub fn execution(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.executed(segment);
        if segment.has_guarded() {
            let items = segment.data().iter().zip(addresses);
            for (item, _) in items.filter(|(item, a)| item.guarded && **a == VirtAddr::NULL) {
                self.skipped(item);
            }
        }
    }

    /// Counts an execution of a segment with these addresses of its address groups.
    #[inline(always)]
    pub fn execution_of_groups(&mut self, segment: &Segment, of_groups: &[u64]) {
        self.executed(segment);
        if segment.has_guarded() {
            let guarded = segment.data().iter().filter(|item| item.guarded);
            for item in guarded.filter(|item| item.address(of_groups) == VirtAddr::NULL) {
                self.skipped(item);
            }
        }
    }

    /// The sum of these counts and others.
    pub fn plus(mut self, others: &Counts) -> Counts {
        self.instructions += others.instructions;
        self.loads += others.loads;
        self.stores += others.stores;
        self.modifies += others.modifies;
        self.threads += others.threads;
        self.thread_switches += others.thread_switches;
        for (name, count) in &others.events {
            *self.events.entry(name).or_default() += count;
        }
        self
    }

    /// The difference from an earlier count.
    pub fn since(&self, before: &Counts) -> Counts {
        let mut events = self.events.clone();
        for (name, count) in &mut events {
            *count -= before.events.get(name).copied().unwrap_or(0);
        }
        Counts {
            instructions: self.instructions - before.instructions,
            loads: self.loads - before.loads,
            stores: self.stores - before.stores,
            modifies: self.modifies - before.modifies,
            // All that have run: the main thread begins before anything is executed.
            threads: self.threads,
            thread_switches: self.thread_switches - before.thread_switches,
            events,
        }
    }

    /// Sets instructions and references to those of an earlier count; events stay.
    pub fn roll_back(&mut self, to: &Counts) {
        self.instructions = to.instructions;
        self.loads = to.loads;
        self.stores = to.stores;
        self.modifies = to.modifies;
    }

    /// Counts an execution of a segment, all of whose items have executed.
    #[inline(always)]
    pub fn executed(&mut self, segment: &Segment) {
        self.add([segment.instructions(), segment.loads(), segment.stores(), segment.modifies()]);
    }

    /// Counts instructions, loads, stores and modifies of segments, all of whose items have
    /// executed.
    #[inline(always)]
    pub fn add(&mut self, [instructions, loads, stores, modifies]: [u32; 4]) {
        let adds = |count: &mut u64, more: u32| *count = count.wrapping_add(more.into());
        adds(&mut self.instructions, instructions);
        adds(&mut self.loads, loads);
        adds(&mut self.stores, stores);
        adds(&mut self.modifies, modifies);
    }

    /// Takes back an item of a segment that did not execute; the segment may be added later.
    pub fn skipped(&mut self, item: &DataItem) {
        let skips = |count: &mut u64, by: u8| *count = count.wrapping_sub(by.into());
        skips(&mut self.loads, item.loads);
        skips(&mut self.stores, item.references - item.loads);
        skips(&mut self.modifies, u8::from(item.references == 2));
    }

    /// Counts an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::ThreadStart { .. } => self.threads += 1,
            Event::ThreadSwitch { .. } => self.thread_switches += 1,
            _ => {}
        }
        if let Some(name) = event.name() {
            *self.events.entry(name).or_default() += 1;
        }
    }
}

impl Consumer for Counts {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.execution(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        Counts::event(self, event);
    }
}

impl StreamConsumer for Counts {}
