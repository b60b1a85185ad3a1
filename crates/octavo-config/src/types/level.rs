//! A level of TLBs as it is written: its own keys, and a table for each array.

use std::fmt;

use indexmap::IndexMap;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Fill, TlbArray, TlbLevel};

const HIT_LATENCY: &str = "hit_latency_cycles";
const FILL: &str = "fill";
const KEYS: &[&str] = &[HIT_LATENCY, FILL, "a table for each array"];

impl Serialize for TlbLevel {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry(HIT_LATENCY, &self.hit_latency_cycles)?;
        map.serialize_entry(FILL, &self.fill)?;
        for (name, array) in &self.arrays {
            map.serialize_entry(name, array)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for TlbLevel {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct LevelVisitor;

        impl<'de> Visitor<'de> for LevelVisitor {
            type Value = TlbLevel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with hit_latency_cycles, fill and a table for each array")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TlbLevel, A::Error> {
                let (mut hit_latency_cycles, mut fill): (_, Option<Fill>) = (None, None);
                let mut arrays = IndexMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        HIT_LATENCY => hit_latency_cycles = Some(map.next_value()?),
                        FILL => fill = Some(map.next_value()?),
                        _ => {
                            let array = map.next_value_seed(Named(&key))?;
                            arrays.insert(key, array);
                        }
                    }
                }
                let missing = A::Error::missing_field;
                Ok(TlbLevel {
                    hit_latency_cycles: hit_latency_cycles.ok_or_else(|| missing(HIT_LATENCY))?,
                    fill: fill.ok_or_else(|| missing(FILL))?,
                    arrays,
                })
            }
        }

        from.deserialize_map(LevelVisitor)
    }
}

/// Reads the array of this name. A value that is no table is reported as a key that a level does
/// not have.
struct Named<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = TlbArray;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<TlbArray, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Named<'_> {
    type Value = TlbArray;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table for an array")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<TlbArray, E> {
        Err(E::unknown_field(self.0, KEYS))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<TlbArray, E> {
        Err(E::unknown_field(self.0, KEYS))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<TlbArray, E> {
        Err(E::unknown_field(self.0, KEYS))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<TlbArray, E> {
        Err(E::unknown_field(self.0, KEYS))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<TlbArray, E> {
        Err(E::unknown_field(self.0, KEYS))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TlbArray, A::Error> {
        TlbArray::deserialize(MapAccessDeserializer::new(map))
    }
}
