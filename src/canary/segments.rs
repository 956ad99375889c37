//! One large file searched on all cores: each takes a part of it, and looks far enough beyond both its ends to find what
//! reaches across them.

use super::budget::{self, Budget};
use super::needles::Needles;
use super::search::{Find, Search};
use super::unpack::Found;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A file of at least so many bytes is worth the threads.
pub(super) const LARGE: u64 = 32 << 20;

/// Searches a file of that length, which is no container; what it has grown by meanwhile as well. Tokens of `ours` are no
/// hit in it.
pub(super) fn search(
    needles: &Needles,
    budget: &Budget,
    file: &File,
    length: u64,
    ours: &[usize],
) -> io::Result<Found> {
    let parts = budget::cores() as u64;
    let bound = |part: u64| if part == parts { u64::MAX } else { length / parts * part };
    let next = AtomicU64::new(0);
    let search = || {
        let mut searched = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= parts {
                return searched;
            }
            searched.push((number, part(needles, file, bound(number)..bound(number + 1))));
        }
    };
    // Many large files at the same time share the threads that there are; one where none is to be had is read by its own.
    let more = budget.take_threads(budget::cores() - 1);
    let mut searched = thread::scope(|scope| {
        let spawned = (0..more).map_while(|_| thread::Builder::new().spawn_scoped(scope, search).ok());
        let threads: Vec<_> = spawned.collect();
        let mut searched = search();
        for thread in threads {
            searched.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        searched
    });
    budget.give_threads(more);
    // In their order: the first offset is the least.
    searched.sort_unstable_by_key(|(number, _)| *number);
    let mut found = Found::default();
    let mut all: Vec<Find> = Vec::new();
    for (_, part) in searched {
        let (finds, bytes) = part?;
        found.bytes += bytes;
        for find in finds {
            match all.iter_mut().find(|known| known.token == find.token && known.encoding == find.encoding) {
                Some(known) => known.count += find.count,
                None => all.push(find),
            }
        }
    }
    found.add(&[], all, ours);
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
