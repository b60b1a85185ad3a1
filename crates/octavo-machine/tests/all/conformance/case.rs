//! Parser of case files.

/// A machine with a design, and its steps.
#[derive(Default)]
pub struct Case {
    /// The last heading above the steps.
    pub title: String,
    pub machine: String,
    pub settings: Vec<String>,
    pub design: String,
    pub steps: Vec<Step>,
}

/// A line of a block of steps.
pub struct Step {
    /// Line number in the file, from 1.
    pub line: usize,
    pub action: String,
    /// An address and a size in bytes, if the action has them.
    pub numbers: Vec<u64>,
    /// The expected effects; `None` if the line names none.
    pub expected: Option<Vec<String>>,
}

/// All cases of a file: each block of steps with the last machine before it.
pub fn cases(text: &str) -> Vec<Case> {
    let (mut cases, mut title, mut block) = (Vec::new(), "", None);
    let (mut machine, mut case) = (Case::default(), Case::default());
    for (number, line) in text.lines().enumerate() {
        match (block, line.strip_prefix("```")) {
            (None, Some("machine")) => {
                block = Some("machine");
                machine = Case::default();
            }
            (None, Some("steps")) => {
                block = Some("steps");
                case = Case {
                    title: title.to_owned(),
                    settings: machine.settings.clone(),
                    machine: machine.machine.clone(),
                    design: machine.design.clone(),
                    steps: Vec::new(),
                };
            }
            (None, Some(_)) => block = Some("other"),
            (None, None) => title = line.strip_prefix("# ").unwrap_or(title),
            (Some(kind), Some(_)) => {
                if kind == "steps" {
                    cases.push(std::mem::take(&mut case));
                }
                block = None;
            }
            (Some("machine"), None) => {
                let (key, value) = line.split_once(" = ").expect("a line of a machine");
                match key {
                    "machine" => machine.machine = value.to_owned(),
                    "design" => machine.design = value.to_owned(),
                    "set" => machine.settings.push(value.to_owned()),
                    _ => panic!("line {}: no key `{key}`", number + 1),
                }
            }
            (Some("steps"), None) if !line.trim().is_empty() => {
                case.steps.push(step(number + 1, line))
            }
            _ => {}
        }
    }
    cases
}

fn step(line: usize, text: &str) -> Step {
    let (action, expected) = match text.split_once('|') {
        Some((action, expected)) => (action, Some(expected)),
        None => (text, None),
    };
    let (words, numbers): (Vec<&str>, Vec<&str>) = action
        .split_whitespace()
        .partition(|word| !word.starts_with(|first: char| first.is_ascii_digit()));
    let items = |text: &str| -> Vec<String> {
        text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    };
    Step {
        line,
        action: words.join(" "),
        numbers: numbers.into_iter().map(|text| number(line, text)).collect(),
        expected: expected.map(items),
    }
}

/// An address, or a size with its unit.
fn number(line: usize, text: &str) -> u64 {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let sized = units.iter().find_map(|(unit, log2)| Some((text.strip_suffix(unit)?, *log2)));
    let parsed = match (sized, text.strip_prefix("0x")) {
        (Some((digits, log2)), _) => digits.parse::<u64>().map(|number| number << log2),
        (None, Some(digits)) => u64::from_str_radix(&digits.replace('_', ""), 16),
        (None, None) => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("line {line}: `{text}` is neither an address nor a size"))
}
