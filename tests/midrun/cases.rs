//! The table: what is done to a run in mid-run, and what it comes to.

/// What is done from outside, by root.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// A script: LEDGER is the ledger, STAGE the stage's process, TABLE the wall's table, TREE a read-only directory.
    Script(&'static str),
    /// The end of the proxy.
    Proxy,
    /// The end of the observer.
    Observer,
}

/// What an event leaves of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// `verify` finds it incomplete.
    Incomplete,
    /// It depends on what was under way.
    Either,
    /// Its chain is broken, which is for `verify` to find.
    Broken,
}

/// What is done, what the record calls it, and what is left of the record.
pub type Case = (Event, &'static str, Left);

pub const WALL: [Case; 3] = [
    (
        Event::Script("nsenter -t STAGE -n nft flush ruleset"),
        "the firewall's rules were changed in mid-run",
        Left::Incomplete,
    ),
    (
        Event::Script("nsenter -t STAGE -n nft flush table inet TABLE"),
        "the firewall's rules were changed in mid-run",
        Left::Incomplete,
    ),
    (
        Event::Script("nsenter -t STAGE -n nft insert rule inet TABLE early accept"),
        "the firewall's rules were changed in mid-run",
        Left::Either,
    ),
];

pub const MOUNTS: [Case; 6] = [
    (Event::Script("nsenter -t STAGE -m mount -t tmpfs x /opt"), "something was mounted at /opt", Left::Incomplete),
    (
        Event::Script("nsenter -t STAGE -m mount -t tmpfs x TREE"),
        "something was mounted at /opt/tree",
        Left::Incomplete,
    ),
    (
        Event::Script("nsenter -t STAGE -m mount --bind /workspace /usr/share"),
        "something was mounted at /usr/share",
        Left::Incomplete,
    ),
    (Event::Script("nsenter -t STAGE -m mount -t tmpfs x /tmp"), "something was mounted at /tmp", Left::Incomplete),
    (
        Event::Script("nsenter -t STAGE -m mount -o remount,bind,rw /opt"),
        "a mount was made writable at /opt",
        Left::Incomplete,
    ),
    (
        Event::Script("nsenter -t STAGE -m umount -l /opt"),
        "nothing of the run's is mounted any more at /opt",
        Left::Incomplete,
    ),
];

pub const PROCESSES: [Case; 2] = [
    (Event::Proxy, "the proxy has ended", Left::Either),
    (Event::Observer, "observer: it has ended", Left::Incomplete),
];

pub const LEDGER: [Case; 6] = [
    (Event::Script("rm LEDGER"), "it was removed or moved away", Left::Incomplete),
    (Event::Script("mv LEDGER LEDGER.old"), "it was removed or moved away", Left::Incomplete),
    (Event::Script("d=$(dirname LEDGER); mv $d $d.old"), "it was removed or moved away", Left::Incomplete),
    (
        Event::Script("cp -p LEDGER LEDGER.new; mv LEDGER.new LEDGER"),
        "another file was put in its place",
        Left::Incomplete,
    ),
    (Event::Script("truncate -s -20 LEDGER"), "it was truncated", Left::Broken),
    (Event::Script("truncate -s 0 LEDGER"), "it was truncated", Left::Broken),
];
