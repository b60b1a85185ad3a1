//! Processes that take turns, as lists of what each of them does.

/// How a process comes into the round. Processes are known by their place in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveCame {
    /// It is there from the beginning.
    AtOnce,
    /// This one forks it, and may tell when.
    Forked(usize),
    /// This one executes its program.
    Executed(usize),
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveStep {
    /// A straight run of so many instructions.
    Run(u64),
    /// It tells that it forks this one.
    Fork(usize),
    /// Something that takes no instruction.
    Other,
}

/// A process image.
#[derive(Clone, Debug)]
pub struct NaiveProcess {
    /// How it comes.
    pub came: NaiveCame,
    /// What it does, in order.
    pub steps: Vec<NaiveStep>,
}

/// The order in which processes do what they do when each runs until it has executed `quantum`
/// instructions, and then the next: pairs of a process and a step of it.
///
/// A forked child comes in behind all others when its parent tells of the fork or, if it never
/// does, when the parent ends; an executed program goes on in the place of the one that executed
/// it, with what is left of its turn. If nobody is left but some still wait, the first of them
/// comes.
pub fn round_robin(processes: &[NaiveProcess], quantum: u64) -> Vec<(usize, usize)> {
    let mut waiting: Vec<usize> = (0..processes.len()).collect();
    let mut next_step = vec![0; processes.len()];
    let mut order = Vec::new();
    let mut left = quantum;
    let came = |process: usize| processes[process].came;
    let mut queue: Vec<usize> =
        waiting.iter().copied().filter(|process| came(*process) == NaiveCame::AtOnce).collect();
    waiting.retain(|process| came(*process) != NaiveCame::AtOnce);
    loop {
        if queue.is_empty() {
            if waiting.is_empty() {
                return order;
            }
            queue.push(waiting.remove(0));
        }
        let running = queue[0];
        let step = next_step[running];
        if step == processes[running].steps.len() {
            queue.remove(0);
            let heir =
                waiting.iter().copied().find(|other| came(*other) == NaiveCame::Executed(running));
            match heir {
                Some(heir) => queue.insert(0, heir),
                None => left = quantum,
            }
            let children =
                waiting.iter().filter(|child| came(**child) == NaiveCame::Forked(running));
            queue.extend(children);
            waiting.retain(|other| !queue.contains(other));
            continue;
        }
        next_step[running] += 1;
        order.push((running, step));
        match processes[running].steps[step] {
            NaiveStep::Run(instructions) => {
                left -= instructions.min(left);
                if left == 0 {
                    let last = queue.remove(0);
                    queue.push(last);
                    left = quantum;
                }
            }
            NaiveStep::Fork(child) => {
                if waiting.contains(&child) && came(child) == NaiveCame::Forked(running) {
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
    use NaiveCame::*;
    use NaiveStep::*;

    /// Turns of ten instructions. Process 0 forks 1 within its first turn, and executes 2 within
    /// its second one; nobody tells that 0 forked 3.
    #[test]
    fn four_processes_by_hand() {
        let process = |came, steps: &[NaiveStep]| NaiveProcess { came, steps: steps.to_vec() };
        let processes = [
            process(AtOnce, &[Run(6), Fork(1), Run(6), Run(4)]),
            process(Forked(0), &[Run(10), Other, Run(1)]),
            process(Executed(0), &[Run(6), Run(1)]),
            process(Forked(0), &[Run(1)]),
        ];
        let order = round_robin(&processes, 10);
        let first = [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3), (2, 0)];
        assert_eq!(order[..6], first);
        assert_eq!(order[6..], [(1, 1), (1, 2), (3, 0), (2, 1)]);
    }
}
