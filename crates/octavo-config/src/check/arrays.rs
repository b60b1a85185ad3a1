//! Entries and ways, of TLBs, walk caches and caches.

use octavo_hw::Geometry;
use octavo_types::values::size_text;

use super::IsLater;
use crate::error::InvalidValue;
use crate::types::Ways;

/// An array, and the keys that give its size.
pub struct SizedArray<'k> {
    key: &'k str,
    /// The key of the amount: `entries` or `bytes`.
    quantity: &'static str,
    amount: u64,
    /// Bytes of an entry, if the amount is in bytes.
    unit: Option<u64>,
    /// The key that gives these bytes.
    unit_key: String,
    ways: Ways,
}

impl<'k> SizedArray<'k> {
    /// An array whose size is given in entries.
    pub fn entries(key: &'k str, entries: u64, ways: Ways) -> Self {
        SizedArray {
            key,
            quantity: "entries",
            amount: entries,
            unit: None,
            unit_key: String::new(),
            ways,
        }
    }

    /// A cache whose size is given in bytes.
    pub fn lines(key: &'k str, bytes: u64, line_bytes: u64, ways: Ways) -> Self {
        let unit_key = "cache.line_bytes".to_owned();
        SizedArray { key, quantity: "bytes", amount: bytes, unit: Some(line_bytes), unit_key, ways }
    }

    /// This cache with lines of its own, which its own key gives.
    pub fn of_own_lines(self) -> Self {
        let unit_key = format!("{}.line_bytes", self.key);
        SizedArray { unit_key, ..self }
    }

    fn count(&self) -> u64 {
        self.amount / self.unit.unwrap_or(1)
    }

    /// A number of entries, written as an amount of this array.
    fn written(&self, entries: u64) -> String {
        match self.unit {
            None => entries.to_string(),
            Some(unit) => format!("\"{}\"", size_text(entries.saturating_mul(unit))),
        }
    }

    fn wrong_amount(&self, advice: String) -> InvalidValue {
        let given = match self.unit {
            None => self.amount.to_string(),
            Some(_) => format!("\"{}\"", size_text(self.amount)),
        };
        InvalidValue::new(format!("{}.{}", self.key, self.quantity), given, advice)
    }

    fn wrong_ways(&self, advice: String) -> InvalidValue {
        let given = match self.ways {
            Ways::Full => "\"full\"".to_owned(),
            Ways::Of(ways) => ways.to_string(),
        };
        InvalidValue::new(format!("{}.ways", self.key), given, advice)
    }

    /// The error for more ways than entries, or for ways that do not divide the entries.
    fn indivisible(&self, ways: u64, is_later: &IsLater<'_>) -> InvalidValue {
        let (entries, key, quantity) = (self.count(), self.key, self.quantity);
        if is_later(&format!("{key}.ways"), &format!("{key}.{quantity}")) {
            let divides = |ways: &u64| entries.is_multiple_of(*ways);
            let fits = (1..=ways.min(entries)).rev().find(divides).unwrap_or(1);
            let whole = self.written(entries);
            return self.wrong_ways(format!(
                "give a number by which {quantity} ({whole}) can be divided, such as {fits}, or \"full\""
            ));
        }
        let multiple = self.written(ways);
        let next = self.written(entries.div_ceil(ways).max(1).saturating_mul(ways));
        let unit_text = match self.unit {
            None => "ways".to_owned(),
            Some(unit) => format!("{ways} ways of {unit} bytes"),
        };
        self.wrong_amount(format!("give a multiple of {multiple} ({unit_text}), such as {next}"))
    }
}

/// Checks that such an array can be built.
///
/// # Errors
///
/// Its entries or its ways, whichever do not fit.
pub fn check_geometry(array: &SizedArray<'_>, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let ways = array.ways.of(array.count());
    if array.amount == 0 {
        let least = array.written(1);
        return Err(array.wrong_amount(format!("give at least {least}")));
    }
    if ways == 0 {
        return Err(array.wrong_ways("give at least 1, or \"full\"".to_owned()));
    }
    if let Some(unit) = array.unit.filter(|unit| !array.amount.is_multiple_of(*unit)) {
        return Err(array.wrong_amount(format!("give a multiple of {unit} ({})", array.unit_key)));
    }
    if array.count() > Geometry::MAX_ENTRIES {
        let most = array.written(Geometry::MAX_ENTRIES);
        return Err(array.wrong_amount(format!("give at most {most}")));
    }
    Geometry::of_entries(array.count(), ways)
        .map(drop)
        .map_err(|_| array.indivisible(ways, is_later))
}
