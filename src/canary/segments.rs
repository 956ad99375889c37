//! One large file searched on all cores: each takes a part of it, and looks far enough beyond both its ends to find what
//! reaches across them.

use super::needles::Needles;
use super::search::{Find, Search};
use super::unpack::{Found, Hit};
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;

/// A file of at least so many bytes is worth the threads.
pub(super) const LARGE: u64 = 32 << 20;

/// Searches a file of that length, which is no container; what it has grown by meanwhile as well.
pub(super) fn search(needles: &Needles, file: &File, length: u64) -> io::Result<Found> {
    let parts = thread::available_parallelism().map_or(1, |cores| NonZero::get(cores) as u64);
    let bound = |part: u64| if part == parts { u64::MAX } else { length / parts * part };
    let searched: Vec<io::Result<(Vec<Find>, u64)>> = thread::scope(|scope| {
        let part = |number: u64| scope.spawn(move || part(needles, file, bound(number)..bound(number + 1)));
        let threads: Vec<_> = (0..parts).map(part).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut found = Found::default();
    let mut hits: Vec<Find> = Vec::new();
    for part in searched {
        let (finds, bytes) = part?;
        found.bytes += bytes;
        for find in finds {
            match hits.iter_mut().find(|hit| hit.token == find.token && hit.encoding == find.encoding) {
                // Parts come in their order: the first offset is the least.
                Some(hit) => hit.count += find.count,
                None => hits.push(find),
            }
        }
    }
    found.hits = hits.into_iter().map(|find| Hit { within: Vec::new(), find }).collect();
    Ok(found)
}

/// What begins in a part, and how many bytes the part has.
fn part(needles: &Needles, file: &File, own: Range<u64>) -> io::Result<(Vec<Find>, u64)> {
    let reach = needles.reach as u64;
    let mut at = own.start.saturating_sub(reach);
    let end = own.end.saturating_add(reach);
    let mut search = Search::of_part(needles, at, own.clone());
    while at < end {
        let space = search.space();
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(space.len());
        let count = file.read_at(&mut space[..most], at)?;
        if count == 0 {
            break;
        }
        search.took(count);
        at += count as u64;
    }
    let bytes = at.min(own.end).saturating_sub(own.start);
    Ok((search.finish().0, bytes))
}
