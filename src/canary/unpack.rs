//! Streams within streams: what is packed is unpacked as it is read, to a bounded depth and size, and searched by itself.
//!
//! A container is known by its first bytes. Its own bytes are searched as well, so that what only looks like one, or is
//! damaged, hides nothing that stands there in plain; what could not be unpacked is told.

use super::git_pack;
use super::needles::Needles;
use super::search::{Find, Search};
use super::{tar, zip};
use crate::report::Frames;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use lzma_rust2::XzReader;
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

/// How deep containers may stand in one another; a compressed archive is two.
const DEPTH: usize = 8;

/// What an xz stream may ask for, in KiB: four times what `xz -9` does.
const XZ_MEMORY: u32 = 256 << 10;

/// How many bytes must be there to know a container: a tar's mark is the last.
pub(super) const HEAD: usize = 512;

/// A find, and what it is packed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    /// The names of the members, from the outermost in; empty for a file's own bytes.
    pub(super) within: Vec<String>,
    pub(super) find: Find,
}

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) within: Vec<String>,
    pub(super) why: String,
}

/// What one file gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) hits: Vec<Hit>,
    pub(super) unread: Vec<Unread>,
    /// How many bytes were searched, unpacked ones too.
    pub(super) bytes: u64,
}

/// Takes what a container holds.
pub(super) trait Members {
    /// Reads a member that takes no more room here than in its container, to its end. Errors are the source's.
    fn stored(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()>;
    /// The same of one that is being unpacked, of which only so much may be.
    fn member(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()>;
    /// Notes a member that is passed over.
    fn unread(&mut self, name: &str, why: &str);
}

/// Reads files; one for each thread.
pub(super) struct Reader<'n> {
    needles: &'n Needles,
    limit: u64,
    /// How many more bytes may come out of one file's containers.
    left: Rc<Cell<u64>>,
    unpacks: bool,
    buffers: Vec<Vec<u8>>,
    within: Vec<String>,
    found: Found,
}

impl<'n> Reader<'n> {
    /// `limit` is how many bytes may be unpacked from one file.
    pub(super) fn of(needles: &'n Needles, limit: u64) -> Reader<'n> {
        let left = Rc::new(Cell::new(limit));
        Reader { needles, limit, left, unpacks: true, buffers: Vec::new(), within: Vec::new(), found: Found::default() }
    }

    /// Reads a file of that name to its end.
    pub(super) fn file(&mut self, name: &str, source: &mut dyn Read) -> Found {
        self.left.set(self.limit);
        self.within.clear();
        if let Err(cause) = self.stream(name, source) {
            self.note(&cause.to_string());
        }
        std::mem::take(&mut self.found)
    }

    /// Reads a file's own bytes, whatever they look like.
    pub(super) fn plainly(&mut self, source: &mut dyn Read) -> Found {
        self.unpacks = false;
        let found = self.file("", source);
        self.unpacks = true;
        found
    }

    /// Reads bytes as a file of that name.
    pub(super) fn bytes(&mut self, name: &str, mut bytes: &[u8]) -> Found {
        self.file(name, &mut bytes)
    }

    fn note(&mut self, why: &str) {
        self.found.unread.push(Unread { within: self.within.clone(), why: why.to_owned() });
    }

    fn stream(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()> {
        let mut search = Search::new(self.needles, self.buffers.pop().unwrap_or_default());
        let before = self.found.hits.len();
        let read = self.read(name, source, &mut search);
        let (mut finds, buffer) = search.finish();
        // Compressed data has some of its content in plain: that is told once, by its place inside.
        let inner = &self.found.hits[before..];
        let same = |hit: &Hit, find: &Find| hit.find.token == find.token && hit.find.encoding == find.encoding;
        finds.retain(|find| !inner.iter().any(|hit| same(hit, find)));
        self.buffers.push(buffer);
        let within = &self.within;
        self.found.hits.extend(finds.into_iter().map(|find| Hit { within: within.clone(), find }));
        read
    }

    fn read(&mut self, name: &str, source: &mut dyn Read, search: &mut Search<'_>) -> io::Result<()> {
        let space = search.space();
        let mut count = 0;
        while count < HEAD {
            match source.read(&mut space[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    search.took(count);
                    return Err(cause);
                }
            }
        }
        if let Some(kind) = Kind::of(&space[..count], name).filter(|_| self.unpacks) {
            let head = space[..count].to_vec();
            let source = BufReader::new(Cursor::new(head).chain(source));
            return self.container(kind, name, &mut Tee { source, search, muted: false, passed: &mut 0 });
        }
        self.found.bytes += count as u64;
        search.took(count);
        while count > 0 {
            count = match source.read(search.space()) {
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.found.bytes += count as u64;
            search.took(count);
        }
        Ok(())
    }

    /// Reads what a container holds, and the rest of its own bytes.
    fn container<R: Read>(&mut self, kind: Kind, name: &str, tee: &mut Tee<'_, '_, R>) -> io::Result<()> {
        let unpacked = match self.within.len() < DEPTH {
            true => self.unpack(kind, name, tee),
            false => Err(io::Error::other(format!("it is packed more than {DEPTH} deep"))),
        };
        tee.muted = false;
        let outermost = self.within.is_empty();
        match unpacked {
            Ok(()) => {}
            // Nothing more may be unpacked, at whatever depth: the file itself is read on.
            Err(cause) if is_limit(&cause) && !outermost => return Err(cause),
            // Two bytes make no container; many a text begins so.
            Err(_) if kind == Kind::Zlib && !is_git_object(name) => {}
            Err(cause) => self.note(&cause.to_string()),
        }
        loop {
            let count = tee.fill_buf()?.len();
            if count == 0 {
                self.found.bytes += *tee.passed;
                return Ok(());
            }
            tee.consume(count);
        }
    }

    fn unpack<R: Read>(&mut self, kind: Kind, name: &str, tee: &mut Tee<'_, '_, R>) -> io::Result<()> {
        let inner = |ending: &str| name.strip_suffix(ending).unwrap_or("content").to_owned();
        match kind {
            Kind::Gzip => self.member(&inner(".gz"), &mut Gzip::of(tee)),
            Kind::Zstd => self.member(&inner(".zst"), &mut Frames::of(tee)),
            Kind::Xz => self.member(&inner(".xz"), &mut XzReader::new_mem_limit(tee, true, XZ_MEMORY)),
            Kind::Bzip2 => self.member(&inner(".bz2"), &mut MultiBzDecoder::new(tee)),
            Kind::Zlib => self.member("content", &mut ZlibDecoder::new(tee)),
            Kind::Tar => tar::walk(tee, self),
            Kind::Zip => zip::walk(tee, self),
            Kind::GitPack => git_pack::walk(tee, self),
            Kind::Unknown(format) => Err(io::Error::other(format!("{format} is not unpacked"))),
        }
    }
}

impl Members for Reader<'_> {
    fn member(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()> {
        let left = Rc::clone(&self.left);
        self.stored(name, &mut Metered { source, left, limit: self.limit })
    }

    fn stored(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()> {
        self.within.push(name.to_owned());
        let read = self.stream(name.rsplit('/').next().unwrap_or(name), source);
        self.within.pop();
        read
    }

    fn unread(&mut self, name: &str, why: &str) {
        self.within.push(name.to_owned());
        self.note(why);
        self.within.pop();
    }
}

/// Whether a file of that name and beginning is a container.
pub(super) fn is_container(head: &[u8], name: &str) -> bool {
    Kind::of(head, name).is_some()
}

/// What a stream is by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Zlib,
    Tar,
    Zip,
    GitPack,
    /// A compression that is known and not read.
    Unknown(&'static str),
}

impl Kind {
    fn of(head: &[u8], name: &str) -> Option<Kind> {
        Some(match head {
            [0x1f, 0x8b, 8, ..] => Kind::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Kind::Zstd,
            [b'P', b'K', 3, 4, ..] => Kind::Zip,
            [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, ..] => Kind::GitPack,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Kind::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => Kind::Bzip2,
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Kind::Unknown("7z"),
            [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => Kind::Unknown("rar"),
            [4, 0x22, 0x4d, 0x18, ..] => Kind::Unknown("lz4"),
            [b'L', b'Z', b'I', b'P', 1, ..] => Kind::Unknown("lzip"),
            [0x1f, 0x9d, ..] => Kind::Unknown("compress"),
            _ if tar::is_header(head) => Kind::Tar,
            // RFC 1950 with the usual window, no dictionary, and the check of the two bytes.
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Kind::Zlib,
            _ if name.ends_with(".lzma") => Kind::Unknown("lzma"),
            _ => return None,
        })
    }
}

/// Whether a name is that of a loose object of git: all its digits but the first two.
fn is_git_object(name: &str) -> bool {
    matches!(name.len(), 38 | 62) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A container's bytes on their way to what unpacks it; those that are passed on are searched too, unless `muted`.
pub(super) struct Tee<'s, 'n, R: Read> {
    source: BufReader<R>,
    search: &'s mut Search<'n>,
    /// For content that is stored as it is, and so is searched as a member.
    pub(super) muted: bool,
    passed: &'s mut u64,
}

impl<R: Read> Read for Tee<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for Tee<'_, '_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if !self.muted {
            self.search.take(&self.source.buffer()[..count]);
        }
        *self.passed += count as u64;
        self.source.consume(count);
    }
}

/// What comes out of a container, counted.
struct Metered<'r> {
    source: &'r mut dyn Read,
    left: Rc<Cell<u64>>,
    limit: u64,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            // A stream that ends just here is whole.
            return match self.source.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other(Limit(self.limit))),
            };
        }
        let count = self.source.read(&mut buffer[..most])?;
        self.left.set(left - count as u64);
        Ok(count)
    }
}

/// The end of what may be unpacked.
#[derive(Debug, thiserror::Error)]
#[error("more than {0} bytes come out of it: the rest is not unpacked")]
struct Limit(u64);

fn is_limit(cause: &io::Error) -> bool {
    cause.get_ref().is_some_and(|cause| cause.is::<Limit>())
}

/// The content of all members of a gzip file, as logs that are compressed piece by piece have them.
struct Gzip<R: BufRead> {
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    fn of(source: R) -> Gzip<R> {
        Gzip { decoder: Some(GzDecoder::new(source)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = self.decoder.as_mut().filter(|_| !buffer.is_empty()) {
            let count = decoder.read(buffer).map_err(|cause| damaged("gzip", cause))?;
            if count > 0 {
                return Ok(count);
            }
            let mut source = self.decoder.take().map(GzDecoder::into_inner);
            // What follows and is no member is the file's own (gzip(1) passes over it).
            let goes_on = source
                .as_mut()
                .map_or(Ok(false), |source| source.fill_buf().map(|next| next.first() == Some(&0x1f)))?;
            self.decoder = source.filter(|_| goes_on).map(GzDecoder::new);
        }
        Ok(0)
    }
}

/// A decoder's error in one sentence; the limit stays what it is.
pub(super) fn damaged(format: &str, cause: io::Error) -> io::Error {
    match is_limit(&cause) {
        true => cause,
        false => {
            io::Error::new(io::ErrorKind::InvalidData, format!("its {format} data is damaged or cut short ({cause})"))
        }
    }
}
