//! The common part of all text writers: one line per reference.

use octavo_types::{Event, ItemKind, Segment, VirtAddr};

use super::executed::executed;
use crate::sink::{Output, ReferenceWriter};
use crate::source::TraceError;

/// How much text is handed on at once.
const BUFFER_BYTES: usize = 1 << 16;

/// The part of a writer that is its format's own.
pub(crate) trait LineFormat: Send + 'static {
    /// The line, or lines, of one reference.
    fn line(&self, out: &mut Vec<u8>, kind: ItemKind, addr: VirtAddr, size_bytes: u16);

    /// Why the format cannot hold a reference, if it cannot.
    fn refuses(&mut self, _kind: ItemKind, _addr: VirtAddr) -> Option<String> {
        None
    }

    /// An event, as [`ReferenceWriter::event`] has it.
    fn event(&mut self, _event: &Event) -> bool {
        false
    }

    /// As [`ReferenceWriter::losses`] has it.
    fn losses(&self) -> Vec<String>;
}

/// Writes lines.
pub(crate) struct LineWriter<F> {
    format: F,
    output: Output,
    buffer: Vec<u8>,
}

impl<F: LineFormat> LineWriter<F> {
    /// Writes `output`, which begins with `header`.
    pub(crate) fn create(output: Output, format: F, header: &str) -> Box<dyn ReferenceWriter> {
        Box::new(LineWriter { format, output, buffer: header.as_bytes().to_vec() })
    }
}

impl<F: LineFormat> ReferenceWriter for LineWriter<F> {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> Result<(), TraceError> {
        for (item, addr) in executed(segment, addresses) {
            if let Some(what) = self.format.refuses(item.kind, addr) {
                let what = format!("{what}, which this format cannot hold");
                return Err(TraceError::whole(self.output.name(), what));
            }
            self.format.line(&mut self.buffer, item.kind, addr, item.size_bytes);
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.output.put(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<bool, TraceError> {
        Ok(self.format.event(event))
    }

    fn losses(&self) -> Vec<String> {
        self.format.losses()
    }

    fn finish(mut self: Box<Self>) -> Result<Output, TraceError> {
        self.output.put(&self.buffer)?;
        Ok(self.output)
    }
}
