//! Parsers of the `/proc` texts about free memory.

use super::header::{Regions, Zone};

/// `/proc/buddyinfo`: one line per zone, with its free blocks by order.
///
/// ```text
/// Node 0, zone   Normal   4647   1609    844    829    374    358    555    321    175    155    211
/// ```
pub fn parse_buddyinfo(text: &str) -> Result<Vec<Zone>, String> {
    let zones = text.lines().map(|line| {
        let zone = zone_of(line).and_then(|(node, name, rest)| {
            let free_blocks: Option<Vec<u64>> =
                rest.split_whitespace().map(|count| count.parse().ok()).collect();
            let free_blocks = free_blocks.filter(|counts| !counts.is_empty())?;
            Some(Zone { node, name: name.to_owned(), free_blocks, regions: None })
        });
        zone.ok_or_else(|| format!("the line `{}`", short(line)))
    });
    let zones: Vec<Zone> = zones.collect::<Result<_, _>>()?;
    if zones.is_empty() { Err("it is empty".to_owned()) } else { Ok(zones) }
}

/// The last table of `/proc/pagetypeinfo`: the regions of each zone by kind, stored in `zones`.
///
/// ```text
/// Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate
/// Node 0, zone   Normal          106        10294          352            0            0
/// ```
pub fn parse_pagetypeinfo(text: &str, zones: &mut [Zone]) -> Result<(), String> {
    // The simulated memory has regions of 2 MiB only.
    let pages = text.lines().find_map(|line| line.strip_prefix("Pages per block:"));
    if pages.map(str::trim) != Some("512") {
        return Err("its blocks are not of 512 pages".to_owned());
    }
    let mut lines = text.lines();
    let kinds: Vec<&str> = lines
        .find_map(|line| line.strip_prefix("Number of blocks type"))
        .ok_or("it has no `Number of blocks type`")?
        .split_whitespace()
        .collect();
    for line in lines {
        let Some((node, name, rest)) = zone_of(line) else { continue };
        let counts: Option<Vec<u64>> =
            rest.split_whitespace().map(|count| count.parse().ok()).collect();
        let counts = counts
            .filter(|counts| counts.len() == kinds.len())
            .ok_or_else(|| format!("the line `{}`", short(line)))?;
        let mut regions = Regions::default();
        for (kind, count) in kinds.iter().zip(counts) {
            let movable = matches!(*kind, "Movable" | "CMA");
            *(if movable { &mut regions.movable } else { &mut regions.others }) += count;
        }
        if let Some(zone) = zones.iter_mut().find(|zone| zone.node == node && zone.name == name) {
            zone.regions = Some(regions);
        }
    }
    Ok(())
}

/// `MemTotal` of `/proc/meminfo` in base frames.
pub fn parse_meminfo(text: &str) -> Result<u64, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib / 4).ok_or_else(|| "it has no `MemTotal` in kB".to_owned())
}

/// The memory of `/proc/iomem` as ranges of whole frames (first and end); empty if addresses are hidden.
///
/// ```text
/// 00100000-bfffffff : System RAM
/// ```
pub fn parse_iomem(text: &str) -> Vec<(u64, u64)> {
    let ranges = text.lines().filter_map(|line| {
        let (range, name) = line.trim_start().split_once(" : ")?;
        let (start, last) = range.split_once('-').filter(|_| name.starts_with("System RAM"))?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?.div_ceil(4096), address(last)?.checked_add(1)? / 4096);
        (start < end).then_some((start, end))
    });
    ranges.collect()
}

/// `Node 0, zone   Normal  …`: the node, the zone's name, and the rest.
fn zone_of(line: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let (name, rest) = rest.split_once(char::is_whitespace)?;
    Some((node.trim().parse().ok()?, name, rest))
}

/// A line, shortened for an error message.
fn short(line: &str) -> String {
    line.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDDYINFO: &str = "\
Node 0, zone      DMA      0      0      1      3
Node 0, zone   Normal   4647   1609      0    211
Node 1, zone   Normal      1      2      3      4
";
    const PAGETYPEINFO: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3
Node    0, zone      DMA, type    Unmovable      0      0      0      0
Node    0, zone   Normal, type      Movable >100000      0      0      0

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic          CMA
Node 0, zone      DMA            1            7            0            0            0
Node 0, zone   Normal          106        10294          352            5           11
Node 1, zone   Normal            0            2            0            0            0
";

    #[test]
    fn zones_are_parsed_with_blocks_and_regions() {
        let mut zones = parse_buddyinfo(BUDDYINFO).unwrap();
        parse_pagetypeinfo(PAGETYPEINFO, &mut zones).unwrap();
        let regions = |movable, others| Some(Regions { movable, others });
        let zone = |node, name: &str, free_blocks: [u64; 4], regions| Zone {
            node,
            name: name.to_owned(),
            free_blocks: free_blocks.to_vec(),
            regions,
        };
        assert_eq!(
            zones,
            [
                zone(0, "DMA", [0, 0, 1, 3], regions(7, 1)),
                zone(0, "Normal", [4647, 1609, 0, 211], regions(10305, 463)),
                zone(1, "Normal", [1, 2, 3, 4], regions(2, 0)),
            ]
        );
        assert_eq!(parse_meminfo("MemTotal:       24684096 kB\nMemFree: 1 kB\n"), Ok(6171024));
    }

    #[test]
    fn iomem_ranges_are_whole_frames() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n\
                    00100000-001fffff : System RAM\n  00100000-00100fff : Kernel code\n\
                    200000-5fffff : Persistent Memory\n  300000-3fffff : System RAM (kmem)\n";
        assert_eq!(parse_iomem(text), [(1, 0x9f), (0x100, 0x200), (0x300, 0x400)]);
        // As unprivileged users see it.
        assert_eq!(parse_iomem("00000000-00000000 : System RAM\n\n: -\n"), []);
    }

    #[test]
    fn malformed_proc_text_is_rejected() {
        assert_eq!(parse_buddyinfo(""), Err("it is empty".to_owned()));
        for line in ["Node 0, zone Normal", "Node 0, zone Normal ", "Node x, zone N 1", "zone N 1"]
        {
            assert_eq!(parse_buddyinfo(line), Err(format!("the line `{line}`")));
        }
        let mut zones = parse_buddyinfo(BUDDYINFO).unwrap();
        let larger = PAGETYPEINFO.replace("512", "1024");
        assert!(parse_pagetypeinfo(&larger, &mut zones).unwrap_err().contains("512 pages"));
        let cut = &PAGETYPEINFO[..PAGETYPEINFO.find("Number").unwrap()];
        assert!(parse_pagetypeinfo(cut, &mut zones).unwrap_err().contains("Number of blocks"));
        let short = PAGETYPEINFO.replace("10294", "");
        assert!(parse_pagetypeinfo(&short, &mut zones).unwrap_err().contains("zone   Normal"));
        assert!(parse_meminfo("MemTotal: many kB").is_err());
    }
}
