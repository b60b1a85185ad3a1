//! The tightest limit of memory, from files as the kernel writes them.

use std::fs;
use std::path::PathBuf;

use octavo_types::host_memory::{AvailableMemory, HostMemory};

const GIB: u64 = 1 << 30;

/// Files of a test's own in place of `/proc` and `/sys/fs/cgroup`.
struct Files(PathBuf);

impl Files {
    /// A machine of 8 GiB that is free, without limits.
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("host-memory-{name}"));
        let _ = fs::remove_dir_all(&folder);
        let files = Files(folder);
        files.put("proc/meminfo", "MemTotal: 9437184 kB\nMemAvailable:    8388608 kB\n");
        files.put(
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax address space         unlimited      unlimited     bytes\n",
        );
        files.put("proc/self/status", "Name:\toctavo\nVmSize:\t 1048576 kB\n");
        files
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn available(&self) -> Option<(u64, String)> {
        let host = HostMemory::new(self.0.join("proc"), self.0.join("cgroup"));
        host.available().map(|AvailableMemory { bytes, limit }| (bytes, limit))
    }
}

#[test]
fn without_limits_all_of_the_machine_is_available() {
    let files = Files::new("none");
    assert_eq!(files.available(), Some((8 * GIB, "MemAvailable of this machine".to_owned())));
    files.put("proc/meminfo", "nothing\n");
    assert_eq!(files.available(), None);
}

#[test]
fn a_group_around_the_own_one_may_be_the_tightest() {
    let files = Files::new("v2");
    files.put("proc/self/cgroup", "0::/user/octavo\n");
    files.put("cgroup/user/octavo/memory.max", "max\n");
    files.put("cgroup/user/octavo/memory.current", "4096\n");
    files.put("cgroup/user/memory.max", &format!("{}\n", 3 * GIB));
    files.put("cgroup/user/memory.current", &format!("{}\n", 2 * GIB));
    // 1 GiB of these 2 GiB holds pages of files, which can be read again.
    files.put("cgroup/user/memory.stat", &format!("anon 5\ninactive_file {GIB}\n"));
    let limit = "limit of the control group /user".to_owned();
    assert_eq!(files.available(), Some((2 * GIB, limit)));
}

#[test]
fn groups_of_version_1_are_read_too() {
    let files = Files::new("v1");
    files.put("proc/self/cgroup", "5:devices:/\n4:cpu,memory:/host/path\n0::/\n");
    // In a container the mount is the group, whatever its path is outside.
    files.put("cgroup/memory/memory.limit_in_bytes", &GIB.to_string());
    files.put("cgroup/memory/memory.usage_in_bytes", "1024");
    let limit = "limit of the control group /".to_owned();
    assert_eq!(files.available(), Some((GIB - 1024, limit)));
    // No limit is a large number there.
    files.put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    assert_eq!(files.available().unwrap().0, 8 * GIB);
}

#[test]
fn the_address_space_may_be_limited() {
    let files = Files::new("space");
    files
        .put("proc/self/limits", "Max address space         4294967296      unlimited     bytes\n");
    let limit = "limit of the address space, `ulimit -v`".to_owned();
    assert_eq!(files.available(), Some((3 * GIB, limit)));
}

#[test]
fn this_machine_has_memory() {
    assert!(HostMemory::default().available().unwrap().bytes > 0);
}
