//! A count for each axis.

use crate::policy::Axis;
use serde::{Serialize, Serializer};

/// Counts by axis; sums stay at the largest number rather than wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ByAxis([u64; Axis::ALL.len()]);

impl ByAxis {
    /// The count of one axis.
    pub fn get(&self, axis: Axis) -> u64 {
        self.0[axis as usize]
    }

    /// Adds to the count of one axis.
    pub fn add(&mut self, axis: Axis, count: u64) {
        let sum = &mut self.0[axis as usize];
        *sum = sum.saturating_add(count);
    }

    /// Adds the counts of each axis.
    pub fn add_all(&mut self, other: &ByAxis) {
        for axis in Axis::ALL {
            self.add(axis, other.get(axis));
        }
    }

    /// Raises the count of one axis to `count` where it is lower.
    pub fn raise(&mut self, axis: Axis, count: u64) {
        self.0[axis as usize] = self.get(axis).max(count);
    }

    /// The sum over the axes.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Serialize for ByAxis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Axis::ALL.map(|axis| (axis.name(), self.get(axis))))
    }
}
