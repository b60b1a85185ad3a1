//! Process images that share the engines.

use std::collections::BTreeMap;

use octavo_trace::{AddressSpace, CodeMap, Relocation, Start, StreamProgress};
use octavo_types::Event;

use super::CurvesConfig;
use crate::classes::{MissClasses, PlaceCounts};
use crate::touches::{Rows, Space};
use octavo_trace::Counts;

/// The mappings of a process, to locate misses.
pub struct Memory {
    pub space: AddressSpace,
    code: CodeMap,
}

impl Memory {
    /// No mappings.
    pub fn new() -> Self {
        Memory { space: AddressSpace::new(Relocation::default(), None), code: CodeMap::new() }
    }

    /// Begins the address space of a process.
    pub fn started(&mut self, start: &Start, relocation: Relocation) {
        self.space = AddressSpace::new(relocation, start.stack);
    }

    /// Applies an event that changes mappings.
    pub fn apply(&mut self, event: &Event) {
        self.space.apply(event);
        self.code.apply(event);
    }

    /// The misses in `places` by region and function, if misses are classified.
    pub fn classes(&self, config: &CurvesConfig, places: &PlaceCounts) -> Option<MissClasses> {
        config.classes.map(|tlb| MissClasses::new(tlb, places, &self.space, &self.code))
    }
}

/// A process image.
pub struct Image {
    pub memory: Memory,
    pub counts: Counts,
    /// Its pages, while it does not run.
    pages: Space,
    /// Its classified misses by stream, while it does not run.
    pub classes: Vec<PlaceCounts>,
}

impl Image {
    /// An image without references.
    pub fn new() -> Self {
        Image {
            memory: Memory::new(),
            counts: Counts::default(),
            pages: Space::default(),
            classes: Vec::new(),
        }
    }
}

/// All process images that share the engines; exactly one if each has engines of its own.
pub struct Images {
    /// The running image.
    pub running: Image,
    /// Its stream, if there are several.
    stream: Option<u32>,
    waiting: BTreeMap<u32, Image>,
    /// Number of images that have begun.
    begun: u32,
    /// Progress of the images that have ended.
    ended: StreamProgress,
}

impl Images {
    /// No image has run.
    pub fn new() -> Self {
        Images {
            running: Image::new(),
            stream: None,
            waiting: BTreeMap::new(),
            begun: 0,
            ended: StreamProgress::default(),
        }
    }

    /// Whether this image runs.
    pub fn is_running(&self, stream: u32) -> bool {
        self.stream == Some(stream)
    }

    /// Whether any image has run.
    pub fn has_begun(&self) -> bool {
        self.begun > 0
    }

    /// Switches to another image.
    pub fn switch_to(&mut self, stream: u32, rows: &mut Rows) {
        let mut next = self.waiting.remove(&stream).unwrap_or_else(|| {
            self.begun += 1;
            Image::new()
        });
        rows.exchange(&mut next.pages);
        std::mem::swap(&mut next.pages, &mut self.running.pages);
        let before = std::mem::replace(&mut self.running, next);
        if let Some(stream) = self.stream.replace(stream) {
            self.waiting.insert(stream, before);
        }
    }

    /// Removes the running image, which has ended.
    pub fn leave(&mut self, rows: &mut Rows) -> Image {
        self.stream = None;
        rows.exchange(&mut Space::default());
        let image = std::mem::replace(&mut self.running, Image::new());
        self.ended.references += image.counts.references();
        self.ended.instructions += image.counts.instructions;
        image
    }

    /// The progress of all images together.
    pub fn progress(&self) -> StreamProgress {
        let images = self.waiting.values().chain([&self.running]);
        images.fold(self.ended, |mut sum, image| {
            sum.references += image.counts.references();
            sum.instructions += image.counts.instructions;
            sum
        })
    }
}
