//! Naive software-managed translation that models the contents of each line: every load returns the last stored value.
//! It shares only the operating system with the engine.

mod guarded;
mod handler;
mod pages;
mod space;
mod tlb;

use std::collections::{BTreeMap, HashMap};

use guarded::Guarded;
use octavo_config::MachineConfig;
use octavo_machine::designs::softvm::{
    IncreasedRights, SoftvmConfig, VirtualCacheLevel, WriteBackTranslation,
};
use octavo_oracle::{NaiveChange, NaiveFound, NaiveReplacement, NaiveVirtualSide};
use octavo_os::{Os, ProcessId};
use octavo_types::{Access, Event, PageNumber, PageSize};
use space::Segment;
use tlb::Tlb;

type Page = (ProcessId, u64);

/// A page of the global space with cached lines.
#[derive(Clone)]
struct CachedPage {
    frame: u64,
    may_store: bool,
    sides: [bool; 2],
    /// The mapped process pages whose accesses missed it, in order of first miss.
    users: Vec<Page>,
}

/// The translator behind the caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    Software,
    Spur,
    Free,
    MipsVirtual,
    MipsPhysical,
}

impl Design {
    pub const ALL: [Design; 5] =
        [Design::Software, Design::Spur, Design::Free, Design::MipsVirtual, Design::MipsPhysical];

    /// The name in the engine.
    pub fn name(self) -> &'static str {
        match self {
            Design::Software => "softvm",
            Design::Spur => "spur",
            Design::Free => "softvm_free",
            Design::MipsVirtual => "mips_virtual",
            Design::MipsPhysical => "mips_physical",
        }
    }
}

/// The access of a reference to one line.
#[derive(Clone, Copy)]
pub struct Piece {
    /// Whether it is the reference's first access to its page.
    is_first: bool,
}

pub struct Naive {
    pub os: Os,
    pub process: ProcessId,
    design: Design,
    softvm: SoftvmConfig,
    tlb: Option<Tlb>,
    /// Bytes of an access line, and of a line at each level.
    access_bytes: u64,
    lines: [u64; 2],
    sides: [NaiveVirtualSide; 2],
    /// Number of data write-backs to memory that have been handled.
    handled_write_backs: usize,
    segments: Vec<Segment>,
    registers: [Option<Segment>; 16],
    /// Pages with cached lines by global address, in order of first miss.
    cached: Vec<(u64, CachedPage)>,
    /// The last stored value, by frame and line.
    truth: HashMap<(u64, u64), u64>,
    stores: u64,
    instructions: u64,
    /// Numbers of protection changes and of DMA transfers injected so far.
    injected: [u64; 2],
    anchors: u64,
    inverted: Vec<(u64, u64)>,
    guarded: Guarded,
    counts: BTreeMap<(&'static str, &'static str), u64>,
    /// Whether the machine has stopped because a synonym was refused.
    pub refused: bool,
    /// Data accesses to pages that the process has not faulted in, but another has.
    pub hits_without_fault: u64,
    /// 1 once a 2 MiB page has been used.
    pub has_large_pages: u64,
}

impl Naive {
    pub fn new(config: &MachineConfig, design: Design, mut os: Os) -> Self {
        os.memory_mut().record_contents();
        let softvm = *config.designs.get::<SoftvmConfig>();
        let l1 = softvm.l1.line_bytes.unwrap_or(config.cache.line_bytes);
        let lines = [l1, softvm.l2.line_bytes.unwrap_or(l1)];
        let level = |config: VirtualCacheLevel, bytes: u64| {
            let entries = config.bytes / bytes;
            let ways = config.ways.of(entries);
            (bytes, (entries / ways) as usize, ways as usize, NaiveReplacement::Lru)
        };
        let side =
            || NaiveVirtualSide::new([level(softvm.l1, lines[0]), level(softvm.l2, lines[1])]);
        Naive {
            os,
            process: ProcessId(0),
            design,
            softvm,
            tlb: matches!(design, Design::MipsVirtual | Design::MipsPhysical)
                .then(|| Tlb::new(softvm.tlb)),
            access_bytes: config.cache.line_bytes,
            lines,
            sides: [side(), side()],
            handled_write_backs: 0,
            segments: Vec::new(),
            registers: [None; 16],
            cached: Vec::new(),
            refused: false,
            hits_without_fault: 0,
            has_large_pages: 0,
            truth: HashMap::new(),
            stores: 0,
            instructions: 0,
            injected: [0; 2],
            anchors: (config.memory.bytes >> 12).next_power_of_two(),
            inverted: Vec::new(),
            guarded: Guarded::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, component: &'static str, counter: &'static str, times: u64) {
        *self.counts.entry((component, counter)).or_default() += times;
    }

    /// All counters.
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
        if self.design == Design::MipsPhysical {
            // Physical caches need no segments.
            counters.retain(|(component, _), _| *component != "softvm.segments");
        }
        counters
    }

    /// Executes a reference: accesses each first-level line that it touches.
    pub fn reference(&mut self, kind: Access, addr: u64, bytes: u64) {
        match kind {
            // An instruction that spans two pages counts in both.
            Access::Fetch => self.instructions += (addr + bytes - 1) / 4096 - addr / 4096 + 1,
            Access::Load => self.inject_events(),
            Access::Store => {
                self.inject_events();
                self.stores += 1;
            }
        }
        let line_bytes = self.access_bytes;
        for line in addr / line_bytes..=(addr + bytes - 1) / line_bytes {
            let at = line * line_bytes;
            // The TLB is looked up once per page of the reference.
            let piece = Piece { is_first: line == addr / line_bytes || at.is_multiple_of(4096) };
            match self.design {
                Design::MipsPhysical => self.access_physical(kind, at, piece),
                _ => self.access(kind, at, piece),
            }
        }
    }

    /// Accesses a line by its global address.
    fn access(&mut self, kind: Access, addr: u64, piece: Piece) {
        if self.refused {
            return;
        }
        let side = usize::from(kind != Access::Fetch);
        let page_of_process = (self.process, addr >> 12);
        self.load_register(self.place(self.process, addr).0);
        let global = self.global(self.process, addr);
        let has_missed = self.tlb.is_some() && self.look_up(side, global, piece.is_first).is_none();
        if has_missed {
            let (frame, may_store) = self.resolve(kind, addr);
            self.refill("softvm", side, global, (page_of_process, frame, may_store));
            self.write_back();
        }
        // A further access to a first-level line needs no look-up.
        let is_rest = !piece.is_first && !global.is_multiple_of(self.lines[0]);
        let missed = match is_rest && self.holds(side, 0, global) {
            true => [false; 2],
            false => self.access_caches(kind, addr, global),
        };
        if has_missed && !self.refused {
            self.count_table1_row(side, missed);
        }
    }

    /// Accesses the virtual caches. Returns whether the line missed each level.
    fn access_caches(&mut self, kind: Access, addr: u64, global: u64) -> [bool; 2] {
        let side = usize::from(kind != Access::Fetch);
        let stores = kind == Access::Store;
        let page_of_process = (self.process, addr >> 12);
        let mut missed = [false; 2];
        let store = stores.then_some(self.stores);
        loop {
            let mut page = (0, false);
            if !self.holds(side, 0, global) && !self.holds(side, 1, global) {
                page = self.resolve(kind, addr);
                page.1 = self.claim(addr, page, side, stores);
                if self.refused {
                    return missed;
                }
                self.run("softvm", if side == 0 { "fetch_misses" } else { "data_misses" });
                self.translate("softvm", global, page_of_process);
            }
            let (found, data) = self.sides[side].access(global, store, page);
            if found == NaiveFound::Denied {
                self.count("softvm", "denied", 1);
                let page = self.resolve(kind, addr);
                self.claim(addr, page, side, true);
                if self.refused {
                    return missed;
                }
                if self.softvm.kernel.increase == IncreasedRights::Lazy {
                    let swept = self.sides[1].sweep(global, 1, NaiveChange::MayStore(true));
                    self.swept("softvm.lazy", &[swept]);
                } else {
                    self.protect(global, NaiveChange::MayStore(true));
                }
                continue;
            }
            if side == 1 {
                let frame = self.frame(self.process, addr >> 12);
                self.hits_without_fault += u64::from(self.leaf(page_of_process).is_none());
                let place = (frame, addr % 4096 / self.lines[0]);
                if let Some(number) = store {
                    self.truth.insert(place, number);
                }
                let stored = self.truth.get(&place).copied().unwrap_or(0);
                assert_eq!(data, stored, "{kind:?} {addr:#x} of {:?}", self.process);
            }
            self.write_back();
            missed[0] |= found != NaiveFound::L1;
            missed[1] |= found == NaiveFound::Memory;
            if found == NaiveFound::L1 || self.holds(side, 0, global) {
                return missed;
            }
            self.count("softvm", "restarts", 1);
        }
    }

    fn holds(&self, side: usize, level: usize, global: u64) -> bool {
        let bytes = self.lines[level];
        self.sides[side].lines(level).iter().any(|line| line.0 == global / bytes * bytes)
    }

    /// Returns the frame and the store permission of a page, after page faults until the operating system permits the
    /// access.
    fn resolve(&mut self, kind: Access, addr: u64) -> (u64, bool) {
        let page = PageNumber::new(addr >> 12);
        if kind == Access::Store && self.design != Design::MipsPhysical {
            self.clean_source(addr >> 12);
        }
        loop {
            let table = &mut self.os.memory_mut().process_mut(self.process).table;
            if let Some(leaf) = table.leaf(page)
                && (kind != Access::Store || leaf.rights.write)
            {
                table.mark(page, kind == Access::Store);
                self.has_large_pages =
                    self.has_large_pages.max(u64::from(leaf.size > PageSize::BASE));
                return (leaf.frame_of(page).raw(), leaf.rights.write);
            }
            self.os.fault(self.process, page, kind).unwrap();
            self.apply_os_changes();
        }
    }

    /// Handles a memory event.
    pub fn event(&mut self, event: &Event) {
        self.os.event(self.process, event).unwrap();
        self.apply_os_changes();
    }

    pub fn fork(&mut self, parent: ProcessId) -> ProcessId {
        let child = self.os.fork(parent).unwrap();
        self.apply_os_changes();
        child
    }

    pub fn end(&mut self, process: ProcessId) {
        self.os.end(process);
        self.apply_os_changes();
    }

    fn write_back(&mut self) {
        while self.handled_write_backs < self.sides[1].written.len() {
            let (addr, _, frame) = self.sides[1].written[self.handled_write_backs];
            self.handled_write_backs += 1;
            self.count("softvm.write_back", "lines", 1);
            // The address still maps to the frame that it had when the line was filled.
            let (_, CachedPage { users, .. }) =
                self.cached.iter().find(|(global, _)| *global == addr >> 12 << 12).unwrap();
            let user = users[0];
            assert_eq!(self.frame(user.0, user.1), frame, "a line goes where its page was");
            if self.softvm.kernel.write_back == WriteBackTranslation::Kept {
                continue;
            }
            if self.tlb.is_some() {
                if !self.has(addr) {
                    self.refill("softvm.write_back", 1, addr, (user, frame, true));
                }
            } else {
                self.run("softvm.write_back", "data_misses");
                self.translate("softvm.write_back", addr, user);
            }
        }
    }
}
