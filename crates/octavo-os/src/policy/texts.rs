//! Settings as texts: the fields of a serde struct by name.

use std::fmt::Display;

use indexmap::IndexMap;
use octavo_types::spelling::{any_of, hint};
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserializer, Serialize, forward_to_deserialize_any};
use serde_json::Value;

/// Settings in the order of their fields.
#[derive(Clone, Debug)]
pub struct Texts(pub(super) IndexMap<String, String>);

impl Texts {
    /// The texts of a struct whose fields are numbers, words, or nothing.
    pub(super) fn of(settings: &impl Serialize) -> Self {
        let json = serde_json::to_string(settings).expect("numbers and words are JSON");
        let fields: IndexMap<String, Value> = serde_json::from_str(&json).expect("a struct");
        let text = |value| match value {
            Value::String(word) => word,
            Value::Null => "none".to_owned(),
            number => number.to_string(),
        };
        Texts(fields.into_iter().map(|(name, value)| (name, text(value))).collect())
    }

    /// Reads a struct, and skips texts that belong to none of its fields.
    ///
    /// # Errors
    ///
    /// If a text is not a value of its field.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, AllowedValues> {
        let fields = self.0.iter().map(|(name, text)| (name.as_str(), Text(text)));
        T::deserialize(MapDeserializer::new(fields))
    }
}

/// The allowed values of a setting whose text is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("give {allowed}{meant}")]
pub struct AllowedValues {
    allowed: String,
    /// A suggestion, or nothing.
    meant: String,
}

impl AllowedValues {
    fn new(allowed: impl Display) -> Self {
        AllowedValues { allowed: allowed.to_string(), meant: String::new() }
    }
}

impl Error for AllowedValues {
    fn custom<T: Display>(allowed: T) -> Self {
        AllowedValues::new(allowed)
    }

    fn invalid_type(_: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        AllowedValues::new(match &*wanted.to_string() {
            "u8" => format!("a whole number up to {}", u8::MAX),
            "u32" => format!("a whole number up to {}", u32::MAX),
            "u64" => format!("a whole number up to {}", u64::MAX),
            "a boolean" => "true or false".to_owned(),
            other => other.to_owned(),
        })
    }

    fn invalid_value(given: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::invalid_type(given, wanted)
    }

    fn unknown_variant(given: &str, allowed: &'static [&'static str]) -> Self {
        AllowedValues { allowed: any_of(allowed), meant: hint(given, allowed) }
    }
}

/// The text of one setting.
#[derive(Clone, Copy)]
struct Text<'a>(&'a str);

impl<'de> IntoDeserializer<'de, AllowedValues> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = AllowedValues;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        match self.0.parse() {
            Ok(value) => visitor.visit_bool(value),
            Err(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        match self.0.replace('_', "").parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, AllowedValues> {
        match self.0 {
            "none" => visitor.visit_none(),
            _ => visitor.visit_some(self).map_err(|some| AllowedValues {
                allowed: format!("{}, or none", some.allowed),
                ..some
            }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, AllowedValues> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The serde functions of a page size, as `64KiB`.
pub mod page_size {
    use octavo_types::PageSize;
    use serde::{Deserialize, Serializer};

    use super::*;

    const A_PAGE_SIZE: &str = "a power of two from 4KiB to 1GiB, such as 64KiB";

    /// Writes the size.
    pub fn serialize<S: Serializer>(size: &PageSize, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(size)
    }

    /// Reads a size.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PageSize, D::Error> {
        String::deserialize(from)?.parse().map_err(|_| D::Error::custom(A_PAGE_SIZE))
    }
}

/// The serde functions of a page size or `none`.
pub mod page_size_or_none {
    use octavo_types::PageSize;
    use serde::{Deserialize, Serializer};

    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Size(#[serde(with = "page_size")] PageSize);

    /// Writes the size or `none`.
    pub fn serialize<S: Serializer>(size: &Option<PageSize>, to: S) -> Result<S::Ok, S::Error> {
        size.map(Size).serialize(to)
    }

    /// Reads a size or `none`.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PageSize>, D::Error> {
        Ok(Option::deserialize(from)?.map(|Size(size)| size))
    }
}
