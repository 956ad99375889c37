//! A script of acts: drawn from the table, spelled, and what each must give.

use super::place::{self, SPELLINGS, Spelled, Spelling, ZONES, Zone};
use super::table::{DEEDS, Form, INTO_ROOTS, INTO_TREE, ORDINARY, PRIVILEGED, Privileged, SOCKETS, Via};
use std::fmt::Write;
use std::fs;

/// Numbers that one seed gives (Vigna's SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// What a record must say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    pub axis: &'static str,
    pub mechanism: &'static str,
    pub operation: String,
    pub object: String,
    pub errno: String,
    /// The notifier's rule.
    pub rule: String,
}

/// One act.
#[derive(Debug)]
pub struct Act {
    pub id: usize,
    /// What it is, for messages.
    pub what: String,
    pub via: Via,
    zone: Option<Zone>,
    /// Its lines for the trees `a` and `b`.
    lines: [String; 2],
    /// What it must give.
    pub errno: String,
    /// The record that it must make.
    pub denial: Option<Wanted>,
}

impl Act {
    /// The line for a tree.
    pub fn line(&self, tree: char) -> &str {
        &self.lines[usize::from(tree == 'b')]
    }

    /// The kind of directory that it is done in.
    pub fn place(&self) -> Option<(Zone, usize)> {
        self.zone.map(|zone| (zone, self.id))
    }
}

/// The command's ids, which are the same number, and what this kernel protects (proc_sys_fs(5)).
pub struct Setting {
    pub user: u32,
    /// Whether the policy leaves trees as they are, and other axes open.
    pub only_privilege: bool,
    hardlinks: bool,
    regular: bool,
}

impl Setting {
    pub fn of_this_kernel(user: u32, only_privilege: bool) -> Setting {
        let is_on = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/fs/protected_{name}")).expect("proc_sys_fs(5)");
            text.trim() != "0"
        };
        Setting { user, only_privilege, hardlinks: is_on("hardlinks"), regular: is_on("regular") }
    }
}

/// Draws a script.
pub fn draw(seed: u64, count: usize, setting: &Setting) -> Vec<Act> {
    let mut draw = Draw(seed);
    let mut acts = Vec::new();
    while acts.len() < count {
        let id = acts.len();
        let act = match draw.below(100) {
            _ if setting.only_privilege => deed(&mut draw, id, setting),
            0..78 => deed(&mut draw, id, setting),
            78..88 => Some(plain(&mut draw, id, setting)),
            88..92 => Some(ordinary(&mut draw, id, setting)),
            92..95 => Some(set_id(&mut draw, id)),
            _ => Some(network(&mut draw, id)),
        };
        acts.extend(act);
    }
    acts
}

const HOWS: [&str; 4] = ["direct", "thread", "child", "grandchild"];

/// A deed in some directory, or nothing where the draw fits none.
fn deed(draw: &mut Draw, id: usize, setting: &Setting) -> Option<Act> {
    let deed = draw.of(DEEDS);
    let form = *draw.of(deed.forms);
    let (zone, mut spelling) = (*draw.of(&ZONES), *draw.of(&SPELLINGS));
    let (via, operation, layout) = form;
    let mut how = *draw.of(&HOWS);
    if via == Via::Sh && how == "thread" {
        how = "child";
    }
    // What the directory is under this policy.
    let is = match zone {
        Zone::TreeOwn | Zone::Kept if setting.only_privilege => Zone::Own,
        Zone::TreeRoot if setting.only_privilege => Zone::Root,
        zone => zone,
    };
    if setting.only_privilege && [INTO_TREE, INTO_ROOTS].contains(&deed.objects.1) {
        return None;
    }
    let mut errno = (deed.errno)(is)?;
    let words: Vec<&str> = layout.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    let descriptor = words.iter().find_map(|word| descriptor_of(word));
    if layout.contains("IN_ROOT") {
        spelling = Spelling::AtFd;
    }
    if layout.contains("BENEATH") {
        spelling = *draw.of(&[Spelling::Here, Spelling::Above, Spelling::AtFd]);
    }
    if deed.name.ends_with("-by-another-family") {
        // A shorter address is refused for its length.
        spelling = *draw.of(&[Spelling::Absolute, Spelling::Winding, Spelling::Linked, Spelling::OwnRoot]);
    }
    let allowed = match spelling {
        Spelling::AtFd => has("D") && via != Via::Sh,
        Spelling::ObjectsFd => {
            deed.by_link && has("P") && !layout.contains(['%', 'Q']) && deed.objects.0 == "file" && via != Via::Sh
        }
        Spelling::FromProc | Spelling::OwnFd | Spelling::OwnThreadsFd | Spelling::DevFd | Spelling::LinkedFd => {
            via != Via::Sh && operation != "chroot"
        }
        // Threads of Python share their working directory.
        Spelling::Long => (via != Via::Python || how != "thread") && deed.name != "a-name-too-long",
        Spelling::Here | Spelling::Above | Spelling::OwnCwd | Spelling::LinkedCwd => {
            via != Via::Python || how != "thread"
        }
        _ => true,
    };
    // A call has one descriptor here.
    let free = spell_takes_descriptor(spelling) && descriptor.is_some();
    if !allowed || free {
        return None;
    }
    let to_socket = has("A") || words.first() == Some(&"connect");
    let name = if deed.by_link && has("P") && draw.below(4) == 0 { "link" } else { deed.objects.0 };
    let alternatives = draw.next();
    let lines = ['a', 'b'].map(|tree| {
        let mut spelled = place::spell(spelling, zone, tree, id, deed.objects.0);
        let directory = place::directory(zone, tree, id);
        let opened = if deed.objects.0 == "socket" { "file" } else { deed.objects.0 };
        if let Some(descriptor) = descriptor {
            spelled.descriptor = match descriptor {
                "r" | "p" => format!("{descriptor}:{directory}/{opened}"),
                socket => socket.to_owned(),
            };
        }
        let elsewhere = elsewhere(deed.objects.1, tree, id);
        let names = [name, elsewhere.as_deref().unwrap_or(deed.objects.1)];
        line(id, how, via, operation, &spelled, &words, names, &mut Draw(alternatives), setting)
    });
    if to_socket && lines.iter().any(|line| line.len() > 180) {
        return None;
    }
    let operation = actual(operation, via, spelling == Spelling::AtFd && has("D"));
    let directory = place::directory(zone, 'a', id);
    let mut binds_root = deed.binds_root || is.binds_root(errno);
    if deed.name == "link" && is == Zone::Root && !setting.hardlinks {
        errno = "EACCES";
    }
    if setting.regular && zone == Zone::Sticky && deed.objects.0 == "file" && makes(&lines[0], form) && errno == "ok" {
        // Of a third one's file in root's directory (proc_sys_fs(5), protected_regular).
        (errno, binds_root) = ("EACCES", true);
    }
    if deed.objects.1 == INTO_ROOTS {
        binds_root = false;
    }
    let is_refusal = matches!(errno, "EROFS" | "EACCES" | "EPERM") && !binds_root;
    let filesystem = match deed.objects.1 {
        INTO_TREE | INTO_ROOTS => errno == "EROFS",
        _ => is.is_read_only() && !deed.ordinary,
    };
    let at = |name: &str| if name == "." { directory.clone() } else { format!("{directory}/{name}") };
    let mut object = at(deed.leads_to.unwrap_or(deed.objects.0));
    if !deed.objects.1.is_empty() {
        let to = elsewhere(deed.objects.1, 'a', id).unwrap_or_else(|| at(deed.objects.1));
        write!(object, " -> {to}").expect("a String takes all");
    } else if deed.name == "make-symlink" {
        write!(object, " -> {}", if layout.contains("/etc/passwd") { "/etc/passwd" } else { "text" })
            .expect("a String takes all");
    }
    if operation == "chroot" {
        object = lines[0].rsplit('\t').next().unwrap_or_default().to_owned();
    }
    let denial = is_refusal.then(|| Wanted {
        axis: if filesystem { "filesystem" } else { "privilege" },
        mechanism: "notifier",
        operation: operation.to_owned(),
        object,
        errno: errno.to_owned(),
        rule: match filesystem {
            true => "read-only",
            false if operation == "chroot" => "capability",
            false => "permission",
        }
        .to_owned(),
    });
    let what = format!("{} ({operation}) {zone:?} {spelling:?} {via:?} {how}", deed.name);
    Some(Act { id, what, via, zone: Some(zone), lines, errno: errno.to_owned(), denial })
}

fn elsewhere(second: &str, tree: char, id: usize) -> Option<String> {
    let zone = match second {
        INTO_TREE => Zone::TreeOwn,
        INTO_ROOTS => Zone::Root,
        _ => return None,
    };
    Some(format!("{}/{id}-new", zone.top(tree)))
}

fn spell_takes_descriptor(spelling: Spelling) -> bool {
    use Spelling::*;
    matches!(spelling, LinkedFd | FromProc | OwnFd | OwnThreadsFd | DevFd | ObjectsFd | AtFd)
}

/// What a word asks to be opened before: by the letter of acts.c, or a socket.
fn descriptor_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "F" => "r",
        "O" => "p",
        "S" => "s:unix:stream",
        "G" => "s:unix:dgram",
        "N" => "s:inet:stream",
        "M" => "s:inet6:stream",
        "U" => "s:inet:dgram",
        _ => return None,
    })
}

/// Whether an open would make the file.
fn makes(line: &str, form: Form) -> bool {
    let (via, operation, layout) = form;
    match via {
        Via::C => operation == "creat" || layout.contains("CREAT") && line.split(['\t', ':']).any(has_creat),
        Via::Python => layout.ends_with(" w") || layout.ends_with(" a"),
        Via::Sh => layout.starts_with(": >"),
    }
}

fn has_creat(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|flags| flags & libc::O_CREAT as u64 != 0)
}

/// The system call that comes of it.
fn actual(operation: &'static str, via: Via, at: bool) -> &'static str {
    match (via, operation, at) {
        (_, "fssetxattr", _) => "ioctl",
        (Via::Python, "mkdir", true) => "mkdirat",
        (Via::Python, "unlink", true) => "unlinkat",
        (Via::Python, "symlink", true) => "symlinkat",
        (Via::Python, "link", true) => "linkat",
        (Via::Python, "rename", true) => "renameat",
        (Via::Python, "chmod", true) => "fchmodat",
        (_, operation, _) => operation,
    }
}

/// The line for an interpreter.
#[expect(clippy::too_many_arguments, reason = "all that makes a line")]
fn line(
    id: usize,
    how: &str,
    via: Via,
    call: &str,
    spelled: &Spelled,
    words: &[&str],
    names: [&str; 2],
    draw: &mut Draw,
    setting: &Setting,
) -> String {
    let words: Vec<String> = words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| match *word {
            "P" | "LONG" => named(spelled, names[0]),
            "Q" if names[1].starts_with('/') => names[1].to_owned(),
            "Q" => spelled.name(names[1]),
            "D" => spelled.base.to_owned(),
            "A" => format!("unix:{}", spelled.name(names[0])),
            "UID" | "GID" => setting.user.to_string(),
            ":GID" => format!(":{}", setting.user),
            word if descriptor_of(word).is_some() => "@".to_owned(),
            word if word.starts_with('%') => spelled.name(&word[1..]),
            word if word.starts_with("how:") => {
                let parts: Vec<String> = word[4..].split(':').map(|part| numeral(choose(part, draw))).collect();
                parts.join(":")
            }
            word if word.starts_with('/') => word.to_owned(),
            word => numeral(choose(word, draw)),
        })
        .collect();
    match via {
        Via::Sh => shell_line(id, how, &spelled.cwd, &words),
        Via::C => fields(id, how, spelled, call, &words),
        Via::Python => fields(id, how, spelled, &words[0], &words[1..]),
    }
}

fn named(spelled: &Spelled, name: &str) -> String {
    if name == "LONG" { spelled.name(&"n".repeat(256)) } else { spelled.name(name) }
}

fn fields(id: usize, how: &str, spelled: &Spelled, call: &str, words: &[String]) -> String {
    let mut line = format!("{id}\t{how}\t{}\t{}\t{call}", spelled.cwd, spelled.descriptor);
    words.iter().for_each(|word| write!(line, "\t{word}").expect("a String takes all"));
    line
}

/// The shell says who it is, then is the program, whose message tells the errno.
fn shell_line(id: usize, how: &str, cwd: &str, words: &[String]) -> String {
    let command = match words {
        [colon, redirection, path] if colon == ":" => format!(": {redirection} '{path}'"),
        words => format!("exec {}", words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")),
    };
    let cwd = if cwd == "-" { "/" } else { cwd };
    let starts = match how {
        "direct" => "sh -c",
        "child" => "sh -c '\"$@\"; true' - sh -c",
        _ => "setsid -w sh -c '\"$@\"; true' - sh -c",
    };
    let quoted = format!("printf \"%s\\t%s\\t\" {id} $$; exec 2>&1; {command}").replace('\'', "'\\''");
    format!("(cd '{cwd}' && exec {starts} '{quoted}'); echo")
}

fn choose<'a>(word: &'a str, draw: &mut Draw) -> &'a str {
    let all: Vec<&str> = word.split('/').collect();
    all[draw.below(all.len())]
}

/// Names of flags, joined by `+`, as a number; what is none stays as it is.
fn numeral(word: &str) -> String {
    let flags: Option<Vec<u64>> = word.split('+').map(flag).collect();
    flags.map_or_else(|| word.to_owned(), |flags| flags.into_iter().fold(0, |all, flag| all | flag).to_string())
}

fn flag(name: &str) -> Option<u64> {
    let flag = match name {
        "RDONLY" => libc::O_RDONLY,
        "WRONLY" => libc::O_WRONLY,
        "RDWR" => libc::O_RDWR,
        "CREAT" => libc::O_CREAT,
        "EXCL" => libc::O_EXCL,
        "TRUNC" => libc::O_TRUNC,
        "APPEND" => libc::O_APPEND,
        "NONBLOCK" => libc::O_NONBLOCK,
        "DSYNC" => libc::O_DSYNC,
        "DIRECTORY" => libc::O_DIRECTORY,
        "NOFOLLOW" => libc::O_NOFOLLOW,
        "NOATIME" => libc::O_NOATIME,
        "NOCTTY" => libc::O_NOCTTY,
        "CLOEXEC" => libc::O_CLOEXEC,
        "PATH" => libc::O_PATH,
        "TMPFILE" => libc::O_TMPFILE,
        // RESOLVE_* of openat2(2).
        "NO_MAGICLINKS" => 0x02,
        "NO_SYMLINKS" => 0x04,
        "BENEATH" => 0x08,
        "IN_ROOT" => 0x10,
        _ => return None,
    };
    Some(flag as u64)
}

/// What stands around an act without names.
fn bare(descriptor: &str) -> Spelled {
    let mut spelled = place::spell(Spelling::Absolute, Zone::Own, 'a', 0, "");
    spelled.descriptor = descriptor.to_owned();
    spelled
}

fn without_names(id: usize, how: &'static str, call: &str, layout: &str, setting: &Setting) -> [String; 2] {
    let words: Vec<&str> = layout.split(' ').collect();
    let descriptor = words.iter().find_map(|word| descriptor_of(word));
    let descriptor = descriptor.unwrap_or(if words.contains(&"@") { "D:/tmp" } else { "-" });
    let line = line(id, how, Via::C, call, &bare(descriptor), &words, ["", ""], &mut Draw(0), setting);
    [line.clone(), line]
}

fn plain(draw: &mut Draw, id: usize, setting: &Setting) -> Act {
    let socket = draw.below(8) == 0;
    let Privileged(call, layout, errno, object, rule) = draw.of(if socket { SOCKETS } else { PRIVILEGED });
    let how = *draw.of(&HOWS);
    let operation = if matches!(*call, "i386" | "x32") { "abi" } else { call };
    let denial = Wanted {
        axis: if socket { "network" } else { "privilege" },
        mechanism: "notifier",
        operation: operation.to_owned(),
        object: object.unwrap_or_default().to_owned(),
        errno: (*errno).to_owned(),
        rule: (*rule).to_owned(),
    };
    Act {
        id,
        what: format!("{call} {layout} {how}"),
        via: Via::C,
        zone: None,
        lines: without_names(id, how, call, layout, setting),
        errno: (*errno).to_owned(),
        denial: Some(denial),
    }
}

fn ordinary(draw: &mut Draw, id: usize, setting: &Setting) -> Act {
    let (call, layout, errno) = draw.of(ORDINARY);
    // What may change the caller has a process of its own.
    let how = *draw.of(&HOWS[2..]);
    Act {
        id,
        what: format!("{call} {layout} {how}"),
        via: Via::C,
        zone: None,
        lines: without_names(id, how, call, layout, setting),
        errno: (*errno).to_owned(),
        denial: None,
    }
}

/// Programs, made by the test, and whether they have bits that are without effect.
pub const PROGRAMS: [(&str, &str, bool); 6] = [
    ("/usr/local/lib/acts/set-uid", "u+s", true),
    ("/usr/local/lib/acts/set-gid", "g+s", true),
    ("/usr/local/lib/acts/capable", "", true),
    ("/usr/local/lib/acts/plain", "", false),
    // A lock's mark, not a set-gid bit (inode(7)), and what the kernel takes for no program.
    ("/usr/local/lib/acts/locked", "g+s,g-x", false),
    ("/usr/local/lib/acts/closed", "u+s,a-x", false),
];

fn set_id(draw: &mut Draw, id: usize) -> Act {
    let (path, _, gives) = draw.of(&PROGRAMS);
    let how = *draw.of(&HOWS[2..]);
    let line = fields(id, how, &bare("-"), "execve", &[(*path).to_owned()]);
    Act {
        id,
        what: format!("execve {path} {how}"),
        via: Via::C,
        zone: None,
        lines: [line.clone(), line],
        errno: if path.ends_with("closed") { "EACCES" } else { "ok" }.to_owned(),
        denial: gives.then(|| Wanted {
            axis: "privilege",
            mechanism: "notifier",
            operation: "execve".to_owned(),
            object: (*path).to_owned(),
            errno: String::new(),
            rule: "set-id".to_owned(),
        }),
    }
}

fn network(draw: &mut Draw, id: usize) -> Act {
    const ADDRESSES: [&str; 4] = ["10.0.0.5", "169.254.169.254", "11.22.33.44", "168.63.129.16"];
    let to = *draw.of(&ADDRESSES);
    let udp = draw.below(2) == 0;
    let how = *draw.of(&HOWS);
    let ports = [20_000 + id, 40_000 + id];
    let (via, lines) = match draw.below(3) {
        0 => (
            Via::Python,
            ports.map(|port| {
                let function = if udp { "udp" } else { "tcp" };
                fields(id, how, &bare("-"), function, &[to.to_owned(), port.to_string()])
            }),
        ),
        1 if draw.below(3) == 0 => return proxied(draw, id),
        _ => (
            Via::C,
            ports.map(|port| {
                let address = format!("inet:{to}:{port}");
                match udp {
                    true => {
                        fields(id, how, &bare("s:inet:dgram"), "sendto", &["@", "x", "0", &address].map(str::to_owned))
                    }
                    false => fields(id, how, &bare("s:inet:stream"), "connect", &["@", &address].map(str::to_owned)),
                }
            }),
        ),
    };
    let errno = if udp { "EPERM" } else { "ECONNREFUSED" };
    let denial = Wanted {
        axis: "network",
        mechanism: "firewall",
        operation: if udp { "udp" } else { "tcp" }.to_owned(),
        object: format!("{to} {}", ports[0]),
        errno: errno.to_owned(),
        rule: String::new(),
    };
    let what = format!("{} {to} {via:?} {how}", denial.operation);
    Act { id, what, via, zone: None, lines, errno: errno.to_owned(), denial: Some(denial) }
}

/// By the proxy, to a name that it does not admit, or does.
fn proxied(draw: &mut Draw, id: usize) -> Act {
    let admitted = draw.below(2) == 0;
    let (host, how) = (if admitted { "pypi.org" } else { "stranger.example.org" }, *draw.of(&HOWS));
    let lines = ['a', 'b'].map(|tree| {
        let host = if admitted { format!("{host}:443") } else { format!("{tree}{id}.{host}:443") };
        fields(id, how, &bare("-"), "proxy", &[host])
    });
    let denial = Wanted {
        axis: "network",
        mechanism: "proxy",
        operation: "CONNECT".to_owned(),
        object: format!("a{id}.{host}"),
        errno: "403".to_owned(),
        rule: String::new(),
    };
    Act {
        id,
        what: format!("proxy {host} {how}"),
        via: Via::Python,
        zone: None,
        lines,
        errno: if admitted { "ok" } else { "403" }.to_owned(),
        denial: (!admitted).then_some(denial),
    }
}
