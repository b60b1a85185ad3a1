//! The settings of any policy.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use octavo_types::PageSize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Policy;
use super::texts::{AllowedValues, Texts};
use crate::page_table::Format;

/// A property of page-size policies that translation hardware may require, as a noun phrase. Each is
/// declared in the file of the policy that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability(pub &'static str);

/// The settings of a policy: a serde struct, whose fields are the settings by name.
pub trait PolicySettings: Debug + Send + Sync + 'static {
    /// Builds the policy in its initial state.
    fn build(&self) -> Box<dyn Policy>;

    /// The page sizes besides 4 KiB that page tables and hardware must support, smallest first. Policies may
    /// use further sizes if supported: multi-size pages and eager paging require none.
    fn required_sizes(&self) -> Vec<PageSize> {
        Vec::new()
    }

    /// The page-table format that the settings ask for.
    fn page_table_format(&self) -> Format {
        Format::default()
    }

    /// The properties that hardware may require.
    fn capabilities(&self) -> &'static [Capability] {
        &[]
    }

    /// Validates the settings. Returns an error sentence that names the setting and the allowed values.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The settings with values from texts, also in nested structs.
    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues>
    where
        Self: Sized + DeserializeOwned,
    {
        texts.read()
    }
}

/// Settings of any type.
trait AnySettings: PolicySettings + Any {
    fn texts(&self) -> Texts;
    fn read_any(&self, texts: &Texts) -> Result<PolicyConfig, AllowedValues>;
    fn equals(&self, other: &dyn Any) -> bool;
}

impl<S: PolicySettings + PartialEq + Serialize + DeserializeOwned> AnySettings for S {
    fn texts(&self) -> Texts {
        Texts::of(self)
    }

    fn read_any(&self, texts: &Texts) -> Result<PolicyConfig, AllowedValues> {
        self.read(texts).map(PolicyConfig::from)
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }
}

/// A policy with its settings.
#[derive(Clone, Debug)]
pub struct PolicyConfig(Arc<dyn AnySettings>);

impl<S: PolicySettings + PartialEq + Serialize + DeserializeOwned> From<S> for PolicyConfig {
    fn from(settings: S) -> Self {
        PolicyConfig(Arc::new(settings))
    }
}

impl PartialEq for PolicyConfig {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

impl Eq for PolicyConfig {}

impl Deref for PolicyConfig {
    type Target = dyn PolicySettings;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PolicyConfig {
    pub(super) fn texts(&self) -> Texts {
        self.0.texts()
    }

    pub(super) fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        self.0.read_any(texts)
    }
}
