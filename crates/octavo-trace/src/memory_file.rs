//! Files in memory that traced processes inherit as descriptors, whatever user they run as.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Creates a file in memory. It may be sealed, and it cannot be executed where the kernel knows
/// that flag.
pub fn create(name: &CStr) -> io::Result<File> {
    match memfd(name, libc::MFD_NOEXEC_SEAL) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            memfd(name, libc::MFD_ALLOW_SEALING)
        }
        made => made,
    }
}

fn memfd(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: a plain system call; the descriptor is ours alone.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just made it; it has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Fixes the file's size. A process that can open the file could otherwise truncate it, which kills
/// every process that has mapped it with SIGBUS.
pub fn seal_size(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain system call on our own file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens the file once more for a process to inherit: a lock that we hold through `file` belongs to
/// our open file, and would last as long as any process had inherited that one.
pub fn open_for_child(file: &File, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let options = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(options.into())
}
