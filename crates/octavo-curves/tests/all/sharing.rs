//! Memory of several processes, compared with naive sets of pages.

use std::collections::HashSet;

use octavo_curves::{Image, PageSet, Part, Stream, Touched, counted_again, touched_together};
use octavo_types::PageSize;
use proptest::prelude::*;

const STREAMS: [Stream; 3] = [Stream::Fetch, Stream::Data, Stream::All];
const FILES: [&str; 2] = ["text /lib/a", "data /lib/b"];

#[derive(Clone, Debug)]
struct NaivePart {
    file: Option<usize>,
    start: u64,
    fetch: HashSet<u64>,
    data: HashSet<u64>,
    own: HashSet<u64>,
}

#[derive(Clone, Debug)]
struct NaiveImage {
    family: u64,
    parts: Vec<NaivePart>,
}

impl NaivePart {
    fn by(&self, stream: Stream) -> HashSet<u64> {
        match stream {
            Stream::Fetch => self.fetch.clone(),
            Stream::Data => self.data.clone(),
            Stream::All => &self.fetch | &self.data,
        }
    }

    fn touched(&self) -> Touched {
        let set = |pages: &HashSet<u64>| {
            let mut set = PageSet::default();
            for page in pages {
                set.insert(*page);
            }
            set
        };
        Touched::new(set(&self.fetch), set(&self.data), &set(&self.own))
    }
}

/// The bytes in pages of one size. Each page belongs to one process, or is common to all processes that have it.
fn naive(images: &[NaiveImage], stream: Stream, size: PageSize) -> u64 {
    let bytes = |page: u64| page >> size.base_shift();
    let (mut own_pages, mut common) = (HashSet::new(), HashSet::new());
    let mut first_places: Vec<(usize, u64, u64)> = Vec::new();
    for (index, image) in images.iter().enumerate() {
        let touched = || {
            image
                .parts
                .iter()
                .flat_map(|part| part.by(stream).into_iter().map(move |page| (part, page)))
        };
        let own = |(part, page): &(&NaivePart, u64)| part.own.contains(page);
        let mine: HashSet<u64> = touched().filter(own).map(|(_, page)| bytes(page)).collect();
        for part in &image.parts {
            if let Some(file) = part.file
                && !first_places.iter().any(|(known, ..)| *known == file)
            {
                first_places.push((file, image.family, part.start));
            }
        }
        for (part, page) in touched() {
            if mine.contains(&bytes(page)) {
                own_pages.insert((index, bytes(page)));
                continue;
            }
            let first = first_places.iter().find(|(file, ..)| Some(*file) == part.file);
            let place = match first {
                Some((_, family, start)) => (*family, bytes(page - part.start + start)),
                None => (image.family, bytes(page)),
            };
            common.insert(place);
        }
    }
    (own_pages.len() + common.len()) as u64 * size.bytes()
}

fn pages(start: u64) -> impl Strategy<Value = HashSet<u64>> {
    proptest::collection::hash_set(start..start + 300, 0..40)
}

fn part() -> impl Strategy<Value = NaivePart> {
    let start = prop_oneof![Just(0x1000), Just(0x1000), 0x1000..0x1100u64];
    (proptest::option::of(0..FILES.len()), start).prop_flat_map(|(file, start)| {
        let sets = (pages(start), pages(start), pages(start));
        sets.prop_map(move |(fetch, data, own)| NaivePart { file, start, fetch, data, own })
    })
}

fn image() -> impl Strategy<Value = NaiveImage> {
    (0..2u64, proptest::collection::vec(part(), 0..4)).prop_map(|(family, mut parts)| {
        // A file has one region of each kind.
        let mut known = HashSet::new();
        parts.retain(|part| part.file.is_none_or(|file| known.insert(file)));
        NaiveImage { family, parts }
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn shared_pages_are_counted_once(images in proptest::collection::vec(image(), 1..4)) {
        let touched: Vec<Vec<Touched>> = images
            .iter()
            .map(|image| image.parts.iter().map(NaivePart::touched).collect())
            .collect();
        let given: Vec<Image<'_>> = images
            .iter()
            .zip(&touched)
            .map(|(image, touched)| Image {
                family: image.family,
                parts: image.parts.iter().zip(touched).map(|(part, touched)| Part {
                    file: part.file.map(|file| FILES[file]),
                    start: part.start,
                    touched,
                }).collect(),
            })
            .collect();
        for stream in STREAMS {
            for log2 in [12, 13, 16, 18, 21] {
                let size = PageSize::from_log2(log2).unwrap();
                let together = touched_together(&given, stream, size);
                prop_assert_eq!(together, naive(&images, stream, size));
                let alone = images.iter().map(|image| {
                    naive(std::slice::from_ref(image), stream, size)
                });
                let again = alone.sum::<u64>().saturating_sub(together);
                prop_assert_eq!(counted_again(&given, stream, size), again);
            }
        }
    }
}

#[test]
fn forked_children_share_pages_that_they_do_not_write() {
    let mut set = PageSet::default();
    for page in 0..512 {
        set.insert(page);
    }
    let mut own = PageSet::default();
    own.insert(511);
    let touched = Touched::new(PageSet::default(), set, &own);
    let part = |start| Part { file: None, start, touched: &touched };
    let image = |family| Image { family, parts: vec![part(0)] };
    let children = [image(0), image(0), image(0)];
    let bytes = |images: &[Image<'_>], log2| {
        touched_together(images, Stream::All, PageSize::from_log2(log2).unwrap()) >> 12
    };
    assert_eq!(bytes(&children, 12), 511 + 3);
    assert_eq!(bytes(&children, 16), 31 * 16 + 3 * 16);
    // The one large page has memory of each process's own.
    assert_eq!(bytes(&children, 21), 3 * 512);
    assert_eq!(bytes(&[image(0), image(1)], 12), 2 * 512);
}
