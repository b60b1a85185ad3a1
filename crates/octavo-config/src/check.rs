//! Validation of machines, and checks that the settings of designs share.

mod arrays;
mod host;
mod memory;
mod pipeline;
mod prefetch;

use std::fmt::Display;
use std::ops::RangeInclusive;

use indexmap::IndexMap;
use octavo_types::PageSize;
use octavo_types::values::size_text;

use crate::error::{InvalidValue, decimal};
use crate::types::{
    CacheConfigs, CoreConfig, Fill, MachineConfig, PageSizes, TlbArray, TlbConfig, TlbLevel,
    WalkCache, WalkerConfig,
};
pub use arrays::{SizedArray, check_geometry};
pub(crate) use pipeline::FREQUENCY_GHZ;

/// The most cores.
pub const MAX_CORES: u32 = 256;
/// Cycles of an instruction: far fewer than any core needs, and far more.
const CPI: RangeInclusive<f64> = 0.001..=1000.0;
/// The most walks at once.
const MAX_WALKERS: u32 = 64;
/// The most instructions of a window: more than any core has under way.
const MAX_WINDOW_INSTRUCTIONS: u32 = 1 << 16;
/// The most arrays of a level.
const MAX_ARRAYS: usize = 16;
/// The longest name of an array.
const MAX_NAME_BYTES: usize = 32;
/// The longest name of a machine.
const MAX_MACHINE_NAME_BYTES: usize = 100;
/// The most bytes of pages that a setting of a design may name.
const MAX_PAGES_BYTES: u64 = 1 << 40;
/// The greatest latency: far more than any real one, and sums stay small.
const MAX_LATENCY_CYCLES: u32 = 1_000_000;

/// Whether the first key was given later than the second: of two values that do not fit, the later
/// one is wrong.
pub type IsLater<'a> = dyn Fn(&str, &str) -> bool + 'a;

impl MachineConfig {
    /// Checks that such a machine can be built.
    ///
    /// # Errors
    ///
    /// The first wrong value, in the order in which machines are written.
    pub fn check(&self) -> Result<(), InvalidValue> {
        self.check_with_origins(&|_, _| false)
    }

    pub(crate) fn check_with_origins(&self, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_name(&self.name)?;
        check_core(&self.core)?;
        memory::check("memory", &self.memory, is_later)?;
        let levels = self.page_table.levels;
        check_levels("page_table", levels)?;
        check_tlb(&self.tlb, is_later)?;
        check_walker(&self.walker, levels, is_later)?;
        check_caches(&self.cache, is_later)?;
        pipeline::check(self)?;
        self.designs.check(self, is_later)?;
        let policies = self.designs.policies();
        self.host.as_ref().map_or(Ok(()), |host| host::check(host, policies, is_later))
    }
}

fn check_levels(key: &str, levels: u8) -> Result<(), InvalidValue> {
    check_range(&format!("{key}.levels"), levels, 4, 5)
}

fn check_name(name: &str) -> Result<(), InvalidValue> {
    let is_short = (1..=MAX_MACHINE_NAME_BYTES).contains(&name.len());
    if is_short && !name.contains(char::is_control) {
        return Ok(());
    }
    let advice = format!("give a name of 1 to {MAX_MACHINE_NAME_BYTES} bytes on one line");
    Err(InvalidValue::of_table("name", advice))
}

fn check_core(core: &CoreConfig) -> Result<(), InvalidValue> {
    check_range("core.count", core.count, 1, MAX_CORES)?;
    check_decimal("core.base_cpi", core.base_cpi, CPI)
}

/// Checks that a number, which need not be whole, is within a range.
fn check_decimal(key: &str, given: f64, allowed: RangeInclusive<f64>) -> Result<(), InvalidValue> {
    if allowed.contains(&given) {
        return Ok(());
    }
    let advice = format!("give a number from {} to {}", allowed.start(), allowed.end());
    Err(InvalidValue::new(key, decimal(given), advice))
}

/// Checks that a number is within a range.
///
/// # Errors
///
/// If it is not.
pub fn check_range<N: PartialOrd + Display + Copy>(
    key: &str,
    given: N,
    least: N,
    most: N,
) -> Result<(), InvalidValue> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(InvalidValue::new(key, given, format!("give a whole number from {least} to {most}")))
}

/// Checks that bytes are whole base pages, and not zero.
///
/// # Errors
///
/// If they are not, or more than 1 TiB.
pub fn check_pages(key: &str, given: u64) -> Result<(), InvalidValue> {
    let base = PageSize::BASE.bytes();
    if (base..=MAX_PAGES_BYTES).contains(&given) && given.is_multiple_of(base) {
        return Ok(());
    }
    let advice = "give a multiple of \"4KiB\" up to \"1TiB\"";
    Err(InvalidValue::new(key, format!("\"{}\"", size_text(given)), advice))
}

/// Checks that a latency in cycles is not absurd.
///
/// # Errors
///
/// If it is more than a million cycles.
pub fn check_latency(key: &str, given: u32) -> Result<(), InvalidValue> {
    check_range(key, given, 0, MAX_LATENCY_CYCLES)
}

fn check_tlb(tlb: &TlbConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    for (name, level) in tlb.levels() {
        let (key, is_first) = (format!("tlb.{name}"), name != "l2");
        check_level(&key, level, is_first, is_later)?;
        if is_first && level.hit_latency_cycles > 0 {
            let advice = "give 0: a first level is looked up beside the first-level cache";
            let key = format!("{key}.hit_latency_cycles");
            return Err(InvalidValue::new(key, level.hit_latency_cycles, advice));
        }
    }
    Ok(())
}

/// Checks a TLB level: `is_first` if every reference looks it up, not only misses of another level.
fn check_level(
    key: &str,
    level: &TlbLevel,
    is_first: bool,
    is_later: &IsLater<'_>,
) -> Result<(), InvalidValue> {
    check_latency(&format!("{key}.hit_latency_cycles"), level.hit_latency_cycles)?;
    if is_first && level.fill == Fill::Victim {
        let advice = "give \"all\": there is no level before it whose victims it could take";
        return Err(InvalidValue::new(format!("{key}.fill"), "\"victim\"", advice));
    }
    check_count(key, level.arrays.len(), 1)?;
    for (array, config) in &level.arrays {
        check_array_name(key, array)?;
        check_array(&format!("{key}.{array}"), config, is_later)?;
    }
    if is_first && !holds_base_pages(level) {
        let advice = format!("give one of its arrays page_sizes with \"{}\"", PageSize::BASE);
        return Err(InvalidValue::of_table(key, advice));
    }
    Ok(())
}

fn holds_base_pages(level: &TlbLevel) -> bool {
    level.arrays.values().any(|array| array.page_sizes.hold(PageSize::BASE))
}

fn check_count(key: &str, count: usize, least: usize) -> Result<(), InvalidValue> {
    if (least..=MAX_ARRAYS).contains(&count) {
        return Ok(());
    }
    let advice =
        format!("give it {least} to {MAX_ARRAYS} arrays, a table for each; it has {count}");
    Err(InvalidValue::of_table(key, advice))
}

/// Checks the name of an array, which is a part of keys, and of component names in results.
fn check_array_name(key: &str, name: &str) -> Result<(), InvalidValue> {
    let may_be =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(may_be) {
        return Ok(());
    }
    let name = octavo_types::spelling::quoted(name);
    let advice = format!(
        "`{name}` is not a name of an array; give 1 to {MAX_NAME_BYTES} of a to z, 0 to 9, - and _"
    );
    Err(InvalidValue::of_table(key, advice))
}

fn check_array(key: &str, array: &TlbArray, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    check_geometry(&SizedArray::entries(key, array.entries, array.ways), is_later)?;
    let sizes = format!("{key}.page_sizes");
    match &array.page_sizes {
        PageSizes::Any if array.ways.of(array.entries) != array.entries => {
            let advice = "give a list such as [\"4KiB\", \"2MiB\"], or make the array's ways \"full\": \
                          sets have no index for pages of any size";
            Err(InvalidValue::new(sizes, "\"any\"", advice))
        }
        PageSizes::List(list) if list.is_empty() => {
            Err(InvalidValue::new(sizes, "[]", "give at least one size, such as [\"4KiB\"]"))
        }
        PageSizes::List(list) if !list.is_sorted_by(|smaller, larger| smaller < larger) => {
            let texts: Vec<String> = list.iter().map(|size| format!("\"{size}\"")).collect();
            let advice = "give each size once, the smallest first";
            Err(InvalidValue::new(sizes, format!("[{}]", texts.join(", ")), advice))
        }
        PageSizes::Any | PageSizes::List(_) => Ok(()),
    }
}

fn check_walker(
    walker: &WalkerConfig,
    page_table_levels: u8,
    is_later: &IsLater<'_>,
) -> Result<(), InvalidValue> {
    check_range("walker.walkers", walker.walkers, 1, MAX_WALKERS)?;
    let window = walker.window_instructions;
    check_range("walker.window_instructions", window, 1, MAX_WINDOW_INSTRUCTIONS)?;
    check_latency("walker.overhead_cycles", walker.overhead_cycles)?;
    check_walk_caches("walker.caches", &walker.caches, page_table_levels, is_later)
}

fn check_walk_caches(
    key: &str,
    caches: &IndexMap<String, WalkCache>,
    page_table_levels: u8,
    is_later: &IsLater<'_>,
) -> Result<(), InvalidValue> {
    check_count(key, caches.len(), 0)?;
    for (place, (name, cache)) in caches.iter().enumerate() {
        check_array_name(key, name)?;
        let own = format!("{key}.{name}");
        if !(2..=page_table_levels).contains(&cache.level) {
            let advice = format!("give 2 to {page_table_levels}; level 1 has leaves only");
            return Err(InvalidValue::new(format!("{own}.level"), cache.level, advice));
        }
        let mut before = caches.iter().take(place);
        if let Some((other, _)) = before.find(|(_, other)| other.level == cache.level) {
            let advice = format!("give another level: {key}.{other} is of this one");
            return Err(InvalidValue::new(format!("{own}.level"), cache.level, advice));
        }
        check_geometry(&SizedArray::entries(&own, cache.entries, cache.ways), is_later)?;
    }
    Ok(())
}

fn check_caches(caches: &CacheConfigs, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let CacheConfigs { line_bytes, memory_latency_cycles, l1i, l1d, l2, llc, .. } = caches;
    if !line_bytes.is_power_of_two() || !(8..=4096).contains(line_bytes) {
        let advice = "give a power of two from 8 to 4096, such as 64";
        return Err(InvalidValue::new("cache.line_bytes", line_bytes, advice));
    }
    check_latency("cache.memory_latency_cycles", *memory_latency_cycles)?;
    for (name, cache) in [("l1i", l1i), ("l1d", l1d), ("l2", l2), ("llc", llc)] {
        let key = format!("cache.{name}");
        check_latency(&format!("{key}.latency_cycles"), cache.latency_cycles)?;
        check_geometry(&SizedArray::lines(&key, cache.bytes, *line_bytes, cache.ways), is_later)?;
        prefetch::check(name, &cache.prefetch)?;
    }
    Ok(())
}
