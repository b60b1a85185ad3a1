//! Files that are read whole.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// Opens a regular file. Others are refused: to open a pipe waits for its writer, and a device may
/// have no end.
///
/// # Errors
///
/// As [`File::open`], and [`ErrorKind::InvalidInput`] for a pipe, a socket or a device.
pub fn open_regular(path: &Path) -> Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "it is not a regular file, but a pipe, a socket or a device",
        ));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_not_opened() {
        let error = open_regular(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("it is not a regular file"));
    }

    #[test]
    fn regular_file_is_opened() {
        assert!(open_regular(&std::env::current_exe().unwrap()).is_ok());
    }
}
