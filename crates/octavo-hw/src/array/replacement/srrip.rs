//! Static re-reference interval prediction, see [`super::Replacement::Srrip`].

use super::{Geometry, Rule};

/// The prediction of a hit: used again soon.
const SOON: u8 = 0;
/// The prediction of a fill.
const LONG: u8 = 2;
/// The prediction of a victim.
const DISTANT: u8 = 3;

/// The prediction of each way.
#[derive(Clone, Debug)]
pub(in super::super) struct Srrip {
    predictions: Box<[u8]>,
    ways: usize,
}

impl Srrip {
    pub fn new(geometry: Geometry) -> Self {
        let predictions = vec![DISTANT; geometry.entries()].into_boxed_slice();
        Srrip { predictions, ways: geometry.ways() }
    }

    #[inline(always)]
    fn set(&mut self, set: usize) -> &mut [u8] {
        &mut self.predictions[set * self.ways..][..self.ways]
    }
}

impl Rule for Srrip {
    /// The first hit after a fill lowers the prediction.
    const RETOUCH_CHANGES: bool = true;

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        self.set(set)[way] = SOON;
    }

    fn allocate_way(&mut self, set: usize, free: impl FnOnce() -> Option<usize>) -> usize {
        let way = free().unwrap_or_else(|| self.victim(set));
        self.set(set)[way] = LONG;
        way
    }
}

impl Srrip {
    /// The victim of a full set.
    fn victim(&mut self, set: usize) -> usize {
        let predictions = self.set(set);
        let most = predictions.iter().copied().max().unwrap_or(DISTANT);
        // All ageing steps at once.
        for prediction in predictions.iter_mut() {
            *prediction += DISTANT - most;
        }
        predictions.iter().position(|prediction| *prediction == DISTANT).unwrap_or(0)
    }
}
