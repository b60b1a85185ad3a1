//! Round-robin scheduling of processes, each a list of steps.

/// How a process begins. Processes are identified by their index in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveArrival {
    /// It runs from the beginning.
    AtOnce,
    /// Another process forks it, with or without a step that records the fork.
    Forked(usize),
    /// Another process executes its program.
    Executed(usize),
}

/// A step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveStep {
    /// A straight run of this many instructions.
    Run(u64),
    /// A record that the process forks the given child.
    Fork(usize),
    /// A step without instructions.
    Other,
}

/// A process image.
#[derive(Clone, Debug)]
pub struct NaiveProcess {
    /// How it begins.
    pub arrival: NaiveArrival,
    /// Its steps, in order.
    pub steps: Vec<NaiveStep>,
}

/// The order in which processes take their steps, as pairs of process and step, if each runs until it has executed
/// `quantum` instructions and the next one follows. The first quantum of a process that runs from the beginning has
/// `first_quantum` instructions.
///
/// A forked child joins the end of the queue when its parent records the fork or, if the parent never does, when the
/// parent ends. An executed program replaces the process that executed it, for the rest of the quantum. If no process
/// runs but some have not begun, the first of them begins.
pub fn round_robin(
    processes: &[NaiveProcess],
    quantum: u64,
    first_quantum: u64,
) -> Vec<(usize, usize)> {
    let mut waiting: Vec<usize> = (0..processes.len()).collect();
    let mut next_step = vec![0; processes.len()];
    let mut order = Vec::new();
    let mut has_run = vec![false; processes.len()];
    let arrival = |process: usize| processes[process].arrival;
    let mut queue: Vec<usize> = waiting
        .iter()
        .copied()
        .filter(|process| arrival(*process) == NaiveArrival::AtOnce)
        .collect();
    waiting.retain(|process| arrival(*process) != NaiveArrival::AtOnce);
    // The rest of the current quantum; `None` before a quantum begins.
    let mut left = None;
    loop {
        if queue.is_empty() {
            if waiting.is_empty() {
                return order;
            }
            queue.push(waiting.remove(0));
        }
        let running = queue[0];
        let is_first = arrival(running) == NaiveArrival::AtOnce && !has_run[running];
        let rest = left.unwrap_or(if is_first { first_quantum } else { quantum });
        left = Some(rest);
        has_run[running] = true;
        let step = next_step[running];
        if step == processes[running].steps.len() {
            queue.remove(0);
            let executed = waiting
                .iter()
                .copied()
                .find(|other| arrival(*other) == NaiveArrival::Executed(running));
            match executed {
                Some(executed) => queue.insert(0, executed),
                None => left = None,
            }
            let children =
                waiting.iter().filter(|child| arrival(**child) == NaiveArrival::Forked(running));
            queue.extend(children);
            waiting.retain(|other| !queue.contains(other));
            continue;
        }
        next_step[running] += 1;
        order.push((running, step));
        match processes[running].steps[step] {
            NaiveStep::Run(instructions) => {
                left = Some(rest - instructions.min(rest));
                if left == Some(0) {
                    let last = queue.remove(0);
                    queue.push(last);
                    left = None;
                }
            }
            NaiveStep::Fork(child) => {
                if waiting.contains(&child) && arrival(child) == NaiveArrival::Forked(running) {
                    waiting.retain(|other| *other != child);
                    queue.push(child);
                }
            }
            NaiveStep::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NaiveArrival::*;
    use NaiveStep::*;

    /// A quantum of ten instructions. Process 0 forks 1 within its first quantum, and executes 2
    /// within its second one; no step records that 0 forked 3.
    #[test]
    fn time_slicing_of_four_processes_by_hand() {
        let process =
            |arrival, steps: &[NaiveStep]| NaiveProcess { arrival, steps: steps.to_vec() };
        let processes = [
            process(AtOnce, &[Run(6), Fork(1), Run(6), Run(4)]),
            process(Forked(0), &[Run(10), Other, Run(1)]),
            process(Executed(0), &[Run(6), Run(1)]),
            process(Forked(0), &[Run(1)]),
        ];
        let order = round_robin(&processes, 10, 10);
        let first = [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3), (2, 0)];
        assert_eq!(order[..6], first);
        assert_eq!(order[6..], [(1, 1), (1, 2), (3, 0), (2, 1)]);
        // With a first quantum of 14 instructions, 0 executes its second run within it, and 2 replaces it later.
        let order = round_robin(&processes, 10, 14);
        assert_eq!(order[..4], [(0, 0), (0, 1), (0, 2), (0, 3)]);
    }
}
