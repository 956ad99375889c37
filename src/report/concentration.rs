//! How the volume lies: in a few places or in many.

use serde::Serialize;

/// The bounds of the buckets by denials, the first of each; the last has no end.
const BUCKETS: [(u64, &str); 6] = [(0, "0"), (1, "1-5"), (6, "6-25"), (26, "26-100"), (101, "101-500"), (501, "501+")];

/// Those of so many denials.
#[derive(Debug, Serialize)]
pub(super) struct Bucket {
    /// The bounds, both of them within.
    pub(super) denials: &'static str,
    /// How many have so many.
    pub(super) count: u64,
    /// Their denials together.
    pub(super) volume: u64,
}

/// The buckets of these volumes.
pub(super) fn buckets(volumes: impl IntoIterator<Item = u64>) -> Vec<Bucket> {
    let mut buckets = BUCKETS.map(|(_, denials)| Bucket { denials, count: 0, volume: 0 });
    for volume in volumes {
        let at = BUCKETS.iter().rposition(|(from, _)| volume >= *from).unwrap_or(0);
        buckets[at].count += 1;
        buckets[at].volume = buckets[at].volume.saturating_add(volume);
    }
    buckets.into()
}

/// How many of the largest carry at least half of `total`; `volumes` are in falling order. None where they do not: what
/// is beyond a table's bound can be more.
pub(super) fn half(volumes: impl IntoIterator<Item = u64>, total: u64) -> Option<u64> {
    let mut sum = 0u128;
    let mut count = 0;
    if total == 0 {
        return Some(0);
    }
    for volume in volumes {
        sum += u128::from(volume);
        count += 1;
        if sum * 2 >= u128::from(total) {
            return Some(count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_carried_by_the_fewest() {
        assert_eq!(half([5, 3, 2], 10), Some(1));
        assert_eq!(half([4, 3, 3], 10), Some(2));
        assert_eq!(half([], 0), Some(0));
        assert_eq!(half([1, 1], 10), None);
        assert_eq!(half([u64::MAX, u64::MAX], u64::MAX), Some(1));
    }

    #[test]
    fn every_volume_has_its_bucket() {
        let all = buckets([0, 0, 1, 5, 6, 25, 26, 100, 101, 500, 501, 5000]);
        let counts: Vec<_> = all.iter().map(|bucket| (bucket.denials, bucket.count, bucket.volume)).collect();
        let expected =
            [("0", 2, 0), ("1-5", 2, 6), ("6-25", 2, 31), ("26-100", 2, 126), ("101-500", 2, 601), ("501+", 2, 5501)];
        assert_eq!(counts, expected);
    }
}
