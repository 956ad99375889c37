//! A file read piece by piece, where it is asked for: what lies close together is had by one call, and each piece once for all
//! threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes are read at once.
const PIECE: u64 = 1 << 17;
/// Of a longer file no piece is kept: the list of them is not to grow with a length that may be a claim alone.
const LONGEST: u64 = 64 << 30;

/// The bytes that may still be kept, of all files of one repository.
pub(super) type Room = Arc<AtomicUsize>;

/// Most bytes that are kept of all files of one repository. What is read beyond is read anew each time.
pub(super) fn room() -> Room {
    Arc::new(AtomicUsize::new(256 << 20))
}

/// A file with the pieces of it that have been read.
#[derive(Debug)]
pub(super) struct Pieces {
    file: File,
    length: u64,
    pieces: Vec<OnceLock<Box<[u8]>>>,
    room: Room,
}

impl Pieces {
    /// None yet.
    pub fn new(file: File, room: &Room) -> io::Result<Pieces> {
        let length = file.metadata()?.len();
        let count = if length > LONGEST { 0 } else { length.div_ceil(PIECE) };
        let pieces = std::iter::repeat_with(OnceLock::new).take(count as usize).collect();
        Ok(Pieces { file, length, pieces, room: room.clone() })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// How long it was when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What lies between two places; `scratch` holds it where that is not in one piece.
    pub fn read<'a>(&'a self, start: u64, end: u64, scratch: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let length = usize::try_from(end.saturating_sub(start)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if start / PIECE == end.saturating_sub(1) / PIECE
            && let Some(piece) = self.piece(start / PIECE)?
            && let Some(within) = piece.get((start % PIECE) as usize..).and_then(|rest| rest.get(..length))
        {
            return Ok(within);
        }
        scratch.resize(length, 0);
        self.file.read_exact_at(scratch, start)?;
        Ok(scratch)
    }

    /// One piece; `None` where there is no room for it.
    fn piece(&self, number: u64) -> io::Result<Option<&[u8]>> {
        let Some(slot) = self.pieces.get(number as usize) else { return Ok(None) };
        if let Some(piece) = slot.get() {
            return Ok(Some(piece));
        }
        let start = number * PIECE;
        let length = self.length.saturating_sub(start).min(PIECE) as usize;
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(length));
        if taken.is_err() {
            return Ok(None);
        }
        let mut piece = vec![0; length].into_boxed_slice();
        self.file.read_exact_at(&mut piece, start)?;
        // Another thread may have been faster.
        Ok(Some(slot.get_or_init(|| piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_read_is_what_is_there_with_room_and_without() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..PIECE * 2 + 77).map(|at| (at * at % 251) as u8).collect();
        file.write_all(&content).unwrap();
        let end = content.len() as u64;
        for room in [0, PIECE as usize, usize::MAX] {
            let pieces = Pieces::new(file.try_clone().unwrap(), &Arc::new(AtomicUsize::new(room))).unwrap();
            let mut scratch = Vec::new();
            for (start, end) in
                [(0, 1), (5, 900), (PIECE - 3, PIECE + 3), (PIECE, 2 * PIECE), (end - 40, end), (0, end)]
            {
                let read = pieces.read(start, end, &mut scratch).unwrap();
                assert!(read == &content[start as usize..end as usize], "{room}: {start} to {end}");
            }
            assert!(pieces.read(end - 1, end + 1, &mut scratch).is_err());
        }
    }
}
