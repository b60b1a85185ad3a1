//! Settings of an operating system and its policy by name and text: `promotion_threshold_percent=50`.

use octavo_types::spelling::{hint, quoted};
use serde::{Deserialize, Serialize};

use super::texts::{AllowedValues, Texts};
use super::thp::TEN_SECONDS_INSTRUCTIONS;
use super::{BaseConfig, PolicyConfig};
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
    #[error("{key} = {value}: {allowed}")]
    Value {
        /// The key.
        key: String,
        /// As given by the user.
        value: String,
        /// The allowed values.
        allowed: AllowedValues,
    },
    /// An inconsistent combination of settings.
    #[error("{0}")]
    Policy(String),
}

/// The configuration of an operating system: its policy, and the settings common to all policies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OsConfig {
    /// The page-size policy.
    #[serde(skip, default = "no_policy")]
    pub policy: PolicyConfig,
    /// The amount copied by a store to a shared large page.
    pub copy_on_write: CopyOnWrite,
    /// The identical pages that are merged.
    pub same_pages: SamePages,
    /// Interval of merging, in instructions of all programs; 0: never.
    pub same_pages_every_instructions: u64,
}

/// Placeholder for the policy when only the common settings are read.
fn no_policy() -> PolicyConfig {
    BaseConfig {}.into()
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
    fn texts(&self) -> Texts {
        let mut texts = self.policy.texts();
        texts.0.extend(Texts::of(self).0);
        texts
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(OsConfig { policy: self.policy.read(texts)?, ..texts.read()? })
    }

    /// All settings, in the format of [`OsConfig::set`].
    pub fn to_settings(&self) -> Vec<(String, String)> {
        self.texts().0.into_iter().collect()
    }

    /// The value of a setting, in the format of [`OsConfig::set`].
    pub fn setting(&self, key: &str) -> Option<String> {
        self.texts().0.swap_remove(key)
    }

    /// Changes a setting. On an error nothing changes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let mut texts = self.texts();
        let Some(text) = texts.0.get_mut(key) else {
            let names: Vec<&str> = texts.0.keys().map(String::as_str).collect();
            let allowed = format!("give one of {}", names.join(", "));
            let meant = hint(key, &names);
            return Err(SettingError::Unknown { key: quoted(key), allowed, meant });
        };
        value.clone_into(text);
        let changed = self.read(&texts).map_err(|allowed| {
            let value = quoted(value);
            match self.advice(texts.clone(), key) {
                Some(advice) => SettingError::Policy(format!("{key} = {value}: {advice}")),
                None => SettingError::Value { key: key.to_owned(), value, allowed },
            }
        })?;
        changed.policy.check().map_err(SettingError::Policy)?;
        *self = changed;
        Ok(())
    }
}

/// The smallest and largest values of all number types and of page sizes: a check with narrower bounds than its type
/// rejects one of them.
const EXTREMES: [&str; 7] =
    ["0", "255", "65535", "4294967295", "18446744073709551615", "4KiB", "1GiB"];

impl OsConfig {
    /// The policy's advice on a value outside the type of the setting. `None` if the policy accepts all of [`EXTREMES`]
    /// that the type has, or the type has none of them.
    fn advice(&self, mut texts: Texts, key: &str) -> Option<String> {
        EXTREMES.iter().find_map(|value| {
            *texts.0.get_mut(key)? = (*value).to_owned();
            let sentence = self.read(&texts).ok()?.policy.check().err()?;
            Some(sentence.strip_prefix(&format!("{key} = {value}: "))?.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{POLICIES, Policies};

    #[test]
    fn numbers_beyond_their_type_get_the_bounds_of_the_check() {
        for value in ["500", "101", "0", "-1", "half"] {
            let mut policy = Policies::default().parse("reserved_thp").unwrap();
            let error = policy.set("promotion_threshold_percent", value).unwrap_err().to_string();
            let bounds = "give a share in percent, 1 to 100";
            assert_eq!(error, format!("promotion_threshold_percent = {value}: {bounds}"));
        }
        let mut policy = Policies::default().parse("thp").unwrap();
        let error = policy.set("max_ptes_none", "100000").unwrap_err().to_string();
        assert_eq!(error, "max_ptes_none = 100000: give 0 to 511");
    }

    #[test]
    fn page_sizes_have_one_list_of_allowed_values() {
        for (policy, key, values, allowed) in [
            ("fixed", "size", ["2KiB", "12KiB", "1GiB"], "a power of two from 4KiB to 2MiB"),
            ("mthp", "smallest", ["2KiB", "many", "4MiB"], "a power of two from 16KiB to 2MiB"),
            ("trident", "largest", ["3MiB", "2GiB", "1MiB"], "a power of two from 2MiB to 1GiB"),
            ("hugetlb", "all_anonymous", ["3MiB", "many", "4KiB"], "2MiB or 1GiB, or none"),
        ] {
            for value in values {
                let mut config = Policies::default().parse(policy).unwrap();
                let error = config.set(key, value).unwrap_err().to_string();
                assert_eq!(error, format!("{key} = {value}: give {allowed}"));
            }
        }
    }

    #[test]
    fn setting_a_value_to_itself_is_accepted() {
        for policy in POLICIES {
            let mut config = OsConfig::new((policy.usual)());
            for (key, value) in config.to_settings() {
                assert_eq!(config.set(&key, &value), Ok(()), "{} {key}", policy.name);
            }
            assert_eq!(config, OsConfig::new((policy.usual)()));
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_one_sentence() {
        let mut thp = Policies::default().parse("thp:max_ptes_none=1_0").unwrap();
        assert_eq!(thp.setting("max_ptes_none").unwrap(), "10");
        assert_eq!(
            thp.set("enabled", "1").unwrap_err().to_string(),
            "enabled = 1: give always or madvise"
        );
        assert_eq!(
            thp.set("defrag", "alwys").unwrap_err().to_string(),
            "defrag = alwys: give always, defer, defer+madvise, madvise or never; did you mean `always`?"
        );
        let mut mthp = Policies::default().parse("mthp").unwrap();
        assert_eq!(
            mthp.set("enabled", "alwys").unwrap_err().to_string(),
            "enabled = alwys: give always or madvise, or none; did you mean `always`?"
        );
        for name in ["thp", "mthp"] {
            let mut policy = Policies::default().parse(name).unwrap();
            let mut sentence = |key, value| policy.set(key, value).unwrap_err().to_string();
            assert_eq!(sentence("max_ptes_none", "512"), "max_ptes_none = 512: give 0 to 511");
            assert_eq!(
                sentence("pages_to_scan", "0"),
                "pages_to_scan = 0: give at least 1; scan_every_instructions=0 disables khugepaged"
            );
        }
        let mut pool = Policies::default().parse("hugetlb:nr_gigantic_pages=4096").unwrap();
        let mut sentence = |key, value| pool.set(key, value).unwrap_err().to_string();
        assert_eq!(
            sentence("nr_hugepages", "2097153"),
            "nr_hugepages = 2097153: give 0 to 2097152"
        );
        assert_eq!(
            sentence("nr_gigantic_pages", "4097"),
            "nr_gigantic_pages = 4097: give 0 to 4096"
        );
        let none = OsConfig::new(no_policy()).set("size", "4KiB").unwrap_err().to_string();
        assert_eq!(
            none,
            "no setting `size`: give one of copy_on_write, same_pages, same_pages_every_instructions"
        );
    }
}
