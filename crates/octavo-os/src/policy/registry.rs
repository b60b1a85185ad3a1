//! Policies by name: those of this crate, and those that translation designs add.

use super::{
    BaseConfig, Capability, DefragmentingThpConfig, EagerConfig, FirstTouchConfig, FixedConfig,
    HugetlbConfig, MthpConfig, PolicyConfig, ReservedThpConfig, TridentConfig,
};

/// A named policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// Its name.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// Its default configuration.
    pub usual: fn() -> PolicyConfig,
}

/// The policies of this crate.
#[rustfmt::skip]
pub const POLICIES: &[PolicyEntry] = &[
    PolicyEntry::new::<BaseConfig>("base", "demand paging with 4 KiB pages"),
    PolicyEntry::new::<DefragmentingThpConfig>("thp", "Linux's transparent huge pages: at first touch, and by khugepaged"),
    PolicyEntry::new::<TridentConfig>("trident", "Trident: transparent pages of 1 GiB, then 2 MiB, then 4 KiB"),
    PolicyEntry::new::<MthpConfig>("mthp", "Linux's multi-size transparent huge pages, 16 KiB to 2 MiB"),
    PolicyEntry::new::<ReservedThpConfig>("reserved_thp", "huge pages by reservation, made in place when all is touched, as FreeBSD does"),
    PolicyEntry::new::<EagerConfig>("eager", "eager paging: a mapping gets all its memory at once, in few ranges"),
    PolicyEntry::new::<FixedConfig>("fixed", "a larger base page, such as 16 or 64 KiB"),
    PolicyEntry::new::<FirstTouchConfig>("first_touch", "one large page size at first touch wherever a mapping can hold it"),
    PolicyEntry::new::<HugetlbConfig>("hugetlb", "a pool of huge pages set aside at boot, for mappings that ask for them"),
];

impl PolicyEntry {
    /// A policy with the settings `S`.
    pub const fn new<S: Default + Into<PolicyConfig>>(
        name: &'static str,
        about: &'static str,
    ) -> Self {
        PolicyEntry { name, about, usual: || S::default().into() }
    }
}

/// All policies that can be named.
#[derive(Clone, Debug)]
pub struct Policies(Vec<PolicyEntry>);

impl Default for Policies {
    /// The policies of this crate.
    fn default() -> Self {
        Policies(POLICIES.to_vec())
    }
}

impl Extend<PolicyEntry> for Policies {
    fn extend<I: IntoIterator<Item = PolicyEntry>>(&mut self, entries: I) {
        self.0.extend(entries);
    }
}

impl Policies {
    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PolicyEntry> {
        self.0.iter()
    }

    /// The policy of this name.
    pub fn by_name(&self, name: &str) -> Option<&PolicyEntry> {
        self.iter().find(|entry| entry.name == name)
    }

    /// The names of the policies that have a capability.
    pub fn with_capability(&self, capability: Capability) -> Vec<&'static str> {
        let has_it = |entry: &&PolicyEntry| (entry.usual)().capabilities().contains(&capability);
        self.iter().filter(has_it).map(|entry| entry.name).collect()
    }
}
