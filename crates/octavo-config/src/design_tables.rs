//! Tables of a machine description that belong to translation designs.
//!
//! A design declares its table as a type with serde ([`DesignSettings`]) and registers it with the crate of the
//! engine, which collects all of them in [`DesignTables`]. This crate reads, checks and writes such tables with
//! the rest of a machine and knows none of them.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use octavo_hw::Replacement;
use octavo_os::policy::Policies;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml_edit::TableLike;

use crate::check::IsLater;
use crate::error::{Fault, InvalidValue};
use crate::node::Node;
use crate::types::MachineConfig;

/// The settings of a design, which are one table of the machine description. Keys that are missing have the
/// values of `Default`.
pub trait DesignSettings:
    Any + Serialize + DeserializeOwned + Default + Clone + PartialEq + Debug + Send + Sync
{
    /// The name of the table, a key of the machine description.
    const TABLE: &'static str;

    /// Whether the design can be built on this machine with these settings.
    ///
    /// # Errors
    ///
    /// The first value that is wrong.
    fn check(&self, machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue>;

    /// The replacement policy of the design's own array that references look up first, if it has one.
    fn first_level_replacement(&self) -> Option<Replacement> {
        None
    }
}

/// The settings of a design, without their type.
trait Table: Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn as_any(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Table) -> bool;
    fn is_default(&self) -> bool;
    fn as_serialize(&self) -> &dyn erased_serde::Serialize;
    fn read(&self, node: Node<'_>) -> Result<Arc<dyn Table>, serde_path_to_error::Error<Fault>>;
    fn check(&self, machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue>;
    fn first_level_replacement(&self) -> Option<Replacement>;
}

impl<T: DesignSettings> Table for T {
    fn name(&self) -> &'static str {
        T::TABLE
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Table) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn is_default(&self) -> bool {
        *self == T::default()
    }

    fn as_serialize(&self) -> &dyn erased_serde::Serialize {
        self
    }

    fn read(&self, node: Node<'_>) -> Result<Arc<dyn Table>, serde_path_to_error::Error<Fault>> {
        Ok(Arc::new(serde_path_to_error::deserialize::<_, T>(node)?))
    }

    fn check(&self, machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
        DesignSettings::check(self, machine, is_later)
    }

    fn first_level_replacement(&self) -> Option<Replacement> {
        DesignSettings::first_level_replacement(self)
    }
}

/// A type of settings, for the registration of a design.
#[derive(Clone, Copy)]
pub struct DesignTable {
    /// The name of the table.
    pub name: &'static str,
    default: fn() -> Arc<dyn Table>,
}

impl DesignTable {
    /// The table with the settings `T`.
    pub const fn of<T: DesignSettings>() -> Self {
        DesignTable { name: T::TABLE, default: || Arc::new(T::default()) }
    }

    /// Each setting with its default, as the keys of a machine: `softvm.l1.bytes` and 8 KiB.
    pub fn default_settings(&self) -> Vec<(String, String)> {
        let default = (self.default)();
        let table = toml_edit::ser::to_document(default.as_serialize())
            .expect("all numbers of a machine are small");
        let mut settings = Vec::new();
        add_settings(self.name, table.as_table(), &mut settings);
        settings
    }
}

/// Adds the values in a table, and in the tables in it, with their keys below `above`.
fn add_settings(above: &str, table: &dyn TableLike, settings: &mut Vec<(String, String)>) {
    for (name, item) in table.iter() {
        let key = format!("{above}.{name}");
        match (item.as_table_like(), item.as_str()) {
            (Some(inner), _) => add_settings(&key, inner, settings),
            (None, Some(text)) => settings.push((key, text.to_owned())),
            (None, None) => settings.push((key, item.to_string().trim().to_owned())),
        }
    }
}

/// The additions of designs to the descriptions of machines: their tables, in the order of writing, and their
/// policies of page sizes, which hosts may have.
#[derive(Clone, Debug, Default)]
pub struct DesignTables {
    tables: Vec<Arc<dyn Table>>,
    policies: Policies,
}

impl FromIterator<DesignTable> for DesignTables {
    /// All with their default settings.
    fn from_iter<I: IntoIterator<Item = DesignTable>>(tables: I) -> Self {
        let tables = tables.into_iter().map(|table| (table.default)()).collect();
        DesignTables { tables, policies: Policies::default() }
    }
}

impl PartialEq for DesignTables {
    fn eq(&self, other: &Self) -> bool {
        let (these, those) = (&self.tables, &other.tables);
        these.len() == those.len()
            && these.iter().zip(those).all(|(this, that)| this.equals(&**that))
    }
}

impl DesignTables {
    /// These tables with the policies that designs may use.
    #[must_use]
    pub fn with_policies(self, policies: Policies) -> Self {
        DesignTables { policies, ..self }
    }

    /// The policies that hosts may have.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The settings of a design.
    ///
    /// # Panics
    ///
    /// If no design has registered them.
    pub fn get<T: DesignSettings>(&self) -> &T {
        let all = self.tables.iter().find_map(|table| table.as_any().downcast_ref());
        all.unwrap_or_else(|| panic!("the table {} is not registered", T::TABLE))
    }

    /// Replaces the settings of a design.
    pub fn set<T: DesignSettings>(&mut self, settings: T) {
        match self.tables.iter_mut().find(|table| table.name() == T::TABLE) {
            Some(table) => *table = Arc::new(settings),
            None => self.tables.push(Arc::new(settings)),
        }
    }

    /// The replacement policies of the designs' own arrays that references look up first.
    pub fn first_level_replacements(&self) -> impl Iterator<Item = Replacement> {
        self.tables.iter().filter_map(|table| table.first_level_replacement())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.tables.iter().map(|table| table.name())
    }

    /// The tables that differ from their defaults: the others are not written.
    pub(crate) fn written(
        &self,
    ) -> impl Iterator<Item = (&'static str, &dyn erased_serde::Serialize)> {
        let written = self.tables.iter().filter(|table| !table.is_default());
        written.map(|table| (table.name(), table.as_serialize()))
    }

    pub(crate) fn check(
        &self,
        machine: &MachineConfig,
        is_later: &IsLater<'_>,
    ) -> Result<(), InvalidValue> {
        self.tables.iter().try_for_each(|table| table.check(machine, is_later))
    }

    /// These tables with the settings of a machine description; tables that it does not have get
    /// their defaults.
    ///
    /// # Errors
    ///
    /// The key of a wrong value, and what is wrong with it.
    pub(crate) fn read(&self, machine: &dyn toml_edit::TableLike) -> Result<Self, (String, Fault)> {
        let empty = toml_edit::Table::new();
        let read = |table: &Arc<dyn Table>| {
            let name = table.name();
            let node = machine.get(name).map_or(Node::Table(&empty), Node::of);
            table.read(node).map_err(|error| {
                let key = match &*error.path().to_string() {
                    "." => name.to_owned(),
                    within => format!("{name}.{within}"),
                };
                (key, error.into_inner())
            })
        };
        let tables = self.tables.iter().map(read).collect::<Result<_, _>>()?;
        Ok(DesignTables { tables, policies: self.policies.clone() })
    }
}
