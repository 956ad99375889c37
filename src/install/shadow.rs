//! What of a shadow is in force, which holds nobody.

use super::Installation;
use super::firewall::Wall;
use crate::ledger::record::{Body, Gap};
use crate::ledger::{Ledger, LedgerError};
use crate::policy::Axis;

impl Installation {
    /// The observer's mounts are no longer what they were to be: from here on what it says of paths may be wrong, and they are
    /// watched no more.
    pub fn lose_view(&mut self, difference: &str, ledger: &mut Ledger) -> Result<(), LedgerError> {
        self.view = None;
        let cause = format!("the shadow's mounts were changed: {difference}");
        let gap = Gap { axis: Some(Axis::Filesystem), source: "mounts".to_owned(), lost: 0, cause };
        ledger.append(Body::Gap(gap)).map(drop)
    }

    /// Whether nothing is refused and what would be is recorded.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The table of a shadow is no longer what was installed: from here on no packet is told of.
    pub fn lose_wall(&mut self, difference: &str, ledger: &mut Ledger) -> Result<(), LedgerError> {
        self.watch = None;
        let cause = match self.wall.take().map(Wall::remove_if_there) {
            Some(Err(left)) => format!("the shadow's table was changed: {difference}; what is left of it: {left}"),
            _ => format!("the shadow's table was changed: {difference}"),
        };
        for axis in [Axis::Network, Axis::Privilege] {
            let source = "nflog".to_owned();
            ledger.append(Body::Gap(Gap { axis: Some(axis), source, lost: 0, cause: cause.clone() }))?;
        }
        Ok(())
    }
}
