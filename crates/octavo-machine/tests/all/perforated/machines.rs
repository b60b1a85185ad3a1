//! Small machines with operating systems that make one kind of page, native and in guests.

use octavo_config::MachineConfig;
use octavo_machine::designs::perforated::hole_filter;
use octavo_machine::designs::{Perforated, Variant};
use octavo_machine::{AnyMachine, Design, Env, Machine};
use octavo_os::frames::{Order, OutOfMemory, Owner};
use octavo_os::page_table::{Format, Holes};
use octavo_os::policy::{Fault, Policy};
use octavo_os::{Memory, around};
use octavo_types::{Instructions, PageNumber, PageSize};

use crate::common::bounds;

/// The outcome of the first touch of a 2 MiB range.
#[derive(Clone, Copy, PartialEq)]
pub enum FirstTouch {
    /// A perforated page without holes.
    NoHoles,
    /// A 2 MiB page. A frame is reserved for each, in place of the shadow node of a perforated page.
    Huge,
    /// A perforated page of holes only.
    AllHoles,
    /// No large page.
    Base,
}

impl Policy for FirstTouch {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, ref vma, .. } = *fault;
        let pages = around(page, PageSize::HUGE);
        if *self != FirstTouch::Base && memory.is_untouched(process, &pages) {
            let block = memory.frames.allocate(Order::HUGE, Owner::Data)?;
            match self {
                FirstTouch::NoHoles => {
                    assert!(memory.map_with_holes(
                        process,
                        page,
                        block,
                        &Holes::default(),
                        vma.rights
                    )?);
                    return Ok(());
                }
                FirstTouch::Huge => {
                    let first = PageNumber::new(pages.start);
                    memory.map(process, first, PageSize::HUGE, block, vma.rights)?;
                    memory.frames.allocate(Order::BASE, Owner::Reserved)?;
                    memory.zeroed(block, 512);
                    return Ok(());
                }
                _ => {
                    memory.map_with_holes(
                        process,
                        page,
                        block,
                        &Holes([u64::MAX; 8]),
                        vma.rights,
                    )?;
                    memory.frames.free(block, Order::HUGE);
                }
            }
        }
        memory.place_new(process, page, PageSize::BASE, vma.rights)
    }
}

/// The page-table format with shadow nodes.
fn format() -> Format {
    Format { holes: Some(hole_filter), ..Format::default() }
}

/// A machine with this page-table format and one design unit.
pub fn machine<D: Design + 'static>(
    config: &MachineConfig,
    policy: Box<dyn Policy>,
    mmu: D,
) -> Box<dyn AnyMachine> {
    bounds::machine(config, format(), policy, mmu)
}

/// A machine in a guest: guest and host make the same kind of page.
pub fn guest<D: Design + 'static>(
    config: &MachineConfig,
    first_touch: FirstTouch,
    mmu: D,
) -> Box<dyn AnyMachine> {
    let (host, instructions) = (config.host.as_ref().unwrap(), Instructions::PORTABLE);
    let own =
        bounds::os(config.memory.bytes, config.page_table.levels, format(), Box::new(first_touch));
    let host_os =
        bounds::os(host.memory.bytes, host.page_table.levels, format(), Box::new(first_touch));
    let env = Env::new(config, own, instructions)
        .unwrap()
        .in_guest(config, host, host_os, instructions)
        .unwrap();
    Box::new(Machine::new(env.checked(true), vec![mmu], instructions))
}

pub fn perforated(config: &MachineConfig, variant: Variant) -> Perforated {
    Perforated::new(&config.tlb, variant, Instructions::PORTABLE).unwrap()
}
