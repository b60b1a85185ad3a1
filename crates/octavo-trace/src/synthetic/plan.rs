//! A description with every parameter settled, and its canonical text.

use octavo_types::values::{fraction_text, size_text};

/// How addresses follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// `span_bytes` of each element are read, from its start.
    Uniform {
        element_bytes: u64,
        span_bytes: u64,
    },
    Zipf {
        element_bytes: u64,
        theta: u64,
        scattered: bool,
    },
    Strided {
        stride_bytes: u64,
    },
    Sequential,
    PointerChase {
        element_bytes: u64,
    },
    Gups,
    Rows {
        row_bytes: u64,
    },
    Columns {
        row_bytes: u64,
    },
}

impl Shape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Uniform { .. } => "uniform",
            Shape::Zipf { .. } => "zipf",
            Shape::Strided { .. } => "strided",
            Shape::Sequential => "sequential",
            Shape::PointerChase { .. } => "pointer-chase",
            Shape::Gups => "gups",
            Shape::Rows { .. } => "rows",
            Shape::Columns { .. } => "columns",
        }
    }
}

/// The order in which the copies of a loop's body run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CodeOrder {
    Turn,
    /// By their popularity, with this exponent in billionths.
    Zipf(u64),
}

/// The part of a table that is never touched; shares are in billionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnusedPlan {
    /// A share of the base pages of a portion of its regions of 2 MiB.
    Pages { share: u64, portion: u64, clustered: bool, seed: u64 },
    /// A share of the table's slots.
    Slots { share: u64, slot_bytes: u64, seed: u64 },
}

/// One loop over one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Loop {
    pub(super) shape: Shape,
    pub(super) table_bytes: u64,
    /// How many data references it makes; `None` if the mix that it is part of decides this.
    pub(super) references: Option<u64>,
    pub(super) code_bytes: u64,
    pub(super) code_order: CodeOrder,
    /// For each access; an update of `gups` is one access.
    pub(super) instructions: u64,
    /// The share of all accesses, in billionths.
    pub(super) stores: u64,
    pub(super) access_bytes: u64,
    pub(super) seed: u64,
    pub(super) unused: Option<UnusedPlan>,
    /// The address of the table; `None`: where Linux would put it.
    pub(super) base: Option<u64>,
}

/// The plan of a synthetic trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    Loop(Loop),
    /// One after another, the whole sequence `repeat` times; without end in a mix.
    Phases {
        repeat: Option<u64>,
        phases: Vec<Plan>,
    },
    /// Interleaved, each with its weight.
    Mix {
        references: Option<u64>,
        parts: Vec<(u64, Plan)>,
    },
}

impl Plan {
    /// How many data references it makes; `None` if the mix that it is part of decides this, or if
    /// they are more than 64 bits count.
    pub(super) fn references(&self) -> Option<u64> {
        match self {
            Plan::Loop(one) => one.references,
            Plan::Mix { references, .. } => *references,
            Plan::Phases { repeat, phases } => phases
                .iter()
                .try_fold(0u64, |sum, phase| sum.checked_add(phase.references()?))?
                .checked_mul((*repeat)?),
        }
    }

    /// Every loop in it, in order.
    pub(super) fn loops(&self) -> Vec<&Loop> {
        match self {
            Plan::Loop(one) => vec![one],
            Plan::Phases { phases, .. } => phases.iter().flat_map(Plan::loops).collect(),
            Plan::Mix { parts, .. } => parts.iter().flat_map(|(_, part)| part.loops()).collect(),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Plan::Loop(one) => one.shape.name(),
            Plan::Phases { .. } => "phases",
            Plan::Mix { .. } => "mix",
        }
    }

    /// Its canonical text: a URI for a loop, else TOML, with every parameter.
    pub(super) fn text(&self) -> String {
        match self {
            Plan::Loop(one) => {
                let parameters = one.parameters();
                let pairs: Vec<String> =
                    parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("synth:{}?{}", one.shape.name(), pairs.join("&"))
            }
            _ => self.table().to_string(),
        }
    }

    fn table(&self) -> toml::Table {
        let mut table = toml::Table::new();
        table.insert("kind".into(), self.kind().into());
        let array = |members: Vec<toml::Table>| {
            toml::Value::Array(members.into_iter().map(toml::Value::Table).collect())
        };
        match self {
            Plan::Loop(one) => {
                for (name, value) in one.parameters() {
                    table.insert(name.into(), value.into());
                }
            }
            Plan::Phases { repeat, phases } => {
                if let Some(repeat) = repeat {
                    table.insert("repeat".into(), repeat.to_string().into());
                }
                table.insert("phase".into(), array(phases.iter().map(Plan::table).collect()));
            }
            Plan::Mix { references, parts } => {
                if let Some(references) = references {
                    table.insert("references".into(), references.to_string().into());
                }
                let part = |(weight, plan): &(u64, Plan)| {
                    let mut table = plan.table();
                    table.insert("weight".into(), weight.to_string().into());
                    table
                };
                table.insert("part".into(), array(parts.iter().map(part).collect()));
            }
        }
        table
    }
}

impl UnusedPlan {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        match *self {
            UnusedPlan::Pages { share, portion, clustered, seed } => vec![
                ("unused", fraction_text(share)),
                ("unused-portion", fraction_text(portion)),
                ("unused-layout", if clustered { "clustered" } else { "dispersed" }.to_owned()),
                ("unused-seed", seed.to_string()),
            ],
            UnusedPlan::Slots { share, slot_bytes, seed } => vec![
                ("unused", fraction_text(share)),
                ("unused-slot", size_text(slot_bytes)),
                ("unused-seed", seed.to_string()),
            ],
        }
    }
}

impl Loop {
    /// Names and values, in the order in which help lists them.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("bytes", size_text(self.table_bytes))];
        all.extend(self.references.map(|references| ("references", references.to_string())));
        match self.shape {
            Shape::PointerChase { element_bytes } => {
                all.push(("element", size_text(element_bytes)));
            }
            Shape::Uniform { element_bytes, span_bytes } => {
                all.push(("element", size_text(element_bytes)));
                if span_bytes != self.access_bytes {
                    all.push(("span", size_text(span_bytes)));
                }
            }
            Shape::Zipf { element_bytes, theta, scattered } => {
                let placement = if scattered { "scattered" } else { "together" };
                all.push(("element", size_text(element_bytes)));
                all.push(("theta", fraction_text(theta)));
                all.push(("placement", placement.to_owned()));
            }
            Shape::Strided { stride_bytes } => all.push(("stride", size_text(stride_bytes))),
            Shape::Rows { row_bytes } | Shape::Columns { row_bytes } => {
                all.push(("row", size_text(row_bytes)));
            }
            Shape::Sequential | Shape::Gups => {}
        }
        all.push(("access", size_text(self.access_bytes)));
        if self.shape != Shape::Gups {
            all.push(("stores", fraction_text(self.stores)));
        }
        all.extend(self.unused.iter().flat_map(UnusedPlan::parameters));
        all.push(("instructions", self.instructions.to_string()));
        all.push(("code", size_text(self.code_bytes)));
        match self.code_order {
            CodeOrder::Turn => all.push(("code-order", "turn".to_owned())),
            CodeOrder::Zipf(theta) => {
                all.push(("code-order", "zipf".to_owned()));
                all.push(("code-theta", fraction_text(theta)));
            }
        }
        all.push(("seed", self.seed.to_string()));
        all.extend(self.base.map(|base| ("base", format!("{base:#x}"))));
        all
    }
}
