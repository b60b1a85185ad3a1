//! Constructors of machines with virtual caches.

use octavo_config::{MachineConfig, TableKind};
use octavo_hw::VirtualCaches;
use octavo_types::{Instructions, PageSize};

use super::event_injection::EventInjector;
use super::handler::Handler;
use super::pages::Pages;
use super::space::Space;
use super::tables::Tables;
use super::tlb::SoftTlb;
use super::translator::Translator;
use super::{Counts, Free, InCache, Softvm, Software, Tlb};
use crate::config::ConfigError;

impl Softvm<Software> {
    /// The paper's machine: a software handler.
    pub fn new(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Software, machine, instructions)
    }
}

impl Softvm<Free> {
    /// Virtual caches with free translation, an ideal bound.
    pub fn free(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with(Free, machine, instructions)
    }
}

impl Softvm<InCache> {
    /// SPUR's in-cache translation.
    pub fn in_cache(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        Self::with(InCache, machine, instructions)
    }
}

impl Softvm<Tlb> {
    /// Virtual caches with a software-refilled TLB.
    pub fn with_tlb(
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let tlb = Tlb(SoftTlb::new(machine.softvm.tlb, instructions));
        Self::with(tlb, machine, instructions)
    }
}

impl<T: Translator> Softvm<T> {
    /// A machine with empty caches.
    fn with(
        translator: T,
        machine: &MachineConfig,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let virtual_caches = machine.virtual_caches();
        let caches = VirtualCaches::new(&virtual_caches, instructions)?;
        let config = machine.softvm;
        let line_bytes = machine.cache.line_bytes;
        // A TLB translates whole pages.
        let of_tlb = PageSize::BASE.bytes();
        let entry_bytes = if T::LOOKS_UP { of_tlb } else { config.kernel.protection_bytes };
        let table = if T::READS_TABLES { config.kernel.table } else { TableKind::TwoTier };
        let event_injection = EventInjector::new(config.rates);
        Ok(Softvm {
            translator,
            space: Space::new(line_bytes, config.kernel.sharing),
            handler: Handler::new(
                config.kernel.handler_instructions,
                caches.line_log2(0),
                entry_bytes.trailing_zeros(),
            ),
            tables: Tables::new(table, machine.memory.bytes / PageSize::BASE.bytes()),
            pages: Pages::new(entry_bytes),
            pending_invalidations: Vec::new(),
            injects_events: event_injection.is_enabled(),
            event_injection,
            has_wider_lines: virtual_caches.l1[0].line_bytes > line_bytes,
            config,
            counts: Counts::default(),
            caches,
        })
    }
}
