//! TOML as serde reads it, with user-readable errors.
//!
//! `toml_edit` has a deserializer of its own, but its errors are texts, from which the allowed
//! words cannot be read.

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Error, IntoDeserializer, Unexpected, Visitor};
use toml_edit::{Item, TableLike, Value};

use crate::error::Fault;

/// The word that removes an optional table or level.
pub(crate) const NONE: &str = "none";

/// A value or a table.
#[derive(Clone, Copy)]
pub(crate) enum Node<'t> {
    Value(&'t Value),
    Table(&'t dyn TableLike),
    /// An array of tables, or nothing: machines never have these.
    Tables,
}

impl<'t> Node<'t> {
    pub fn of(item: &'t Item) -> Self {
        match item {
            Item::Value(value) => Node::of_value(value),
            Item::Table(table) => Node::Table(table),
            Item::None | Item::ArrayOfTables(_) => Node::Tables,
        }
    }

    fn of_value(value: &'t Value) -> Self {
        match value {
            Value::InlineTable(table) => Node::Table(table),
            _ => Node::Value(value),
        }
    }

    fn text(self) -> Option<&'t str> {
        match self {
            Node::Value(value) => value.as_str(),
            _ => None,
        }
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self {
            Node::Table(table) => {
                let nodes = table.iter().map(|(key, item)| (key, Node::of(item)));
                visitor.visit_map(MapDeserializer::new(nodes))
            }
            Node::Tables => Err(Fault::invalid_type(Unexpected::Seq, &visitor)),
            Node::Value(value) => match value {
                Value::String(text) => visitor.visit_str(text.value()),
                Value::Integer(number) => visitor.visit_i64(*number.value()),
                Value::Float(number) => visitor.visit_f64(*number.value()),
                Value::Boolean(boolean) => visitor.visit_bool(*boolean.value()),
                Value::Datetime(_) => {
                    Err(Fault::invalid_type(Unexpected::Other("a date"), &visitor))
                }
                Value::Array(values) => {
                    visitor.visit_seq(SeqDeserializer::new(values.iter().map(Node::of_value)))
                }
                Value::InlineTable(_) => unreachable!("a table is not a value here"),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self.text() == Some(NONE) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.text() {
            Some(word) => visitor.visit_enum(StrDeserializer::new(word)),
            None => Err(Fault::UnknownWord { word: String::new(), allowed: words }),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
