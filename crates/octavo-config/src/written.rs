//! How values are written: `64KiB`, `full`, `any`, `lru`.

use std::fmt;

use indexmap::IndexMap;
use octavo_hw::{PteEntry, Replacement};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_types::PageSize;
use octavo_types::values::{size, size_text};
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::{PageSizes, Ways};

/// The form alone, where no check of the key gives its bounds; these could exclude an example.
const A_SIZE: &str = "a size in bytes, or in quotes with its unit: KiB, MiB, GiB, TiB, PiB or EiB";
const A_PAGE_SIZE: &str =
    "a power of two from \"4KiB\" to \"1GiB\", such as \"4KiB\", \"64KiB\" or \"2MiB\"";
const SOME_WAYS: &str = "a whole number from 1, or \"full\"";
const SOME_PAGE_SIZES: &str = "a list such as [\"4KiB\", \"2MiB\"], or \"any\"";

/// Reads a size in bytes; the text describes the expected value.
struct SizeVisitor(&'static str);

impl Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        bytes.try_into().map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        size(text).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Bytes: `64KiB`, or a number.
pub mod bytes {
    use super::*;

    /// In the largest unit that holds them exactly.
    pub fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&size_text(*bytes))
    }

    /// From a text or a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        from.deserialize_any(SizeVisitor(A_SIZE))
    }
}

/// As [`bytes`], for an optional key.
pub mod some_bytes {
    use super::*;

    /// As [`bytes::serialize`].
    pub fn serialize<S: Serializer>(some: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match some {
            Some(some) => bytes::serialize(some, to),
            None => to.serialize_none(),
        }
    }

    /// As [`bytes::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        bytes::deserialize(from).map(Some)
    }
}

/// A page size: `64KiB`, or a number of bytes.
pub mod page_size {
    use super::*;

    /// As [`PageSize`] is displayed.
    pub fn serialize<S: Serializer>(size: &PageSize, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(size)
    }

    /// From a text or a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PageSize, D::Error> {
        let bytes = from.deserialize_any(SizeVisitor(A_PAGE_SIZE))?;
        PageSize::from_bytes(bytes)
            .ok_or_else(|| D::Error::invalid_value(Unexpected::Unsigned(bytes), &A_PAGE_SIZE))
    }
}

/// A page size in a list, or as a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SizeKey(#[serde(with = "page_size")] pub PageSize);

/// A replacement policy by its name. A random one has the seed 0 here.
pub mod replacement {
    use super::*;

    /// Its name.
    pub fn serialize<S: Serializer>(replacement: &Replacement, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(replacement.name())
    }

    /// From its name.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Replacement, D::Error> {
        const NAMES: [&str; Replacement::ALL.len()] = {
            let mut names = [""; Replacement::ALL.len()];
            let mut place = 0;
            while place < names.len() {
                names[place] = Replacement::ALL[place].name();
                place += 1;
            }
            names
        };
        let name = String::deserialize(from).map_err(|_| D::Error::unknown_variant("", &NAMES))?;
        name.parse().map_err(|_| D::Error::unknown_variant(&name, &NAMES))
    }
}

/// Tables by name, or `none` of them.
pub fn tables_or_none<'de, D, T>(from: D) -> Result<IndexMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// [`PteEntry`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "PteEntry", rename_all = "kebab-case")]
pub enum PteEntryName {
    /// [`PteEntry::L1d`].
    L1d,
    /// [`PteEntry::L2`].
    L2,
}

/// [`HoleLayout`] as it is written, in another type.
#[derive(Serialize, Deserialize)]
#[serde(remote = "HoleLayout", rename_all = "kebab-case")]
pub enum LayoutName {
    /// [`HoleLayout::Clustered`].
    Clustered,
    /// [`HoleLayout::Dispersed`].
    Dispersed,
}

/// [`HoleLayout`] as it is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(#[serde(with = "LayoutName")] pub HoleLayout);

/// [`HoleKind`] as it is written, in another type.
#[derive(Serialize, Deserialize)]
#[serde(remote = "HoleKind", rename_all = "kebab-case")]
pub enum HoleKindName {
    /// [`HoleKind::Immovable`].
    Immovable,
    /// [`HoleKind::Movable`].
    Movable,
    /// [`HoleKind::Unallocated`].
    Unallocated,
}

/// [`HoleKind`] as it is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holes(#[serde(with = "HoleKindName")] pub HoleKind);

impl Serialize for Ways {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Ways::Full => to.serialize_str("full"),
            Ways::Of(ways) => to.serialize_u64(*ways),
        }
    }
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct WaysVisitor;

        impl Visitor<'_> for WaysVisitor {
            type Value = Ways;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SOME_WAYS)
            }

            fn visit_u64<E: Error>(self, ways: u64) -> Result<Ways, E> {
                Ok(Ways::Of(ways))
            }

            fn visit_i64<E: Error>(self, ways: i64) -> Result<Ways, E> {
                let given = ways.try_into();
                given.map(Ways::Of).map_err(|_| E::invalid_value(Unexpected::Signed(ways), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Ways, E> {
                match text {
                    "full" => Ok(Ways::Full),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        from.deserialize_any(WaysVisitor)
    }
}

impl Serialize for PageSizes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            PageSizes::Any => to.serialize_str("any"),
            PageSizes::List(sizes) => to.collect_seq(sizes.iter().copied().map(SizeKey)),
        }
    }
}

impl<'de> Deserialize<'de> for PageSizes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PageSizesVisitor;

        impl<'de> Visitor<'de> for PageSizesVisitor {
            type Value = PageSizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SOME_PAGE_SIZES)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PageSizes, E> {
                match text {
                    "any" => Ok(PageSizes::Any),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PageSizes, A::Error> {
                let mut sizes = Vec::new();
                while let Some(SizeKey(size)) = seq.next_element()? {
                    sizes.push(size);
                }
                Ok(PageSizes::List(sizes))
            }
        }

        from.deserialize_any(PageSizesVisitor)
    }
}
