//! The ledgers that a report is asked about: found, and opened whether compressed or not.

use super::buffered::Buffered;
use super::error::ReportError;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first bytes of every record (`ledger::record::Record`).
const LEDGER_START: &[u8] = b"{\"v\":";

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How much of a compressed ledger's text is kept, in bytes.
const BUFFER: usize = 1 << 16;

/// A file to be read as a ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Input {
    /// Its path, as it was named or found.
    pub(super) path: PathBuf,
    /// Whether it was named itself, and not found beneath a directory.
    pub(super) named: bool,
}

/// The ledgers among `arguments`: files as they are named, and beneath directories all files whose names end in
/// `.jsonl` or `.jsonl.zst`, each once, ordered by path. Links to directories are not followed.
pub(super) fn find(arguments: &[PathBuf]) -> Result<Vec<Input>, ReportError> {
    let mut found = Vec::new();
    for path in arguments {
        let metadata = fs::metadata(path).map_err(|cause| unreadable("ledger", path, cause))?;
        if metadata.is_dir() {
            let before = found.len();
            search(path, &mut found)?;
            if found.len() == before {
                return Err(ReportError::NoneFound { path: path.clone() });
            }
        } else {
            found.push((Input { path: path.clone(), named: true }, (metadata.dev(), metadata.ino())));
        }
    }
    found.sort();
    let mut seen = HashSet::new();
    Ok(found.into_iter().filter(|(_, file)| seen.insert(*file)).map(|(input, _)| input).collect())
}

type Identity = (u64, u64);

fn search(top: &Path, found: &mut Vec<(Input, Identity)>) -> Result<(), ReportError> {
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let failed = |cause| unreadable("directory", &directory, cause);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                directories.push(path);
                continue;
            }
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if !name.ends_with(b".jsonl") && !name.ends_with(b".jsonl.zst") {
                continue;
            }
            // A link that leads nowhere, or a file that went meanwhile, is no ledger; a socket or pipe is not read.
            if let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
            {
                found.push((Input { path, named: false }, (metadata.dev(), metadata.ino())));
            }
        }
    }
    Ok(())
}

pub(super) fn unreadable(what: &'static str, path: &Path, cause: io::Error) -> ReportError {
    ReportError::Read { what, path: path.to_owned(), cause }
}

/// A file's text, decompressed where its first bytes are those of zstd.
pub(super) type Text = Box<dyn BufRead>;

/// Opens a file; errors are those of open(2), read(2) and of the compression.
pub(super) fn open(path: &Path) -> io::Result<Text> {
    let mut file = Buffered::of(File::open(path)?);
    match file.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        true => Ok(Box::new(BufReader::with_capacity(BUFFER, Frames::of(file)))),
        false => Ok(Box::new(file)),
    }
}

/// Whether the text can be a ledger by its first bytes. An empty one can: its run was killed before its first record.
pub(super) fn begins_as_ledger(text: &mut Text) -> io::Result<bool> {
    let start = text.fill_buf()?;
    let length = start.len().min(LEDGER_START.len());
    Ok(start[..length] == LEDGER_START[..length])
}

/// The content of all frames of a zstd file: logs are compressed by appending frames, too.
pub(crate) struct Frames<R: BufRead> {
    source: R,
    decoder: FrameDecoder,
    within: bool,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(|_| damaged())?;
            }
            match self.decoder.read(buffer)? {
                0 => self.within = false,
                count => return Ok(count),
            }
        }
    }
}

impl<R: BufRead> Frames<R> {
    /// Of a source that begins with a frame.
    pub(crate) fn of(source: R) -> Frames<R> {
        Frames { source, decoder: FrameDecoder::new(), within: false }
    }

    /// Begins the next frame that may have content; false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped != u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(_) => return Err(damaged()),
            }
        }
        Ok(false)
    }
}

/// In one sentence, for the decoder's own speak of its insides.
fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the zstd data is damaged or cut short")
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
