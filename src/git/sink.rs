//! A new file that ends in the hash of all that it holds (gitformat-pack(5)). Where it is long, hashing and writing are a
//! thread's of their own.

use super::{Algorithm, GitError, Hasher, Oid, io};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// How much is handed over at once.
const PIECE: usize = 1 << 20;
/// How many pieces may wait.
const WAITING: usize = 4;

/// Takes what is to be written.
pub(super) struct Sink<'a> {
    piece: Vec<u8>,
    offset: u64,
    path: &'a Path,
    to: Way<'a>,
}

enum Way<'a> {
    /// Written by whoever puts it.
    Here(&'a Mutex<Out>),
    /// Written by a thread.
    There(SyncSender<Vec<u8>>),
}

struct Out {
    file: File,
    hasher: Hasher,
}

impl Out {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.hasher.update(piece);
        self.file.write_all(piece)
    }
}

impl Sink<'_> {
    /// How much has been put so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Puts more.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), GitError> {
        self.offset += bytes.len() as u64;
        if self.piece.len() + bytes.len() > PIECE {
            self.pass_on()?;
        }
        self.piece.extend_from_slice(bytes);
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), GitError> {
        let passed = match &self.to {
            Way::Here(out) => out.lock().unwrap_or_else(PoisonError::into_inner).write(&self.piece),
            Way::There(thread) => {
                let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
                // The thread has said why it has ended.
                thread.send(piece).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
            }
        };
        self.piece.clear();
        passed.map_err(io(self.path))
    }
}

/// Writes a new file of what `put` puts, of about `expected` bytes; and its hash, which is the answer.
pub(super) fn write(
    path: &Path,
    algorithm: Algorithm,
    expected: u64,
    put: impl FnOnce(&mut Sink<'_>) -> Result<(), GitError>,
) -> Result<Oid, GitError> {
    let file = File::options().write(true).create_new(true).open(path).map_err(io(path))?;
    let out = Mutex::new(Out { file, hasher: algorithm.start() });
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Vec<u8>>(WAITING);
        let write = || -> std::io::Result<()> {
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            receive.into_iter().try_for_each(|piece| out.write(&piece))
        };
        let long = expected > 4 * PIECE as u64;
        let thread = long.then(|| std::thread::Builder::new().spawn_scoped(scope, write)).and_then(Result::ok);
        let to = if thread.is_some() { Way::There(send) } else { Way::Here(&out) };
        let mut sink = Sink { piece: Vec::with_capacity(PIECE.min(expected as usize)), offset: 0, path, to };
        let done = put(&mut sink).and_then(|()| sink.pass_on());
        // With it the thread's channel is closed.
        drop(sink);
        match thread.map(|thread| thread.join()) {
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            Some(Ok(written)) => written.map_err(io(path))?,
            None => {}
        }
        done
    })?;
    let Out { mut file, hasher } = out.into_inner().unwrap_or_else(PoisonError::into_inner);
    let hash = hasher.finish();
    file.write_all(hash.as_bytes()).map_err(io(path))?;
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha1::{Digest, Sha1};

    #[test]
    fn a_file_ends_in_its_hash_by_either_way() {
        let directory = tempfile::tempdir().unwrap();
        let part: Vec<u8> = (0..300_007u64).map(|at| (at * at % 251) as u8).collect();
        for (name, count, expected) in [("none", 0, 0), ("short", 3, 900_000), ("long", 40, 12 << 20), ("huge", 40, 1)]
        {
            let path = directory.path().join(name);
            let put = |sink: &mut Sink<'_>| (0..count).try_for_each(|_| sink.put(&part));
            let hash = write(&path, Algorithm::Sha1, expected, put).unwrap();
            let (content, written) = (part.repeat(count), std::fs::read(&path).unwrap());
            assert_eq!(hash.as_bytes(), &Sha1::digest(&content)[..]);
            assert!(written == [&content[..], hash.as_bytes()].concat(), "{name}");
            assert!(write(&path, Algorithm::Sha1, 0, |_| Ok(())).is_err(), "it is there");
        }
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        // A write to it is ENOSPC.
        let full = Mutex::new(Out {
            file: File::options().write(true).open("/dev/full").unwrap(),
            hasher: Algorithm::Sha1.start(),
        });
        let mut sink = Sink { piece: Vec::new(), offset: 0, path: Path::new("/dev/full"), to: Way::Here(&full) };
        assert!(sink.put(&[1; 10]).and_then(|()| sink.pass_on()).is_err());
    }
}
