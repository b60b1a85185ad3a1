//! Settings of an operating system and its policy by name and text: `promotion_threshold_percent=50`.

use octavo_types::spelling::{hint, quoted};

use super::setting::Setting;
use super::thp::TEN_SECONDS_INSTRUCTIONS;
use super::{
    EagerConfig, FirstTouchConfig, FixedConfig, GtsmConfig, HugetlbConfig, MthpConfig,
    PerforatedConfig, PolicyConfig, ReservedThpConfig, ThpConfig, TpsConfig,
};
use crate::memory::{CopyOnWrite, Memory, SamePages};
use crate::os::Os;

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A key unknown to this policy.
    #[error("no setting `{key}`: {allowed}{meant}")]
    Unknown {
        /// As given by the user.
        key: String,
        /// The allowed keys.
        allowed: String,
        /// A suggestion, or nothing.
        meant: String,
    },
    /// An invalid value.
    #[error("{key} = {value}: give {allowed}")]
    Value {
        /// The key.
        key: String,
        /// As given by the user.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// An inconsistent combination of settings.
    #[error("{0}")]
    Policy(String),
}

type NamedSettings<'a> = Vec<(&'static str, &'a mut dyn Setting)>;

/// The settings of huge pages at page faults and by `khugepaged`.
fn thp(config: &mut ThpConfig) -> NamedSettings<'_> {
    let ThpConfig { enabled, max_ptes_none, scan_every_instructions, pages_to_scan } = config;
    vec![
        ("enabled", enabled),
        ("max_ptes_none", max_ptes_none),
        ("scan_every_instructions", scan_every_instructions),
        ("pages_to_scan", pages_to_scan),
    ]
}

impl PolicyConfig {
    /// Its settings by name. (The list of multi-size pages is not among them.)
    fn settings(&mut self) -> NamedSettings<'_> {
        match self {
            PolicyConfig::Base => Vec::new(),
            PolicyConfig::Thp(config) => thp(config),
            PolicyConfig::Mthp(MthpConfig { enabled, sizes: _, defrag, khugepaged }) => {
                let mut settings: NamedSettings<'_> =
                    vec![("enabled", enabled), ("defrag", defrag)];
                settings.extend(thp(khugepaged).into_iter().skip(1));
                settings
            }
            PolicyConfig::ReservedThp(ReservedThpConfig {
                promotion_threshold_percent,
                beyond_heap,
            }) => vec![
                ("promotion_threshold_percent", promotion_threshold_percent),
                ("beyond_heap", beyond_heap),
            ],
            PolicyConfig::Tps(TpsConfig {
                promotion_threshold_percent,
                span,
                reserve,
                largest,
                heap,
                defrag,
                merge_every_instructions,
                vector_bits,
                aliases,
                size_encoding,
            }) => vec![
                ("promotion_threshold_percent", promotion_threshold_percent),
                ("span", span),
                ("reserve", reserve),
                ("largest", largest),
                ("heap", heap),
                ("defrag", defrag),
                ("merge_every_instructions", merge_every_instructions),
                ("vector_bits", vector_bits),
                ("aliases", aliases),
                ("size_encoding", size_encoding),
            ],
            PolicyConfig::Eager(EagerConfig { largest }) => vec![("largest", largest)],
            PolicyConfig::Fixed(FixedConfig { size })
            | PolicyConfig::FirstTouch(FirstTouchConfig { size }) => vec![("size", size)],
            PolicyConfig::Perforated(PerforatedConfig {
                max_immovable_percent,
                max_filter_bits,
                hole_pages,
                unused_are_holes,
                min_parts,
                huge,
            }) => {
                let mut settings: NamedSettings<'_> = vec![
                    ("max_immovable_percent", max_immovable_percent),
                    ("max_filter_bits", max_filter_bits),
                    ("hole_pages", hole_pages),
                    ("unused_are_holes", unused_are_holes),
                    ("min_parts", min_parts),
                ];
                settings.extend(thp(huge));
                settings
            }
            PolicyConfig::Gtsm(GtsmConfig { whole_blocks, huge }) => {
                let mut settings: NamedSettings<'_> = vec![("whole_blocks", whole_blocks)];
                settings.extend(thp(huge));
                settings
            }
            PolicyConfig::Hugetlb(HugetlbConfig {
                nr_hugepages,
                nr_gigantic_pages,
                all_anonymous,
            }) => vec![
                ("nr_hugepages", nr_hugepages),
                ("nr_gigantic_pages", nr_gigantic_pages),
                ("all_anonymous", all_anonymous),
            ],
        }
    }
}

/// The configuration of an operating system: its policy, and the settings common to all policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsConfig {
    /// The page-size policy.
    pub policy: PolicyConfig,
    /// The amount copied by a store to a shared large page.
    pub copy_on_write: CopyOnWrite,
    /// The identical pages that are merged.
    pub same_pages: SamePages,
    /// Interval of merging, in instructions of all programs; 0: never.
    pub same_pages_every_instructions: u64,
}

impl OsConfig {
    /// A policy with default common settings.
    pub fn new(policy: PolicyConfig) -> Self {
        OsConfig {
            policy,
            copy_on_write: CopyOnWrite::default(),
            same_pages: SamePages::default(),
            same_pages_every_instructions: TEN_SECONDS_INSTRUCTIONS,
        }
    }

    /// Builds the operating system on a memory.
    pub fn build(&self, memory: Memory) -> Os {
        Os::new(memory, self.policy.build())
            .with_copy_on_write(self.copy_on_write)
            .with_same_pages(self.same_pages, self.same_pages_every_instructions)
    }

    /// Whether it merges identical pages, and so must observe every store.
    pub fn merges_pages(&self) -> bool {
        self.same_pages != SamePages::Never && self.same_pages_every_instructions > 0
    }

    /// The policy's settings, then the common ones.
    fn settings(&mut self) -> NamedSettings<'_> {
        let mut settings = self.policy.settings();
        settings.push(("copy_on_write", &mut self.copy_on_write));
        settings.push(("same_pages", &mut self.same_pages));
        let every = &mut self.same_pages_every_instructions;
        settings.push(("same_pages_every_instructions", every));
        settings
    }

    /// All settings, in the format of [`OsConfig::set`].
    pub fn to_settings(&self) -> Vec<(&'static str, String)> {
        let mut copy = self.clone();
        copy.settings().into_iter().map(|(name, setting)| (name, setting.text())).collect()
    }

    /// Changes a setting. On an error nothing changes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let mut changed = self.clone();
        let settings = changed.settings();
        let names: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
        let Some((_, setting)) = settings.into_iter().find(|(name, _)| *name == key) else {
            let allowed = format!("give one of {}", names.join(", "));
            let meant = hint(key, &names);
            return Err(SettingError::Unknown { key: quoted(key), allowed, meant });
        };
        if !setting.read(value) {
            let allowed = setting.allowed();
            return Err(SettingError::Value { key: key.to_owned(), value: quoted(value), allowed });
        }
        changed.policy.check().map_err(SettingError::Policy)?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{POLICIES, Span};

    #[test]
    fn setting_a_value_to_itself_is_accepted() {
        for policy in POLICIES {
            let mut config = OsConfig::new((policy.usual)());
            for (key, value) in config.to_settings() {
                assert_eq!(config.set(key, &value), Ok(()), "{} {key}", policy.name);
            }
            assert_eq!(config, OsConfig::new((policy.usual)()));
        }
    }

    #[test]
    fn settings_change_their_field() {
        let mut config = OsConfig::new(PolicyConfig::Tps(TpsConfig::default()));
        config.set("promotion_threshold_percent", "50").unwrap();
        config.set("span", "round-up").unwrap();
        config.set("heap", "none").unwrap();
        config.set("copy_on_write", "whole").unwrap();
        let expected = TpsConfig {
            promotion_threshold_percent: 50,
            span: Span::RoundUp,
            heap: None,
            ..TpsConfig::default()
        };
        assert_eq!(config.policy, PolicyConfig::Tps(expected));
        assert_eq!(config.copy_on_write, CopyOnWrite::Whole);
    }

    #[test]
    fn invalid_values_are_rejected_with_one_sentence() {
        let mut config = OsConfig::new(PolicyConfig::Tps(TpsConfig::default()));
        let mut sentence = |key, value| config.set(key, value).unwrap_err().to_string();
        assert_eq!(sentence("span", "round"), "span = round: give exact or round-up");
        assert_eq!(
            sentence("promotion_threshold_percent", "0"),
            "promotion_threshold_percent = 0: give a share in percent, 1 to 100"
        );
        let unknown = sentence("promotion_treshold_percent", "50");
        assert!(unknown.ends_with("did you mean `promotion_threshold_percent`?"), "{unknown}");
        let none = OsConfig::new(PolicyConfig::Base).set("size", "4KiB").unwrap_err().to_string();
        assert_eq!(
            none,
            "no setting `size`: give one of copy_on_write, same_pages, same_pages_every_instructions"
        );
    }
}
