//! Two pages used in turn, which is most of what a program does: counted, not looked up.

/// What looks pages up.
pub trait LookUp<Page> {
    /// Looks a page up.
    fn look_up(&mut self, page: Page);
    /// Two pages, the last two that were looked up, come in turn, each so many times.
    fn in_turn(&mut self, pages: [Page; 2], times: u64);
}

/// The last two pages that came, and how often they took turns since one of them was looked up.
///
/// Whatever a TLB is like, when the page before the last one comes again it changes only the order
/// of the two; when they have taken turns an even number of times, nothing.
#[derive(Clone, Copy, Debug)]
pub struct Turns<Page> {
    last: Option<Page>,
    before: Option<Page>,
    turns: u64,
}

impl<Page> Default for Turns<Page> {
    fn default() -> Self {
        Turns { last: None, before: None, turns: 0 }
    }
}

impl<Page: Copy + PartialEq> Turns<Page> {
    /// A page comes.
    #[inline(always)]
    pub fn page(&mut self, page: Page, tlbs: &mut impl LookUp<Page>) {
        let page = Some(page);
        if page == self.before {
            (self.last, self.before) = (page, self.last);
            self.turns += 1;
        } else if page != self.last {
            self.settle(tlbs);
            (self.last, self.before) = (page, self.last);
            page.into_iter().for_each(|page| tlbs.look_up(page));
        }
    }

    /// The last two pages come in turn, each so many times.
    #[inline(always)]
    pub fn in_turn(&mut self, times: u64) {
        self.turns += 2 * times;
    }

    /// Counts the turns taken so far.
    fn settle(&mut self, tlbs: &mut impl LookUp<Page>) {
        if self.turns == 0 {
            return;
        }
        let turns = std::mem::take(&mut self.turns);
        let (Some(last), Some(before)) = (self.last, self.before) else { return };
        if turns > 1 {
            tlbs.in_turn([last, before], turns / 2);
        }
        if turns % 2 == 1 {
            tlbs.look_up(last);
        }
    }

    /// Counts the turns taken so far, and forgets the pages: they may not be in the TLBs any more.
    pub fn end(&mut self, tlbs: &mut impl LookUp<Page>) {
        self.settle(tlbs);
        *self = Turns::default();
    }
}
