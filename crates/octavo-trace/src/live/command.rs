//! The command line that starts Valgrind.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::LiveOptions;

/// If this environment variable is set, VEX checks each superblock after every step of its
/// translation, for tests of the tracer (`tracer/checks.c`).
const CHECK_TRANSLATIONS: &str = "OCTAVO_CHECK_TRANSLATIONS";

/// Starts the program under our tool, which inherits the descriptors of the ring and of its log.
pub fn start_octavo(options: &LiveOptions, session: OwnedFd, log: OwnedFd) -> io::Result<Child> {
    let mut command = valgrind(options);
    // The tool is executed without Valgrind's launcher, whose name the core demands.
    command.env("VALGRIND_LAUNCHER", &options.valgrind);
    let follow = if options.follow_children { "yes" } else { "no" };
    command
        .env("VALGRIND_LIB", &options.tool_dir)
        .arg("--tool=octavo")
        .arg(format!("--trace-children={follow}"))
        .arg(format!("--octavo-follow={follow}"))
        .arg(format!("--octavo-allocations={}", options.allocation_frames))
        .arg(format!("--octavo-session={}", session.as_raw_fd()))
        .arg(format!("--log-fd={}", log.as_raw_fd()));
    if std::env::var_os(CHECK_TRANSLATIONS).is_some() {
        command.arg("--octavo-check-translations=yes");
    }
    spawn(command, options, [session, log])
}

/// Starts the program under Lackey, its text into `pipe`.
pub fn start_lackey(options: &LiveOptions, pipe: OwnedFd) -> io::Result<Child> {
    let mut command = valgrind(options);
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--trace-children=no"])
        .arg("--child-silent-after-fork=yes")
        .arg(format!("--log-fd={}", pipe.as_raw_fd()));
    spawn(command, options, [pipe])
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

/// The size of the main stack, if its limit exceeds Valgrind's default of 16 MiB. Without a limit,
/// the size is the most that the tracer takes for a stack (`STACK_AREA` in `tracer/placement.c`).
fn large_stack() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a plain system call that fills in `limit`.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    (result == 0 && limit.rlim_cur > 16 << 20).then(|| limit.rlim_cur.min(1 << 30))
}

/// Starts Valgrind, which inherits `descriptors` under their numbers here.
fn spawn<const N: usize>(
    mut command: Command,
    options: &LiveOptions,
    descriptors: [OwnedFd; N],
) -> io::Result<Child> {
    command.args(&options.argv);
    let inherited = descriptors.each_ref().map(AsRawFd::as_raw_fd);
    // SAFETY: between fork and exec only plain system calls are made.
    unsafe {
        command.pre_exec(move || {
            // A program whose consumer is gone would fill the ring and wait for ever.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Python ignores this signal, and an ignored signal stays ignored in the program.
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            for fd in inherited {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.spawn()
}
