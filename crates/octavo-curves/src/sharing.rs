//! Memory of several processes that have pages in common: shared memory, and unmodified pages of files.
//!
//! Pages of each size are counted as if the whole address space were mapped with that size. A page in
//! which a process has touched memory of its own belongs to that process; every other page is counted
//! once for all processes that touched it. Pages are the same if they lie at the same address of
//! processes that are related by fork, or at the same distance from the start of the same file's
//! region. The pages of a file are counted as if all processes had mapped it at the address of the first.

use octavo_trace::Stream;
use octavo_types::PageSize;
use rustc_hash::FxHashMap;

use crate::footprint::PageSet;

/// The base pages that a region, or a process, has touched.
#[derive(Clone, Default, Debug)]
pub struct Touched {
    fetch: PageSet,
    data: PageSet,
    own: PageSet,
}

impl Touched {
    /// Pages touched by fetches and by data, and the pages `own` that no other process has. Untouched pages in `own`
    /// are ignored.
    pub fn new(fetch: PageSet, data: PageSet, own: &PageSet) -> Self {
        let mut touched = Touched { fetch, data, own: PageSet::default() };
        touched.own = touched.by(Stream::All).intersection(own);
        touched
    }

    /// The pages that a stream has touched.
    pub fn by(&self, stream: Stream) -> PageSet {
        match stream {
            Stream::Fetch => self.fetch.clone(),
            Stream::Data => self.data.clone(),
            Stream::All => {
                let mut all = self.fetch.clone();
                all.union(&self.data);
                all
            }
        }
    }
}

/// A region of a process.
#[derive(Debug)]
pub struct Part<'a> {
    /// The file and kind of the region, which identify it in other processes; `None` if only its address
    /// does.
    pub file: Option<&'a str>,
    /// Its first base page.
    pub start: u64,
    /// The pages touched.
    pub touched: &'a Touched,
}

/// Regions of one process.
#[derive(Debug)]
pub struct Image<'a> {
    /// The ancestor by fork alone, or the process itself.
    pub family: u64,
    /// Its regions.
    pub parts: Vec<Part<'a>>,
}

/// The bytes in pages of `size` that `stream` has touched, with shared pages counted once.
pub fn touched_together(images: &[Image<'_>], stream: Stream, size: PageSize) -> u64 {
    let mut files: FxHashMap<&str, (u64, u64)> = FxHashMap::default();
    let mut common: FxHashMap<u64, PageSet> = FxHashMap::default();
    let mut pages = 0;
    for image in images {
        let touched: Vec<PageSet> =
            image.parts.iter().map(|part| part.touched.by(stream)).collect();
        let mut own = PageSet::default();
        for (part, touched) in image.parts.iter().zip(&touched) {
            own.union(&touched.intersection(&part.touched.own));
        }
        pages += own.pages_of(size);
        for (part, touched) in image.parts.iter().zip(&touched) {
            let here = (image.family, part.start);
            let (family, start) = part.file.map_or(here, |file| *files.entry(file).or_insert(here));
            let apart = touched.apart_from(&own, size);
            let apart = match start.wrapping_sub(part.start) as i64 {
                0 => apart,
                further => apart.moved(further),
            };
            common.entry(family).or_default().union(&apart);
        }
    }
    pages += common.values().map(|pages| pages.pages_of(size)).sum::<u64>();
    pages << size.log2()
}

/// The bytes that a sum over processes counts more than once.
pub fn counted_again(images: &[Image<'_>], stream: Stream, size: PageSize) -> u64 {
    let each = |image| touched_together(std::slice::from_ref(image), stream, size);
    let sum: u64 = images.iter().map(each).sum();
    // If a file is mapped at different alignments, two of its pages may lie in one page of a process, so that the
    // difference may be negative.
    sum.saturating_sub(touched_together(images, stream, size))
}
