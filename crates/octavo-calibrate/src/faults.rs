//! The cost of page faults: first touches of fresh anonymous memory, and its release.

use std::ptr;

use crate::clock::time;
use crate::plan::HUGE_PAGE;

/// Ticks of the time-stamp counter that the first touch and the release of a page take, the
/// kernel's zeroing included: the mean over `pages` pages in turn. `None` where the kernel gives no
/// memory, or no pages of that size.
pub fn ticks_per_fault(page_bytes: usize, pages: usize) -> Option<f64> {
    first_touches(page_bytes, pages).map(Touched::into_ticks)
}

/// Ticks of a first touch and a release in each of several samples. The memory of all samples is in
/// use at the same time, so that each gets other frames.
pub fn ticks_of_samples(page_bytes: usize, pages: usize, samples: usize) -> Vec<f64> {
    let touched: Vec<_> = (0..samples).map_while(|_| first_touches(page_bytes, pages)).collect();
    touched.into_iter().map(Touched::into_ticks).collect()
}

/// Memory of which every page was touched.
struct Touched {
    mapping: Mapping,
    pages: usize,
    ticks: u64,
}

impl Touched {
    /// Releases the memory. Returns the ticks per page of touch and release.
    fn into_ticks(self) -> f64 {
        let Touched { mapping, pages, ticks } = self;
        (ticks + time(|| drop(mapping))) as f64 / pages as f64
    }
}

fn first_touches(page_bytes: usize, pages: usize) -> Option<Touched> {
    let bytes = page_bytes * pages;
    let mapping = Mapping::new(bytes + HUGE_PAGE)?;
    let start = mapping.start.next_multiple_of(HUGE_PAGE);
    let advice = if page_bytes >= HUGE_PAGE { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: the range lies in the mapping.
    if unsafe { libc::madvise(start as *mut libc::c_void, bytes, advice) } != 0 {
        return None;
    }
    let before = minor_faults();
    let ticks = time(|| {
        for page in 0..pages {
            // SAFETY: the place lies in the mapping, which nothing else uses.
            unsafe { ptr::write_volatile((start + page * page_bytes) as *mut u8, 1) };
        }
    });
    let faults = minor_faults() - before;
    // With another number of faults, the kernel mapped several pages at a fault, or smaller ones.
    let is_as_asked =
        faults.abs_diff(pages as u64) <= pages as u64 / 8 + 2 && is_populated(start, bytes);
    is_as_asked.then_some(Touched { mapping, pages, ticks })
}

struct Mapping {
    start: usize,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        (start != libc::MAP_FAILED).then_some(Mapping { start: start as usize, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }
}

/// Page faults of this thread that needed no disk.
fn minor_faults() -> u64 {
    // SAFETY: a plain system call, which fills a structure of ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_minflt as u64
    }
}

/// Whether every base page of a range is in memory: with 2 MiB pages one touch makes 512 of them present.
fn is_populated(start: usize, bytes: usize) -> bool {
    let mut present = vec![0u8; bytes / crate::plan::SMALL_PAGE];
    // SAFETY: the vector has a byte for each page of the range.
    let status =
        unsafe { libc::mincore(start as *mut libc::c_void, bytes, present.as_mut_ptr().cast()) };
    status == 0 && present.iter().all(|page| page & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_pages_can_be_touched_anywhere() {
        let ticks = ticks_per_fault(4096, 64).expect("base pages are always given");
        assert!(ticks > 0.0);
    }

    #[test]
    fn samples_are_as_many_as_asked_for() {
        let ticks = ticks_of_samples(4096, 64, 3);
        assert_eq!(ticks.len(), 3);
        assert!(ticks.iter().all(|ticks| *ticks > 0.0));
    }
}
