//! What is to be expected of each act, written down from the kernel's manual and its source, not from ringfence.

use super::place::Zone;
use Zone::*;

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The static program, by the system call's own name.
    C,
    /// Python's `os`.
    Python,
    /// A program that a shell starts, or the shell itself.
    Sh,
}

/// One form of an act: who does it, by which system call, and with which words. Of the words `P` is a name of the object,
/// `Q` one of the second object, `D` what a name is relative to, `F` a descriptor of the object, `A` an address of the
/// object, `R` the object's absolute path without its first slash. Alternatives are parted by `/`, flags joined by `+`.
pub type Form = (Via, &'static str, &'static str);

/// What is done to an object in a directory, in all forms, and the errno for each kind of directory.
pub struct Deed {
    pub name: &'static str,
    /// The names of the object and of the second one.
    pub objects: (&'static str, &'static str),
    pub forms: &'static [Form],
    pub errno: fn(Zone) -> Option<&'static str>,
    /// Whether it is refused by ordinary permission wherever the object lies.
    pub ordinary: bool,
    /// Whether root would be refused as well.
    pub binds_root: bool,
    /// Whether a last component that is a link to the object will do.
    pub by_link: bool,
    /// The name of what is recorded, where a link leads from the object to it.
    pub leads_to: Option<&'static str>,
}

impl Deed {
    pub const fn new(
        name: &'static str,
        object: &'static str,
        forms: &'static [Form],
        errno: fn(Zone) -> Option<&'static str>,
    ) -> Deed {
        Deed {
            name,
            objects: (object, ""),
            forms,
            errno,
            ordinary: false,
            binds_root: false,
            by_link: false,
            leads_to: None,
        }
    }

    pub const fn with(self, second: &'static str) -> Deed {
        Deed { objects: (self.objects.0, second), ..self }
    }

    pub const fn ordinary(self) -> Deed {
        Deed { ordinary: true, ..self }
    }

    pub const fn binds_root(self) -> Deed {
        Deed { binds_root: true, ..self }
    }

    pub const fn leads_to(self, name: &'static str) -> Deed {
        Deed { leads_to: Some(name), ..self }
    }

    pub const fn by_link(self) -> Deed {
        Deed { by_link: true, ..self }
    }
}

pub const OK: Option<&str> = Some("ok");
pub const EROFS: Option<&str> = Some("EROFS");
pub const EACCES: Option<&str> = Some("EACCES");
pub const EPERM: Option<&str> = Some("EPERM");

/// What needs the right to write a file that is there.
pub fn written(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot => EROFS,
        // Its mode is looked at before its mount.
        TreeRoot | Root => EACCES,
        Sticky | Own => OK,
        Immutable | Growing => EPERM,
    }
}

/// The same, where the mount is looked at first.
pub fn rewritten(zone: Zone) -> Option<&'static str> {
    if zone == TreeRoot { EROFS } else { written(zone) }
}

/// What needs the right to write the directory.
pub fn made(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot | TreeRoot => EROFS,
        Root => EACCES,
        Sticky | Own | Immutable | Growing => OK,
    }
}

/// What takes away a name that is another's, in a directory where that matters.
pub fn taken(zone: Zone) -> Option<&'static str> {
    if zone == Sticky { EPERM } else { written_or_made(zone) }
}

pub fn written_or_made(zone: Zone) -> Option<&'static str> {
    match zone {
        Immutable | Growing => EPERM,
        zone => made(zone),
    }
}

/// What only the owner may do.
pub fn owned(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | Kept | Image | ImageRoot | TreeRoot => EROFS,
        Root | Sticky | Immutable | Growing => EPERM,
        Own => OK,
    }
}

pub fn only(zone: Zone, zones: &[Zone], errno: Option<&'static str>) -> Option<&'static str> {
    zones.contains(&zone).then_some(errno).flatten()
}

/// Every errno that is no refusal, wherever the act is done.
pub fn everywhere(errno: Option<&'static str>, zone: Zone) -> Option<&'static str> {
    if matches!(zone, Immutable | Growing) { None } else { errno }
}

/// Second objects elsewhere: a name that is free in a directory of another kind.
pub const INTO_TREE: &str = "(tree)";
pub const INTO_ROOTS: &str = "(root)";

/// A name that is not there, in a call that looks at the mount first.
pub fn gone(zone: Zone) -> Option<&'static str> {
    match zone {
        TreeOwn | TreeRoot | Kept | Image | ImageRoot => EROFS,
        _ => Some("ENOENT"),
    }
}
