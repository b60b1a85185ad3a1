//! The plan of a measurement: how much memory, which sizes, how often.

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Bytes of a cache line of every x86-64 processor.
pub const LINE_BYTES: usize = 64;
/// Bytes of a base page.
pub const SMALL_PAGE: usize = 4 * KIB;
/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 * MIB;
/// Bytes of a gigantic page.
pub const GIGANTIC_PAGE: usize = 1 << 30;

const FEWEST_PAGES: usize = 8;
/// Below this number of pages, eight sizes an octave are measured; from there on, two.
const FINE_PAGES: usize = 8192;
const FEWEST_PIECES: usize = 1024;
const MOST_PIECES: usize = 1 << 17;
const SMALLEST_WORKING_SET: usize = 4 * KIB;
const LARGEST_WORKING_SET: usize = 256 * MIB;
const SMALLEST_DENSE_SET: usize = 8 * MIB;
/// More than second-level caches hold, and less than last-level caches.
const LAST_LEVEL_SET: usize = 6 * MIB;
const SMALLEST_RANDOM_SET: usize = 16 * KIB;
/// Small enough for the part of a last-level cache that other cores leave.
const LAST_LEVEL_RANDOM_SET: usize = 2 * MIB;
/// Memory that is read or written from beginning to end, bytes.
pub const STREAMED: usize = 128 * MIB;
/// Page faults in a sample, by page size.
pub const FAULTS: [(usize, usize); 2] = [(SMALL_PAGE, 2048), (HUGE_PAGE, 8)];
/// Page faults in a sample of free memory, by page size.
pub const FREE_MEMORY_FAULTS: [(usize, usize); 2] = [(SMALL_PAGE, 512), (HUGE_PAGE, 1)];
/// Samples of free memory, 128 MiB together: a host that takes free memory back was seen to leave
/// 64 MiB to its guest.
pub const FREE_MEMORY_SAMPLES: usize = 64;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Memory in 4 KiB pages, bytes.
    pub small_bytes: usize,
    /// Memory in 2 MiB pages, bytes; as much of it as the kernel gives.
    pub huge_bytes: usize,
    /// Rounds in which each size is measured whose times agree.
    pub settled_rounds: usize,
    /// Rounds in which each size is measured at most.
    pub rounds: usize,
    /// Seconds after which the measurement ends, unless there were fewer rounds than
    /// `least_rounds`.
    pub seconds: u64,
    /// The rounds that are made whatever time they take.
    pub least_rounds: usize,
    /// Seconds for which all memory is left free before its first touches are measured again, if
    /// the first ones were slow; 0: this is never measured. A host took 9 to 21 seconds to take 8
    /// GiB back.
    pub free_seconds: u64,
    /// The seed of all random orders.
    pub seed: u64,
}

impl Plan {
    /// The full measurement, with at most `memory_bytes` of memory.
    pub fn full(memory_bytes: usize) -> Self {
        let small_bytes = (memory_bytes / 4).min(512 * MIB) / HUGE_PAGE * HUGE_PAGE;
        Plan {
            small_bytes,
            huge_bytes: (memory_bytes - small_bytes) / HUGE_PAGE * HUGE_PAGE,
            settled_rounds: 15,
            rounds: 60,
            seconds: 90,
            least_rounds: 5,
            free_seconds: 25,
            seed: 1,
        }
    }

    /// A short measurement with at most 192 MiB, which finds less.
    pub fn quick(memory_bytes: usize) -> Self {
        let small_bytes = (memory_bytes / 4).min(64 * MIB) / HUGE_PAGE * HUGE_PAGE;
        Plan {
            small_bytes,
            huge_bytes: (memory_bytes - small_bytes).min(128 * MIB) / HUGE_PAGE * HUGE_PAGE,
            settled_rounds: 5,
            rounds: 5,
            seconds: 5,
            least_rounds: 3,
            free_seconds: 0,
            ..Plan::full(memory_bytes)
        }
    }
}

/// Numbers of pages that are measured, ascending, up to `most`.
///
/// Within an octave they are equally far apart, so that the sizes of real TLBs are among them: 48,
/// 64, 72, 96, 1536, 2048, 3072.
pub fn page_counts(most: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut octave = FEWEST_PAGES;
    while octave <= most {
        let steps = if octave < FINE_PAGES { 8 } else { 2 };
        counts.extend((0..steps).map(|step| octave + step * octave / steps));
        octave *= 2;
    }
    counts.retain(|count| *count <= most);
    counts
}

/// Numbers of pieces of huge pages that are measured, ascending, up to `most`: two an octave, from
/// about as many on as second levels of TLBs have entries.
pub fn piece_counts(most: usize) -> Vec<usize> {
    let octaves = std::iter::successors(Some(FEWEST_PIECES), |octave| Some(2 * octave));
    let counts = octaves.flat_map(|octave| [octave, octave / 2 * 3]);
    counts.take_while(|count| *count <= most.min(MOST_PIECES)).collect()
}

/// Working sets whose latency is measured, bytes, ascending, up to `most`: two an octave.
pub fn working_sets(most: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut octave = SMALLEST_WORKING_SET;
    while octave <= LARGEST_WORKING_SET {
        sizes.extend([octave, octave + octave / 2]);
        octave *= 2;
    }
    sizes.retain(|size| *size <= most.min(LARGEST_WORKING_SET));
    sizes
}

/// Working sets that are measured in 4 KiB and in 2 MiB pages, bytes, ascending, up to `most`: one an
/// octave.
pub fn dense_sets(most: usize) -> Vec<usize> {
    let sizes = std::iter::successors(Some(SMALLEST_DENSE_SET), |size| size.checked_mul(2));
    sizes.take_while(|size| *size <= most).collect()
}

/// Working sets over which several chases run at once, bytes: one that, of all caches, only a last
/// level holds, and the largest up to `most`, which none holds.
pub fn parallel_sets(most: usize) -> Vec<usize> {
    let largest = working_sets(most).last().copied();
    [Some(LAST_LEVEL_SET), largest].into_iter().flatten().filter(|bytes| *bytes <= most).collect()
}

/// Working sets of random reads, bytes, ascending, up to `most`: one that the first cache holds,
/// one that last-level caches hold, and larger ones.
pub fn random_sets(most: usize) -> Vec<usize> {
    let small = [SMALLEST_RANDOM_SET, LAST_LEVEL_RANDOM_SET].into_iter();
    let large = working_sets(most).into_iter().filter(|bytes| *bytes >= SMALLEST_DENSE_SET);
    small.filter(|bytes| *bytes <= most).chain(large).collect()
}

/// Working sets of random reads without faster reads before them, bytes, ascending, up to `most`:
/// about as large as last-level caches are.
pub fn lone_sets(most: usize) -> Vec<usize> {
    [8, 16, 32, 64, 128].map(|size| size * MIB).into_iter().filter(|bytes| *bytes <= most).collect()
}

/// Numbers of pages over which walks at once are measured: their lines and tables lie in
/// second-level caches.
pub fn walker_pages(most: usize) -> Vec<usize> {
    [4096, 8192, 16384].into_iter().filter(|pages| *pages <= most).collect()
}

/// Distances of lines within 2 MiB pages, bytes: powers of two up to a page and up to `most`.
pub fn strides(most: usize) -> Vec<usize> {
    let lengths = std::iter::successors(Some(4 * LINE_BYTES), |length| Some(2 * length));
    lengths.take_while(|length| *length <= most.min(HUGE_PAGE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_counts_include_the_sizes_of_known_tlbs() {
        let counts = page_counts(1 << 17);
        for known in [16, 32, 48, 64, 72, 96, 128, 1024, 1280, 1536, 2048, 3072, 4096, 1 << 17] {
            assert!(counts.contains(&known), "{known}");
        }
        assert!(counts.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(page_counts(7), []);
    }

    #[test]
    fn working_sets_end_with_the_memory() {
        assert_eq!(working_sets(16 * KIB), [4 * KIB, 6 * KIB, 8 * KIB, 12 * KIB, 16 * KIB]);
        assert_eq!(working_sets(usize::MAX).last(), Some(&LARGEST_WORKING_SET));
    }

    #[test]
    fn dense_sets_are_powers_of_two() {
        assert_eq!(dense_sets(40 * MIB), [8 * MIB, 16 * MIB, 32 * MIB]);
        assert_eq!(dense_sets(MIB), []);
    }

    #[test]
    fn random_sets_begin_with_sets_that_caches_hold() {
        assert_eq!(random_sets(16 * MIB), [16 * KIB, 2 * MIB, 8 * MIB, 12 * MIB, 16 * MIB]);
        assert_eq!(random_sets(MIB), [16 * KIB]);
        assert_eq!(walker_pages(9000), [4096, 8192]);
    }

    #[test]
    fn pieces_are_two_numbers_an_octave() {
        assert_eq!(piece_counts(3000), [1024, 1536, 2048]);
        assert_eq!(piece_counts(usize::MAX).last(), Some(&MOST_PIECES));
        assert_eq!(piece_counts(1000), []);
    }

    #[test]
    fn strides_are_powers_of_two_up_to_a_page() {
        assert_eq!(strides(1000), [256, 512]);
        assert_eq!(strides(usize::MAX).last(), Some(&HUGE_PAGE));
        assert_eq!(strides(0), []);
    }

    #[test]
    fn plans_stay_within_the_memory() {
        for memory in [0, 3 * MIB, 100 * MIB, 9 << 30] {
            for plan in [Plan::full(memory), Plan::quick(memory)] {
                assert!(plan.small_bytes + plan.huge_bytes <= memory);
            }
        }
    }
}
