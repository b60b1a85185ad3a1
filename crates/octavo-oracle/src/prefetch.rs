//! Prefetchers, from all that has trained them.

/// Where prefetches may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveBounds {
    /// Lines of a block.
    pub page_lines: u64,
    /// Whether they may leave the block.
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

    /// The lines at these places up to the first that may not be prefetched.
    fn allowed(&self, from: u64, lines: impl Iterator<Item = i128>) -> Vec<u64> {
        lines.take_while(|to| self.allow(from, *to)).map(|to| to as u64).collect()
    }
}

/// A prefetcher by the stride of each instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveStride {
    /// Places for instructions.
    pub entries: u32,
    /// Equal steps in succession before it prefetches.
    pub confirmations: u32,
    /// Strides to the first line that it prefetches.
    pub distance: u32,
    /// Lines that it prefetches.
    pub degree: u32,
    /// Where they may lie.
    pub bounds: NaiveBounds,
}

/// A prefetcher by the direction of accesses to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveStreamer {
    /// Pages that it follows.
    pub streams: u32,
    /// Steps in one direction in succession before it prefetches.
    pub confirmations: u32,
    /// Lines that it goes ahead.
    pub distance: u32,
    /// Lines that it prefetches at once.
    pub degree: u32,
    /// Where they may lie.
    pub bounds: NaiveBounds,
}

/// A prefetcher of the lines around accesses of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveRegion {
    /// Places for instructions.
    pub entries: u32,
    /// Visits in succession with an access at a distance before it prefetches there.
    pub confirmations: u32,
    /// Visits under way.
    pub visits: u32,
    /// Lines that a visit covers before its trigger.
    pub before: u32,
    /// Lines that it covers behind its trigger.
    pub after: u32,
    /// Lines that it prefetches at once.
    pub degree: u32,
    /// Where they may lie.
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

/// The past of a page that a streamer follows.
#[derive(Debug)]
struct Stream {
    page: u64,
    /// The lines accessed, without those accessed twice in succession.
    lines: Vec<u64>,
    /// The farthest line prefetched in the present direction.
    farthest: Option<i128>,
}

/// The prefetchers of a cache, with their past.
#[derive(Debug, Default)]
pub struct NaivePrefetchers {
    stride: Option<NaiveStride>,
    streamer: Option<NaiveStreamer>,
    region: Option<NaiveRegion>,
    /// Accesses of instructions.
    accesses: Vec<(u64, u64)>,
    /// The pages followed, the most recent one last.
    streams: Vec<Stream>,
    /// All visits, in the order in which they began.
    visits: Vec<Visit>,
}

impl NaivePrefetchers {
    /// Prefetchers that nothing has trained.
    pub fn new(
        stride: Option<NaiveStride>,
        streamer: Option<NaiveStreamer>,
        region: Option<NaiveRegion>,
    ) -> Self {
        NaivePrefetchers { stride, streamer, region, ..NaivePrefetchers::default() }
    }

    /// An instruction accesses a line. Returns the lines to prefetch.
    pub fn train(&mut self, site: u64, line: u64) -> Vec<u64> {
        self.accesses.push((site, line));
        let mut lines = self.stride.map_or(Vec::new(), |of| self.by_stride(of, site, line));
        if let Some(of) = self.streamer {
            lines.extend(self.by_page(of, line));
        }
        if let Some(of) = self.region {
            lines.extend(self.by_region(of, site, line));
        }
        lines
    }

    fn by_stride(&self, of: NaiveStride, site: u64, line: u64) -> Vec<u64> {
        let place = |site: u64| site % u64::from(of.entries);
        let in_place = self.accesses.iter().rev().filter(|access| place(access.0) == place(site));
        // Since the place was another instruction's.
        let mut lines: Vec<i128> =
            in_place.take_while(|access| access.0 == site).map(|access| access.1.into()).collect();
        let moves = lines.len() < 2 || lines[0] != lines[1];
        lines.dedup();
        let steps: Vec<i128> = lines.windows(2).map(|two| two[0] - two[1]).collect();
        let Some(step) = steps.first().copied().filter(|_| moves) else { return Vec::new() };
        let equal = steps.iter().take_while(|of| **of == step).count();
        if equal < of.confirmations as usize {
            return Vec::new();
        }
        let ahead = (0..of.degree).map(|number| i128::from(of.distance + number));
        of.bounds.allowed(line, ahead.map(|ahead| i128::from(line) + step * ahead))
    }

    fn by_page(&mut self, of: NaiveStreamer, line: u64) -> Vec<u64> {
        let page = line / of.bounds.page_lines;
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
            if count >= of.confirmations as usize {
                let line_ = i128::from(line);
                let farthest = stream.farthest.unwrap_or(line_);
                let first = if (farthest - line_) * forward > 0 { farthest } else { line_ };
                let next = (1..=i128::from(of.degree)).map(|by| first + by * forward);
                let last = i128::from(of.distance);
                wanted =
                    of.bounds.allowed(line, next.take_while(|to| (to - line_) * forward <= last));
                stream.farthest = wanted.last().map(|last| i128::from(*last)).or(stream.farthest);
            }
        }
        self.streams.push(stream);
        if self.streams.len() > of.streams as usize {
            self.streams.remove(0);
        }
        wanted
    }

    fn by_region(&mut self, of: NaiveRegion, site: u64, line: u64) -> Vec<u64> {
        let mut under_way = self.visits.iter_mut().rev().take(of.visits as usize);
        if let Some(visit) = under_way.find(|visit| of.covers(visit, line)) {
            visit.lines.push(line);
            return Vec::new();
        }
        self.visits.push(Visit { site, trigger: line, lines: Vec::new() });
        // Visits of this instruction that are over, the last one first, since its place was another's.
        let place = |visit: &Visit| visit.site % u64::from(of.entries);
        let here = self.visits.last().map(place);
        let over: Vec<&Visit> = (self.visits.iter().rev().skip(of.visits as usize))
            .filter(|visit| Some(place(visit)) == here)
            .take_while(|visit| visit.site == site)
            .collect();
        let count = |distance: i128| {
            let has = |visit: &&&Visit| {
                let to = i128::from(visit.trigger) + distance;
                visit.lines.iter().any(|line| i128::from(*line) == to)
            };
            over.iter().take_while(has).count()
        };
        let mut distances: Vec<i128> = (-i128::from(of.before)..=i128::from(of.after))
            .filter(|distance| *distance != 0 && count(*distance) >= of.confirmations as usize)
            .filter(|distance| of.bounds.allow(line, i128::from(line) + distance))
            .collect();
        distances.sort_by_key(|distance| (distance.abs(), *distance < 0));
        let nearest = distances.into_iter().take(of.degree as usize);
        nearest.map(|distance| (i128::from(line) + distance) as u64).collect()
    }
}

/// The direction of the last step, and how many steps at the end go there; upwards without any.
fn direction(lines: &[u64]) -> (i128, usize) {
    let steps: Vec<i128> =
        lines.windows(2).map(|two| (i128::from(two[1]) - i128::from(two[0])).signum()).collect();
    let last = steps.last().copied().unwrap_or(1);
    (last, steps.iter().rev().take_while(|step| **step == last).count())
}
