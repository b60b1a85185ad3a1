//! Native traces whose checksums fit: no fuzzer finds one by chance.

use twox_hash::XxHash3_64;

const FILE_HEADER_BYTES: usize = 16;
const FRAME_HEADER_BYTES: usize = 64;
const MAX_FRAMES: usize = 256;

/// Returns the whole frames of `bytes` with their checksums corrected; docs/trace-format.md says
/// where the checksums stand.
pub fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut corrected = bytes.to_vec();
    let mut start = FILE_HEADER_BYTES;
    for _ in 0..MAX_FRAMES {
        let Some(frame) =
            corrected.get_mut(start..).filter(|frame| frame.len() >= FRAME_HEADER_BYTES)
        else {
            break;
        };
        let length = |field: usize, frame: &[u8]| {
            u32::from_le_bytes(frame[field..field + 4].try_into().expect("four bytes")) as usize
        };
        let (first, second) = (length(12, frame), length(16, frame));
        let middle = FRAME_HEADER_BYTES.saturating_add(first).min(frame.len());
        let end = middle.saturating_add(second).min(frame.len());
        let sums =
            [&frame[FRAME_HEADER_BYTES..middle], &frame[middle..end]].map(XxHash3_64::oneshot);
        frame[48..56].copy_from_slice(&sums[0].to_le_bytes());
        frame[56..64].copy_from_slice(&sums[1].to_le_bytes());
        frame[20..24].fill(0);
        let sum = XxHash3_64::oneshot(&frame[..FRAME_HEADER_BYTES]) as u32;
        frame[20..24].copy_from_slice(&sum.to_le_bytes());
        start += end;
    }
    corrected
}

/// Returns `bytes` with the last eight replaced by the checksum of all before (docs/snapshot.md).
pub fn with_last_checksum(bytes: &[u8]) -> Vec<u8> {
    let content = &bytes[..bytes.len().saturating_sub(8)];
    [content, &XxHash3_64::oneshot(content).to_le_bytes()].concat()
}
