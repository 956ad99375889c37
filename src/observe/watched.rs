//! Which system calls are looked at beside those that the filter refuses: what the kernel may refuse to the command and
//! would not refuse under `control`. A call that can be no such refusal, by its registers, never leaves the kernel.
//!
//! ftruncate(2) is not among them: who may not write a file has no descriptor that it takes.

mod privileged;
mod reads;

use super::decode::{self, Again, Call, Decoded};
use super::socketcall;
use crate::confine::rules::Condition;
use crate::install::account::Identity;
use crate::mutation;
use crate::plan::means::Terms;
use crate::policy::Posture;
use crate::sys::capability;
use nix::libc;

/// A reading of [`decode`].
pub type Read = fn(&Call<'_>) -> Decoded;

/// How a call's arguments are read.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// By what they mean.
    Act(Read),
    /// As they are, to make the same call again.
    Again(&'static [Again]),
}

/// One call.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its name.
    pub call: &'static str,
    /// Any of these is enough; all conditions of one must hold. None at all is always.
    pub when: Vec<Vec<Condition>>,
    /// How it is read.
    pub reading: Reading,
    /// The capability that passes where the command is refused (capabilities(7)); under `control` the caller has it, or is
    /// refused as well. Calls on paths need several and are looked at one by one.
    pub capability: Option<u32>,
    /// The rule's name in records.
    pub rule: &'static str,
    /// Whether the verdict here is the barrier itself, as registers do not tell what is asked for: such a call never goes
    /// on, and is refused where it cannot be read.
    pub decides: bool,
}

impl Watched {
    /// Whether it changes what is known of a file beside its contents, which no ruleset of Landlock's sees.
    pub fn changes_metadata(&self) -> bool {
        METADATA.contains(&self.call)
    }

    /// What of registers is enough, one by one.
    pub fn conditions(&self) -> impl Iterator<Item = &[Condition]> {
        let always = self.when.is_empty().then_some(&[][..]);
        always.into_iter().chain(self.when.iter().map(Vec::as_slice))
    }

    /// Whether a call of that name with these registers is looked at.
    pub fn concerns(&self, arguments: &[u64; 6]) -> bool {
        self.when.is_empty() || self.when.iter().any(|all| all.iter().all(|c| c.holds(arguments)))
    }
}

/// Whom the command runs as, by which its own ids are told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
}

struct Table(Vec<Watched>);

impl Table {
    fn act(
        &mut self,
        call: &'static str,
        when: Vec<Vec<Condition>>,
        reading: Read,
        capability: Option<u32>,
        rule: &'static str,
    ) {
        self.0.push(Watched { call, when, reading: Reading::Act(reading), capability, rule, decides: false });
    }

    fn path(&mut self, call: &'static str, reading: Read) {
        self.act(call, Vec::new(), reading, None, PERMISSION);
    }

    fn again(&mut self, call: &'static str, shape: &'static [Again], capability: u32) {
        self.again_when(call, Vec::new(), shape, capability);
    }

    fn again_when(&mut self, call: &'static str, when: Vec<Vec<Condition>>, shape: &'static [Again], capability: u32) {
        let reading = Reading::Again(shape);
        self.0.push(Watched { call, when, reading, capability: Some(capability), rule: CAPABILITY, decides: false });
    }
}

/// The calls that change what is known of a file beside its contents.
const METADATA: [&str; 22] = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "ioctl",
    "file_setattr",
];

/// The rule of calls that ordinary permission refuses.
pub const PERMISSION: &str = "permission";
/// The rule of attempts on what is shielded.
pub const SHIELD: &str = "shield";
/// The rule of calls on processes that are not the sandbox's.
pub const OUTSIDE: &str = "outside-process";
/// The rule of calls that need a capability.
pub const CAPABILITY: &str = "capability";

impl From<&Identity> for Ids {
    fn from(identity: &Identity) -> Ids {
        Ids { uid: identity.uid.as_raw(), gid: identity.gid.as_raw() }
    }
}

/// All calls that are looked at on the given terms.
pub fn watched(terms: &Terms, ids: Ids) -> Vec<Watched> {
    let privilege = terms.privilege;
    let mut table = Table(Vec::new());
    if privilege == Posture::Open {
        return table.0;
    }
    if !mutation::left_out("watched-paths") {
        paths(&mut table);
        // Of two that concern one call the first is taken: where access(2) is to be answered it is no mere look.
        if terms.by_landlock() {
            accesses(&mut table);
            let requests = decode::FILE_SYSTEM_REQUESTS.iter().map(|request| vec![Condition::equals(1, *request)]);
            table.act("ioctl", requests.collect(), decode::ioctl_of_file_system, None, PERMISSION);
        }
        reads::reads(&mut table, terms);
    }
    raw_sockets(&mut table);
    if terms.makes_sockets() {
        made_sockets(&mut table);
        if terms.caught {
            answers(&mut table);
        }
    } else {
        sockets(&mut table);
    }
    by_socketcall(&mut table, terms);
    if !mutation::left_out("watched-identities") {
        privileged::identities(&mut table, ids);
    }
    privileged::privileged(&mut table);
    if terms.means.one_uid {
        privileged::steering(&mut table);
    }
    if privilege == Posture::Locked {
        table.act("execve", Vec::new(), decode::execve, None, "set-id");
        table.act("execveat", Vec::new(), decode::execveat, None, "set-id");
    } else {
        // At `locked` the filter refuses them.
        privileged::mounts(&mut table);
    }
    table.0
}

fn bits(argument: u32, flags: &[i32]) -> Vec<Vec<Condition>> {
    flags.iter().map(|flag| vec![Condition::has(argument, *flag as u32 as u64)]).collect()
}

fn paths(table: &mut Table) {
    const WRITES: [i32; 6] =
        [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_NOATIME, decode::TMPFILE];
    table.act("open", bits(1, &WRITES), decode::open, None, PERMISSION);
    table.act("openat", bits(2, &WRITES), decode::openat, None, PERMISSION);
    let requests = decode::INODE_REQUESTS.iter().map(|(request, _)| vec![Condition::equals(1, *request)]).collect();
    table.act("ioctl", requests, decode::ioctl, None, PERMISSION);
    let rest: [(&'static str, Read); 38] = [
        ("file_setattr", decode::file_setattr),
        ("openat2", decode::openat2),
        ("creat", decode::creat),
        ("mkdir", decode::mkdir),
        ("mkdirat", decode::mkdirat),
        ("mknod", decode::mknod),
        ("mknodat", decode::mknodat),
        ("symlink", decode::symlink),
        ("symlinkat", decode::symlinkat),
        ("link", decode::link),
        ("linkat", decode::linkat),
        ("rename", decode::rename),
        ("renameat", decode::renameat),
        ("renameat2", decode::renameat2),
        ("unlink", decode::unlink),
        ("unlinkat", decode::unlinkat),
        ("rmdir", decode::rmdir),
        ("chmod", decode::chmod),
        ("fchmod", decode::fchmod),
        ("fchmodat", decode::fchmodat),
        ("fchmodat2", decode::fchmodat2),
        ("chown", decode::chown),
        ("lchown", decode::lchown),
        ("fchown", decode::fchown),
        ("fchownat", decode::fchownat),
        ("truncate", decode::truncate),
        ("utime", decode::utime),
        ("utimes", decode::utimes),
        ("futimesat", decode::futimesat),
        ("utimensat", decode::utimensat),
        ("setxattr", decode::setxattr),
        ("lsetxattr", decode::lsetxattr),
        ("fsetxattr", decode::fsetxattr),
        ("setxattrat", decode::setxattrat),
        ("removexattr", decode::removexattr),
        ("lremovexattr", decode::lremovexattr),
        ("fremovexattr", decode::fremovexattr),
        ("removexattrat", decode::removexattrat),
    ];
    for (call, reading) in rest {
        table.path(call, reading);
    }
}

/// Calls that tell of a read-only mount, which is not there where Landlock stands in its place.
fn accesses(table: &mut Table) {
    let writes = |argument| bits(argument, &[libc::W_OK]);
    table.act("access", writes(1), decode::access, None, PERMISSION);
    table.act("faccessat", writes(2), decode::faccessat, None, PERMISSION);
    table.act("faccessat2", writes(2), decode::faccessat2, None, PERMISSION);
}

/// Every call by which a socket is had, named or sent from: the verdict here is what keeps it on this machine.
fn made_sockets(table: &mut Table) {
    let mut made = |call, when, reading| {
        let reading = Reading::Act(reading);
        table.0.push(Watched { call, when, reading, capability: None, rule: PERMISSION, decides: true });
    };
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let of_families = families.map(|family| vec![Condition::equals(0, family as u64)]);
    made("socket", of_families.into(), decode::made::socket as Read);
    for (call, reading) in [
        ("bind", decode::made::bind as Read),
        ("connect", decode::made::connect),
        ("listen", decode::made::listen),
        ("sendmsg", decode::made::sendmsg),
        ("sendmmsg", decode::made::sendmmsg),
    ] {
        made(call, Vec::new(), reading);
    }
    made("sendto", vec![vec![Condition::IsNot { argument: 4, value: 0 }]], decode::made::sendto);
}

/// Calls that tell who has answered, where questions are led to another than was asked.
fn answers(table: &mut Table) {
    let with_address = vec![vec![Condition::IsNot { argument: 4, value: 0 }]];
    table.act("recvfrom", with_address, decode::made::recvfrom, None, PERMISSION);
    table.act("recvmsg", Vec::new(), decode::made::recvmsg, None, PERMISSION);
}

fn sockets(table: &mut Table) {
    if !mutation::left_out("watched-paths") {
        table.path("bind", decode::bind);
        table.path("connect", decode::connect);
    }
    let with_address = vec![vec![Condition::IsNot { argument: 4, value: 0 }]];
    table.act("sendto", with_address, decode::sendto, None, PERMISSION);
    // Every other message is left alone: it is what most of a program's traffic is sent by. This one is a connect.
    let opens = |flags: u32| vec![vec![Condition::has(flags, libc::MSG_FASTOPEN as u64)]];
    table.act("sendmsg", opens(2), decode::sendmsg, None, PERMISSION);
    table.act("sendmmsg", opens(3), decode::sendmsg, None, PERMISSION);
}

fn raw_sockets(table: &mut Table) {
    // SOCK_PACKET of the inet family is a packet socket by an older name.
    let of_kind = |family: i32, kind: i32| {
        vec![Condition::equals(0, family as u64), Condition::Is { argument: 1, mask: KIND, value: kind as u64 }]
    };
    let mut raw = vec![vec![Condition::equals(0, libc::AF_PACKET as u64)]];
    for family in [libc::AF_INET, libc::AF_INET6] {
        raw.extend([of_kind(family, libc::SOCK_RAW), of_kind(family, SOCK_PACKET)]);
    }
    table.again_when("socket", raw, &[Again::Number; 3], capability::NET_RAW);
}

/// socketcall(2) of 32-bit programs, whose arguments are behind a pointer: what the filter refuses on the arguments of the
/// calls proper is decided here.
fn by_socketcall(table: &mut Table, terms: &Terms) {
    let numbers = [&socketcall::DECIDING[..], &socketcall::LOOKING, &socketcall::MAKING];
    let [deciding, looking, making] = numbers.map(|numbers| {
        let when = numbers.iter().map(|number| vec![Condition::equals(0, *number)]).collect();
        let reading = Reading::Act(socketcall::read);
        Watched { call: "socketcall", when, reading, capability: None, rule: PERMISSION, decides: false }
    });
    table.0.push(Watched { decides: terms.network > Posture::Open, ..deciding });
    match terms.makes_sockets() {
        true => table.0.extend([looking, making].map(|one| Watched { decides: true, ..one })),
        false => table.0.push(looking),
    }
}

/// linux/net.h.
const SOCK_PACKET: i32 = 10;
/// The bits of a socket's type that are no flags (socket(2)).
const KIND: u64 = 0xf;

/// The sockets of a shadow's command that the firewall is to know as the shadowed policy's: raw ones are looked at already.
pub fn made_for_shadow() -> Watched {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP];
    let of = |family: i32| {
        kinds.map(|kind| {
            let kind = Condition::Is { argument: 1, mask: KIND, value: kind as u64 };
            vec![Condition::equals(0, family as u64), kind]
        })
    };
    Watched {
        call: "socket",
        when: [libc::AF_INET, libc::AF_INET6].into_iter().flat_map(of).collect(),
        reading: Reading::Act(decode::made::socket),
        capability: None,
        rule: PERMISSION,
        decides: false,
    }
}

/// The capability for a port below 1024.
pub const PORT_CAPABILITY: u32 = capability::NET_BIND_SERVICE;
