//! Tables by name: those that earlier runs have left, and their removal.

use super::FirewallError;
use super::channel::{Channel, Part, inet};
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};

const PREFIX: &str = "ringfence";

/// A table of ours that stands in this network namespace. Whether its run still lives is the caller's to find out:
/// the table itself has no owner, so that it outlives its supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleTable {
    /// The table's name.
    pub name: String,
    /// The uid that it judges.
    pub uid: u32,
    /// The run that installed it.
    pub run: String,
}

/// The tables of family `inet` whose names are `ringfence-UID-RUN`, those of living runs included.
///
/// # Errors
/// [`FirewallError`] when the tables can't be listed.
pub fn stale_tables() -> Result<Vec<StaleTable>, FirewallError> {
    let channel = Channel::open()?;
    let found = tables(&channel);
    // An earlier run's table may still be on its way out.
    channel.leave();
    Ok(found?.into_iter().filter_map(|(name, _)| parse(name)).collect())
}

/// Removes the table `name` with all it holds, in the calling thread's network namespace.
///
/// # Errors
/// [`FirewallError::Spec`] for a name that is not ours, so that no other table is ever touched;
/// [`FirewallError::Refused`] with ENOENT when it is not there.
pub fn remove_table(name: &str) -> Result<(), FirewallError> {
    if parse(name.to_owned()).is_none() {
        let accepted = "ringfence-UID-RUN is accepted";
        return Err(FirewallError::Spec { field: "table", value: format!("{name:?}"), accepted });
    }
    remove(Channel::open()?, name)
}

pub(super) fn table_name(uid: u32, run: &str) -> String {
    format!("{PREFIX}-{uid}-{run}")
}

pub(super) fn is_run(run: &str) -> bool {
    run.len() == 16 && run.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse(name: String) -> Option<StaleTable> {
    let (uid, run) = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once('-')?;
    let (uid, run) = (uid.parse().ok()?, run.to_owned());
    // `u32` parses `+7` and `007` too, which we never write.
    (is_run(&run) && table_name(uid, &run) == name).then_some(StaleTable { name, uid, run })
}

pub(super) fn remove(channel: Channel, name: &str) -> Result<(), FirewallError> {
    let message =
        NfTablesMessage::DeleteTable(TableMessage { attributes: vec![TableAttribute::Name(name.to_owned())] });
    let what = format!("the removal of table inet {name}");
    let removed = super::commit(&channel, vec![Part { what, message, flags: 0 }]);
    channel.leave();
    removed
}

/// The namespace's tables of family `inet`, by name.
pub(super) fn tables(channel: &Channel) -> Result<Vec<(String, Vec<TableAttribute>)>, FirewallError> {
    let request = NfTablesMessage::GetTable(TableMessage { attributes: Vec::new() });
    let found = channel.dump(request)?.into_iter().filter_map(inet).filter_map(|message| {
        let NfTablesMessage::NewTable(TableMessage { attributes }) = message else {
            return None;
        };
        let name = attributes.iter().find_map(|a| if let TableAttribute::Name(n) = a { Some(n.clone()) } else { None });
        Some((name?, attributes))
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_write_are_ours() {
        let ours = "ringfence-10001-0123456789abcdef";
        assert_eq!(parse(ours.into()).unwrap().uid, 10001);
        for not_ours in [
            "ringfence-010001-0123456789abcdef",
            "ringfence-+1-0123456789abcdef",
            "ringfence-1-0123456789ABCDEF",
            "ringfence-1-0123456789abcdef0",
            "ringfence-4294967296-0123456789abcdef",
            "ringfence--0123456789abcdef",
            "ringfence1-0123456789abcdef",
            "filter",
        ] {
            assert_eq!(parse(not_ours.into()), None, "{not_ours}");
        }
    }
}
