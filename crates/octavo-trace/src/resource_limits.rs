//! Limits of the process (`ulimit`) as the cause of an error.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// A limit: its number for the kernel, its name, the option of `ulimit`, and the error that it
/// causes.
struct Limit {
    resource: libc::__rlimit_resource_t,
    name: &'static str,
    option: char,
    error: i32,
}

const ADDRESS_SPACE: Limit =
    Limit { resource: libc::RLIMIT_AS, name: "address space", option: 'v', error: libc::ENOMEM };
const LIMITS: [Limit; 5] = [
    ADDRESS_SPACE,
    Limit { resource: libc::RLIMIT_DATA, name: "data memory", option: 'd', error: libc::ENOMEM },
    Limit { resource: libc::RLIMIT_FSIZE, name: "file size", option: 'f', error: libc::EFBIG },
    Limit { resource: libc::RLIMIT_NOFILE, name: "open files", option: 'n', error: libc::EMFILE },
    Limit { resource: libc::RLIMIT_NPROC, name: "processes", option: 'u', error: libc::EAGAIN },
];

impl Limit {
    /// The soft limit; `None` if there is none.
    fn value(&self) -> Option<u64> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a plain system call that fills in `limit`.
        let result = unsafe { libc::getrlimit(self.resource, &mut limit) };
        (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }
}

/// `; the limit of …`, and how to lift it if hardly any program needs it; nothing if there is no
/// limit.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(value) = self.value() else { return Ok(()) };
        let Limit { name, option, .. } = self;
        write!(f, "; the limit of {name} (`ulimit -{option}`) is ")?;
        match self.resource {
            libc::RLIMIT_NOFILE | libc::RLIMIT_NPROC => write!(f, "{value}"),
            _ => write!(f, "{} KiB, and `ulimit -{option} unlimited` lifts it", value / 1024),
        }
    }
}

/// An addition to the message of an error that a limit may have caused: `; the limit of …`, or
/// nothing.
pub fn explain(error: &io::Error) -> String {
    let causes = LIMITS.iter().filter(|limit| error.raw_os_error() == Some(limit.error));
    joined(causes)
}

/// An addition to the message if Valgrind did not start: it needs address space and data memory.
pub fn explain_failed_start() -> String {
    joined(LIMITS[..2].iter())
}

fn joined<'a>(limits: impl Iterator<Item = &'a Limit>) -> String {
    limits.map(Limit::to_string).collect()
}

/// The system's allocator. If memory is full, the process ends with status 125 and a sentence that
/// names the limit of address space, if there is one; the default is an abort.
pub struct AllocatorOrExit;

// SAFETY: the system's allocator does the work, and null is never returned for memory.
unsafe impl GlobalAlloc for AllocatorOrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        or_exit(unsafe { System.realloc(old, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

#[inline]
fn or_exit(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        exit_for_memory(bytes);
    }
    memory
}

/// Allocates nothing itself. Of several threads that find memory full, the first one says so.
#[cold]
fn exit_for_memory(bytes: usize) -> ! {
    static IS_ENDING: AtomicBool = AtomicBool::new(false);
    while IS_ENDING.swap(true, Ordering::Relaxed) {
        // SAFETY: a plain system call.
        unsafe { libc::pause() };
    }
    let mut text = [0; 256];
    let mut rest = &mut text[..];
    drop(writeln!(
        rest,
        "octavo: memory is full: the system refused {bytes} more bytes{ADDRESS_SPACE}."
    ));
    let length = 256 - rest.len();
    // SAFETY: plain system calls; the text outlives the first one.
    unsafe {
        libc::write(2, text.as_ptr().cast(), length);
        libc::_exit(125)
    }
}

/// The fewest descriptors that Valgrind and a dynamically linked program need.
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

/// Whether the kernel lets us raise the hard limit: tries it, and restores the limit.
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
        let message = explain(&io::Error::from_raw_os_error(libc::EMFILE));
        assert!(message.starts_with("; the limit of open files (`ulimit -n`) is "), "{message}");
    }
}
