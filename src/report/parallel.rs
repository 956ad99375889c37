//! Work on all cores, its results in order.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many results may wait for an earlier one.
const CHUNK: usize = 256;

/// Gives `take` the result of `work` on each item, in the order of the items.
pub(super) fn in_order<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync, mut take: impl FnMut(R)) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    for chunk in items.chunks(CHUNK) {
        let next = AtomicUsize::new(0);
        let some = || {
            let mut done = Vec::new();
            while let Some((at, item)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, chunk.get(at)?)))
            {
                done.push((at, work(item)));
            }
            done
        };
        let mut results: Vec<(usize, R)> = thread::scope(|scope| {
            let threads: Vec<_> = (1..cores.min(chunk.len())).map(|_| scope.spawn(some)).collect();
            let mut results = some();
            for thread in threads {
                results.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().for_each(|(_, result)| take(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        let mut seen = Vec::new();
        in_order(&items, |item| item * 2, |result| seen.push(result));
        assert_eq!(seen, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        in_order(&[], |_: &u8| 0, |_| panic!("nothing was asked"));
    }
}
