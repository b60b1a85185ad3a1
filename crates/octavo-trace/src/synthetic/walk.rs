//! The walks of accesses through a table.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::permutation::Permutation;
use super::plan::{Loop, Shape};
use super::unused::Unused;
use super::zipf::Zipf;

/// An endless sequence of offsets into a table.
pub(super) trait Walk {
    fn next(&mut self) -> u64;
}

/// One of the walks.
pub(super) enum AnyWalk {
    Strided(Strided),
    Columns(Columns),
    Uniform(Uniform),
    Chase(Chase),
    Zipf(Zipfian),
    Scattered(Scattered),
    Picked(Picked),
}

impl AnyWalk {
    pub(super) fn new(plan: &Loop) -> Self {
        let span_bytes = match plan.shape {
            Shape::Uniform { span_bytes, .. } => span_bytes,
            _ => plan.access_bytes,
        };
        let walk = AnyWalk::over_elements(plan, span_bytes);
        if plan.unused.is_none() && span_bytes == plan.access_bytes {
            return walk;
        }
        AnyWalk::Picked(Picked {
            elements: Box::new(walk),
            unused: plan.unused.map(|unused| Unused::new(&unused, plan.table_bytes)),
            span_bytes,
            access_bytes: plan.access_bytes,
            start: 0,
            done_bytes: span_bytes,
        })
    }

    /// A walk over the elements whose first `span_bytes` bytes fit into the table.
    fn over_elements(plan: &Loop, span_bytes: u64) -> Self {
        let last = plan.table_bytes - span_bytes;
        // How many elements of this size fit with their span.
        let elements = |element_bytes: u64| last / element_bytes + 1;
        let strided = |stride| AnyWalk::Strided(Strided { offset: 0, stride, last });
        let uniform = |element_bytes| {
            AnyWalk::Uniform(Uniform {
                random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
                elements: elements(element_bytes),
                element_bytes,
            })
        };
        match plan.shape {
            Shape::Strided { stride_bytes } => strided(stride_bytes),
            Shape::Sequential | Shape::Rows { .. } => strided(plan.access_bytes),
            Shape::Columns { row_bytes } => AnyWalk::Columns(Columns {
                offset: 0,
                column: 0,
                row_bytes,
                access_bytes: plan.access_bytes,
                table_bytes: plan.table_bytes,
            }),
            Shape::Uniform { element_bytes, .. } => uniform(element_bytes),
            Shape::Gups => uniform(plan.access_bytes),
            Shape::PointerChase { element_bytes } => {
                let elements = elements(element_bytes);
                AnyWalk::Chase(Chase {
                    order: Permutation::new(elements, plan.seed),
                    place: 0,
                    elements,
                    element_bytes,
                })
            }
            Shape::Zipf { element_bytes, theta, scattered } => {
                let elements = elements(element_bytes);
                let zipf = Zipfian {
                    random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
                    zipf: Zipf::new(elements, theta),
                    element_bytes,
                };
                if !scattered {
                    return AnyWalk::Zipf(zipf);
                }
                let order = Permutation::new(elements, plan.seed);
                AnyWalk::Scattered(Scattered { zipf, order })
            }
        }
    }
}

/// The used elements of another walk, each read access by access.
pub(super) struct Picked {
    elements: Box<AnyWalk>,
    unused: Option<Unused>,
    /// How much of each element is read.
    span_bytes: u64,
    access_bytes: u64,
    /// The current element, and how much of it has been read.
    start: u64,
    done_bytes: u64,
}

impl Walk for Picked {
    #[inline]
    fn next(&mut self) -> u64 {
        if self.done_bytes >= self.span_bytes {
            // Ends, since the walk reaches a used element.
            self.start = loop {
                let start = self.elements.next();
                if !self.unused.as_ref().is_some_and(|unused| unused.has(start)) {
                    break start;
                }
            };
            self.done_bytes = 0;
        }
        let offset = self.start + self.done_bytes;
        self.done_bytes += self.access_bytes;
        offset
    }
}

impl Walk for AnyWalk {
    fn next(&mut self) -> u64 {
        match self {
            AnyWalk::Strided(walk) => walk.next(),
            AnyWalk::Columns(walk) => walk.next(),
            AnyWalk::Uniform(walk) => walk.next(),
            AnyWalk::Chase(walk) => walk.next(),
            AnyWalk::Zipf(walk) => walk.next(),
            AnyWalk::Scattered(walk) => walk.next(),
            AnyWalk::Picked(walk) => walk.next(),
        }
    }
}

/// From the beginning by a stride, as long as an access fits; again and again.
pub(super) struct Strided {
    offset: u64,
    stride: u64,
    last: u64,
}

impl Walk for Strided {
    #[inline]
    fn next(&mut self) -> u64 {
        let offset = self.offset;
        let next = offset + self.stride;
        self.offset = if next > self.last { 0 } else { next };
        offset
    }
}

/// A matrix that is stored by rows, down each column.
pub(super) struct Columns {
    offset: u64,
    column: u64,
    row_bytes: u64,
    access_bytes: u64,
    table_bytes: u64,
}

impl Walk for Columns {
    #[inline]
    fn next(&mut self) -> u64 {
        let offset = self.offset;
        self.offset += self.row_bytes;
        if self.offset >= self.table_bytes {
            self.column += self.access_bytes;
            if self.column == self.row_bytes {
                self.column = 0;
            }
            self.offset = self.column;
        }
        offset
    }
}

/// Any element, each as likely as the others.
pub(super) struct Uniform {
    random: Xoshiro256PlusPlus,
    elements: u64,
    element_bytes: u64,
}

impl Walk for Uniform {
    #[inline]
    fn next(&mut self) -> u64 {
        // The upper half of the product: some elements are more likely by 2^-19 at the worst, for
        // no table has more than 2^45.
        let product = u128::from(self.random.next_u64()) * u128::from(self.elements);
        (product >> 64) as u64 * self.element_bytes
    }
}

/// Each element once a round, in an order that is the same every round.
pub(super) struct Chase {
    order: Permutation,
    place: u64,
    elements: u64,
    element_bytes: u64,
}

impl Walk for Chase {
    #[inline]
    fn next(&mut self) -> u64 {
        let element = self.order.at(self.place);
        self.place = if self.place + 1 == self.elements { 0 } else { self.place + 1 };
        element * self.element_bytes
    }
}

/// Some elements far more often than others, the first the most.
pub(super) struct Zipfian {
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    element_bytes: u64,
}

impl Walk for Zipfian {
    #[inline]
    fn next(&mut self) -> u64 {
        self.zipf.draw(&mut self.random) * self.element_bytes
    }
}

/// A Zipfian choice whose popular elements are scattered over the table.
pub(super) struct Scattered {
    zipf: Zipfian,
    order: Permutation,
}

impl Walk for Scattered {
    #[inline]
    fn next(&mut self) -> u64 {
        let Zipfian { random, zipf, element_bytes } = &mut self.zipf;
        self.order.at(zipf.draw(random)) * *element_bytes
    }
}
