//! Machines and designs by name.

use octavo_machine::designs::{DesignSpec, registry};
use octavo_machine::resolve;
use octavo_machine::{Footprint, Sim, SimConfig, Timing};
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_types::Instructions;
use octavo_types::host_memory::HostMemory;
use pyo3::prelude::*;

use crate::options::read_layout;
use crate::outside::{Failure, GivenDesign, make_level};
use crate::raised;

/// Every design's name and what it is, in order.
#[pyfunction]
pub fn designs() -> Vec<(&'static str, &'static str)> {
    registry::designs().iter().map(|known| (known.name, known.about)).collect()
}

/// A design's hardware, policy, description, figure, settings and documentation.
type Explained =
    (&'static str, &'static str, &'static str, &'static str, Vec<(String, String)>, String);

/// A named design explained; `None` if there is none of this name.
#[pyfunction]
pub fn explain_design(name: &str) -> Option<Explained> {
    let registry::Explained { design, settings, documentation } = registry::explain(name)?;
    Some((design.hardware, design.policy, design.about, design.figure, settings, documentation))
}

/// The documentation of simulations: its tables give the meaning of each counter.
#[pyfunction]
pub fn sim_pages() -> &'static str {
    concat!(
        include_str!("../../../docs/sim.md"),
        include_str!("../../../docs/core.md"),
        include_str!("../../../docs/softvm.md")
    )
}

/// A name, what it is, and each setting with its usual value.
type Policy = (&'static str, &'static str, Vec<(String, String)>);

/// Every policy of page sizes, in order.
#[pyfunction]
pub fn policies() -> Vec<Policy> {
    let describe = |entry: &PolicyEntry| {
        (entry.name, entry.about, OsConfig::new((entry.usual)()).to_settings())
    };
    registry::policies().iter().map(describe).collect()
}

/// The timing that executes instructions.
const OUT_OF_ORDER: &str = "out-of-order";

/// Reads a simulation's configuration and makes its machines.
pub fn read_sim(
    (machine, settings): (&str, Vec<String>),
    (designs, failure): (Vec<GivenDesign>, &Failure),
    layout: &str,
    (warm_up_instructions, is_fast_forwarded): (u64, bool),
    interval_instructions: Option<u64>,
    is_checked: bool,
    timing: &str,
) -> PyResult<(SimConfig, Sim)> {
    let failed = |error: String| raised(&error);
    let resolved = resolve(machine, &settings).map_err(|error| failed(error.to_string()))?;
    let designs = designs.into_iter().map(|given| match given {
        GivenDesign::Named(name) => DesignSpec::parse(&name),
        GivenDesign::Outside(name, policy, make) => {
            DesignSpec::outside(&name, &policy, make_level(&name, make, failure))
        }
    });
    let designs = designs.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    let name = machine;
    let machine = resolved.into_config();
    let timing = match timing {
        OUT_OF_ORDER => Timing::OutOfOrder,
        "additive" => Timing::Additive,
        _ => Timing::ByStream,
    };
    if timing == Timing::OutOfOrder && machine.core.pipeline.is_none() {
        return Err(failed(format!(
            "--timing {OUT_OF_ORDER}: the machine `{}` does not say how its core executes instructions: give it \
             [core.pipeline], or --timing additive",
            machine.name
        )));
    }
    let config = SimConfig::new(machine, designs, Instructions::best());
    let config = config.map_err(|error| failed(format!("{name}: {error}")))?;
    let mut config = SimConfig {
        native_layout: read_layout(layout)?,
        warm_up_instructions,
        is_fast_forwarded,
        interval_instructions,
        timing,
        ..config
    };
    config.setup.is_checked = is_checked;
    let footprint = Footprint::of(&config).map_err(|error| failed(error.to_string()))?;
    if let Some(available) = HostMemory::default().available() {
        footprint.check(&available).map_err(|error| failed(error.to_string()))?;
    }
    let sim = Sim::new(&config).map_err(|error| {
        failed(if error.is_of_memory() { format!("{name}: {error}") } else { error.to_string() })
    })?;
    Ok((config, sim))
}
