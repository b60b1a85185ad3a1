//! The file that the consumer and every traced process share.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::format::{self, session};

/// Why no session could be made.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Neither anonymous memory nor a file could be had.
    #[error("cannot make the memory shared with the tracer: memfd_create: {memfd}; {path}: {file}")]
    NoFile {
        /// What the kernel said to `memfd_create`.
        memfd: io::Error,
        /// The file tried instead.
        path: PathBuf,
        /// What the file system said.
        file: io::Error,
    },
    /// It could not be mapped.
    #[error("cannot map the memory shared with the tracer: {0}")]
    Map(io::Error),
}

/// The shared file, mapped. Pages are allotted only where a stream was written.
pub struct Session {
    base: *mut u8,
    file: File,
}

// SAFETY: the mapping lives as long as the session, and everything in it is reached through atomics
// or through chunks that the other side has handed over.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Makes the shared file: anonymous memory of the kernel's, or where that is refused a file in
    /// `scratch_dir`, unlinked at once.
    pub fn create(scratch_dir: &Path) -> Result<Arc<Self>, SessionError> {
        let file = memfd().or_else(|memfd| {
            let path = scratch_dir.join("octavo-ring");
            scratch_file(&path).map_err(|file| SessionError::NoFile { memfd, path, file })
        })?;
        file.set_len(format::FILE_BYTES as u64).map_err(SessionError::Map)?;
        // SAFETY: a fresh shared mapping of a file that we own; no other memory is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                format::FILE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(SessionError::Map(io::Error::last_os_error()));
        }
        let made = Session { base: base.cast(), file };
        made.hold();
        made.word(session::VERSION).store(format::VERSION, Ordering::Relaxed);
        made.word(session::MAGIC).store(format::MAGIC as u32, Ordering::Relaxed);
        made.word(session::MAGIC + 4).store((format::MAGIC >> 32) as u32, Ordering::Release);
        Ok(Arc::new(made))
    }

    /// The path by which a traced process opens it, however deep its descent.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Locks the file's first byte for as long as we read: a traced process that waits for room in
    /// its ring asks for it. The lock is the open file's, so that no other thread can lose it.
    fn hold(&self) {
        let mut lock = flock(libc::F_WRLCK, 0);
        // SAFETY: a plain system call on our own file; failure leaves the lock free, and a process
        // that then waits long gives up.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) };
    }

    /// The process that holds a slot, by the identifier that it has for us: inside a PID namespace
    /// it knows itself by another. None once its image is gone.
    pub(super) fn holder(&self, slot: usize) -> Option<u32> {
        let mut lock = flock(libc::F_WRLCK, 1 + slot as libc::off_t);
        // SAFETY: a plain system call that fills in `lock`.
        let asked = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLK, &mut lock) };
        let held = asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short;
        held.then_some(lock.l_pid).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1)
    }

    /// How many processes ran on untraced because every slot was taken.
    pub fn untraced(&self) -> u32 {
        self.word(session::UNTRACED).load(Ordering::Relaxed)
    }

    /// The numbers of the slots in which a stream has begun.
    pub fn open_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..format::SLOTS)
            .filter(|&slot| self.state(slot).load(Ordering::Acquire) == format::SLOT_OPEN)
    }

    /// Gives the slot's memory back and the slot to whoever comes next.
    pub(super) fn release(&self, slot: usize) {
        let offset = format::PAGE_BYTES + slot * format::SLOT_BYTES;
        // SAFETY: plain system call on our own file; failure only keeps the pages allotted.
        unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset as libc::off_t,
                format::SLOT_BYTES as libc::off_t,
            );
        }
        self.state(slot).store(format::SLOT_FREE, Ordering::Release);
    }

    /// The address of byte `offset` of the file.
    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < format::FILE_BYTES);
        // SAFETY: inside the mapping, by the assertion.
        unsafe { self.base.add(offset) }
    }

    fn state(&self, slot: usize) -> &AtomicU32 {
        self.word(session::SLOT_STATE + 4 * slot)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned, inside the mapping, and only ever reached as an atomic.
        unsafe { &*self.at(offset).cast() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `create`; slots hold an `Arc` of the session.
        unsafe { libc::munmap(self.base.cast(), format::FILE_BYTES) };
    }
}

/// A lock of kind `l_type` on byte `start`.
fn flock(l_type: libc::c_int, start: libc::off_t) -> libc::flock {
    libc::flock {
        l_type: l_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: 1,
        l_pid: 0,
    }
}

fn memfd() -> io::Result<File> {
    // SAFETY: a plain system call; the descriptor is ours alone.
    let fd = unsafe { libc::memfd_create(c"octavo-ring".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn scratch_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
