//! Text format of settings.

use octavo_types::PageSize;

use super::{Defrag, FaultHuge, ReserveWhen, Span};
use crate::memory::{CopyOnWrite, SamePages};
use crate::page_table::{Aliases, SizeEncoding};

/// One setting of a policy.
pub trait Setting {
    /// Parses a value. Returns whether it was valid.
    fn read(&mut self, text: &str) -> bool;
    /// The value as text.
    fn text(&self) -> String;
    /// The allowed values.
    fn allowed(&self) -> String;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Setting for $number {
            fn read(&mut self, text: &str) -> bool {
                text.replace('_', "").parse().map(|number| *self = number).is_ok()
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn allowed(&self) -> String {
                format!("a whole number up to {}", <$number>::MAX)
            }
        }
    )+};
}

numbers!(u8, u32, u64);

/// The names of an enumeration's values.
macro_rules! names {
    ($kind:ty, $($name:literal => $value:path),+ $(,)?) => {
        impl Setting for $kind {
            fn read(&mut self, text: &str) -> bool {
                *self = match text {
                    $($name => $value,)+
                    _ => return false,
                };
                true
            }

            fn text(&self) -> String {
                match self {
                    $($value => $name.to_owned(),)+
                }
            }

            fn allowed(&self) -> String {
                [$($name),+].join(" or ")
            }
        }
    };
}

impl Setting for bool {
    fn read(&mut self, text: &str) -> bool {
        text.parse().map(|is| *self = is).is_ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn allowed(&self) -> String {
        "true or false".to_owned()
    }
}

names!(FaultHuge, "always" => FaultHuge::Always, "madvise" => FaultHuge::Madvise);
names!(
    SamePages,
    "never" => SamePages::Never,
    "base" => SamePages::Base,
    "all" => SamePages::All,
);
names!(CopyOnWrite, "split" => CopyOnWrite::Split, "whole" => CopyOnWrite::Whole);
names!(Aliases, "pointers" => Aliases::Pointers, "copies" => Aliases::Copies);
names!(
    SizeEncoding,
    "four-bits" => SizeEncoding::FourBits,
    "one-bit" => SizeEncoding::OneBit,
);
names!(Span, "exact" => Span::Exact, "round-up" => Span::RoundUp);
names!(ReserveWhen, "mapped" => ReserveWhen::Mapped, "touched" => ReserveWhen::Touched);
names!(
    Defrag,
    "always" => Defrag::Always,
    "defer" => Defrag::Defer,
    "defer+madvise" => Defrag::DeferMadvise,
    "madvise" => Defrag::Madvise,
    "never" => Defrag::Never,
);

impl Setting for PageSize {
    fn read(&mut self, text: &str) -> bool {
        text.parse().map(|size| *self = size).is_ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn allowed(&self) -> String {
        "a power of two from 4KiB to 1GiB, such as 64KiB".to_owned()
    }
}

/// A setting that may be `none`.
trait Optional: Setting + Copy {
    /// An arbitrary value.
    const SOME: Self;
}

impl Optional for PageSize {
    const SOME: Self = PageSize::BASE;
}

impl Optional for FaultHuge {
    const SOME: Self = FaultHuge::Always;
}

impl<S: Optional> Setting for Option<S> {
    fn read(&mut self, text: &str) -> bool {
        if text == "none" {
            *self = None;
            return true;
        }
        let mut some = S::SOME;
        let done = some.read(text);
        if done {
            *self = Some(some);
        }
        done
    }

    fn text(&self) -> String {
        self.as_ref().map_or("none".to_owned(), Setting::text)
    }

    fn allowed(&self) -> String {
        format!("{}, or none", S::SOME.allowed())
    }
}
