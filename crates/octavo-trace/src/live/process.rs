//! Processes that are not our children: whether they live, and signals to them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pid(pub u32);

impl Pid {
    /// Sends a signal; a process that is gone already is not an error.
    pub fn signal(self, signal: i32) {
        // SAFETY: a plain system call.
        unsafe { libc::kill(self.0 as libc::pid_t, signal) };
    }
}

/// A handle of a process, for which no later process with the same identifier can be mistaken.
pub enum Process {
    /// Through a descriptor of the process.
    Descriptor(OwnedFd),
    /// By its identifier, on kernels without such descriptors (before 5.3).
    Identifier(Pid),
    /// The process was gone before it could be opened.
    Gone,
}

impl Process {
    /// Opens a process.
    pub fn open(pid: Pid) -> Self {
        // SAFETY: a plain system call; the descriptor is ours alone.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0 as libc::pid_t, 0) };
        if fd >= 0 {
            // SAFETY: the system call has just made it; it has no other owner.
            return Process::Descriptor(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => Process::Gone,
            _ => Process::Identifier(pid),
        }
    }

    /// Sends a signal, to this process and no later one.
    pub fn signal(&self, signal: i32) {
        match self {
            Process::Descriptor(fd) => {
                let (info, flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
                // SAFETY: a plain system call.
                unsafe {
                    libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, info, flags)
                };
            }
            Process::Identifier(pid) => pid.signal(signal),
            Process::Gone => {}
        }
    }

    /// Whether it has ended, as a zombie has.
    pub fn ended(&self) -> bool {
        match self {
            Process::Descriptor(fd) => {
                let mut poll =
                    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one initialised pollfd.
                unsafe { libc::poll(&mut poll, 1, 0) > 0 }
            }
            Process::Identifier(pid) => std::fs::read_to_string(format!("/proc/{}/stat", pid.0))
                .map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|s| s.starts_with('Z'))),
            Process::Gone => true,
        }
    }
}
