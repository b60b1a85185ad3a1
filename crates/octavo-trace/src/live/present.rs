//! The memory that a running process has, as the kernel shows it.

use std::ops::Range;

use octavo_types::PageSize;
use procfs::ProcResult;
use procfs::process::{MMapPath, MemoryMap, MemoryPageFlags, PageInfo, Process};

/// Larger mappings are passed over: the kernel says eight bytes of each of their pages.
const MOST_BYTES: u64 = 1 << 40;

/// The base pages of anonymous memory that are present in a process and in no other one, as ascending ranges. Of mappings
/// that have transparent huge pages none is given: which parts of those the process has touched is not known.
pub fn present_pages(pid: u32) -> ProcResult<Vec<Range<u64>>> {
    let process = Process::new(pid as i32)?;
    let mut pagemap = process.pagemap()?;
    let mut found: Vec<Range<u64>> = Vec::new();
    for map in process.smaps()?.into_iter().filter(may_have_pages) {
        let first = map.address.0 >> PageSize::BASE.log2();
        let end = map.address.1 >> PageSize::BASE.log2();
        let Ok(entries) = pagemap.get_range_info(first as usize..end as usize) else { continue };
        for (page, entry) in (first..).zip(entries) {
            if is_own(&entry) {
                match found.last_mut() {
                    Some(last) if last.end == page => last.end += 1,
                    _ => found.push(page..page + 1),
                }
            }
        }
    }
    Ok(found)
}

fn may_have_pages(map: &MemoryMap) -> bool {
    let bytes = |key| map.extension.map.get(key).copied().unwrap_or(0);
    map.address.1.saturating_sub(map.address.0) <= MOST_BYTES
        && bytes("Anonymous") > 0
        && bytes("AnonHugePages") == 0
        && !matches!(map.pathname, MMapPath::Vsyscall)
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
            .flatten()
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
