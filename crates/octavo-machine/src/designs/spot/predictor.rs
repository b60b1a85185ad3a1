//! The table of offsets by instruction.

use octavo_hw::Asid;

use super::SpotSettings;

/// An address space and the address of an instruction.
pub type Instruction = (Asid, u64);

/// The largest confidence: two bits.
const MOST_CONFIDENCE: u8 = 3;
/// The confidence of a new offset. Only higher ones give predictions.
const FIRST_CONFIDENCE: u8 = 1;

#[derive(Clone, Copy)]
struct Entry {
    instruction: Instruction,
    /// Page number minus frame number, wrapping.
    offset: u64,
    confidence: u8,
    /// The number of the last look-up that found the entry, or after which it was filled.
    used: u64,
}

/// The entry of an instruction.
#[derive(Clone, Copy)]
pub struct Found {
    /// Page number minus frame number, wrapping.
    pub offset: u64,
    /// Whether the entry gives predictions.
    pub is_confident: bool,
}

/// The effect of a walk on the table.
pub enum Learned {
    /// The entry of the instruction has another confidence, or another offset.
    Updated,
    /// The instruction has an entry now.
    New,
    /// All entries of its set have confidence.
    NoRoom,
    /// The instruction has no entry, and gets none for a page of a short run.
    ShortRun,
}

/// The table of one core.
pub struct Predictor {
    /// All sets, one after another.
    entries: Vec<Option<Entry>>,
    sets: u64,
    ways: usize,
    lookups: u64,
}

impl Predictor {
    /// An empty table.
    pub fn new(settings: &SpotSettings) -> Self {
        let SpotSettings { sets, ways, .. } = *settings;
        Predictor {
            entries: vec![None; (sets * ways) as usize],
            sets,
            ways: ways as usize,
            lookups: 0,
        }
    }

    /// Bytes of a table.
    pub fn bytes(settings: &SpotSettings) -> u64 {
        settings.sets * settings.ways * size_of::<Option<Entry>>() as u64
    }

    fn set(&mut self, (_, site): Instruction) -> &mut [Option<Entry>] {
        let first = (site % self.sets) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    fn find(&mut self, instruction: Instruction) -> Option<&mut Entry> {
        self.set(instruction).iter_mut().flatten().find(|entry| entry.instruction == instruction)
    }

    /// Looks an instruction up.
    pub fn look_up(&mut self, instruction: Instruction) -> Option<Found> {
        self.lookups += 1;
        let now = self.lookups;
        let entry = self.find(instruction)?;
        entry.used = now;
        let is_confident = entry.confidence > FIRST_CONFIDENCE;
        Some(Found { offset: entry.offset, is_confident })
    }

    /// Learns the offset of a page. Offsets of pages in short runs are not kept.
    pub fn learn(
        &mut self,
        instruction: Instruction,
        offset: u64,
        is_in_long_run: bool,
    ) -> Learned {
        if let Some(entry) = self.find(instruction) {
            if entry.offset == offset {
                entry.confidence = MOST_CONFIDENCE.min(entry.confidence + 1);
            } else if entry.confidence > 0 {
                entry.confidence -= 1;
            } else if is_in_long_run {
                (entry.offset, entry.confidence) = (offset, FIRST_CONFIDENCE);
            }
            return Learned::Updated;
        }
        if !is_in_long_run {
            return Learned::ShortRun;
        }
        let new = Entry { instruction, offset, confidence: FIRST_CONFIDENCE, used: self.lookups };
        let is_replaceable =
            |place: &&mut Option<Entry>| place.is_none_or(|entry| entry.confidence == 0);
        let places = self.set(instruction).iter_mut().filter(is_replaceable);
        match places.min_by_key(|place| place.map_or(0, |entry| entry.used)) {
            Some(place) => {
                *place = Some(new);
                Learned::New
            }
            None => Learned::NoRoom,
        }
    }

    /// Empties the table.
    pub fn clear(&mut self) {
        self.entries.fill(None);
    }
}
