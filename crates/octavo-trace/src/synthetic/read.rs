//! From a URI or a TOML text to a [`Plan`].

use octavo_types::spelling::quoted;
use octavo_types::values::WHOLE;

use super::code::{Body, MAX_CODE_BYTES};
use super::error::SpecError;
use super::parameters::Parameters;
use super::plan::{CodeOrder, Loop, Plan, Shape, UnusedPlan};
use super::unused::REGION_BYTES;
use super::{KINDS, SCHEME};
use crate::splitmix::splitmix;

/// The longest URI.
const MAX_URI_BYTES: usize = 4096;
/// The longest TOML text.
const MAX_TOML_BYTES: usize = 1 << 18;
/// The kinds that a URI cannot describe.
const WITH_MEMBERS: [&str; 2] = ["phases", "mix"];
/// How deep phases and mixes may be nested.
const MAX_DEPTH: usize = 8;
/// How many members phases and mixes may have altogether.
const MAX_MEMBERS: usize = 1024;

const DEFAULT_TABLE_BYTES: u64 = 64 << 20;
const MAX_TABLE_BYTES: u64 = 1 << 45;
const DEFAULT_REFERENCES: u64 = 100_000_000;
const MAX_REFERENCES: u64 = 1 << 62;
const DEFAULT_INSTRUCTIONS: u64 = 4;
const DEFAULT_ACCESS_BYTES: u64 = 8;
const MAX_ACCESS_BYTES: u64 = 64;
const DEFAULT_CODE_BYTES: u64 = 4096;
const DEFAULT_STRIDE_BYTES: u64 = 4096;
const DEFAULT_ROW_BYTES: u64 = 8192;
const DEFAULT_NODE_BYTES: u64 = 64;
const DEFAULT_SEED: u64 = 1;
const DEFAULT_THETA: u64 = 990_000_000;
const MAX_THETA: u64 = 8 * WHOLE;
const PAGE_BYTES: u64 = 4096;
/// The largest unused share: it leaves five of 512 pages used.
const MAX_UNUSED: u64 = 990_000_000;
const MAX_WEIGHT: u64 = 1_000_000;
/// User addresses end here with five levels of page tables.
const TOP: u64 = 1 << 56;

/// The position of a plan within its description.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Whole,
    Phase,
    Part,
}

pub(super) fn uri(text: &str) -> Result<Plan, SpecError> {
    if text.len() > MAX_URI_BYTES {
        return Err(SpecError::new(format!("a URI has at most {MAX_URI_BYTES} bytes")));
    }
    let rest = text.strip_prefix(SCHEME).ok_or_else(|| {
        let what = quoted(text);
        SpecError::new(format!(
            "`{what}` must begin with `{SCHEME}`, as in `synth:gups?table=1GiB`"
        ))
    })?;
    let (kind, query) = rest.split_once('?').unwrap_or((rest, ""));
    if WITH_MEMBERS.contains(&kind) {
        return Err(SpecError::new(format!(
            "the kind `{kind}` has members, so it must be described in a TOML file"
        )));
    }
    check_kind(kind, |name| !WITH_MEMBERS.contains(&name))?;
    let given = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    loop_of(kind, given, Role::Whole, DEFAULT_SEED)
}

pub(super) fn toml(text: &str) -> Result<Plan, SpecError> {
    if text.len() > MAX_TOML_BYTES {
        return Err(SpecError::new(format!("a TOML text has at most {MAX_TOML_BYTES} bytes")));
    }
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        SpecError::new(format!("line {line} is not TOML: {what}"))
    })?;
    let mut members = 0;
    let (plan, _) = plan_of(table, Role::Whole, DEFAULT_SEED, 0, &mut members)?;
    Ok(plan)
}

/// The plan that a table describes, and its weight.
fn plan_of(
    mut table: toml::Table,
    role: Role,
    seed: u64,
    depth: usize,
    members: &mut usize,
) -> Result<(Plan, u64), SpecError> {
    let kind = kind_of(&mut table)?;
    check_kind(&kind, |_| true)?;
    let member_key = match kind.as_str() {
        "phases" => Some("phase"),
        "mix" => Some("part"),
        _ => None,
    };
    let tables = member_key.map(|key| members_of(&mut table, &kind, key)).transpose()?;
    let mut given = Vec::with_capacity(table.len());
    for (name, value) in table {
        given.push((name.clone(), scalar(&name, value)?));
    }
    // A part's weight is not a parameter of its kind.
    let mut outer = Parameters::new(&kind, given);
    let weight = if role == Role::Part {
        outer.count(&["weight"], (1, MAX_WEIGHT))?.unwrap_or(1)
    } else {
        1
    };
    let Some(tables) = tables else {
        return Ok((loop_of(&kind, outer.rest(), role, seed)?, weight));
    };

    *members += tables.len();
    if depth == MAX_DEPTH || *members > MAX_MEMBERS {
        return Err(SpecError::new(format!(
            "phases and mixes may be nested {MAX_DEPTH} deep and have {MAX_MEMBERS} members \
             altogether"
        )));
    }
    let seed = outer.count(&["seed"], (0, u64::MAX))?.unwrap_or(seed);
    let is_mix = kind == "mix";
    let (mut repeat, mut references) = (None, None);
    if role != Role::Part && is_mix {
        references = Some(references_of(&mut outer, &["references", "length"])?);
    } else if role != Role::Part {
        repeat = Some(outer.count(&["repeat"], (1, MAX_REFERENCES))?.unwrap_or(1));
    }
    outer.finish()?;

    let member_role = if is_mix { Role::Part } else { Role::Phase };
    let mut parts = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let seed = member_seed(seed, index as u64);
        let member = plan_of(table, member_role, seed, depth + 1, members);
        let key = if is_mix { "part" } else { "phase" };
        let (plan, weight) =
            member.map_err(|error| error.within(&format!("{key} {}", index + 1)))?;
        parts.push((weight, plan));
    }
    let plan = if is_mix {
        Plan::Mix { references, parts }
    } else {
        Plan::Phases { repeat, phases: parts.into_iter().map(|(_, plan)| plan).collect() }
    };
    check_length(&plan)?;
    Ok((plan, weight))
}

/// Rejects a kind that is none of the `allowed` ones.
fn check_kind(kind: &str, allowed: impl Fn(&str) -> bool) -> Result<(), SpecError> {
    let names = KINDS.iter().map(|known| known.name).filter(|name| allowed(name));
    let names: Vec<&str> = names.collect();
    if names.contains(&kind) { Ok(()) } else { Err(SpecError::unknown("the kind", kind, &names)) }
}

fn kind_of(table: &mut toml::Table) -> Result<String, SpecError> {
    match table.remove("kind") {
        Some(toml::Value::String(kind)) => Ok(kind),
        Some(_) => Err(SpecError::new("`kind` must be a text such as \"gups\"")),
        None => Err(SpecError::new("`kind` is missing: give one such as \"gups\"")),
    }
}

/// Rejects a plan of too many references. An endless one must still have rounds that can be
/// counted.
fn check_length(plan: &Plan) -> Result<(), SpecError> {
    let round = match plan {
        Plan::Phases { repeat: None, phases } => {
            Plan::Phases { repeat: Some(1), phases: phases.clone() }.references()
        }
        Plan::Mix { references: None, .. } => Some(0),
        plan => plan.references(),
    };
    match round {
        Some(0..=MAX_REFERENCES) => Ok(()),
        _ => Err(SpecError::new(format!(
            "`repeat` and `references` together must come to at most {MAX_REFERENCES} references"
        ))),
    }
}

/// The tables below `key`.
fn members_of(
    table: &mut toml::Table,
    kind: &str,
    key: &str,
) -> Result<Vec<toml::Table>, SpecError> {
    let missing = || SpecError::new(format!("{kind} must have members, each begun by [[{key}]]"));
    let Some(toml::Value::Array(members)) = table.remove(key) else { return Err(missing()) };
    if members.is_empty() {
        return Err(missing());
    }
    let as_table = |member| match member {
        toml::Value::Table(table) => Ok(table),
        _ => Err(missing()),
    };
    members.into_iter().map(as_table).collect()
}

fn scalar(name: &str, value: toml::Value) -> Result<String, SpecError> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        _ => Err(SpecError::new(format!("`{}` must be a number or a text", quoted(name)))),
    }
}

/// The seed of a member that was given none: different for each member.
fn member_seed(seed: u64, index: u64) -> u64 {
    splitmix(splitmix(seed) ^ index) >> 32
}

fn references_of(parameters: &mut Parameters, names: &[&'static str]) -> Result<u64, SpecError> {
    Ok(parameters.count(names, (1, MAX_REFERENCES))?.unwrap_or(DEFAULT_REFERENCES))
}

fn loop_of(
    kind: &str,
    given: Vec<(String, String)>,
    role: Role,
    seed: u64,
) -> Result<Plan, SpecError> {
    let mut parameters = Parameters::new(kind, given);
    let access_bytes = parameters.size(&["access"], (1, MAX_ACCESS_BYTES), DEFAULT_ACCESS_BYTES)?;
    if !access_bytes.is_power_of_two() {
        return Err(SpecError::new(format!(
            "`access={access_bytes}` must be a power of two from 1 to {MAX_ACCESS_BYTES} bytes"
        )));
    }
    let table_bytes = parameters.size(
        &["bytes", "table"],
        (access_bytes, MAX_TABLE_BYTES),
        DEFAULT_TABLE_BYTES,
    )?;
    let references =
        if role == Role::Part { None } else { Some(loop_references(&mut parameters, kind)?) };
    let shape = shape_of(kind, &mut parameters, table_bytes, access_bytes)?;
    let stores = match shape {
        Shape::Gups => 0,
        _ => parameters.fraction(&["stores"], (0, WHOLE), 0)?,
    };
    let unused = unused_of(&mut parameters, shape, table_bytes)?;
    let instructions = parameters
        .count(&["instructions"], (1, Body::MAX_INSTRUCTIONS))?
        .unwrap_or(DEFAULT_INSTRUCTIONS);
    let least_code = Body::least_bytes(instructions, stores);
    let code_bytes =
        parameters.size(&["code"], (least_code, MAX_CODE_BYTES), DEFAULT_CODE_BYTES)?;
    let code_order = match parameters.choice(&["code-order"], &["turn", "zipf"])? {
        0 => CodeOrder::Turn,
        _ => {
            CodeOrder::Zipf(parameters.fraction(&["code-theta"], (0, MAX_THETA), DEFAULT_THETA)?)
        }
    };
    let seed = parameters.count(&["seed"], (0, u64::MAX))?.unwrap_or(seed);
    let base = parameters.address(&["base"], (4096, TOP - table_bytes.next_multiple_of(4096)))?;
    if let Some(base) = base.filter(|base| base % 4096 != 0) {
        return Err(SpecError::new(format!("`base={base:#x}` must be a multiple of 4096")));
    }
    parameters.finish()?;
    Ok(Plan::Loop(Loop {
        shape,
        table_bytes,
        references,
        // Code of more than a page is whole pages, each with a copy of the loop.
        code_bytes: if code_bytes > 4096 { code_bytes.next_multiple_of(4096) } else { code_bytes },
        code_order,
        instructions,
        stores,
        access_bytes,
        seed,
        unused,
        base,
    }))
}

/// Reads the untouched part of a table; at least one element stays touched.
fn unused_of(
    parameters: &mut Parameters,
    shape: Shape,
    table_bytes: u64,
) -> Result<Option<UnusedPlan>, SpecError> {
    // Only walks that visit every element, or any with the same probability.
    let element_bytes = match shape {
        Shape::Uniform { element_bytes, .. } | Shape::PointerChase { element_bytes } => {
            element_bytes
        }
        Shape::Gups => PAGE_BYTES,
        _ => return Ok(None),
    };
    let share = parameters.fraction(&["unused"], (0, MAX_UNUSED), 0)?;
    if share == 0 {
        return Ok(None);
    }
    let seed = parameters.count(&["unused-seed"], (0, u64::MAX))?.unwrap_or(DEFAULT_SEED);
    let slot_bytes = parameters.size(&["unused-slot"], (PAGE_BYTES, table_bytes), 0)?;
    let wrong = |what: String| Err(SpecError::new(what));
    if slot_bytes > 0 {
        if !slot_bytes.is_multiple_of(PAGE_BYTES) {
            return wrong(format!("`unused-slot={slot_bytes}` must be a multiple of {PAGE_BYTES}"));
        }
        if element_bytes > PAGE_BYTES && element_bytes != slot_bytes {
            return wrong(format!(
                "`element={element_bytes}` must be at most {PAGE_BYTES} bytes or the slot \
                 ({slot_bytes}), as slots are unused"
            ));
        }
        return Ok(Some(UnusedPlan::Slots { share, slot_bytes, seed }));
    }
    if element_bytes > PAGE_BYTES || !table_bytes.is_multiple_of(REGION_BYTES) {
        return wrong(format!(
            "with `unused`, elements must be at most {PAGE_BYTES} bytes, and the table whole \
             regions of 2MiB, or `unused-slot` be given"
        ));
    }
    let portion = parameters.fraction(&["unused-portion"], (0, WHOLE), WHOLE)?;
    let clustered = parameters.choice(&["unused-layout"], &["clustered", "dispersed"])? == 0;
    Ok(Some(UnusedPlan::Pages { share, portion, clustered, seed }))
}

/// An update of `gups` is two references.
fn loop_references(parameters: &mut Parameters, kind: &str) -> Result<u64, SpecError> {
    if kind != "gups" {
        return references_of(parameters, &["references", "length"]);
    }
    let updates = parameters.count(&["updates"], (1, MAX_REFERENCES / 2))?;
    let references = parameters.count(&["references", "length"], (1, MAX_REFERENCES))?;
    match (updates, references) {
        (Some(_), Some(_)) => {
            Err(SpecError::new("`updates` and `references` both set the length: give one of them"))
        }
        (Some(updates), None) => Ok(2 * updates),
        (None, references) => Ok(references.unwrap_or(DEFAULT_REFERENCES)),
    }
}

fn shape_of(
    kind: &str,
    parameters: &mut Parameters,
    table_bytes: u64,
    access_bytes: u64,
) -> Result<Shape, SpecError> {
    let bounds = (access_bytes, table_bytes);
    Ok(match kind {
        "uniform" => {
            let element_bytes = parameters.size(&["element"], bounds, access_bytes)?;
            let span = (access_bytes, element_bytes);
            let span_bytes = parameters.size(&["span"], span, access_bytes)?;
            if !span_bytes.is_multiple_of(access_bytes) {
                return Err(SpecError::new(format!(
                    "`span={span_bytes}` must be a multiple of the access size ({access_bytes})"
                )));
            }
            Shape::Uniform { element_bytes, span_bytes }
        }
        "zipf" => Shape::Zipf {
            element_bytes: parameters.size(&["element"], bounds, access_bytes)?,
            theta: parameters.fraction(&["theta"], (0, MAX_THETA), DEFAULT_THETA)?,
            scattered: parameters.choice(&["placement"], &["scattered", "together"])? == 0,
        },
        "strided" => {
            let default = DEFAULT_STRIDE_BYTES.min(table_bytes);
            Shape::Strided {
                stride_bytes: parameters.size(&["stride"], (1, table_bytes), default)?,
            }
        }
        "sequential" => Shape::Sequential,
        "pointer-chase" => {
            let default = DEFAULT_NODE_BYTES.min(table_bytes);
            Shape::PointerChase { element_bytes: parameters.size(&["element"], bounds, default)? }
        }
        "gups" => Shape::Gups,
        _ => {
            let row_bytes =
                parameters.size(&["row"], bounds, DEFAULT_ROW_BYTES.min(table_bytes))?;
            if !row_bytes.is_multiple_of(access_bytes) || !table_bytes.is_multiple_of(row_bytes) {
                return Err(SpecError::new(format!(
                    "`row={row_bytes}` must be a multiple of the access size ({access_bytes}) and \
                     go into the table ({table_bytes} bytes) without rest"
                )));
            }
            if kind == "rows" { Shape::Rows { row_bytes } } else { Shape::Columns { row_bytes } }
        }
    })
}
