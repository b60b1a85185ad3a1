//! Validation of memory.

use indexmap::IndexMap;
use octavo_os::frames::MemoryShape;
use octavo_types::PageSize;
use octavo_types::values::size_text;

use super::{IsLater, MAX_ARRAYS, check_array_name, check_latency};
use crate::error::{InvalidValue, decimal};
use crate::types::{FragmentationConfig, HoleGroup, MemoryConfig};

/// The name of the part of memory that is in no tier.
pub const LOCAL: &str = "local";

/// Checks the memory whose table is `key`.
pub fn check(key: &str, memory: &MemoryConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let base = PageSize::BASE.bytes();
    if !memory.bytes.is_multiple_of(base) || memory.shape().is_err() {
        let most = size_text(MemoryShape::MAX_FRAMES * base);
        let base = PageSize::BASE;
        let advice = format!("give a multiple of \"{base}\" from \"{base}\" to \"{most}\"");
        let given = format!("\"{}\"", size_text(memory.bytes));
        return Err(InvalidValue::new(format!("{key}.bytes"), given, advice));
    }
    check_tiers(&format!("{key}.tiers"), memory)?;
    match &memory.fragmentation {
        FragmentationConfig::Empty => Ok(()),
        FragmentationConfig::Holes { portion, fraction, .. } => {
            check_share(key, "portion", *portion)?;
            check_share(key, "fraction", *fraction)
        }
        FragmentationConfig::Faults { portion, .. } => check_share(key, "portion", *portion),
        FragmentationConfig::MixedHoles { groups, .. } => check_groups(key, groups),
        FragmentationConfig::OrderMix { free_blocks, movable_share, .. } => {
            check_share(key, "movable_share", *movable_share)?;
            check_blocks(
                key,
                memory,
                free_blocks.iter().map(|(size, blocks)| (*size, *blocks)),
                is_later,
            )
        }
        FragmentationConfig::Snapshot { file, .. } if file.is_empty() => {
            let advice = "give the name of a file that `octavo snapshot -o` wrote";
            Err(InvalidValue::new(format!("{key}.fragmentation.file"), "\"\"", advice))
        }
        FragmentationConfig::Snapshot { .. } => Ok(()),
    }
}

fn check_tiers(key: &str, memory: &MemoryConfig) -> Result<(), InvalidValue> {
    if memory.tiers.len() > MAX_ARRAYS {
        let advice = format!("give at most {MAX_ARRAYS} tiers, a table for each");
        return Err(InvalidValue::of_table(key, advice));
    }
    let mut frames = 0;
    for (name, tier) in &memory.tiers {
        if name == LOCAL {
            let advice = "give another name: memory that is in no tier is called `local`";
            return Err(InvalidValue::of_table(format!("{key}.{name}"), advice));
        }
        check_array_name(key, name)?;
        let key = format!("{key}.{name}");
        let (given, value) = match (tier.bytes, tier.share) {
            (Some(bytes), None) => ("bytes", format!("\"{}\"", size_text(bytes))),
            (None, Some(share)) => ("share", decimal(share)),
            _ => {
                let advice =
                    "give either bytes, such as \"8GiB\", or a share of the memory, such as 0.5";
                return Err(InvalidValue::of_table(key, advice));
            }
        };
        let invalid = |advice: String| InvalidValue::new(format!("{key}.{given}"), &value, advice);
        if tier.share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(invalid("give a share above 0, and at most 1".to_owned()));
        }
        if tier.bytes.is_some_and(|bytes| !bytes.is_multiple_of(PageSize::BASE.bytes())) {
            return Err(invalid(format!("give a multiple of \"{}\"", PageSize::BASE)));
        }
        if tier.frames(memory.bytes) == 0 {
            return Err(invalid(format!("give at least \"{}\" of memory", PageSize::HUGE)));
        }
        frames += tier.frames(memory.bytes);
        if frames > memory.bytes / PageSize::BASE.bytes() {
            let bytes = size_text(memory.bytes);
            return Err(invalid(format!(
                "give less: all tiers are more than the memory's \"{bytes}\""
            )));
        }
        check_latency(&format!("{key}.added_latency_cycles"), tier.added_latency_cycles)?;
    }
    Ok(())
}

fn check_share(key: &str, name: &str, share: f64) -> Result<(), InvalidValue> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    let key = format!("{key}.fragmentation.{name}");
    Err(InvalidValue::new(key, decimal(share), "give a share from 0 to 1"))
}

fn check_groups(table: &str, groups: &IndexMap<String, HoleGroup>) -> Result<(), InvalidValue> {
    let mut portions = 0.0;
    for (name, group) in groups {
        check_share(table, &format!("groups.{name}.fraction"), group.fraction)?;
        let key = format!("groups.{name}.portion");
        check_share(table, &key, group.portion)?;
        portions += group.portion;
        // Portions are seldom exact in binary.
        if portions > 1.0 + 1e-9 {
            let advice = "give less: the portions of all groups come to more than 1";
            let key = format!("{table}.fragmentation.{key}");
            return Err(InvalidValue::new(key, group.portion, advice));
        }
    }
    Ok(())
}

fn check_blocks(
    table: &str,
    memory: &MemoryConfig,
    free_blocks: impl Iterator<Item = (PageSize, u64)>,
    is_later: &IsLater<'_>,
) -> Result<(), InvalidValue> {
    let mut free_bytes = 0u64;
    for (size, blocks) in free_blocks {
        let key = format!("{table}.fragmentation.free_blocks.{size}");
        if size > memory.largest_block && blocks > 0 {
            let largest = memory.largest_block;
            let block = format!("{table}.largest_block");
            if is_later(&block, &key) {
                let advice = format!(
                    "give at least \"{size}\": {table}.fragmentation has free blocks of it"
                );
                return Err(InvalidValue::new(block, format!("\"{largest}\""), advice));
            }
            let advice = format!("give 0: no block is above {block}, \"{largest}\"");
            return Err(InvalidValue::new(key, blocks, advice));
        }
        free_bytes = free_bytes.saturating_add(blocks.saturating_mul(size.bytes()));
        if free_bytes > memory.bytes {
            let bytes = size_text(memory.bytes);
            let advice =
                format!("give fewer: all free blocks are more than {table}.bytes, \"{bytes}\"");
            return Err(InvalidValue::new(key, blocks, advice));
        }
    }
    Ok(())
}
