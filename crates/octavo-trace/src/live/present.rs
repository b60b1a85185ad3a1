//! The memory that a running process has, as the kernel shows it.

use octavo_types::{AddrRange, Event, PageSize, VirtAddr};
use procfs::ProcResult;
use procfs::process::{MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process};

/// Larger mappings are not read page by page: the kernel gives eight bytes for each page.
const MOST_BYTES: u64 = 1 << 40;
/// Pages that the kernel is asked about at a time.
const PIECE: usize = 1 << 16;

/// The base pages that are present in a process: an [`Event::Present`] for each range.
pub fn present_pages(pid: u32) -> ProcResult<Vec<Event>> {
    let process = Process::new(pid as i32)?;
    let mut pagemap = process.pagemap()?;
    // Ranges of pages: whether they are known, the first page, and the end.
    let mut found: Vec<(bool, u64, u64)> = Vec::new();
    for map in process.smaps()?.into_iter().filter(has_pages) {
        let [first, end] = [map.address.0, map.address.1].map(|at| at >> PageSize::BASE.log2());
        if bytes(&map, "AnonHugePages") > 0 || map.address.1 - map.address.0 > MOST_BYTES {
            found.push((false, first, end));
            continue;
        }
        for start in (first..end).step_by(PIECE) {
            let piece = start as usize..end.min(start + PIECE as u64) as usize;
            // The mapping may have gone meanwhile.
            let Ok(entries) = pagemap.get_range_info(piece) else { break };
            for (page, entry) in (start..).zip(entries) {
                if is_own(&entry) {
                    match found.last_mut() {
                        Some((true, _, last)) if *last == page => *last += 1,
                        _ => found.push((true, page, page + 1)),
                    }
                }
            }
        }
    }
    let address = |page: u64| VirtAddr::new(page << PageSize::BASE.log2());
    let events = found.into_iter().enumerate().map(|(place, (known, first, end))| {
        let range = AddrRange::new(address(first), (end - first) << PageSize::BASE.log2());
        Event::Present { range, known, first: place == 0 }
    });
    Ok(events.collect())
}

fn has_pages(map: &MemoryMap) -> bool {
    bytes(map, "Anonymous") > 0 && !matches!(map.pathname, MMapPath::Vsyscall)
}

/// A number of bytes that the kernel states about a mapping.
fn bytes(map: &MemoryMap, key: &str) -> u64 {
    map.extension.map.get(key).copied().unwrap_or(0)
}

/// Whether a page is present, anonymous, and mapped by this process alone.
fn is_own(entry: &PageInfo) -> bool {
    let PageInfo::MemoryPage(flags) = entry else { return false };
    flags.contains(MemoryPageFlags::PRESENT | MemoryPageFlags::MMAP_EXCLUSIVE)
        && !flags.contains(MemoryPageFlags::FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anonymous memory of ours, in 4 KiB pages.
    fn map(bytes: usize) -> *mut u8 {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of which nothing else knows.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
            start.cast()
        }
    }

    #[test]
    fn pages_that_were_written_are_present_and_no_others() {
        const PAGES: usize = 64;
        let start = map(PAGES << 12);
        for page in [3, 4, 5, 40] {
            // SAFETY: the page lies in the mapping.
            unsafe { start.add(page << 12).write_volatile(1) };
        }
        // SAFETY: likewise; a read finds the zeros that all share.
        unsafe { start.add(50 << 12).read_volatile() };
        let first = start as u64 >> 12;
        let inside = first..first + PAGES as u64;
        let found: Vec<u64> = present_pages(std::process::id())
            .unwrap()
            .into_iter()
            .flat_map(|event| match event {
                Event::Present { range, known: true, .. } => {
                    range.start().raw() >> 12..(range.start().raw() + range.bytes()) >> 12
                }
                _ => 0..0,
            })
            .filter(|page| inside.contains(page))
            .map(|page| page - first)
            .collect();
        assert_eq!(found, [3, 4, 5, 40]);
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(start.cast(), PAGES << 12) };
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(present_pages(u32::MAX >> 1).is_err());
    }
}
