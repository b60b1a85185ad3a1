//! The threads that Octavo starts.

use std::error::Error;
use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

use crate::resource_limits;

/// Starts a thread. The error is a sentence that names the limit of processes if one is set.
pub fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    let failed = |error: io::Error| {
        format!("cannot start a thread: {error}{}", resource_limits::explain(&error))
    };
    Builder::new().name(format!("octavo-{name}")).spawn(work).map_err(failed)
}

/// Starts the threads on which kernels and machines work, one for each core, if they do not run
/// yet. The error is a sentence that names the limit of processes if one is set. Without this call,
/// a failure makes the first use of the pool panic.
pub fn start_workers() -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    STARTED.get_or_init(build_pool).clone()
}

fn build_pool() -> Result<(), String> {
    rayon::ThreadPoolBuilder::new().build_global().map_err(|error| {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        format!(
            "cannot start threads: {error}{}",
            cause.map_or(String::new(), resource_limits::explain)
        )
    })
}
