//! The file that the consumer and every traced process share.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::format::{self, session};
use crate::{memory_file, resource_limits};

/// The memory shared with the tracer could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot make the {gib:.1} GiB of memory shared with the tracer (it is used only as far as \
         needed; a live run needs 5 GiB of address space in all): {source}{}",
        resource_limits::explain(source), gib = GIBIBYTES)]
pub struct SessionError {
    #[from]
    source: io::Error,
}

const GIBIBYTES: f64 = format::FILE_BYTES as f64 / (1u64 << 30) as f64;

/// Address space that must be left after the ring is mapped: threads, results, and Valgrind's own
/// process need some. With less, memory would run out in the middle of a run.
const HEADROOM_BYTES: usize = 512 << 20;

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

/// The byte behind those of the slots, which the descriptor of the traced processes locks.
const PROCESSES_BYTE: libc::off_t = 1 + format::SLOTS as libc::off_t;

impl Session {
    /// Creates the shared file, in memory and of a fixed size.
    pub fn create() -> Result<Arc<Self>, SessionError> {
        let file = memory_file::create(c"octavo-ring")?;
        file.set_len(format::FILE_BYTES as u64)?;
        memory_file::seal_size(&file)?;
        let bytes = format::FILE_BYTES + HEADROOM_BYTES;
        // SAFETY: a fresh shared mapping of a file that we own; no other memory is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the end of the mapping just made, which lies behind the file.
        unsafe { libc::munmap(base.add(format::FILE_BYTES), HEADROOM_BYTES) };
        let made = Session { base: base.cast(), file };
        made.hold();
        made.word(session::VERSION).store(format::VERSION, Ordering::Relaxed);
        made.word(session::MAGIC).store(format::MAGIC as u32, Ordering::Relaxed);
        made.word(session::MAGIC + 4).store((format::MAGIC >> 32) as u32, Ordering::Release);
        Ok(Arc::new(made))
    }

    /// The descriptor that the program is started with. It is an open file of its own, which all
    /// traced processes share and whose lock lasts as long as one of them has it.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let descriptor = memory_file::open_for_child(&self.file, 0)?;
        let mut lock = flock(libc::F_WRLCK, PROCESSES_BYTE);
        // SAFETY: a plain system call on our own file; failure leaves the lock free.
        unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) };
        Ok(descriptor)
    }

    /// Whether a process has the program's descriptor, a child that has not begun its stream among
    /// them.
    pub fn has_processes(&self) -> bool {
        let mut lock = flock(libc::F_WRLCK, PROCESSES_BYTE);
        // SAFETY: a plain system call that fills in `lock`.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
        result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// Locks the file's first byte for as long as we read: a traced process that waits for room in
    /// its ring tests this lock. The lock belongs to the open file, so that no other thread can
    /// lose it.
    fn hold(&self) {
        let mut lock = flock(libc::F_WRLCK, 0);
        // SAFETY: a plain system call on our own file; failure leaves the lock free, and a process
        // that then waits long gives up.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) };
    }

    /// The process that holds a slot, by its identifier in our PID namespace, which may differ from
    /// the one in its own. `None` once its image is gone.
    pub(super) fn holder(&self, slot: usize) -> Option<u32> {
        let mut lock = flock(libc::F_WRLCK, 1 + slot as libc::off_t);
        // SAFETY: a plain system call that fills in `lock`.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLK, &mut lock) };
        let held = result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short;
        held.then_some(lock.l_pid).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1)
    }

    /// How many processes ran on untraced because every slot was taken.
    pub fn untraced(&self) -> u32 {
        self.word(session::UNTRACED).load(Ordering::Relaxed)
    }

    /// Sets the windows by instructions of all processes: `traced` instructions are traced, the
    /// next `gap` are not, and so on. Called before the program starts.
    pub fn set_windows(&self, traced: u64, gap: u64) {
        self.wide(session::WINDOW_INSTRUCTIONS).store(traced, Ordering::Relaxed);
        self.wide(session::GAP_INSTRUCTIONS).store(gap, Ordering::Relaxed);
    }

    /// Sets whether tracing is paused, in addition to the gaps of windows. Each process follows
    /// when Valgrind's core next enters its translations: a waiting one, before it executes
    /// anything.
    pub fn set_paused(&self, paused: bool) {
        self.word(session::PAUSED).store(u32::from(paused), Ordering::SeqCst);
    }

    /// Sets the time that is recorded with windows.
    pub fn set_elapsed(&self, elapsed: Duration) {
        let milliseconds = elapsed.as_millis() as u64;
        self.wide(session::ELAPSED_MILLISECONDS).store(milliseconds, Ordering::Relaxed);
    }

    /// The numbers of the slots in which a stream has begun.
    pub fn open_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..format::SLOTS)
            .filter(|&slot| self.state(slot).load(Ordering::Acquire) == format::SLOT_OPEN)
    }

    /// Returns the slot's memory to the system, and frees the slot for another process.
    pub(super) fn release(&self, slot: usize) {
        let offset = format::PAGE_BYTES + slot * format::SLOT_BYTES;
        // SAFETY: plain system call on our own file; failure only keeps the pages allocated.
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

    fn wide(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as below.
        unsafe { &*self.at(offset).cast() }
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
