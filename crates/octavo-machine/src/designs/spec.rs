//! Parses designs as users write them: a named design or `HARDWARE+POLICY`, followed by settings of the
//! policy, as in `tps:promotion_threshold_percent=50:span=round-up`, or of the parts of the machine that only
//! this design has, as in `softvm:softvm.l1.bytes=16KiB`.

use octavo_os::policy::{OsConfig, PolicyError, SettingError, no_value, split_settings};
use octavo_types::spelling::{hint, quoted};

use super::outside::{self, MakeLevel};
use super::registry::{self, MachineResult, Setup, TranslationHardware, designs};
use crate::config::ConfigError;
use octavo_config::MachineConfig;

/// A validated design.
#[derive(Clone)]
pub struct DesignSpec {
    name: String,
    hardware: &'static TranslationHardware,
    os: OsConfig,
    /// Machine settings of this design.
    settings: Vec<String>,
    /// Its second-level TLB, if that is outside of the simulator.
    outside: Option<MakeLevel>,
}

/// An invalid design.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An unknown name.
    #[error("no {kind} `{name}`: give one of {allowed}{meant}")]
    Unknown {
        /// `design`, `hardware` or `policy`.
        kind: &'static str,
        /// As given by the user.
        name: String,
        /// The allowed names.
        allowed: String,
        /// A suggestion, or nothing.
        meant: String,
    },
    /// An unknown or invalid policy setting.
    #[error("{design}: policy {policy}: {error}{own}")]
    Setting {
        /// As given by the user.
        design: String,
        /// The policy.
        policy: String,
        /// The error.
        error: Box<SettingError>,
        /// The beginning of the settings of the hardware, for an unknown one.
        own: String,
    },
    /// A setting of the machine part that all designs share.
    #[error("{design}: `{setting}`: all designs share one machine{own}: give it by --set")]
    SharedMachineSetting {
        /// As given by the user.
        design: String,
        /// The setting.
        setting: String,
        /// The beginning of settings that the design may have for itself.
        own: String,
    },
    /// A setting without a value.
    #[error("{design}: {}", no_value(setting))]
    NoValue {
        /// As given by the user.
        design: String,
        /// The text in place of a setting.
        setting: String,
    },
    /// A policy that does not meet the requirement of the hardware.
    #[error(
        "{design}: {hardware} needs {requirement}, which the policy `{policy}` does not make: give \
         {hardware} with {remedy}"
    )]
    UnmetRequirement {
        /// As given by the user.
        design: String,
        /// The hardware.
        hardware: &'static str,
        /// The policy.
        policy: String,
        /// The requirement.
        requirement: &'static str,
        /// The policies that meet it.
        remedy: String,
    },
    /// A policy with pages of a size that the hardware's page tables do not support.
    #[error(
        "{design}: the policy `{policy}` makes pages of {size}, which the page tables of \
         {hardware} do not support: give {remedy}"
    )]
    UnsupportedSize {
        /// As given by the user.
        design: String,
        /// The hardware.
        hardware: &'static str,
        /// The policy.
        policy: String,
        /// The first such size.
        size: String,
        /// The policy with hardware that supports it.
        remedy: String,
    },
    /// A policy with pages of a size that no design outside of the simulator translates.
    #[error("{design}: policy = {policy}: {why}")]
    OutsidePolicy {
        /// The name of the design.
        design: String,
        /// The policy.
        policy: String,
        /// The error and the remedy.
        why: String,
    },
}

impl DesignSpec {
    /// Parses a design.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (name, settings) = split_settings(text);
        let (hardware, policy) = Self::parts(name)?;
        let (policy, usual) = split_settings(policy);
        Self::from_parts(text, hardware, policy, usual.chain(settings))
    }

    /// The names of hardware and policy of a design without settings.
    fn parts(text: &str) -> Result<(&str, &str), SpecError> {
        let all = designs();
        if let Some(known) = all.iter().find(|known| known.name == text) {
            return Ok((known.hardware, known.policy));
        }
        match text.split_once('+') {
            Some(parts) => Ok(parts),
            None => {
                let names: Vec<&str> = all.iter().map(|known| known.name).collect();
                Err(unknown("design", text, &names))
            }
        }
    }

    fn from_parts<'a>(
        name: &str,
        hardware: &str,
        policy: &str,
        settings: impl Iterator<Item = &'a str>,
    ) -> Result<Self, SpecError> {
        let Some(hardware) = TranslationHardware::by_name(hardware) else {
            let names: Vec<&str> = registry::hardware().map(|known| known.name).collect();
            return Err(unknown("hardware", hardware, &names));
        };
        let own = registry::own_table(hardware);
        let (machine_settings, policy_settings) = split(name, own, settings)?;
        let os = registry::policies()
            .named(policy, policy_settings.into_iter())
            .map_err(|error| SpecError::of_policy(name, own, error))?;
        check_fit(name, hardware, policy, &os)?;
        Ok(DesignSpec {
            name: name.to_owned(),
            hardware,
            os,
            settings: machine_settings,
            outside: None,
        })
    }

    /// A design whose second-level TLB is outside of the simulator, with a policy and its settings.
    pub fn outside(name: &str, policy: &str, make: MakeLevel) -> Result<Self, SpecError> {
        let os = registry::policies().parse(policy).map_err(|error| match error {
            PolicyError::Unknown { .. } => {
                let (word, _) = split_settings(policy);
                unknown("policy", word, &outside::allowed_policies())
            }
            other => SpecError::of_policy(name, None, other),
        })?;
        outside::check_sizes(name, &os.policy).map_err(|why| SpecError::OutsidePolicy {
            design: quoted(name),
            policy: policy.to_owned(),
            why,
        })?;
        let (hardware, settings) = (&outside::HARDWARE, Vec::new());
        Ok(DesignSpec { name: name.to_owned(), hardware, os, settings, outside: Some(make) })
    }

    /// Whether its second-level TLB is outside of the simulator.
    pub fn is_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// Builds the design's machine from the [machine](Self::machine) with its settings.
    pub fn make(&self, machine: &MachineConfig, setup: &Setup) -> MachineResult {
        match &self.outside {
            Some(make) => outside::machine(&self.name, machine, setup, &self.os, make),
            None => self.hardware.make(machine, setup, &self.os),
        }
    }

    /// The name as given by the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The translation hardware.
    pub fn hardware(&self) -> &'static TranslationHardware {
        self.hardware
    }

    /// The machine with this design's settings applied.
    pub fn machine(&self, machine: &MachineConfig) -> Result<MachineConfig, ConfigError> {
        if self.settings.is_empty() {
            return Ok(machine.clone());
        }
        machine.with_settings(&self.name, &self.settings).map_err(ConfigError::Setting)
    }

    /// The operating system.
    pub fn os(&self) -> &OsConfig {
        &self.os
    }
}

/// The settings of a design for its own table of the machine, and those for its policy.
fn split<'a>(
    name: &str,
    own: Option<&str>,
    settings: impl Iterator<Item = &'a str>,
) -> Result<(Vec<String>, Vec<&'a str>), SpecError> {
    let (mut machine_settings, mut policy_settings) = (Vec::new(), Vec::new());
    for setting in settings {
        let key = setting.split_once('=').map_or("", |(key, _)| key);
        match key.split_once('.') {
            None => policy_settings.push(setting),
            Some((table, _)) if own == Some(table) => machine_settings.push(setting.to_owned()),
            Some(_) => {
                let except = |own| format!(", except for settings that begin with `{own}.`");
                return Err(SpecError::SharedMachineSetting {
                    design: quoted(name),
                    setting: quoted(setting),
                    own: own.map_or_else(String::new, except),
                });
            }
        }
    }
    Ok((machine_settings, policy_settings))
}

/// Rejects a policy whose pages the hardware cannot translate, or that lacks what the hardware requires.
fn check_fit(
    design: &str,
    hardware: &TranslationHardware,
    policy: &str,
    os: &OsConfig,
) -> Result<(), SpecError> {
    let unmet =
        |other: &TranslationHardware| other.needs.filter(|needs| !needs.is_met_by(&os.policy));
    if let Some(requirement) = unmet(hardware) {
        return Err(SpecError::UnmetRequirement {
            design: quoted(design),
            hardware: hardware.name,
            policy: policy.to_owned(),
            requirement: requirement.capability.0,
            remedy: requirement.remedy(),
        });
    }
    match hardware.sizes.unsupported(&os.policy) {
        None => Ok(()),
        Some(size) => {
            let others = registry::Sizes::All.supported_by().filter(|other| unmet(other).is_none());
            let designs: Vec<_> = others.map(|other| format!("{}+{policy}", other.name)).collect();
            Err(SpecError::UnsupportedSize {
                design: quoted(design),
                hardware: hardware.name,
                policy: policy.to_owned(),
                size: size.to_string(),
                remedy: designs.join(" or "),
            })
        }
    }
}

impl SpecError {
    /// The error of a design's policy; `own` is the table of its hardware.
    fn of_policy(design: &str, own: Option<&str>, error: PolicyError) -> Self {
        match error {
            PolicyError::Unknown { name, allowed, meant } => {
                SpecError::Unknown { kind: "policy", name, allowed, meant }
            }
            PolicyError::NoValue { setting } => {
                SpecError::NoValue { design: quoted(design), setting }
            }
            PolicyError::Setting { policy, error } => {
                let own = match error {
                    SettingError::Unknown { .. } => own.map_or_else(String::new, |own| {
                        format!("; settings of the hardware begin with `{own}.`")
                    }),
                    _ => String::new(),
                };
                SpecError::Setting { design: quoted(design), policy, error: Box::new(error), own }
            }
        }
    }
}

impl std::fmt::Debug for DesignSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn unknown(kind: &'static str, name: &str, allowed: &[&str]) -> SpecError {
    SpecError::Unknown {
        kind,
        name: quoted(name),
        allowed: allowed.join(", "),
        meant: hint(name, allowed),
    }
}

#[cfg(test)]
mod tests {
    use octavo_os::CopyOnWrite;

    use super::*;
    use crate::designs::softvm::SoftvmConfig;

    #[test]
    fn named_designs_parse_to_matching_parts() {
        for known in designs() {
            assert_eq!(DesignSpec::parse(known.name).unwrap().name(), known.name);
        }
        let larger = DesignSpec::parse("base16k:size=32KiB").unwrap();
        assert_eq!(larger.os().to_settings()[0], ("size".to_owned(), "32KiB".to_owned()));
        let whole = DesignSpec::parse("thp:copy_on_write=whole").unwrap();
        assert_eq!(whole.os().copy_on_write, CopyOnWrite::Whole);
        let parts = DesignSpec::parse("conventional+thp").unwrap();
        assert_eq!(parts.hardware().name, "conventional");
        let half = DesignSpec::parse("tps:promotion_threshold_percent=50:span=round-up").unwrap();
        let settings = half.os().to_settings();
        assert_eq!(settings[0], ("promotion_threshold_percent".to_owned(), "50".to_owned()));
        assert_eq!(settings[1], ("span".to_owned(), "round-up".to_owned()));
        let large = DesignSpec::parse("softvm:softvm.l1.bytes=16KiB").unwrap();
        let skylake = crate::resolve("skylake", &[""; 0]).unwrap().into_config();
        assert_eq!(
            large.machine(&skylake).unwrap().designs.get::<SoftvmConfig>().l1.bytes,
            16 << 10
        );
        let none = DesignSpec::parse("softvm:softvm.l1.bytes=17").unwrap();
        assert_eq!(
            none.machine(&skylake).unwrap_err().to_string(),
            "softvm:softvm.l1.bytes=17: softvm.l1.bytes = \"17\": give a multiple of 64 \
             (softvm.l1.line_bytes)"
        );
    }

    #[test]
    fn invalid_designs_are_rejected_with_one_sentence() {
        let sentence = |text| DesignSpec::parse(text).unwrap_err().to_string();
        assert!(sentence("tpss").ends_with("; did you mean `tps`?"), "{}", sentence("tpss"));
        assert!(sentence("tps+bse").starts_with("no policy `bse`: give one of base, thp, "));
        assert_eq!(
            sentence("tps:span=round"),
            "tps:span=round: policy tps: span = round: give exact or round-up; did you mean `round-up`?"
        );
        assert_eq!(
            sentence("softvm:cache.line_bytes=32"),
            "softvm:cache.line_bytes=32: `cache.line_bytes=32`: all designs share one machine, except \
             for settings that begin with `softvm.`: give it by --set"
        );
        assert_eq!(
            sentence("thp:gtsm.bitmap_entries=2"),
            "thp:gtsm.bitmap_entries=2: `gtsm.bitmap_entries=2`: all designs share one machine: give it by --set"
        );
        let unknown = sentence("gtsm:bitmap_entries=2");
        assert!(
            unknown
                .starts_with("gtsm:bitmap_entries=2: policy gtsm: no setting `bitmap_entries`: ")
        );
        assert!(unknown.ends_with("; settings of the hardware begin with `gtsm.`"), "{unknown}");
        assert!(!sentence("thp:bitmap_entries=2").contains("of the hardware"));
        assert_eq!(sentence("tps:span"), "tps:span: `span`: give KEY=VALUE");
        for text in ["thp:", "thp::copy_on_write=whole", "conventional+thp:"] {
            assert_eq!(
                sentence(text),
                format!(
                    "{text}: a colon has no setting behind it: give KEY=VALUE, or leave the colon out"
                )
            );
        }
        assert_eq!(
            sentence("tps+base"),
            "tps+base: tps needs pages of all sizes, which the policy `base` does not make: give tps with \
             the policy tps"
        );
        assert_eq!(
            sentence("conventional+tps"),
            "conventional+tps: the policy `tps` makes pages of 8KiB, which the page tables of \
             conventional do not support: give granule+tps or tps+tps"
        );
        assert_eq!(
            sentence("trident:largest=4MiB"),
            "trident:largest=4MiB: the policy `trident` makes pages of 4MiB, which the page tables of \
             conventional do not support: give granule+trident"
        );
        assert_eq!(
            sentence("conventional+fixed:size=64KiB"),
            "conventional+fixed:size=64KiB: the policy `fixed` makes pages of 64KiB, which the page tables of \
             conventional do not support: give granule+fixed"
        );
    }
}
