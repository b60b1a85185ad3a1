//! All policies by name, and their requirements.

use octavo_types::PageSize;

use crate::page_table::{Format, MAX_VECTOR_BITS};

use super::{
    BasePages, Eager, EagerConfig, FirstTouch, FirstTouchConfig, Fixed, FixedConfig, Gtsm,
    GtsmConfig, Hugetlb, HugetlbConfig, Mthp, MthpConfig, Perforated, PerforatedConfig, Policy,
    ReservedThp, ReservedThpConfig, Thp, ThpConfig, Tps, TpsConfig,
};

/// A policy with its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyConfig {
    /// Demand paging with base pages.
    Base,
    /// Linux's transparent huge pages.
    Thp(ThpConfig),
    /// Linux's multi-size transparent huge pages.
    Mthp(MthpConfig),
    /// Huge pages by reservation.
    ReservedThp(ReservedThpConfig),
    /// Tailored page sizes.
    Tps(TpsConfig),
    /// Eager paging.
    Eager(EagerConfig),
    /// A larger base page.
    Fixed(FixedConfig),
    /// A large page wherever one fits.
    FirstTouch(FirstTouchConfig),
    /// A pool of huge pages.
    Hugetlb(HugetlbConfig),
    /// Perforated pages.
    Perforated(PerforatedConfig),
    /// Gapped pages.
    Gtsm(GtsmConfig),
}

impl PolicyConfig {
    /// Builds the policy in its initial state.
    pub fn build(&self) -> Box<dyn Policy> {
        match self.clone() {
            PolicyConfig::Base => Box::new(BasePages),
            PolicyConfig::Thp(config) => Box::new(Thp::new(config)),
            PolicyConfig::Mthp(config) => Box::new(Mthp::new(config)),
            PolicyConfig::ReservedThp(config) => Box::new(ReservedThp::new(config)),
            PolicyConfig::Tps(config) => Box::new(Tps::new(config)),
            PolicyConfig::Eager(config) => Box::new(Eager::new(config)),
            PolicyConfig::Fixed(config) => Box::new(Fixed::new(config)),
            PolicyConfig::FirstTouch(config) => Box::new(FirstTouch::new(config)),
            PolicyConfig::Hugetlb(config) => Box::new(Hugetlb::new(config)),
            PolicyConfig::Perforated(config) => Box::new(Perforated::new(config)),
            PolicyConfig::Gtsm(config) => Box::new(Gtsm::new(config)),
        }
    }

    /// The page sizes besides 4 KiB that page tables and hardware must support, smallest first. Policies may
    /// use further sizes if supported: multi-size pages and eager paging require none.
    pub fn required_sizes(&self) -> Vec<PageSize> {
        match self {
            PolicyConfig::Base | PolicyConfig::Mthp(_) | PolicyConfig::Eager(_) => Vec::new(),
            PolicyConfig::Thp(_)
            | PolicyConfig::ReservedThp(_)
            | PolicyConfig::Perforated(_)
            | PolicyConfig::Gtsm(_) => vec![PageSize::HUGE],
            PolicyConfig::Tps(config) => {
                let sizes = PageSize::BASE.log2() + 1..=config.largest.log2();
                sizes.filter_map(PageSize::from_log2).collect()
            }
            PolicyConfig::Fixed(FixedConfig { size })
            | PolicyConfig::FirstTouch(FirstTouchConfig { size }) => {
                Some(*size).filter(|size| *size > PageSize::BASE).into_iter().collect()
            }
            PolicyConfig::Hugetlb(config) => {
                let gigantic = config.nr_gigantic_pages > 0;
                let mut sizes = vec![PageSize::HUGE];
                sizes.extend(gigantic.then_some(PageSize::LARGEST));
                sizes
            }
        }
    }

    /// The page-table format that its settings ask for.
    pub fn page_table_format(&self) -> Format {
        match self {
            PolicyConfig::Tps(config) => Format {
                encoding: config.size_encoding,
                aliases: config.aliases,
                vector_bits: config.vector_bits,
                ..Format::default()
            },
            _ => Format::default(),
        }
    }

    /// Validates the settings. Returns an error sentence that names the setting and the allowed values.
    pub fn check(&self) -> Result<(), String> {
        let percent = |name: &str, percent: u8| match percent {
            1..=100 => Ok(()),
            _ => Err(format!("{name} = {percent}: give a share in percent, 1 to 100")),
        };
        match self {
            PolicyConfig::ReservedThp(config) => {
                percent("promotion_threshold_percent", config.promotion_threshold_percent)
            }
            PolicyConfig::Tps(config)
                if ![0, 2, 4, 8, MAX_VECTOR_BITS].contains(&config.vector_bits) =>
            {
                Err(format!("vector_bits = {}: give 0, 2, 4, 8 or 16", config.vector_bits))
            }
            PolicyConfig::Tps(config) => {
                percent("promotion_threshold_percent", config.promotion_threshold_percent)
            }
            PolicyConfig::Perforated(config) => config.check(),
            PolicyConfig::Fixed(config) if config.size > PageSize::HUGE => {
                Err(format!("size = {}: give 4KiB to 2MiB", config.size))
            }
            PolicyConfig::Hugetlb(HugetlbConfig { all_anonymous: Some(size), .. })
                if ![PageSize::HUGE, PageSize::LARGEST].contains(size) =>
            {
                Err(format!("all_anonymous = {size}: give 2MiB or 1GiB"))
            }
            _ => Ok(()),
        }
    }
}

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

/// All policies.
#[rustfmt::skip]
pub const POLICIES: &[PolicyEntry] = &[
    PolicyEntry { name: "base", about: "demand paging with 4 KiB pages", usual: || PolicyConfig::Base },
    PolicyEntry { name: "thp", about: "Linux's transparent huge pages: at first touch, and by khugepaged", usual: || PolicyConfig::Thp(ThpConfig::default()) },
    PolicyEntry { name: "mthp", about: "Linux's multi-size transparent huge pages, 16 KiB to 2 MiB", usual: || PolicyConfig::Mthp(MthpConfig::default()) },
    PolicyEntry { name: "reserved_thp", about: "huge pages by reservation, made in place when all is touched, as FreeBSD does", usual: || PolicyConfig::ReservedThp(ReservedThpConfig::default()) },
    PolicyEntry { name: "tps", about: "tailored page sizes: reservations and pages of every power of two that grow in place", usual: || PolicyConfig::Tps(TpsConfig::default()) },
    PolicyEntry { name: "eager", about: "eager paging: a mapping gets all its memory at once, in few ranges", usual: || PolicyConfig::Eager(EagerConfig::default()) },
    PolicyEntry { name: "fixed", about: "a larger base page, such as 16 or 64 KiB", usual: || PolicyConfig::Fixed(FixedConfig::default()) },
    PolicyEntry { name: "first_touch", about: "one large page size at first touch wherever a mapping can hold it", usual: || PolicyConfig::FirstTouch(FirstTouchConfig::default()) },
    PolicyEntry { name: "perforated", about: "huge pages, with holes where a region is not all free or not all used alike", usual: || PolicyConfig::Perforated(PerforatedConfig::default()) },
    PolicyEntry { name: "gtsm", about: "huge pages, made of sound sub-blocks of 64 KiB of a chunk of 4 MiB where no block is whole", usual: || PolicyConfig::Gtsm(GtsmConfig::default()) },
    PolicyEntry { name: "hugetlb", about: "a pool of huge pages set aside at boot, for mappings that ask for them", usual: || PolicyConfig::Hugetlb(HugetlbConfig::default()) },
];

/// The policy of this name.
pub fn by_name(name: &str) -> Option<&'static PolicyEntry> {
    POLICIES.iter().find(|entry| entry.name == name)
}
