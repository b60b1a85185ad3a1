//! Reads `/proc/PID/pagemap`: eight bytes per page of a process, with its frame (Linux, `pagemap.rst`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};

use super::flags::read_words;
use crate::frames::Order;

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// Maximum number of pages read: 4 TiB of addresses. A sanitizer reserves far more.
const MAX_PAGES: u64 = 1 << 30;

/// The resident pages of a process.
#[derive(Debug, Default)]
pub struct Resident {
    /// Their frames, sorted, without duplicates.
    pub frames: Vec<u64>,
    /// Number of pages; several may share a frame.
    pub pages: u64,
    /// Pages by order in blocks aligned and contiguous both virtually and physically.
    pub mappable: [u64; Order::COUNT],
    /// Whether frame numbers were hidden: they are 0 without permission.
    pub hidden: bool,
    /// Whether the limit on pages was exceeded.
    pub cut: bool,
}

/// Reads the pages of mappings, each given as first page and end.
pub fn read_pagemap(pagemap: &mut File, mappings: &[(u64, u64)]) -> io::Result<Resident> {
    let mut resident = Resident::default();
    let mut buffer = vec![0; 1 << 16];
    let mut left = MAX_PAGES;
    for &(start, end) in mappings {
        if end - start > left {
            resident.cut = true;
            continue;
        }
        left -= end - start;
        pagemap.seek(SeekFrom::Start(start * 8))?;
        let mut run = PageRun::default();
        let mut page = start;
        while page < end {
            let wanted = buffer.len().min((end - page) as usize * 8);
            let words = read_words(pagemap, &mut buffer[..wanted])?;
            if words.is_empty() {
                break; // unmapped meanwhile, or above the last page of the file
            }
            for word in words {
                resident.page(page, u64::from_le_bytes(*word), &mut run);
                page += 1;
            }
        }
        resident.end_run(run);
    }
    resident.frames.sort_unstable();
    resident.frames.dedup();
    Ok(resident)
}

/// Contiguous pages in contiguous frames.
#[derive(Clone, Copy, Default)]
struct PageRun {
    page: u64,
    frame: u64,
    pages: u64,
}

impl Resident {
    fn page(&mut self, page: u64, word: u64, run: &mut PageRun) {
        if word & PRESENT == 0 {
            self.end_run(std::mem::take(run));
            return;
        }
        let frame = word & FRAME;
        if frame == 0 {
            self.hidden = true;
            return;
        }
        self.pages += 1;
        self.frames.push(frame);
        if run.pages > 0 && page == run.page + run.pages && frame == run.frame + run.pages {
            run.pages += 1;
        } else {
            self.end_run(std::mem::replace(run, PageRun { page, frame, pages: 1 }));
        }
    }

    fn end_run(&mut self, run: PageRun) {
        for order in Order::all() {
            let frames = order.frames();
            if run.page % frames != run.frame % frames {
                break;
            }
            let first = run.page.next_multiple_of(frames);
            let end = (run.page + run.pages) / frames * frames;
            self.mappable[order.index()] += end.saturating_sub(first);
        }
    }
}

/// Parses `/proc/PID/maps` to page ranges: first page and end.
pub fn parse_maps(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let mappings = text.lines().map(|line| {
        let (start, rest) = line.split_once('-')?;
        let end = rest.split(' ').next()?;
        let page = |text| Some(u64::from_str_radix(text, 16).ok()? >> 12);
        let (start, end) = (page(start)?, page(end)?);
        (start <= end).then_some((start, end))
    });
    mappings.collect::<Option<_>>().ok_or_else(|| "a line without addresses".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn maps_are_parsed_as_page_ranges() {
        let maps = "00400000-00402000 r-xp 0 08:01 5 /bin/x\n7f00-10000 rw-p 0 0:0 0\n";
        assert_eq!(parse_maps(maps), Ok(vec![(0x400, 0x402), (7, 16)]));
        assert!(parse_maps("nonsense").is_err());
        assert!(parse_maps("2000-1000 r").is_err());
    }

    /// Pages 4 to 15 in frames 20 to 31, page 2 swapped out, page 3 in frame 19 as well.
    #[test]
    fn mappable_pages_are_counted_by_order() {
        let path = std::env::temp_dir().join(format!("octavo-pagemap-{}", std::process::id()));
        let mut words = [0u64; 16];
        words[2] = 1 << 62 | 77;
        words[3] = PRESENT | 1 << 61 | 19;
        for (word, frame) in words[4..].iter_mut().zip(20..) {
            *word = PRESENT | 1 << 56 | frame;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        let read = |mappings: &[(u64, u64)]| {
            read_pagemap(&mut File::open(&path).unwrap(), mappings).unwrap()
        };
        let all = read(&[(0, 16)]);
        assert_eq!(all.frames, (19..32).collect::<Vec<_>>());
        assert_eq!(all.pages, 13);
        // 19; pages 4-5, …, 14-15; 4-7, 8-11, 12-15; 8-15: pages and frames differ by 16.
        assert_eq!(all.mappable[..6], [13, 12, 12, 8, 0, 0]);
        // Pages do not cross the ends of mappings.
        assert_eq!(read(&[(3, 7), (7, 16), (900, 910)]).mappable[..4], [13, 10, 8, 8]);
        assert!(read(&[(0, MAX_PAGES + 1)]).cut);
        assert!(!all.hidden && !all.cut);
        words[3] = PRESENT;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        assert!(read_pagemap(&mut File::open(&path).unwrap(), &[(0, 16)]).unwrap().hidden);
        std::fs::remove_file(&path).unwrap();
    }
}
