//! Prefetchers that keep the history of all accesses, and decide from it.

/// Bounds of prefetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveBounds {
    /// Lines of a block.
    pub page_lines: u64,
    /// Whether prefetches may leave the block.
    pub cross_pages: bool,
    /// Lines of memory.
    pub memory_lines: u64,
}

impl NaiveBounds {
    fn allow(&self, from: u64, to: i128) -> bool {
        let page = |line: i128| line / i128::from(self.page_lines);
        let is_in_memory = (0..i128::from(self.memory_lines)).contains(&to);
        is_in_memory && (self.cross_pages || page(i128::from(from)) == page(to))
    }

    /// The lines up to the first that may not be prefetched.
    fn allowed(&self, from: u64, lines: impl Iterator<Item = i128>) -> Vec<u64> {
        lines.take_while(|to| self.allow(from, *to)).map(|to| to as u64).collect()
    }
}

/// A prefetcher by the stride of each instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveStride {
    /// Entries of the table of instructions.
    pub entries: u32,
    /// Equal steps in succession that an instruction needs before it causes prefetches.
    pub confirmations: u32,
    /// Strides from the accessed line to the first prefetched line.
    pub distance: u32,
    /// Lines prefetched by one access.
    pub degree: u32,
    /// Bounds of the prefetches.
    pub bounds: NaiveBounds,
}

/// A prefetcher by the direction of accesses to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveStreamer {
    /// Pages tracked.
    pub streams: u32,
    /// Steps in one direction in succession that a page needs before it is prefetched.
    pub confirmations: u32,
    /// Maximum distance of a prefetched line from the accessed one, in lines.
    pub distance: u32,
    /// Maximum number of lines prefetched by one access.
    pub degree: u32,
    /// Bounds of the prefetches.
    pub bounds: NaiveBounds,
}

/// A prefetcher of the lines around accesses of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveRegion {
    /// Entries of the table of instructions.
    pub entries: u32,
    /// Visits in succession that must access the line at a distance before that distance is prefetched.
    pub confirmations: u32,
    /// Number of visits under way at once.
    pub visits: u32,
    /// Lines that a visit covers before its trigger.
    pub before: u32,
    /// Lines that a visit covers behind its trigger.
    pub after: u32,
    /// Maximum number of lines prefetched by one access.
    pub degree: u32,
    /// Bounds of the prefetches.
    pub bounds: NaiveBounds,
}

impl NaiveRegion {
    fn covers(&self, visit: &Visit, line: u64) -> bool {
        let distance = i128::from(line) - i128::from(visit.trigger);
        (-i128::from(self.before)..=i128::from(self.after)).contains(&distance)
            && self.bounds.allow(visit.trigger, line.into())
    }
}

/// A visit, under way or over.
#[derive(Debug)]
struct Visit {
    site: u64,
    trigger: u64,
    /// The lines accessed after the trigger.
    lines: Vec<u64>,
}

/// The history of a page that a streamer tracks.
#[derive(Debug)]
struct Stream {
    page: u64,
    /// The lines accessed, without immediate repeats.
    lines: Vec<u64>,
    /// The farthest line prefetched in the present direction.
    farthest: Option<i128>,
}

/// The prefetchers of a cache, with their history.
#[derive(Debug, Default)]
pub struct NaivePrefetchers {
    stride: Option<NaiveStride>,
    streamer: Option<NaiveStreamer>,
    region: Option<NaiveRegion>,
    /// All accesses: instruction and line.
    accesses: Vec<(u64, u64)>,
    /// The pages tracked, the most recent one last.
    streams: Vec<Stream>,
    /// All visits, in the order in which they began.
    visits: Vec<Visit>,
}

impl NaivePrefetchers {
    /// Untrained prefetchers.
    pub fn new(
        stride: Option<NaiveStride>,
        streamer: Option<NaiveStreamer>,
        region: Option<NaiveRegion>,
    ) -> Self {
        NaivePrefetchers { stride, streamer, region, ..NaivePrefetchers::default() }
    }

    /// The instruction at `site` accesses a line. Returns the lines to prefetch.
    pub fn train(&mut self, site: u64, line: u64) -> Vec<u64> {
        self.accesses.push((site, line));
        let mut lines = self.stride.map_or(Vec::new(), |config| self.by_stride(config, site, line));
        if let Some(config) = self.streamer {
            lines.extend(self.by_page(config, line));
        }
        if let Some(config) = self.region {
            lines.extend(self.by_region(config, site, line));
        }
        lines
    }

    fn by_stride(&self, config: NaiveStride, site: u64, line: u64) -> Vec<u64> {
        let entry = |site: u64| site % u64::from(config.entries);
        let in_entry = self.accesses.iter().rev().filter(|access| entry(access.0) == entry(site));
        // The accesses since another instruction last used the entry.
        let mut lines: Vec<i128> =
            in_entry.take_while(|access| access.0 == site).map(|access| access.1.into()).collect();
        let moves = lines.len() < 2 || lines[0] != lines[1];
        lines.dedup();
        let steps: Vec<i128> = lines.windows(2).map(|two| two[0] - two[1]).collect();
        let Some(step) = steps.first().copied().filter(|_| moves) else { return Vec::new() };
        let equal = steps.iter().take_while(|other| **other == step).count();
        if equal < config.confirmations as usize {
            return Vec::new();
        }
        let ahead = (0..config.degree).map(|number| i128::from(config.distance + number));
        config.bounds.allowed(line, ahead.map(|ahead| i128::from(line) + step * ahead))
    }

    fn by_page(&mut self, config: NaiveStreamer, line: u64) -> Vec<u64> {
        let page = line / config.bounds.page_lines;
        let known = self.streams.iter().position(|stream| stream.page == page);
        let mut stream = match known {
            Some(place) => self.streams.remove(place),
            None => Stream { page, lines: Vec::new(), farthest: None },
        };
        let mut wanted = Vec::new();
        if stream.lines.last() != Some(&line) {
            let before = direction(&stream.lines);
            stream.lines.push(line);
            let (forward, count) = direction(&stream.lines);
            if forward != before.0 {
                stream.farthest = None;
            }
            if count >= config.confirmations as usize {
                let from = i128::from(line);
                let farthest = stream.farthest.unwrap_or(from);
                let first = if (farthest - from) * forward > 0 { farthest } else { from };
                let next = (1..=i128::from(config.degree)).map(|by| first + by * forward);
                let last = i128::from(config.distance);
                let near = next.take_while(|to| (to - from) * forward <= last);
                wanted = config.bounds.allowed(line, near);
                stream.farthest = wanted.last().map(|last| i128::from(*last)).or(stream.farthest);
            }
        }
        self.streams.push(stream);
        if self.streams.len() > config.streams as usize {
            self.streams.remove(0);
        }
        wanted
    }

    fn by_region(&mut self, config: NaiveRegion, site: u64, line: u64) -> Vec<u64> {
        let mut under_way = self.visits.iter_mut().rev().take(config.visits as usize);
        if let Some(visit) = under_way.find(|visit| config.covers(visit, line)) {
            visit.lines.push(line);
            return Vec::new();
        }
        self.visits.push(Visit { site, trigger: line, lines: Vec::new() });
        // The ended visits of this instruction, the last one first, since another instruction had the entry.
        let entry = |visit: &Visit| visit.site % u64::from(config.entries);
        let own_entry = self.visits.last().map(entry);
        let ended: Vec<&Visit> = (self.visits.iter().rev().skip(config.visits as usize))
            .filter(|visit| Some(entry(visit)) == own_entry)
            .take_while(|visit| visit.site == site)
            .collect();
        let count = |distance: i128| {
            let has = |visit: &&&Visit| {
                let to = i128::from(visit.trigger) + distance;
                visit.lines.iter().any(|line| i128::from(*line) == to)
            };
            ended.iter().take_while(has).count()
        };
        let mut distances: Vec<i128> = (-i128::from(config.before)..=i128::from(config.after))
            .filter(|distance| *distance != 0 && count(*distance) >= config.confirmations as usize)
            .filter(|distance| config.bounds.allow(line, i128::from(line) + distance))
            .collect();
        distances.sort_by_key(|distance| (distance.abs(), *distance < 0));
        let nearest = distances.into_iter().take(config.degree as usize);
        nearest.map(|distance| (i128::from(line) + distance) as u64).collect()
    }
}

/// The direction of the last step, and how many steps at the end have it. Without any steps, upwards.
fn direction(lines: &[u64]) -> (i128, usize) {
    let steps: Vec<i128> =
        lines.windows(2).map(|two| (i128::from(two[1]) - i128::from(two[0])).signum()).collect();
    let last = steps.last().copied().unwrap_or(1);
    (last, steps.iter().rev().take_while(|step| **step == last).count())
}
