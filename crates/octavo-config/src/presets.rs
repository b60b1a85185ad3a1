//! The machines that ship with Octavo.

macro_rules! presets {
    ($($name:literal)*) => {
        /// Names and texts, in the order of the list below.
        pub(crate) const PRESETS: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../python/octavo/presets/machines/", $name, ".toml")),
        )),*];
    };
}

presets! {
    "skylake" "ice-lake" "golden-cove" "zen2" "zen3" "zen4" "zen5" "neoverse-n1" "neoverse-v2"
    "apple-m1" "sifive-p550" "r3000" "puma" "perforated-pages"
}

/// The names of the presets: Intel's, AMD's, then others'.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}
