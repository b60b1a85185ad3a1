//! The memory that this process may still allocate: a limit of the machine, of its control groups,
//! or of its address space.

use std::fs;
use std::path::{Path, PathBuf};

/// The tightest limit, and how many bytes it leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AvailableMemory {
    /// Bytes that may still be allocated.
    pub bytes: u64,
    /// The limit, in words.
    pub limit: String,
}

/// The files of the kernel that describe memory.
#[derive(Clone, Debug)]
pub struct HostMemory {
    proc: PathBuf,
    cgroups: PathBuf,
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory { proc: "/proc".into(), cgroups: "/sys/fs/cgroup".into() }
    }
}

impl HostMemory {
    /// Reads these directories in place of `/proc` and `/sys/fs/cgroup`.
    pub fn new(proc: impl Into<PathBuf>, cgroups: impl Into<PathBuf>) -> Self {
        HostMemory { proc: proc.into(), cgroups: cgroups.into() }
    }

    /// The tightest of all limits; `None` if the kernel describes none.
    pub fn available(&self) -> Option<AvailableMemory> {
        let machine = self.machine().map(|bytes| AvailableMemory {
            bytes,
            limit: "MemAvailable of this machine".to_owned(),
        });
        let space = self.address_space().map(|bytes| AvailableMemory {
            bytes,
            limit: "limit of the address space, `ulimit -v`".to_owned(),
        });
        let limits = machine.into_iter().chain(space).chain(self.control_groups());
        limits.min_by_key(|limit| limit.bytes)
    }

    fn machine(&self) -> Option<u64> {
        let text = fs::read_to_string(self.proc.join("meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    }

    fn address_space(&self) -> Option<u64> {
        let limits = fs::read_to_string(self.proc.join("self/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let most: u64 = line.split_whitespace().next()?.parse().ok()?;
        let status = fs::read_to_string(self.proc.join("self/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        let used: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(most.saturating_sub(used.saturating_mul(1024)))
    }

    /// The limits of this process's control groups for memory, of versions 1 and 2.
    fn control_groups(&self) -> Vec<AvailableMemory> {
        let text = fs::read_to_string(self.proc.join("self/cgroup")).unwrap_or_default();
        let mut limits = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                for mount in [self.cgroups.clone(), self.cgroups.join("unified")] {
                    limits.extend(each_group(&mount, group, &VERSION_2));
                }
            } else if controllers.split(',').any(|controller| controller == "memory") {
                limits.extend(each_group(&self.cgroups.join("memory"), group, &VERSION_1));
            }
        }
        limits
    }
}

/// The files of a control group.
struct Files {
    most: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the bytes that the kernel can reclaim.
    reclaimable: &'static str,
}

const VERSION_1: Files = Files {
    most: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file ",
};
const VERSION_2: Files =
    Files { most: "memory.max", used: "memory.current", reclaimable: "inactive_file " };

/// The limits of a group and of all groups around it. In a container the path of the group may be
/// its path on the host: then the mount is the group.
fn each_group<'f>(
    mount: &'f Path,
    group: &'f str,
    files: &'f Files,
) -> impl Iterator<Item = AvailableMemory> + 'f {
    let groups = Path::new(group).ancestors();
    groups.filter_map(move |group| {
        let folder = mount.join(group.strip_prefix("/").unwrap_or(group));
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
        };
        let (most, used) = (number(files.most)?, number(files.used)?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = stat.lines().find_map(|line| line.strip_prefix(files.reclaimable));
        let reclaimable: u64 = reclaimable.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
        let bytes = most.saturating_sub(used.saturating_sub(reclaimable));
        let limit = format!("limit of the control group {}", group.display());
        Some(AvailableMemory { bytes, limit })
    })
}
