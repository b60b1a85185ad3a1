//! Streams: one for each process image, named and ended the same live and in a trace.

use std::time::Duration;

use crate::ring::Decoder;

/// How a stream began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Began {
    /// The run itself.
    Start,
    /// A fork.
    Fork,
    /// An exec.
    Exec,
}

impl Began {
    const ALL: [(Began, &str); 3] =
        [(Began::Start, "start"), (Began::Fork, "fork"), (Began::Exec, "exec")];

    /// Its name in results and in traces.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }

    /// The value with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(began, _)| *began)
    }
}

fn name_in<T: Copy + PartialEq>(all: &[(T, &'static str)], wanted: T) -> &'static str {
    all.iter().find(|(known, _)| *known == wanted).expect("all have a name").1
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The process exited.
    Exit,
    /// It executed another program.
    Exec,
    /// It died of a signal that the tracer saw.
    Signal,
    /// Its records stop without an end, or the trace ends in the middle of it.
    Lost,
    /// The region of interest was over.
    Limit,
    /// The stream could not be read on.
    Corrupt,
    /// It goes on, in a snapshot.
    Running,
}

impl Ended {
    const ALL: [(Ended, &str); 7] = [
        (Ended::Exit, "exit"),
        (Ended::Exec, "exec"),
        (Ended::Signal, "signal"),
        (Ended::Lost, "lost"),
        (Ended::Limit, "limit"),
        (Ended::Corrupt, "corrupt"),
        (Ended::Running, "running"),
    ];

    /// Its name in results and in traces.
    pub fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }

    /// The value with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(ended, _)| *ended)
    }
}

/// The identity of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamIdentity {
    /// Its number, in the order in which streams began.
    pub stream: u32,
    /// The stream that forked it, or whose process executed its program.
    pub parent: Option<u32>,
    /// The process.
    pub pid: u32,
    /// How it began.
    pub began: Began,
    /// The program that the image was made from; empty if the trace does not record it.
    pub program: String,
}

impl StreamIdentity {
    /// The threads that no event begins: in a forked process, the one that forked.
    pub fn initial_threads(&self) -> u64 {
        u64::from(self.began == Began::Fork)
    }

    /// Names the stream after the program in its first words.
    pub(crate) fn name(&mut self, decoder: &Decoder) {
        let program = decoder.start().map(|start| start.program.as_str());
        if let Some(program) = program.filter(|program| !program.is_empty()) {
            program.clone_into(&mut self.program);
        }
    }

    /// The only stream of a trace that does not record processes.
    pub fn only() -> Self {
        StreamIdentity {
            stream: 0,
            parent: None,
            pid: 0,
            began: Began::Start,
            program: String::new(),
        }
    }
}

/// A thread of a stream, as its tracer describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedThread {
    /// Its last name known; empty: that of the program.
    pub name: String,
    /// As [`StreamEnd::kernel_time`].
    pub kernel_time: Duration,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The cause.
    pub ended: Ended,
    /// The exit code, if it exited.
    pub exit_code: Option<i32>,
    /// How many instructions it had, if its writer recorded this.
    pub instructions: Option<u64>,
    /// Processor time that its system calls took in the kernel while they were traced, estimated,
    /// if its writer recorded this.
    pub kernel_time: Option<Duration>,
    /// Its first threads, in the order in which they began; in a forked process, the one that
    /// forked comes first. Empty if its writer did not record them.
    pub threads: Vec<NamedThread>,
}

impl StreamEnd {
    /// The end of a stream in traces that do not record it.
    pub const PLAIN: StreamEnd = StreamEnd {
        ended: Ended::Exit,
        exit_code: None,
        instructions: None,
        kernel_time: None,
        threads: Vec::new(),
    };
}
