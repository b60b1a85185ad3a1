//! Limits of the process (`ulimit`) as the cause of an error.

use std::io;

/// A limit: its number for the kernel, its name, the option of `ulimit`, and the error that it
/// causes.
struct Limit {
    resource: libc::__rlimit_resource_t,
    name: &'static str,
    option: char,
    error: i32,
}

const LIMITS: [Limit; 5] = [
    Limit { resource: libc::RLIMIT_AS, name: "address space", option: 'v', error: libc::ENOMEM },
    Limit { resource: libc::RLIMIT_DATA, name: "data memory", option: 'd', error: libc::ENOMEM },
    Limit { resource: libc::RLIMIT_FSIZE, name: "file size", option: 'f', error: libc::EFBIG },
    Limit { resource: libc::RLIMIT_NOFILE, name: "open files", option: 'n', error: libc::EMFILE },
    Limit { resource: libc::RLIMIT_NPROC, name: "processes", option: 'u', error: libc::EAGAIN },
];

impl Limit {
    /// The soft limit; none where there is none.
    fn value(&self) -> Option<u64> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a plain system call that fills in `limit`.
        let asked = unsafe { libc::getrlimit(self.resource, &mut limit) };
        (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }

    fn describe(&self) -> Option<String> {
        let value = self.value()?;
        let value = match self.resource {
            libc::RLIMIT_NOFILE | libc::RLIMIT_NPROC => value.to_string(),
            _ => format!("{} KiB", value / 1024),
        };
        Some(format!("the limit of {} (`ulimit -{}`) is {value}", self.name, self.option))
    }
}

/// An addition to the message of an error that a limit may have caused: `; the limit of …`, or nothing.
pub fn explain(error: &io::Error) -> String {
    let causes = LIMITS.iter().filter(|limit| error.raw_os_error() == Some(limit.error));
    joined(causes)
}

/// An addition where Valgrind did not start: it needs address space, and some open files.
pub fn explain_failed_start() -> String {
    joined(LIMITS[..2].iter())
}

fn joined<'a>(limits: impl Iterator<Item = &'a Limit>) -> String {
    limits.filter_map(Limit::describe).map(|text| format!("; {text}")).collect()
}

/// The fewest descriptors with which Valgrind and a dynamically linked program get on.
const FEWEST_OPEN_FILES: u64 = 32;

/// The reason why no program can be traced, if there is one: too few descriptors, and the kernel
/// does not let the tracer have more.
pub fn too_few_open_files() -> Option<String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call that fills in `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_max < FEWEST_OPEN_FILES && !may_raise(&limit)).then(|| {
        format!(
            "the limit of open files (`ulimit -n`) is {}, and the tracer needs {FEWEST_OPEN_FILES}",
            limit.rlim_max
        )
    })
}

/// Whether the kernel lets us raise the hard limit: by doing it, and taking it back.
fn may_raise(now: &libc::rlimit) -> bool {
    let higher = libc::rlimit { rlim_cur: now.rlim_cur, rlim_max: FEWEST_OPEN_FILES };
    // SAFETY: plain system calls that read their arguments.
    unsafe {
        libc::setrlimit(libc::RLIMIT_NOFILE, &higher) == 0
            && libc::setrlimit(libc::RLIMIT_NOFILE, now) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_no_limit_causes_is_not_explained() {
        assert_eq!(explain(&io::Error::from_raw_os_error(libc::ENOENT)), "");
    }

    #[test]
    fn an_error_is_explained_by_its_limit() {
        // Every system has a limit of open files.
        let said = explain(&io::Error::from_raw_os_error(libc::EMFILE));
        assert!(said.starts_with("; the limit of open files (`ulimit -n`) is "), "{said}");
    }
}
