//! Parses policies as users write them: `thp`, or with settings `thp:max_ptes_none=0`.

use octavo_types::spelling::{hint, quoted};

use super::{OsConfig, Policies, SettingError};

/// An invalid policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An unknown name.
    #[error("no policy `{name}`: give one of {allowed}{meant}")]
    Unknown {
        /// As given by the user.
        name: String,
        /// The allowed names.
        allowed: String,
        /// A suggestion, or nothing.
        meant: String,
    },
    /// A setting without a value.
    #[error("{}", no_value(setting))]
    NoValue {
        /// The text in place of a setting.
        setting: String,
    },
    /// An unknown or invalid setting.
    #[error("policy {policy}: {error}")]
    Setting {
        /// The policy.
        policy: String,
        /// The error.
        error: SettingError,
    },
}

/// The error for a text in place of a setting, or for none.
pub fn no_value(setting: &str) -> String {
    match setting {
        "" => "a colon has no setting behind it: give KEY=VALUE, or leave the colon out".to_owned(),
        _ => format!("`{setting}`: give KEY=VALUE"),
    }
}

/// A name, and the settings behind its colons.
pub fn split_settings(text: &str) -> (&str, impl Iterator<Item = &str>) {
    let (name, settings) = text.split_once(':').map_or((text, None), |(name, of)| (name, Some(of)));
    (name, settings.into_iter().flat_map(|settings| settings.split(':')))
}

impl Policies {
    /// Parses the name of a policy, with settings after colons.
    ///
    /// # Errors
    ///
    /// If the policy is invalid: one sentence that lists the allowed values.
    pub fn parse(&self, text: &str) -> Result<OsConfig, PolicyError> {
        let (name, settings) = split_settings(text);
        self.named(name, settings)
    }

    /// Builds a configuration from a name and settings of the form `KEY=VALUE`.
    ///
    /// # Errors
    ///
    /// As [`Policies::parse`].
    pub fn named<'a>(
        &self,
        name: &str,
        settings: impl Iterator<Item = &'a str>,
    ) -> Result<OsConfig, PolicyError> {
        let Some(entry) = self.by_name(name) else {
            let names: Vec<&str> = self.iter().map(|known| known.name).collect();
            return Err(PolicyError::Unknown {
                name: quoted(name),
                allowed: names.join(", "),
                meant: hint(name, &names),
            });
        };
        let mut config = OsConfig::new((entry.usual)());
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(PolicyError::NoValue { setting: quoted(setting) });
            };
            config
                .set(key, value)
                .map_err(|error| PolicyError::Setting { policy: name.to_owned(), error })?;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::BaseConfig;

    #[test]
    fn policies_parse_with_their_settings() {
        let size = |text| Policies::default().parse(text).unwrap().to_settings()[0].1.clone();
        assert_eq!(size("fixed:size=32KiB"), "32KiB");
        assert_eq!(Policies::default().parse("base"), Ok(OsConfig::new(BaseConfig {}.into())));
        let sentence = |text| Policies::default().parse(text).unwrap_err().to_string();
        assert!(sentence("eagr").ends_with("; did you mean `eager`?"), "{}", sentence("eagr"));
        assert_eq!(sentence("thp:enabled"), "`enabled`: give KEY=VALUE");
        for text in ["thp:", "thp::enabled=always", "thp:enabled=always:"] {
            assert_eq!(
                sentence(text),
                "a colon has no setting behind it: give KEY=VALUE, or leave the colon out"
            );
        }
        assert_eq!(sentence("thp:enabled=no"), "policy thp: enabled = no: give always or madvise");
    }
}
