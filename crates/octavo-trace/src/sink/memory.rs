//! A trace in memory, for the unit tests and the integration tests of this crate.

use std::io::{Error, Result, Write};
use std::sync::{Arc, Mutex};

/// A file in memory, on a disk of `room` bytes.
#[derive(Clone)]
pub struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Memory {
    /// A file on a disk of `room` bytes.
    pub fn with_room(room: usize) -> Self {
        Memory { bytes: Arc::default(), room }
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::with_room(usize::MAX)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut file = self.bytes.lock().unwrap();
        if self.room - file.len() < bytes.len() {
            return Err(Error::other("no room"));
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
