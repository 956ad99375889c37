//! Trying probes at once: those that wait for different things in processes of their own, so that nobody waits for two of
//! them one after the other.
//!
//! A process has its own table of descriptors, its own working directory and its own scratch names ([`scratch_name`]), so that
//! what a probe does to those is seen by none in another. What was refused is told by the call or the address, not by the
//! moment, so that it does not matter what is refused meanwhile.

use super::child::Working;
#[cfg(doc)]
use super::filesystem::scratch_name;
use super::operation::Lane;
use super::spec::Spec;
use crate::ledger::record::Probe;

/// Tries each of `specs` by `tried` in the process of its lane; the outcomes stand in the order of `specs`.
///
/// # Errors
/// What became of a process that did not end well.
pub fn try_all(specs: &[&Spec], tried: impl Fn(&Spec) -> Option<Probe>) -> Result<Vec<Probe>, String> {
    let of = |lane: Lane| -> Vec<(usize, Probe)> {
        let lane = specs.iter().enumerate().filter(|(_, spec)| spec.operation.lane() == lane);
        lane.filter_map(|(place, spec)| Some((place, tried(spec)?))).collect()
    };
    let (mut made, mut working) = (Vec::new(), Vec::new());
    for lane in [Lane::Network, Lane::Files] {
        match Working::begin(|| serde_json::to_vec(&of(lane)).unwrap_or_default()) {
            Ok(begun) => working.push(begun),
            // Whether processes can be started is for a probe to say.
            Err(_) => made.extend(of(lane)),
        }
    }
    made.extend(of(Lane::Own));
    for begun in working {
        let report = begun.end().map_err(|cause| format!("probes: {cause}"))?;
        let of_lane: Vec<(usize, Probe)> =
            serde_json::from_slice(&report).map_err(|e| format!("probes: a report is torn: {e}"))?;
        made.extend(of_lane);
    }
    // What is open is looked at when the reports are closed.
    made.extend(of(Lane::Descriptors));
    made.sort_by_key(|(place, _)| *place);
    Ok(made.into_iter().map(|(_, probe)| probe).collect())
}
