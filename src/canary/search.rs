//! The search of one stream, in memory of a fixed size: bytes are taken in pieces as they come, and the end of what is held
//! stays until what follows it is there.

use super::decode::{self, Encoding};
use super::needles::{Family, Needles};
use std::ops::Range;

/// How much is read at a time, in bytes: little enough to stay in a processor's cache.
const PIECE: usize = 1 << 18;

/// A token in one encoding in one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Find {
    /// Which token.
    pub(super) token: usize,
    /// How it is written.
    pub(super) encoding: Encoding,
    /// Where in the stream it is first, in bytes.
    pub(super) offset: u64,
    /// How often it is there.
    pub(super) count: u64,
}

/// A search in progress.
pub(super) struct Search<'n> {
    needles: &'n Needles,
    buffer: Vec<u8>,
    /// How much of the buffer is taken.
    filled: usize,
    /// Where in the buffer the next piece of a token may begin.
    next: usize,
    /// The offset in the stream of the buffer's beginning.
    base: u64,
    /// By family, the offset up to which the bytes around a piece have been decoded.
    decoded: [u64; Family::COUNT],
    finds: Vec<Find>,
    /// Which token was found where, as far as it could be found again.
    recent: Vec<(usize, u64, u64)>,
    /// Which offsets are this search's to tell.
    own: Range<u64>,
}

impl<'n> Search<'n> {
    /// A search in the memory of an earlier one, if there was any.
    pub(super) fn new(needles: &'n Needles, mut buffer: Vec<u8>) -> Search<'n> {
        buffer.resize(PIECE + 2 * needles.reach, 0);
        Search {
            needles,
            buffer,
            filled: 0,
            next: 0,
            base: 0,
            decoded: [0; Family::COUNT],
            finds: Vec::new(),
            recent: Vec::new(),
            own: 0..u64::MAX,
        }
    }

    /// A search of what a stream has from an offset on, that tells only what begins in a part of it.
    pub(super) fn of_part(needles: &'n Needles, from: u64, own: Range<u64>) -> Search<'n> {
        Search { base: from, own, ..Search::new(needles, Vec::new()) }
    }

    /// Where the next bytes belong; never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() {
            self.look(false);
            let kept = self.next.saturating_sub(self.needles.reach);
            self.buffer.copy_within(kept..self.filled, 0);
            self.filled -= kept;
            self.next -= kept;
            self.base += kept as u64;
        }
        &mut self.buffer[self.filled..]
    }

    /// So many bytes have been put there.
    pub(super) fn took(&mut self, count: usize) {
        self.filled += count;
    }

    /// Takes bytes that lie elsewhere.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.took(count);
            bytes = &bytes[count..];
        }
    }

    /// What was found, and the memory for the next one.
    pub(super) fn finish(mut self) -> (Vec<Find>, Vec<u8>) {
        self.look(true);
        (self.finds, self.buffer)
    }

    /// Looks at all of which enough is known: the whole, where nothing follows.
    fn look(&mut self, ends: bool) {
        let reach = self.needles.reach;
        let until = if ends { self.filled } else { self.filled.saturating_sub(reach) };
        while self.next < until {
            let Some((at, family)) = self.needles.next(&self.buffer[..self.filled], self.next) else {
                self.next = until;
                return;
            };
            if at >= until {
                self.next = until;
                return;
            }
            self.next = at + 1;
            // What was decoded around an earlier piece need not be again, as far as a token around this one would have
            // been whole there.
            if self.base + (at + reach / 2).min(self.filled) as u64 <= self.decoded[family as usize] {
                continue;
            }
            self.decode(at, family);
        }
    }

    fn decode(&mut self, at: usize, family: Family) {
        let reach = self.needles.reach;
        let (from, to) = (at.saturating_sub(reach), (at + reach).min(self.filled));
        self.decoded[family as usize] = self.base + to as u64;
        let start = self.base + from as u64;
        self.recent.retain(|(_, _, last)| *last >= start);
        for whole in decode::tokens_in(self.needles, family, &self.buffer[from..to]) {
            let (first, last) = (start + whole.place.0 as u64, start + whole.place.1 as u64);
            let known = |(token, from, to): &(usize, u64, u64)| *token == whole.token && *from <= last && first <= *to;
            if self.recent.iter().any(known) || !self.own.contains(&first) {
                continue;
            }
            self.recent.push((whole.token, first, last));
            let same = |find: &&mut Find| find.token == whole.token && find.encoding == whole.encoding;
            match self.finds.iter_mut().find(same) {
                Some(find) => {
                    find.count += 1;
                    find.offset = find.offset.min(first);
                }
                None => self.finds.push(Find { token: whole.token, encoding: whole.encoding, offset: first, count: 1 }),
            }
        }
    }
}
