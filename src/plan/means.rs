//! What differs from rung to rung in how a policy is put in force.

use crate::policy::Posture;

/// By what the trees are kept from being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileBarrier {
    /// Mounts of a namespace of the sandbox's own.
    Mounts,
    /// A Landlock ruleset for contents, and calls that the observer makes for the rest.
    Landlock,
}

/// By what egress is kept to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressBarrier {
    /// The firewall.
    Firewall,
    /// Every socket of the command is made and connected for it.
    MadeSockets,
}

/// How a rung works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// The barrier of the filesystem axis.
    pub files: FileBarrier,
    /// The barrier of the network axis.
    pub egress: EgressBarrier,
    /// Whether the sandbox has a user namespace and a network namespace of its own.
    pub own_namespaces: bool,
    /// Whether the command keeps the caller's uid, which is then that of all our processes too.
    pub one_uid: bool,
    /// Whether the bounding set is emptied, which takes SETPCAP.
    pub empties_bounding: bool,
}

impl Means {
    /// Those of root with SYS_ADMIN and NET_ADMIN.
    pub const FULL: Means = Means {
        files: FileBarrier::Mounts,
        egress: EgressBarrier::Firewall,
        own_namespaces: false,
        one_uid: false,
        empties_bounding: true,
    };
    /// Those of root in a container.
    pub const CONTAINER: Means =
        Means { files: FileBarrier::Landlock, egress: EgressBarrier::MadeSockets, ..Means::FULL };
    /// Those of an ordinary user who may make namespaces.
    pub const ROOTLESS: Means = Means { own_namespaces: true, one_uid: true, ..Means::FULL };
    /// Those of an ordinary user who may not.
    pub const BARE: Means = Means { one_uid: true, empties_bounding: false, ..Means::CONTAINER };

    /// Whether no_new_privs is in force at every posture above open: without SYS_ADMIN no filter and no Landlock ruleset is
    /// to be had otherwise (seccomp(2), landlock_restrict_self(2)).
    pub fn implies_no_new_privs(&self) -> bool {
        *self != Means::FULL
    }
}

/// What the filter and the observer work by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The posture of the privilege axis.
    pub privilege: Posture,
    /// The posture of the network axis.
    pub network: Posture,
    /// The rung's means.
    pub means: Means,
    /// Which calls that only read are looked at.
    pub reads: Reads,
    /// Whether tools that ask no proxy are served.
    pub caught: bool,
}

/// By what reads of watched paths are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenBy {
    /// The kernel asks before each open of what is marked (fanotify(7)).
    Fanotify,
    /// The notifier is asked about each open, and looks where it leads.
    Notifier,
}

impl SeenBy {
    /// Its name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            SeenBy::Fanotify => "fanotify",
            SeenBy::Notifier => "notifier",
        }
    }

    /// What is said of it where mechanisms are.
    pub fn mechanism(self) -> &'static str {
        match self {
            SeenBy::Fanotify => "the witness, which fanotify asks before each open of what is marked",
            SeenBy::Notifier => "the notifier, which looks where each open leads",
        }
    }
}

/// Which calls that only read are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// None.
    Unseen,
    /// Opens, for reads of watched paths.
    Opens,
    /// Whatever takes a name, for attempts on what is shielded.
    Names,
}

impl Terms {
    /// Those of these postures on the rung with all means.
    pub fn full(privilege: Posture, network: Posture) -> Terms {
        Terms { privilege, network, means: Means::FULL, reads: Reads::Unseen, caught: false }
    }

    /// Whether every socket of the command is made for it.
    pub fn makes_sockets(&self) -> bool {
        self.network > Posture::Open && self.means.egress == EgressBarrier::MadeSockets
    }

    /// Whether Landlock stands where mounts cannot.
    pub fn by_landlock(&self) -> bool {
        self.privilege > Posture::Open && self.means.files == FileBarrier::Landlock
    }
}
