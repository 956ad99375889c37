//! A script of acts: drawn from the table, spelled, and what each must give.

use super::changes::CHANGES;
use super::line::{actual, descriptor_of, line, makes};
use super::names::NAMES;
use super::place::{self, SPELLINGS, Spelling, ZONES, Zone};
use super::plain::{network, ordinary, plain, set_id};
use super::table::{Deed, Form, INTO_ROOTS, INTO_TREE, Via};
use std::fmt::Write;
use std::fs;

/// Numbers that one seed gives (Vigna's SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
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
    pub zone: Option<Zone>,
    /// Its lines for the trees `a` and `b`.
    pub lines: [String; 2],
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

pub const HOWS: [&str; 4] = ["direct", "thread", "child", "grandchild"];

/// How a deed is done: in which form, where, by which names and by whom.
#[derive(Clone, Copy)]
pub struct Manner {
    pub form: Form,
    pub zone: Zone,
    pub spelling: Spelling,
    pub how: &'static str,
    /// Whether the last component may be a link to the object, where that will do.
    pub by_link: bool,
    /// Which of a form's alternatives.
    pub alternatives: u64,
}

/// A deed in some directory, or nothing where the draw fits none.
fn deed(draw: &mut Draw, id: usize, setting: &Setting) -> Option<Act> {
    let deed = *draw.of(&NAMES.iter().chain(CHANGES).collect::<Vec<_>>());
    let form = *draw.of(deed.forms);
    let (zone, mut spelling) = (*draw.of(&ZONES), *draw.of(&SPELLINGS));
    let how = *draw.of(&HOWS);
    if form.2.contains("BENEATH") {
        spelling = *draw.of(&[Spelling::Here, Spelling::Above, Spelling::AtFd]);
    }
    if deed.name.ends_with("-by-another-family") {
        spelling = *draw.of(&[Spelling::Absolute, Spelling::Winding, Spelling::Linked, Spelling::OwnRoot]);
    }
    let manner = Manner { form, zone, spelling, how, by_link: draw.below(4) == 0, alternatives: draw.next() };
    done(deed, manner, id, setting)
}

/// The act that a deed is in a manner, or nothing where it can't be done so.
pub fn done(deed: &Deed, manner: Manner, id: usize, setting: &Setting) -> Option<Act> {
    let Manner { form, zone, mut spelling, mut how, by_link, alternatives } = manner;
    let (via, operation, layout) = form;
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
    if layout.contains("BENEATH") && !matches!(spelling, Spelling::Here | Spelling::Above | Spelling::AtFd) {
        return None;
    }
    // A shorter address is refused for its length.
    let long = [Spelling::Absolute, Spelling::Winding, Spelling::Linked, Spelling::OwnRoot];
    if deed.name.ends_with("-by-another-family") && !long.contains(&spelling) {
        return None;
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
    let name = if deed.by_link && has("P") && by_link { "link" } else { deed.objects.0 };
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
