//! Software-managed translation as anybody would write it down, with what is in each line: every load
//! gives what was stored last. Only the operating system is the same.

use std::collections::{BTreeMap, HashMap};

use octavo_config::{
    IncreasedRights, MachineConfig, SoftvmConfig, TableKind, VirtualCacheLevel,
    WriteBackTranslation,
};
use octavo_oracle::{NaiveChange, NaiveFound, NaiveReplacement, NaiveVirtualSide};
use octavo_os::{Access, Content, Os, ProcessId};
use octavo_types::{Event, PageNumber};

/// Where page tables and handlers lie: above all segments.
const TABLE: u64 = 1 << 62;
const PHYSICAL: u64 = 1 << 61;
const ROOT_TABLES: u64 = 0x1_0000;
const VECTORS: [u64; 2] = [0x1000, 0x1100];

type Page = (ProcessId, u64);

/// A page that may have lines.
#[derive(Clone, Copy)]
struct Kept {
    global: u64,
    frame: u64,
    may_store: bool,
    sides: [bool; 2],
}

/// What a reference does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Fetch,
    Load,
    Store,
}

pub struct Naive {
    pub os: Os,
    pub process: ProcessId,
    softvm: SoftvmConfig,
    lines: [u64; 2],
    sides: [NaiveVirtualSide; 2],
    /// How much of what data wrote to memory has been seen.
    seen: usize,
    segments: Vec<(ProcessId, u64)>,
    registers: [Option<(ProcessId, u64)>; 16],
    kept: BTreeMap<Page, Kept>,
    /// By frame and line, what was stored last.
    truth: HashMap<(u64, u64), u64>,
    stores: u64,
    anchors: u64,
    inverted: Vec<(u64, u64)>,
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl Naive {
    pub fn new(config: &MachineConfig, mut os: Os) -> Self {
        os.memory_mut().record_contents();
        let softvm = config.softvm;
        let l1 = softvm.l1.line_bytes.unwrap_or(config.cache.line_bytes);
        let lines = [l1, softvm.l2.line_bytes.unwrap_or(l1)];
        let level = |of: VirtualCacheLevel, bytes: u64| {
            let entries = of.bytes / bytes;
            let ways = of.ways.of(entries);
            (bytes, (entries / ways) as usize, ways as usize, NaiveReplacement::Lru)
        };
        let side =
            || NaiveVirtualSide::new([level(softvm.l1, lines[0]), level(softvm.l2, lines[1])]);
        Naive {
            os,
            process: ProcessId(0),
            softvm,
            lines,
            sides: [side(), side()],
            seen: 0,
            segments: Vec::new(),
            registers: [None; 16],
            kept: BTreeMap::new(),
            truth: HashMap::new(),
            stores: 0,
            anchors: (config.memory.bytes >> 12).next_power_of_two(),
            inverted: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, component: &'static str, counter: &'static str, times: u64) {
        *self.counts.entry((component, counter)).or_default() += times;
    }

    /// All that it counted.
    pub fn counters(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        let mut counters = self.counts.clone();
        let names = [["vcache.l1i", "vcache.l2i"], ["vcache.l1d", "vcache.l2d"]];
        for (side, names) in self.sides.iter().zip(names) {
            for (level, name) in names.into_iter().enumerate() {
                let counts = side.counts(level);
                counters.insert((name, "hits"), counts.hits);
                counters.insert((name, "misses"), counts.accesses - counts.hits);
                counters.insert((name, "write_backs"), counts.write_backs);
            }
        }
        counters.insert(("softvm.segments", "used"), self.segments.len() as u64);
        counters
    }

    /// One reference: each line of the first level that it touches is accessed.
    pub fn reference(&mut self, kind: Kind, addr: u64, bytes: u64) {
        if kind == Kind::Store {
            self.stores += 1;
        }
        let line_bytes = self.lines[0];
        for line in addr / line_bytes..=(addr + bytes - 1) / line_bytes {
            self.access(kind, line * line_bytes);
        }
    }

    fn access(&mut self, kind: Kind, addr: u64) {
        let side = usize::from(kind != Kind::Fetch);
        let stores = kind == Kind::Store;
        let segment = (self.process, addr >> 28);
        if self.registers[(addr >> 28) as usize % 16] != Some(segment) {
            self.registers[(addr >> 28) as usize % 16] = Some(segment);
            self.count("softvm.segments", "reloads", 1);
        }
        let global = self.global(self.process, addr);
        let store = stores.then_some(self.stores);
        loop {
            let mut page = (0, false);
            if !self.holds(side, 0, global) && !self.holds(side, 1, global) {
                page = self.resolve(kind, addr);
                page.1 = self.claim(addr, page, side, stores);
                self.count("softvm", if side == 0 { "fetch_misses" } else { "data_misses" }, 1);
                self.translate("softvm", global);
            }
            let (found, data) = self.sides[side].access(global, store, page);
            if found == NaiveFound::Denied {
                self.count("softvm", "denied", 1);
                let page = self.resolve(kind, addr);
                self.claim(addr, page, side, true);
                if self.softvm.kernel.increase == IncreasedRights::Lazy {
                    let swept = self.sides[1].sweep(global, 1, NaiveChange::MayStore(true));
                    self.swept("softvm.lazy", &[swept]);
                } else {
                    self.change(
                        (self.process, addr >> 12),
                        NaiveChange::MayStore(true),
                        "softvm.protection",
                    );
                }
                continue;
            }
            if side == 1 {
                let page = PageNumber::new(addr >> 12);
                let leaf = self.os.memory().process(self.process).table.leaf(page).unwrap();
                let place = (leaf.frame_of(page).raw(), addr % 4096 / self.lines[0]);
                if let Some(number) = store {
                    self.truth.insert(place, number);
                }
                let stored = self.truth.get(&place).copied().unwrap_or(0);
                assert_eq!(data, stored, "{kind:?} {addr:#x} of {:?}", self.process);
            }
            self.write_back();
            if found == NaiveFound::First || self.holds(side, 0, global) {
                return;
            }
            self.count("softvm", "restarts", 1);
        }
    }

    fn holds(&self, side: usize, level: usize, global: u64) -> bool {
        let bytes = self.lines[level];
        self.sides[side].lines(level).iter().any(|line| line.0 == global / bytes * bytes)
    }

    fn global(&mut self, process: ProcessId, addr: u64) -> u64 {
        let segment = (process, addr >> 28);
        let known = self.segments.iter().position(|known| *known == segment);
        let id = known.unwrap_or_else(|| {
            self.segments.push(segment);
            self.segments.len() - 1
        });
        (id as u64) << 28 | addr & 0xfff_ffff
    }

    /// The page's frame, and whether it may be stored to, once the operating system allows the access.
    fn resolve(&mut self, kind: Kind, addr: u64) -> (u64, bool) {
        let page = PageNumber::new(addr >> 12);
        loop {
            let table = &mut self.os.memory_mut().process_mut(self.process).table;
            if let Some(leaf) = table.leaf(page)
                && (kind != Kind::Store || leaf.rights.write)
            {
                table.mark(page, kind == Kind::Store);
                return (leaf.frame_of(page).raw(), leaf.rights.write);
            }
            let access = match kind {
                Kind::Fetch => Access::Fetch,
                Kind::Load => Access::Load,
                Kind::Store => Access::Store,
            };
            self.os.fault(self.process, page, access).unwrap();
            self.os_has_run();
        }
    }

    /// The operating system has done something.
    pub fn event(&mut self, event: &Event) {
        self.os.event(self.process, event).unwrap();
        self.os_has_run();
    }

    pub fn fork(&mut self, parent: ProcessId) -> ProcessId {
        let child = self.os.fork(parent).unwrap();
        self.os_has_run();
        child
    }

    pub fn end(&mut self, process: ProcessId) {
        self.os.end(process);
        self.os_has_run();
    }

    /// What the operating system changed: contents of memory, which it reads and writes without the
    /// caches, and pages, whose lines are made what the page tables say.
    fn os_has_run(&mut self) {
        for content in self.os.memory_mut().take_contents() {
            for map in [&mut self.truth, &mut self.sides[1].memory] {
                match content {
                    Content::Zeroed { frame, frames } => {
                        let range = frame.raw()..frame.raw() + frames;
                        map.retain(|(of, _), _| !range.contains(of));
                    }
                    Content::Copied { from, to, frames } => {
                        let range = to.raw()..to.raw() + frames;
                        map.retain(|(of, _), _| !range.contains(of));
                        let copied: Vec<_> = map
                            .iter()
                            .filter(|((of, _), _)| (from.raw()..from.raw() + frames).contains(of))
                            .map(|((of, line), data)| ((of - from.raw() + to.raw(), *line), *data))
                            .collect();
                        map.extend(copied);
                    }
                    Content::Read { frame, .. } => map.retain(|(of, _), _| *of != frame.raw()),
                }
            }
        }
        for stale in self.os.take_stale() {
            let (mut unmapped, mut protected) = (Vec::new(), Vec::new());
            for (page, kept) in &self.kept {
                if page.0 != stale.process || !stale.pages.contains(&page.1) {
                    continue;
                }
                let memory = self.os.memory();
                let lives = memory.live().any(|process| process == page.0);
                let number = PageNumber::new(page.1);
                let leaf = lives.then(|| memory.process(page.0).table.leaf(number)).flatten();
                let Some(leaf) = leaf.filter(|leaf| leaf.frame_of(number).raw() == kept.frame)
                else {
                    unmapped.push((*page, NaiveChange::Drop));
                    continue;
                };
                let others = self.kept.values().filter(|other| other.frame == kept.frame).count();
                if kept.may_store && !leaf.rights.write {
                    protected.push((*page, NaiveChange::MayStore(false)));
                } else if !kept.may_store
                    && leaf.rights.write
                    && others == 1
                    && self.softvm.kernel.increase == IncreasedRights::Eager
                {
                    protected.push((*page, NaiveChange::MayStore(true)));
                }
            }
            self.change_all(&unmapped, "softvm.unmapped");
            self.change_all(&protected, "softvm.protection");
        }
    }

    fn change_all(&mut self, pages: &[(Page, NaiveChange)], component: &'static str) {
        let entries = self.softvm.l2.bytes / self.lines[1];
        if pages.len() as u64 * (4096 / self.lines[1]) <= entries {
            pages.iter().for_each(|(page, change)| self.change(*page, *change, component));
            return;
        }
        // All lines are gone through: each is asked once.
        self.count(component, "whole", 1);
        self.count(component, "l1_checked", 2 * (self.softvm.l1.bytes / self.lines[0]));
        self.count(component, "l2_checked", 2 * entries);
        for (page, change) in pages {
            let before = [
                self.counts.get(&(component, "l1_checked")),
                self.counts.get(&(component, "l2_checked")),
            ]
            .map(|count| count.copied().unwrap_or(0));
            self.change(*page, *change, component);
            self.counts.insert((component, "l1_checked"), before[0]);
            self.counts.insert((component, "l2_checked"), before[1]);
        }
    }

    fn change(&mut self, page: Page, change: NaiveChange, component: &'static str) {
        let kept = self.kept[&page];
        let mut all = Vec::new();
        for side in (0..2).filter(|side| kept.sides[*side]) {
            all.push(self.sides[side].sweep(kept.global, 4096, change));
        }
        self.swept(component, &all);
        match change {
            NaiveChange::Drop => {
                self.kept.remove(&page);
            }
            NaiveChange::MayStore(may_store) => {
                self.kept.get_mut(&page).unwrap().may_store = may_store;
            }
        }
        // Whoever sweeps knows where the lines go.
        self.seen = self.sides[1].written.len();
    }

    fn swept(&mut self, component: &'static str, all: &[[[u64; 3]; 2]]) {
        self.count(component, "pages", 1);
        let names = [
            ["l1_checked", "l1_changed", "l1_written_back"],
            ["l2_checked", "l2_changed", "l2_written_back"],
        ];
        for swept in all {
            for (names, swept) in names.iter().zip(swept) {
                for (name, times) in names.iter().zip(swept) {
                    self.count(component, name, *times);
                }
            }
        }
    }

    /// Lines of a frame at other addresses give way; says whether the line may be stored to.
    fn claim(&mut self, addr: u64, page: (u64, bool), side: usize, stores: bool) -> bool {
        let (frame, may_store) = page;
        let of = (self.process, addr >> 12);
        let global = self.global(self.process, addr >> 12 << 12);
        self.kept.entry(of).or_insert(Kept { global, frame, may_store: false, sides: [false; 2] });
        assert_eq!(self.kept[&of].frame, frame);
        let others: Vec<Page> = self
            .kept
            .iter()
            .filter(|(other, kept)| **other != of && kept.frame == frame)
            .map(|of| *of.0)
            .collect();
        for other in &others {
            if stores {
                self.change(*other, NaiveChange::Drop, "softvm.synonyms");
            } else if self.kept[other].may_store {
                self.change(*other, NaiveChange::MayStore(false), "softvm.synonyms");
            }
        }
        let may_store = may_store && (stores || others.is_empty());
        let kept = self.kept.get_mut(&of).unwrap();
        kept.sides[side] = true;
        kept.may_store |= may_store;
        may_store
    }

    fn write_back(&mut self) {
        while self.seen < self.sides[1].written.len() {
            let (addr, _, frame) = self.sides[1].written[self.seen];
            self.seen += 1;
            self.count("softvm.write_back", "lines", 1);
            // The address says the same frame as when the line came.
            let (process, segment) = self.segments[(addr >> 28) as usize];
            let page = PageNumber::new((segment << 28 | addr & 0xfff_ffff) >> 12);
            let leaf = self.os.memory().process(process).table.leaf(page).unwrap();
            assert_eq!(leaf.frame_of(page).raw(), frame, "a line goes where its page was");
            if self.softvm.kernel.write_back == WriteBackTranslation::Again {
                self.count("softvm.write_back", "data_misses", 1);
                self.translate("softvm.write_back", addr);
            }
        }
    }

    /// Figure 7, or other tables.
    fn translate(&mut self, component: &'static str, global: u64) {
        self.fetch_routine(component, 0);
        match self.softvm.kernel.table {
            TableKind::TwoTier => {}
            TableKind::Hierarchical => {
                let (process, page) = self.page_of(global);
                let walk = self.os.memory().process(process).table.walk(PageNumber::new(page));
                for step in walk.steps() {
                    self.load_physical(component, PHYSICAL + step.at.raw());
                }
                return;
            }
            TableKind::Inverted => {
                self.search_chain(component, global);
                return;
            }
        }
        let entry = TABLE + (global >> 12) * 4;
        let is_here = self.holds(1, 1, entry);
        if !self.holds(1, 0, entry) {
            self.count(component, "handler_l1d_misses", 1);
            if !is_here {
                self.count(component, "data_misses", 1);
                self.fetch_routine(component, 1);
                self.load_physical(component, PHYSICAL + ROOT_TABLES + (global >> 22) * 4);
                self.count(component, "entry_loads", 1);
            }
        }
        self.sides[1].access(entry, None, (0, false));
    }

    fn load_physical(&mut self, component: &'static str, addr: u64) {
        let (found, _) = self.sides[1].access(addr, None, (0, false));
        self.count(component, "handler_l1d_misses", u64::from(found != NaiveFound::First));
        self.count(component, "handler_l2d_misses", u64::from(found == NaiveFound::Memory));
    }

    fn page_of(&self, global: u64) -> Page {
        let (process, segment) = self.segments[(global >> 28) as usize];
        (process, (segment << 28 | global & 0xfff_ffff) >> 12)
    }

    /// One list of pages and frames, what was put there last first: a chain is those with the same hash.
    fn search_chain(&mut self, component: &'static str, global: u64) {
        let (process, page) = self.page_of(global);
        let leaf = self.os.memory().process(process).table.leaf(PageNumber::new(page)).unwrap();
        let frame = leaf.frame_of(PageNumber::new(page)).raw();
        let hash = |page: u64| ((page % 65536) ^ (page / 65536)) % self.anchors;
        let of_page = hash(global >> 12);
        let mut loads = vec![(1 << 43) + of_page * 4];
        let mut found = false;
        for (held, at) in &self.inverted {
            if hash(*held) == of_page && !found {
                loads.push((1 << 44) + at * 16);
                found = *held == global >> 12 && *at == frame;
            }
        }
        for addr in loads {
            self.load_physical(component, PHYSICAL + addr);
        }
        if !found {
            self.inverted.retain(|(_, at)| *at != frame);
            self.inverted.insert(0, (global >> 12, frame));
        }
    }

    fn fetch_routine(&mut self, component: &'static str, routine: usize) {
        for number in 0..u64::from(self.softvm.kernel.handler_instructions) {
            let addr = PHYSICAL + VECTORS[routine] + 4 * number;
            let line = addr / self.lines[0] * self.lines[0];
            let (found, _) = self.sides[0].access(line, None, (0, false));
            self.count(component, "handler_l1i_misses", u64::from(found != NaiveFound::First));
            self.count(component, "handler_l2i_misses", u64::from(found == NaiveFound::Memory));
        }
    }
}
