//! Plays a stream together with events of the operating systems.

use octavo_config::{FirstLevel, MachineConfig, TlbsHold};
use octavo_machine::{
    AnyMachine, Batch, ControlEvent, FetchSets, Filter, Front, Image, ImageId, Lines,
};
use octavo_oracle::strategies::{RandomStream, Step};
use octavo_types::Consumer;
use proptest::prelude::*;

use super::policies::HostPolicy;
use crate::common::naive::NaiveMachine;

/// An event that is not of the stream, after a number of its steps.
#[derive(Clone, Copy, Debug)]
pub enum SideEvent {
    /// The operating systems do background work.
    Tick,
    /// The process is forked, or its child exits.
    Copy,
}

pub type SideEvents = Vec<(prop::sample::Index, SideEvent)>;

pub fn asides() -> impl Strategy<Value = SideEvents> {
    let event = prop::sample::select(vec![SideEvent::Tick, SideEvent::Tick, SideEvent::Copy]);
    let several = prop::collection::vec((any::<prop::sample::Index>(), event), 1..12);
    prop_oneof![Just(Vec::new()), several]
}

/// Plays a stream and its side events on a machine.
pub fn play(
    machine: &mut dyn AnyMachine,
    (config, policy): (&MachineConfig, HostPolicy),
    stream: &RandomStream,
    asides: &SideEvents,
) {
    let lines = Lines::of_bytes(config.cache.line_bytes);
    let is_split = matches!(config.tlb.first, FirstLevel::Split { .. });
    let is_final = config.host.as_ref().unwrap().tlbs_hold == TlbsHold::Final;
    // Repeats of a reference reuse its translation, even if TLBs were flushed in between; they may be filtered only if
    // nothing flushes.
    let may_filter = matches!(policy, HostPolicy::Base | HostPolicy::Eager);
    let may_filter =
        may_filter && !asides.iter().any(|(_, aside)| matches!(aside, SideEvent::Copy));
    let filter = match may_filter {
        true if is_split && is_final => Filter::BySide,
        true => Filter::Adjacent,
        false => Filter::Nothing,
    };
    let filter = filter.min(machine.filter());
    let l1i = &config.cache.l1i;
    let sets = l1i.bytes / config.cache.line_bytes;
    let sets = FetchSets::new(sets / l1i.ways.of(sets), lines);
    let has_strides = config.prefetchers().levels.iter().any(|level| level.stride.is_some());
    let mut front = Front::new(lines, filter, sets).noting_sites(has_strides);
    let mut image = Image::new(config.page_table.levels).marking_instructions(has_strides);
    front.push_event(ControlEvent::Spawn { image: ImageId(0), copy_of: None });
    front.switch(0, ImageId(0));
    front.push_event(ControlEvent::WarmUpEnd);
    front.event(&image, &octavo_machine::everything());
    let mut copies = 0u32;
    for (number, step) in stream.steps.iter().enumerate() {
        for (_, aside) in asides.iter().filter(|(at, _)| at.index(stream.steps.len()) == number) {
            match aside {
                SideEvent::Tick => front.push_event(ControlEvent::Tick(number as u64 + 1)),
                SideEvent::Copy => {
                    let copy = ImageId(1 + copies / 2);
                    front.push_event(match copies % 2 {
                        0 => ControlEvent::Spawn { image: copy, copy_of: Some(ImageId(0)) },
                        _ => ControlEvent::Exit(copy),
                    });
                    copies += 1;
                }
            }
        }
        match step {
            Step::Segment(at, addresses) => {
                front.execution(&mut image, *at, &stream.segments[*at], addresses);
            }
            Step::Event(event) => front.event(&image, event),
        }
    }
    machine.play(&front.take_batch(Batch::default()));
}

/// Plays a stream and its side events on a naive machine.
pub fn play_naively(machine: &mut NaiveMachine, stream: &RandomStream, asides: &SideEvents) {
    machine.event(&octavo_machine::everything());
    let mut copies = 0;
    for (number, step) in stream.steps.iter().enumerate() {
        for (_, aside) in asides.iter().filter(|(at, _)| at.index(stream.steps.len()) == number) {
            match aside {
                SideEvent::Tick => machine.background(number as u64 + 1),
                SideEvent::Copy => {
                    if copies % 2 == 0 {
                        machine.fork()
                    } else {
                        machine.end_child()
                    }
                    copies += 1;
                }
            }
        }
        match step {
            Step::Segment(at, addresses) => machine.segment(&stream.segments[*at], addresses),
            Step::Event(event) => machine.event(event),
        }
    }
}
