//! Memory whose page size is known: asked for, and then verified, since the kernel may refuse.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::CalibrateError;
use crate::chase::{Link, below, shuffle};
use crate::plan::{GIGANTIC_PAGE, HUGE_PAGE, LINE_BYTES, SMALL_PAGE};

/// Bytes of huge pages that are requested and verified at a time.
const STEP: usize = 64 << 20;
const KIB: usize = 1 << 10;
/// Fields of smaps that count huge pages. Linux 6.18 counts private 1 GiB pages as shared.
const HUGE_FIELDS: [&str; 3] = ["AnonHugePages", "Private_Hugetlb", "Shared_Hugetlb"];

/// Memory obtained in pages of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Obtained {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Bytes asked for.
    pub wanted_bytes: usize,
    /// Bytes obtained in pages of that size.
    pub obtained_bytes: usize,
    /// By which means; none where nothing was given.
    pub means: Option<&'static str>,
    /// Why less was given than asked for; a part of a sentence.
    pub refusal: Option<String>,
}

/// Anonymous memory of this process, all of it in pages of one size, and present.
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    mapping: (*mut libc::c_void, usize),
    /// Links in the memory are changed through shared references, so only one thread may have it.
    _one_thread: PhantomData<*mut Link>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives the value.
        unsafe { libc::munmap(self.mapping.0, self.mapping.1) };
    }
}

impl Memory {
    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The link at the beginning of a cache line.
    pub fn link(&self, line: usize) -> &Link {
        assert!(line < self.bytes / LINE_BYTES, "the line lies in the memory");
        // SAFETY: the line lies in the mapping, which is readable, writable, zeroed or holds links,
        // and lives as long as the reference; the address is a multiple of 64.
        unsafe { &*self.start.as_ptr().add(line * LINE_BYTES).cast::<Link>() }
    }

    /// The beginnings of the lines of the first `bytes`, at most all.
    pub fn lines(&self, bytes: usize) -> impl Iterator<Item = *mut u8> {
        let start = self.start.as_ptr();
        // SAFETY: the lines lie in the mapping.
        (0..bytes.min(self.bytes) / LINE_BYTES)
            .map(move |line| unsafe { start.add(line * LINE_BYTES) })
    }

    /// One link at a random line of each of the first `pages` pages of `page_bytes`.
    pub fn one_in_each(
        &self,
        pages: usize,
        page_bytes: usize,
        random: &mut Xoshiro256PlusPlus,
    ) -> Vec<&Link> {
        let lines = page_bytes / LINE_BYTES;
        (0..pages).map(|page| self.link(page * lines + below(lines, random))).collect()
    }

    /// `count` links at different random lines of the first `bytes`.
    pub fn scattered(
        &self,
        count: usize,
        bytes: usize,
        random: &mut Xoshiro256PlusPlus,
    ) -> Vec<&Link> {
        let lines = bytes / LINE_BYTES;
        assert!(count <= lines, "there are as many lines");
        let mut is_taken = vec![false; lines];
        let mut links = Vec::with_capacity(count);
        while links.len() < count {
            let line = below(lines, random);
            if !std::mem::replace(&mut is_taken[line], true) {
                links.push(self.link(line));
            }
        }
        links
    }

    /// The links at all lines of the first `bytes`.
    pub fn all(&self, bytes: usize) -> Vec<&Link> {
        (0..bytes / LINE_BYTES).map(|line| self.link(line)).collect()
    }

    /// Bytes of it that the kernel says are in transparent huge pages or in those of hugetlbfs.
    pub fn huge_bytes(&self) -> usize {
        let start = self.start.as_ptr() as usize;
        let smaps = fs::read_to_string("/proc/self/smaps");
        smaps.map_or(0, |smaps| huge_in(&smaps, start, start + self.bytes))
    }

    fn map(bytes: usize, alignment: usize, flags: libc::c_int) -> Result<Self, CalibrateError> {
        let mapped = bytes + alignment;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
        // SAFETY: a new mapping where the kernel likes.
        let place = unsafe {
            libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if place == libc::MAP_FAILED {
            return Err(CalibrateError { bytes: mapped, cause: io::Error::last_os_error() });
        }
        let address = place as usize;
        let skipped = address.next_multiple_of(alignment.max(1)) - address;
        // SAFETY: `skipped` is less than the alignment, by which the mapping is longer.
        let start = unsafe { place.cast::<u8>().add(skipped) };
        let start = NonNull::new(start).expect("no mapping lies at address zero");
        Ok(Memory { start, bytes, mapping: (place, mapped), _one_thread: PhantomData })
    }

    fn advise(&self, from: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        assert!(from + bytes <= self.bytes, "the range lies in the memory");
        // SAFETY: the range lies in this value's own mapping, and no advice used here changes what
        // it holds.
        let done = unsafe { libc::madvise(self.start.as_ptr().add(from).cast(), bytes, advice) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn touch(&self, offset: usize) {
        assert!(offset < self.bytes, "the page lies in the memory");
        // SAFETY: the byte lies in this value's own mapping, and nothing is linked yet.
        unsafe { self.start.as_ptr().add(offset).write_volatile(0) };
    }

    /// 4 KiB pages. They are touched in random order: adjacent pages are then in frames that are not
    /// adjacent, and no processor can coalesce their entries.
    pub fn small(
        bytes: usize,
        random: &mut Xoshiro256PlusPlus,
    ) -> Result<(Self, Obtained), CalibrateError> {
        let memory = Memory::map(bytes, HUGE_PAGE, 0)?;
        // Fails on kernels without transparent huge pages, which give none.
        let _ = memory.advise(0, bytes, libc::MADV_NOHUGEPAGE);
        let mut pages: Vec<usize> = (0..bytes / SMALL_PAGE).collect();
        shuffle(&mut pages, random);
        for page in pages {
            memory.touch(page * SMALL_PAGE);
        }
        let huge = memory.huge_bytes();
        let obtained = Obtained {
            page_bytes: SMALL_PAGE,
            wanted_bytes: bytes,
            obtained_bytes: bytes.saturating_sub(huge),
            means: Some("madvise(MADV_NOHUGEPAGE)"),
            refusal: (huge > 0).then(|| format!("{} of it lie in huge pages", mebibytes(huge))),
        };
        Ok((memory, obtained))
    }

    /// As many 2 MiB pages as the kernel gives, by `madvise(MADV_HUGEPAGE)`, else by
    /// `madvise(MADV_COLLAPSE)`, else from hugetlbfs. `go_on` is asked between steps.
    pub fn huge(
        bytes: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Option<Self>, Obtained), CalibrateError> {
        let mut memory = Memory::map(bytes, HUGE_PAGE, 0)?;
        let advised = memory.advise(0, bytes, libc::MADV_HUGEPAGE);
        let mut means = "madvise(MADV_HUGEPAGE)";
        let mut refusal = advised.err().map(|error| format!("MADV_HUGEPAGE failed: {error}"));
        let mut done = 0;
        while done < bytes && go_on() {
            let step = STEP.min(bytes - done);
            for page in (done..done + step).step_by(HUGE_PAGE) {
                memory.touch(page);
            }
            if memory.huge_bytes() < done + step {
                let collapsed = memory.advise(done, step, libc::MADV_COLLAPSE);
                if memory.huge_bytes() < done + step {
                    refusal = Some(match collapsed {
                        Err(error) => format!("MADV_COLLAPSE failed: {error}"),
                        Ok(()) => "MADV_COLLAPSE gave too few".to_owned(),
                    });
                    break;
                }
                means = "madvise(MADV_COLLAPSE)";
            }
            done += step;
            refusal = None;
        }
        memory.bytes = done;
        if done < bytes && refusal.is_none() {
            refusal = Some("it was given too slowly".to_owned());
        }
        let mut obtained = Obtained {
            page_bytes: HUGE_PAGE,
            wanted_bytes: bytes,
            obtained_bytes: done,
            means: (done > 0).then_some(means),
            refusal,
        };
        if done > 0 {
            return Ok((Some(memory), obtained));
        }
        drop(memory);
        let reserved = Memory::reserved(bytes, HUGE_PAGE);
        if let Some(memory) = &reserved {
            obtained.obtained_bytes = memory.bytes;
            obtained.means = Some("hugetlbfs");
            obtained.refusal = None;
        }
        Ok((reserved, obtained))
    }

    /// 1 GiB pages that are reserved and free, at most `bytes`.
    pub fn gigantic(bytes: usize) -> (Option<Self>, Obtained) {
        let memory = Memory::reserved(bytes, GIGANTIC_PAGE);
        let obtained_bytes = memory.as_ref().map_or(0, Memory::bytes);
        let obtained = Obtained {
            page_bytes: GIGANTIC_PAGE,
            wanted_bytes: bytes,
            obtained_bytes,
            means: memory.is_some().then_some("hugetlbfs"),
            refusal: memory.is_none().then(|| "none is reserved and free".to_owned()),
        };
        (memory, obtained)
    }

    /// Pages of hugetlbfs, as many as are free, at most `bytes`.
    fn reserved(bytes: usize, page_bytes: usize) -> Option<Self> {
        let file =
            format!("/sys/kernel/mm/hugepages/hugepages-{}kB/free_hugepages", page_bytes / KIB);
        let free: usize = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        let bytes = free.min(bytes / page_bytes) * page_bytes;
        if bytes == 0 {
            return None;
        }
        let size_flag = (page_bytes.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
        // Without MAP_NORESERVE the mapping would fail if other processes were faster; with it, a
        // touch would raise SIGBUS. So the mapping is populated here, and missing pages are noticed
        // below.
        let flags = libc::MAP_HUGETLB | libc::MAP_POPULATE | size_flag;
        let memory = Memory::map(bytes, 0, flags).ok()?;
        (memory.huge_bytes() >= bytes).then_some(memory)
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Bytes in huge pages, by the text of smaps, in the mappings that overlap a range.
fn huge_in(smaps: &str, start: usize, end: usize) -> usize {
    let mut is_inside = false;
    let mut kibibytes = 0;
    for line in smaps.lines() {
        if let Some((from, to)) = bounds(line) {
            is_inside = from < end && start < to;
            continue;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if is_inside && HUGE_FIELDS.contains(&name) {
            let number = value.trim().trim_end_matches("kB").trim();
            kibibytes += number.parse::<usize>().unwrap_or(0);
        }
    }
    kibibytes * KIB
}

/// The addresses of a mapping, from the first line of its entry.
fn bounds(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
Size:               4096 kB\n\
AnonHugePages:      2048 kB\n\
Private_Hugetlb:       0 kB\n\
7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n\
AnonHugePages:         0 kB\n\
Shared_Hugetlb:     1024 kB\n\
Private_Hugetlb:    3072 kB\n\
VmFlags: rd wr mr mw me ac sd hg \n";

    #[test]
    fn huge_pages_of_a_range_are_read_from_smaps() {
        let (first, second, end) = (0x7f00_0000_0000, 0x7f00_0040_0000, 0x7f00_0080_0000);
        assert_eq!(huge_in(SMAPS, first, second), 2 << 20);
        assert_eq!(huge_in(SMAPS, second, end), 4 << 20);
        assert_eq!(huge_in(SMAPS, first, end), 6 << 20);
        assert_eq!(huge_in(SMAPS, 0, first), 0);
    }

    #[test]
    fn small_pages_are_small_and_links_are_where_they_should_be() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let (memory, obtained) = Memory::small(2 * HUGE_PAGE, &mut random).unwrap();
        assert_eq!((obtained.obtained_bytes, memory.huge_bytes()), (2 * HUGE_PAGE, 0));
        let start = memory.start.as_ptr() as usize;
        let offset = |link: &&Link| ptr::from_ref(*link) as usize - start;
        let in_pages = memory.one_in_each(9, SMALL_PAGE, &mut random);
        let pages: Vec<_> = in_pages.iter().map(|link| offset(link) / SMALL_PAGE).collect();
        assert_eq!(pages, (0..9).collect::<Vec<_>>());
        assert!(in_pages.iter().any(|link| offset(link) % SMALL_PAGE != 0));
        assert!(in_pages.iter().all(|link| offset(link) % LINE_BYTES == 0));
        let scattered = memory.scattered(60, 64 * LINE_BYTES, &mut random);
        let lines: HashSet<_> = scattered.iter().map(|link| offset(link) / LINE_BYTES).collect();
        assert_eq!(lines.len(), 60);
        assert!(lines.iter().all(|line| *line < 64));
        assert_eq!(memory.all(8 * KIB).len(), 128);
    }

    #[test]
    fn huge_pages_are_verified_or_refused_with_a_reason() {
        let (memory, obtained) = Memory::huge(2 * HUGE_PAGE, &mut || true).unwrap();
        match memory {
            Some(memory) => {
                assert_eq!(memory.bytes(), obtained.obtained_bytes);
                assert!(memory.huge_bytes() >= memory.bytes());
                assert!(obtained.means.is_some());
            }
            None => assert!(obtained.refusal.is_some()),
        }
        let (none, obtained) = Memory::huge(2 * HUGE_PAGE, &mut || false).unwrap();
        assert_eq!(obtained.obtained_bytes, none.map_or(0, |memory| memory.bytes()));
    }
}
