//! The three prefetchers, which predict pages at a miss by the misses before it.

use octavo_hw::{Geometry, Replacement, SetArray};
use octavo_types::{Instructions, PageSize};

use super::AtpSettings;

/// A prefetcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetcher {
    /// The last two distances between misses.
    H2p,
    /// The last two distances between misses of the same instruction.
    Masp,
    /// Two pages to either side.
    Stp,
}

impl Prefetcher {
    /// All, in the order of their places in arrays.
    pub const ALL: [Prefetcher; 3] = [Prefetcher::H2p, Prefetcher::Masp, Prefetcher::Stp];
}

/// First base pages of the pages that a prefetcher predicts, each once.
pub type Predicted = [Option<u64>; 4];

/// A miss that the prefetchers follow.
#[derive(Clone, Copy)]
pub struct Miss {
    /// The first base page of the page that missed.
    pub first: u64,
    /// Its size. Predictions are of pages of the same size.
    pub size: PageSize,
    /// The address of the instruction, for an access to data.
    pub site: Option<u64>,
    /// The number of base pages of the address space.
    pub reach_pages: u64,
}

impl Miss {
    /// The pages at these distances in base pages: not this one, none outside the address space, and none twice.
    fn predicted<const N: usize>(&self, distances: [Option<i64>; N]) -> Predicted {
        let mut pages = Predicted::default();
        let order = self.size.base_shift();
        let targets = distances.into_iter().flatten().filter_map(|distance| {
            let page = self.first.checked_add_signed(distance)?;
            (page < self.reach_pages).then_some(page >> order << order)
        });
        let mut places = 0;
        for page in targets.filter(|page| *page != self.first) {
            if !pages.contains(&Some(page)) {
                pages[places] = Some(page);
                places += 1;
            }
        }
        pages
    }
}

/// The entry of an instruction in the table of MASP.
#[derive(Clone, Copy, Default)]
struct Instruction {
    /// The page of its last miss.
    last: u64,
    /// The distance from the miss before to the last one.
    distance: Option<i64>,
}

/// The prefetchers that are on, with the misses that they remember.
pub struct Predictors {
    is_on: [bool; 3],
    /// For H2P: the page of the last miss, and the distance to it from the miss before.
    last: Option<u64>,
    distance: Option<i64>,
    /// MASP.
    by_site: SetArray<Instruction>,
}

impl Predictors {
    /// Prefetchers without history.
    pub fn new(settings: &AtpSettings) -> Self {
        let geometry = Self::table(settings);
        Predictors {
            is_on: settings.prefetchers(),
            last: None,
            distance: None,
            by_site: SetArray::new(geometry, Replacement::Lru, Instructions::PORTABLE),
        }
    }

    fn table(settings: &AtpSettings) -> Geometry {
        Geometry::new(settings.masp_sets, settings.masp_ways).expect("settings are checked")
    }

    /// Bytes of the table of MASP.
    pub fn bytes(settings: &AtpSettings) -> u64 {
        SetArray::<Instruction>::most_bytes(Self::table(settings))
    }

    /// The predictions of each prefetcher at a miss, which trains all of them.
    pub fn predict(&mut self, miss: &Miss) -> [Predicted; 3] {
        let stride = 1 << miss.size.base_shift();
        let mut predicted = [self.h2p(miss), self.masp(miss), {
            miss.predicted([-2, -1, 1, 2].map(|pages| Some(pages * stride)))
        }];
        for (pages, is_on) in predicted.iter_mut().zip(self.is_on) {
            if !is_on {
                *pages = Predicted::default();
            }
        }
        predicted
    }

    fn h2p(&mut self, miss: &Miss) -> Predicted {
        let distance = self.last.map(|last| distance(last, miss.first));
        let before = std::mem::replace(&mut self.distance, distance);
        self.last = Some(miss.first);
        match before {
            Some(_) => miss.predicted([distance, before]),
            None => Predicted::default(),
        }
    }

    fn masp(&mut self, miss: &Miss) -> Predicted {
        let Some(site) = miss.site else { return Predicted::default() };
        let set = self.by_site.geometry().set_of(site);
        let Some(known) = self.by_site.look_up(set, site) else {
            let new = Instruction { last: miss.first, distance: None };
            self.by_site.insert_missed(set, site, new);
            return Predicted::default();
        };
        let distance = Some(distance(known.last, miss.first));
        let before = known.distance;
        *known = Instruction { last: miss.first, distance };
        miss.predicted([before, distance])
    }
}

/// The distance from a page to another.
fn distance(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(predicted: Predicted) -> Vec<u64> {
        predicted.into_iter().flatten().collect()
    }

    /// The predictions of H2P, MASP and STP at each of these misses of data: instruction and page.
    fn predict(size: PageSize, misses: &[(u64, u64)]) -> Vec<[Vec<u64>; 3]> {
        let mut predictors = Predictors::new(&AtpSettings::default());
        let at = |&(site, first): &(u64, u64)| {
            let miss = Miss { first, size, site: Some(site), reach_pages: 1 << 36 };
            predictors.predict(&miss).map(pages)
        };
        misses.iter().map(at).collect()
    }

    #[test]
    fn h2p_predicts_the_last_two_distances() {
        let all = predict(PageSize::BASE, &[(0, 100), (0, 104), (0, 105), (0, 106)]);
        let h2p: Vec<_> = all.into_iter().map(|[h2p, ..]| h2p).collect();
        assert_eq!(h2p, [vec![], vec![], vec![106, 109], vec![107]]);
    }

    #[test]
    fn masp_predicts_the_distances_of_an_instruction() {
        let misses = [(7, 100), (9, 5000), (7, 105), (9, 5016), (7, 108)];
        let all = predict(PageSize::BASE, &misses);
        let masp: Vec<_> = all.into_iter().map(|[_, masp, _]| masp).collect();
        assert_eq!(masp, [vec![], vec![], vec![110], vec![5032], vec![113, 111]]);
    }

    #[test]
    fn stp_predicts_two_pages_to_either_side() {
        let all = predict(PageSize::BASE, &[(0, 100), (0, 1), (0, (1 << 36) - 2)]);
        let stp: Vec<_> = all.into_iter().map(|[_, _, stp]| stp).collect();
        let end = 1 << 36;
        assert_eq!(stp, [vec![98, 99, 101, 102], vec![0, 2, 3], vec![end - 4, end - 3, end - 1]]);
    }

    #[test]
    fn predictions_are_of_pages_of_the_size_that_missed() {
        let all = predict(PageSize::HUGE, &[(0, 512 * 10), (0, 512 * 12), (0, 512 * 13)]);
        let [h2p, masp, stp] = &all[2];
        assert_eq!(h2p, &[512 * 14, 512 * 15]);
        assert_eq!(masp, &[512 * 15, 512 * 14]);
        assert_eq!(stp, &[512 * 11, 512 * 12, 512 * 14, 512 * 15]);
    }
}
