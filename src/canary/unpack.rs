//! Streams within streams: what is packed is unpacked as it is read, to a bounded depth and size, and searched by itself.
//!
//! A container is known by its first bytes. Its own bytes are searched as well, so that what only looks like one, or is
//! damaged, hides nothing that stands there in plain; what could not be unpacked is told.

use super::budget::Budget;
use super::decode::Encoding;
use super::gzip::Gzip;
use super::inflate::Inflate;
use super::kind::{Kind, is_git_object, is_text};
use super::needles::Needles;
use super::search::{Find, Search};
use super::{git_pack, tar, zip};
use crate::report::Frames;
use bzip2::bufread::MultiBzDecoder;
use lzma_rust2::XzReader;
use std::cell::Cell;
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

/// How deep containers may stand in one another; a compressed archive is two.
const DEPTH: usize = 8;

/// What an xz stream may ask for, in KiB: four times what `xz -9` does.
const XZ_MEMORY: u32 = 256 << 10;

/// How many bytes must be there to know a container: a tar's mark is the last.
pub(super) const HEAD: usize = 512;

/// How many hits of one file are listed, and how much of it that was not read.
const LISTED: usize = 64;

/// How much of a member's name is kept, in bytes: what a path of a file may have (PATH_MAX).
const NAME: usize = 4096;

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
    /// How many more there are than are listed.
    pub(super) more_hits: u64,
    pub(super) more_unread: u64,
    /// Whether it holds a token that is no hit there.
    pub(super) ours: bool,
    /// How many bytes were searched, unpacked ones too.
    pub(super) bytes: u64,
}

impl Found {
    /// Adds finds that are all in one stream, but those of tokens that are no hit there.
    pub(super) fn add(&mut self, within: &[String], finds: Vec<Find>, ours: &[usize]) {
        for find in finds {
            if ours.contains(&find.token) {
                self.ours = true;
            } else if self.hits.len() < LISTED {
                self.hits.push(Hit { within: within.to_vec(), find });
            } else {
                self.more_hits += 1;
            }
        }
    }

    /// Notes what was not read.
    pub(super) fn note(&mut self, within: &[String], why: &str) {
        if self.unread.len() < LISTED {
            self.unread.push(Unread { within: within.to_vec(), why: why.to_owned() });
        } else {
            self.more_unread += 1;
        }
    }

    /// Whether there is nothing to tell of it.
    pub(super) fn is_nothing(&self) -> bool {
        self.hits.is_empty() && self.unread.is_empty() && self.more_hits == 0 && self.more_unread == 0
    }
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
    budget: &'n Budget,
    limit: u64,
    /// How many more bytes may come out of one file's containers.
    left: Rc<Cell<u64>>,
    unpacks: bool,
    buffers: Vec<Vec<u8>>,
    within: Vec<String>,
    /// Tokens that are no hit in this file.
    ours: Vec<usize>,
    /// What was found in the members of the container that is being read.
    inside: HashSet<(usize, Encoding)>,
    found: Found,
}

impl<'n> Reader<'n> {
    /// `limit` is how many bytes may be unpacked from one file.
    pub(super) fn of(needles: &'n Needles, budget: &'n Budget, limit: u64) -> Reader<'n> {
        Reader {
            needles,
            budget,
            limit,
            left: Rc::new(Cell::new(limit)),
            unpacks: true,
            buffers: Vec::new(),
            within: Vec::new(),
            ours: Vec::new(),
            inside: HashSet::new(),
            found: Found::default(),
        }
    }

    /// Reads a file of that name to its end. Tokens of `ours` are no hit in it.
    pub(super) fn file(&mut self, name: &str, source: &mut dyn Read, ours: &[usize]) -> Found {
        self.left.set(self.limit);
        self.within.clear();
        self.inside.clear();
        self.ours = ours.to_vec();
        if let Err(cause) = self.stream(name, source) {
            self.note(&cause.to_string());
        }
        std::mem::take(&mut self.found)
    }

    /// Reads a file's own bytes, whatever they look like.
    pub(super) fn plainly(&mut self, source: &mut dyn Read, ours: &[usize]) -> Found {
        self.unpacks = false;
        let found = self.file("", source, ours);
        self.unpacks = true;
        found
    }

    fn note(&mut self, why: &str) {
        self.found.note(&self.within, why);
    }

    fn stream(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()> {
        let beside = std::mem::take(&mut self.inside);
        let mut search = Search::new(self.needles, self.buffers.pop().unwrap_or_default());
        let read = self.read(name, source, &mut search);
        let (mut finds, buffer) = search.finish();
        self.buffers.push(buffer);
        // Compressed data has some of its content in plain: that is told once, by its place inside.
        finds.retain(|find| self.inside.insert((find.token, find.encoding)));
        self.found.add(&self.within, finds, &self.ours);
        let (mut more, fewer) = match self.inside.len() > beside.len() {
            true => (std::mem::take(&mut self.inside), beside),
            false => (beside, std::mem::take(&mut self.inside)),
        };
        more.extend(fewer);
        self.inside = more;
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
            // Two bytes make no zlib data; many a text begins so.
            let certain = kind != Kind::Zlib || is_git_object(name) || !is_text(&head);
            let source = BufReader::new(Cursor::new(head).chain(source));
            return self.container(kind, name, certain, &mut Tee { source, search, muted: false, passed: &mut 0 });
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
    fn container<R: Read>(
        &mut self,
        kind: Kind,
        name: &str,
        certain: bool,
        tee: &mut Tee<'_, '_, R>,
    ) -> io::Result<()> {
        let before = self.left.get();
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
            // No container at all.
            Err(cause) if is_damage(&cause) && (!certain || kind == Kind::Zlib && self.left.get() == before) => {}
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
            Kind::Zlib => {
                let read = self.member("content", &mut Inflate::zlib(tee));
                read.map_err(|cause| damaged("zlib", cause))
            }
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
        self.stored(name, &mut Metered { source, left, limit: self.limit, budget: self.budget })
    }

    fn stored(&mut self, name: &str, source: &mut dyn Read) -> io::Result<()> {
        self.within.push(bounded(name));
        let read = self.stream(name.rsplit('/').next().unwrap_or(name), source);
        self.within.pop();
        read
    }

    fn unread(&mut self, name: &str, why: &str) {
        self.within.push(bounded(name));
        self.note(why);
        self.within.pop();
    }
}

/// A member's name as it is told.
fn bounded(name: &str) -> String {
    let whole = |at: &usize| name.is_char_boundary(*at);
    let end = (0..=NAME.min(name.len())).rev().find(whole).unwrap_or(0);
    match end < name.len() {
        true => format!("{}… ({} bytes more)", &name[..end], name.len() - end),
        false => name.to_owned(),
    }
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
    budget: &'r Budget,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (of_file, of_all) = (self.left.get(), self.budget.left());
        let most = usize::try_from(of_file.min(of_all)).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            // A stream that ends just here is whole.
            return match self.source.read(&mut [0])? {
                0 => Ok(0),
                _ if of_file == 0 => Err(io::Error::other(Limit::File(self.limit))),
                _ => Err(io::Error::other(Limit::Search(self.budget.limit))),
            };
        }
        let count = self.source.read(&mut buffer[..most])?;
        self.left.set(of_file.saturating_sub(count as u64));
        self.budget.unpacked(count as u64);
        Ok(count)
    }
}

/// The end of what may be unpacked, in bytes.
#[derive(Debug, thiserror::Error)]
enum Limit {
    #[error("more than {0} bytes come out of it: the rest is not unpacked")]
    File(u64),
    #[error("more than {0} bytes come out of all files together: the rest is not unpacked")]
    Search(u64),
}

fn is_limit(cause: &io::Error) -> bool {
    cause.get_ref().is_some_and(|cause| cause.is::<Limit>())
}

fn is_damage(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
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
