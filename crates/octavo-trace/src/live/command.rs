//! The command line that starts Valgrind.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use super::{LiveError, LiveOptions};

/// Starts the program under our tool.
pub fn start_octavo(options: &LiveOptions, session: &Path) -> Result<Child, LiveError> {
    let mut command = valgrind(options);
    // Valgrind expands `%` in the name of a log.
    let logs = options.session_dir.to_string_lossy().replace('%', "%%");
    let follow = if options.follow_children { "yes" } else { "no" };
    command
        .env("VALGRIND_LIB", &options.tool_dir)
        .arg("--tool=octavo")
        .arg(format!("--trace-children={follow}"))
        .arg(format!("--octavo-follow={follow}"))
        .arg(format!("--octavo-session={}", session.display()))
        .arg(format!("--log-file={logs}/valgrind.%p.log"));
    spawn(command, options)
}

/// Starts the program under Lackey, its text into `pipe`.
pub fn start_lackey(options: &LiveOptions, pipe: OwnedFd) -> Result<Child, LiveError> {
    let mut command = valgrind(options);
    let fd = pipe.as_raw_fd();
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--trace-children=no"])
        .arg("--child-silent-after-fork=yes")
        .arg(format!("--log-fd={fd}"));
    // SAFETY: between fork and exec only one plain system call is made.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    spawn(command, options)
}

fn valgrind(options: &LiveOptions) -> Command {
    let mut command = Command::new(&options.valgrind);
    command.args([
        // VALGRIND_OPTS and .valgrindrc are for other tools than ours.
        "--command-line-only=yes",
        "-q",
        "--vgdb=no",
        "--run-libc-freeres=no",
        "--run-cxx-freeres=no",
        "--sigill-diagnostics=yes",
    ]);
    if let Some(bytes) = large_stack() {
        command.arg(format!("--main-stacksize={bytes}"));
    }
    command
}

/// The main stack's size, where it may grow past what Valgrind gives of itself: 16 MiB. Without a
/// limit, it is the most that the tracer takes for stack (`STACK_AREA` in `tracer/placement.c`).
fn large_stack() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call that fills in `limit`.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    (asked == 0 && limit.rlim_cur > 16 << 20).then(|| limit.rlim_cur.min(1 << 30))
}

fn spawn(mut command: Command, options: &LiveOptions) -> Result<Child, LiveError> {
    command.args(&options.argv);
    // SAFETY: between fork and exec only one plain system call is made.
    unsafe {
        command.pre_exec(|| {
            // A program whose consumer is gone would fill the ring and wait for ever.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
        .spawn()
        .map_err(|source| LiveError::Start { valgrind: options.valgrind.clone(), source })
}
