//! Reading the small files of /proc/PID.

use std::fs::File;
use std::io::{self, Read};

/// A file of /proc as text. The standard library reads files of unknown length in small steps, and every step makes the
/// kernel write the whole text anew; a start reads hundreds of them.
pub fn read(path: &str) -> io::Result<String> {
    let mut text = Vec::with_capacity(8192);
    File::open(path)?.read_to_end(&mut text)?;
    String::from_utf8(text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_status_is_read_whole() {
        assert_eq!(
            super::read("/proc/self/status").unwrap().lines().count(),
            std::fs::read_to_string("/proc/self/status").unwrap().lines().count()
        );
    }
}
